// Package cudatest is the device on which the kernels of kernels/cuda are tested: a
// process that runs their source as the host's compiler compiles it. See
// kernels/cuda/emulation.
package cudatest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"unsafe"

	"vapp.dev/kernels/cuda"
)

// Device is one process. It is for one goroutine.
type Device struct {
	cmd      *exec.Cmd
	in       *bufio.Writer
	pipe     io.Closer
	out      *bufio.Reader
	stderr   strings.Builder
	schedule uint64
	launched func(kernel string) // told of every launch that ended well; nil: nobody is
}

// Grid is the shape of a launch: blocks, threads of one, bytes of shared memory.
type Grid struct {
	Blocks, Threads [3]int
	Shared          int
}

// Line is blocks of threads in one dimension.
func Line(blocks, threads int) Grid {
	return Grid{Blocks: [3]int{blocks, 1, 1}, Threads: [3]int{threads, 1, 1}}
}

// Schedules are the orders in which threads run: forward, backward, the lowest and the
// highest warp as far as it can, shuffled. What a kernel computes depends on none.
var Schedules = [...]uint64{0, 1, 2, 3, 77}

// open starts the process of the binary at path.
func open(path string) (*Device, error) {
	d := &Device{cmd: exec.Command(path)}
	in, err := d.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	d.cmd.Stderr = &d.stderr
	d.in, d.pipe, d.out = bufio.NewWriterSize(in, 1<<16), in, bufio.NewReaderSize(out, 1<<16)
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	return d, nil
}

// Close ends the process.
func (d *Device) Close() error {
	d.pipe.Close()
	return d.cmd.Wait()
}

// Schedule chooses one of Schedules for the launches that follow.
func (d *Device) Schedule(s uint64) { d.schedule = s }

func (d *Device) put(values ...uint64) {
	for _, v := range values {
		binary.Write(d.in, binary.LittleEndian, v)
	}
}

// answer reads len(p) bytes. The error says what the process wrote before it ended.
func (d *Device) answer(p []byte) error {
	err := d.in.Flush()
	if err == nil {
		_, err = io.ReadFull(d.out, p)
	}
	if err == nil {
		return nil
	}
	d.pipe.Close()
	if end := d.cmd.Wait(); end != nil {
		return fmt.Errorf("%w: %s", end, strings.TrimSpace(d.stderr.String()))
	}
	return err
}

// Alloc takes n bytes, which are 0xff.
func (d *Device) Alloc(n int) (cuda.Ptr, error) {
	var p [8]byte
	d.in.WriteByte('a')
	d.put(uint64(n))
	err := d.answer(p[:])
	return cuda.Ptr(binary.LittleEndian.Uint64(p[:])), err
}

// Free gives back what Alloc took.
func (d *Device) Free(p cuda.Ptr) {
	d.in.WriteByte('f')
	d.put(uint64(p))
}

// Write copies data to the device.
func (d *Device) Write(p cuda.Ptr, data []byte) {
	d.in.WriteByte('w')
	d.put(uint64(p), uint64(len(data)))
	d.in.Write(data)
}

// Read copies from the device to data.
func (d *Device) Read(p cuda.Ptr, data []byte) error {
	d.in.WriteByte('r')
	d.put(uint64(p), uint64(len(data)))
	return d.answer(data)
}

// Launch runs a kernel and waits for it. The error is what ended the process: a wrong
// access, threads at different barriers.
func (d *Device) Launch(kernel string, g Grid, args []byte) error {
	d.in.WriteByte('l')
	d.name(cuda.Prefix + kernel)
	for _, n := range append(g.Blocks[:], g.Threads[:]...) {
		d.put(uint64(n))
	}
	d.put(uint64(g.Shared), d.schedule, uint64(len(args)))
	d.in.Write(args)
	err := d.answer(make([]byte, 1))
	if err == nil && d.launched != nil {
		d.launched(kernel)
	}
	return err
}

// Tell has f told of every launch that ends well.
func (d *Device) Tell(f func(kernel string)) { d.launched = f }

func (d *Device) name(s string) {
	d.put(uint64(len(s)))
	d.in.WriteString(s)
}

// Kernels lists what the process can launch, with the bytes of their arguments.
func (d *Device) Kernels() (map[string]int, error) {
	d.in.WriteByte('k')
	var p [8]byte
	number := func() (int, error) {
		err := d.answer(p[:])
		return int(binary.LittleEndian.Uint64(p[:])), err
	}
	n, err := number()
	out := map[string]int{}
	for range n {
		length, err := number()
		if err != nil {
			return nil, err
		}
		name := make([]byte, length)
		if err := d.answer(name); err != nil {
			return nil, err
		}
		if out[strings.TrimPrefix(string(name), cuda.Prefix)], err = number(); err != nil {
			return nil, err
		}
	}
	return out, err
}

// Bytes is how the elements of s lie in memory.
func Bytes[T any](s []T) []byte {
	var z T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(z)))
}

// Struct is how *v lies in memory.
func Struct[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }

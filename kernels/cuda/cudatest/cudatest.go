// Package cudatest provides the device on which tests run the kernels of kernels/cuda: a
// process with the kernels' source, compiled by the host's compiler. See
// kernels/cuda/emulation.
//
// It must not know what a kernel computes. Start reading at Open in compile.go and
// Device.Launch.
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

// Device is one such process. Only one goroutine may use it.
type Device struct {
	cmd      *exec.Cmd
	in       *bufio.Writer
	pipe     io.Closer
	out      *bufio.Reader
	stderr   strings.Builder
	schedule uint64
	launched func(kernel string) // called after every successful launch; or nil
}

// Grid is the shape of a launch: blocks, threads of a block, bytes of shared memory.
type Grid struct {
	Blocks, Threads [3]int
	Shared          int
}

// Line returns blocks of threads in one dimension.
func Line(blocks, threads int) Grid {
	return Grid{Blocks: [3]int{blocks, 1, 1}, Threads: [3]int{threads, 1, 1}}
}

// Schedules are the orders in which threads run: forward, backward, the lowest and the highest
// warp as far as it can, shuffled. A kernel's result must not depend on the order.
var Schedules = [...]uint64{0, 1, 2, 3, 77}

// open starts the binary at path.
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

// Schedule selects one of Schedules for the next launches.
func (d *Device) Schedule(s uint64) { d.schedule = s }

// E4M3Bits sets how many bits of sums of products of E4M3 the matrix units keep; 0: all.
// kernels/ref (SumBitsE4M3) describes such units.
func (d *Device) E4M3Bits(n int) {
	d.in.WriteByte('b')
	d.put(uint64(n))
}

func (d *Device) put(values ...uint64) {
	for _, v := range values {
		binary.Write(d.in, binary.LittleEndian, v)
	}
}

// answer reads len(p) bytes. The error contains what the process printed before it ended.
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

// Alloc allocates n bytes, filled with 0xff.
func (d *Device) Alloc(n int) (cuda.Ptr, error) {
	var p [8]byte
	d.in.WriteByte('a')
	d.put(uint64(n))
	err := d.answer(p[:])
	return cuda.Ptr(binary.LittleEndian.Uint64(p[:])), err
}

// Free frees memory of Alloc.
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

// Launch runs a kernel and waits for it. The error is what ended the process, such as an
// invalid access or threads at different barriers.
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

// Prefetched returns the memory that the last launch prefetched before it could read any: address and bytes of each piece.
func (d *Device) Prefetched() ([][2]uint64, error) {
	d.in.WriteByte('p')
	var n [8]byte
	if err := d.answer(n[:]); err != nil {
		return nil, err
	}
	out := make([][2]uint64, binary.LittleEndian.Uint64(n[:]))
	return out, d.answer(Bytes(out))
}

// OnLaunch sets a function that is called after every successful launch.
func (d *Device) OnLaunch(f func(kernel string)) { d.launched = f }

func (d *Device) name(s string) {
	d.put(uint64(len(s)))
	d.in.WriteString(s)
}

// Kernels returns the kernels of the process, with the bytes of their arguments.
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

// Bytes returns the memory of the elements of s.
func Bytes[T any](s []T) []byte {
	var z T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(z)))
}

// Struct returns the memory of *v.
func Struct[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }

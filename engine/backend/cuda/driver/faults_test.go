//go:build linux && cgo && cuda

package driver

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cudatest"
)

// TestMachines starts a process for each case, because a process loads its driver once.
func TestMachines(t *testing.T) {
	if os.Getenv("DRIVER_TEST_MACHINE") != "" {
		_, err := Devices()
		if c := (*Context)(nil); err == nil {
			if c, err = Open(0); err == nil {
				err = c.Do(func() error { _, err := c.Load(nil); return err })
			}
		}
		t.Logf("%T: %v", err, err)
		return
	}
	path := cudatest.Driver(t)
	for _, c := range []struct{ library, settings, want string }{
		{path, "", "<nil>"},
		{path + ".none", "", "*driver.NoDriver: no CUDA driver on this machine ("},
		{"libm.so.6", "", "*driver.NoDriver: no CUDA driver on this machine (the library named as CUDA's driver has no cuInit)"},
		{path, "driver=11080", "*cuda.DriverTooOld: the CUDA driver is for CUDA 11.8 and the kernels need 12.0, driver 525: update NVIDIA's driver"},
		{path, "driver=12000", "<nil>"},
		{path, "driver=12040,capability=10.0", "*cuda.DriverTooOld: the CUDA driver is for CUDA 12.4 and compute capability 10.0 needs 12.8, driver 570: update NVIDIA's driver"},
		{path, "driver=12080,capability=12.0", "<nil>"},
		{path, "driver=12080,capability=11.0", "*cuda.DriverTooOld: the CUDA driver is for CUDA 12.8 and compute capability 11.0 needs 12.9, driver 575"},
		{path, "driver=12090,capability=11.0", "<nil>"},
		{path, "devices=0", "*driver.NoDevice: "},
		{path, "fault=cuInit:1:100", "*driver.NoDevice: "},
		{path, "fault=cuInit:1:803", "*driver.Error: cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: "},
		{path, "mode=2", "*driver.BusyError: device 0, emulated GPU: busy: its compute mode lets no process in"},
		{path, "fault=cuDevicePrimaryCtxRetain:1:46", "*driver.BusyError: device 0, emulated GPU: busy: another process"},
		{path, "fault=cuDevicePrimaryCtxRetain:1:999", "*driver.Error: device 0, emulated GPU: cuDevicePrimaryCtxRetain: CUDA_ERROR_UNKNOWN: "},
		{path, "memory=1073741824,held=1073741824", "*driver.MemoryError: device 0, emulated GPU: 0.50 GiB are needed and 0.00 of 1.00 GiB are free"},
		{path, "memory=33554432", "*driver.MemoryError: device 0, emulated GPU: too small"},
		{path, "capability=7.5", "*driver.NoKernelError: device 0, emulated GPU: no kernel for compute capability 7.5"},
		{path, "sms=12,memroy=1,ecc=0", `emulated driver: VAPP_EMULATED: "memroy=1" is no setting`},
		{path, "ecc=0,memory=8G", `emulated driver: VAPP_EMULATED: "memory=8G" is no setting`},
		{path, "fault=cuInit:1:no", `emulated driver: VAPP_EMULATED: "fault=cuInit:1:no" is no setting`},
		{path, "hang=cuMemAlloc:0", `emulated driver: VAPP_EMULATED: "hang=cuMemAlloc:0" is no setting`},
		{path, "capability", `emulated driver: VAPP_EMULATED: "capability" is no setting`},
		{path, "fault=cuModuleLoadData:1:209", "*driver.NoKernelError: "},
		{path, "fault=cuModuleLoadData:1:2", "*driver.Error: device 0, emulated GPU: cuModuleLoadData: CUDA_ERROR_OUT_OF_MEMORY: "},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMachines$", "-test.v")
		cmd.Env = append(os.Environ(), "DRIVER_TEST_MACHINE=1", "VAPP_LIBCUDA="+c.library, "VAPP_EMULATED="+c.settings)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s %s: %v, want %q in\n%s", c.library, c.settings, err, c.want, out)
		}
	}
}

// TestOlderDrivers: a driver without the functions that are newer than 525 runs kernels and
// measures times, as one that has them. It starts a process for each driver.
func TestOlderDrivers(t *testing.T) {
	if settings := os.Getenv("DRIVER_TEST_OLDER"); settings != "" {
		c, s := open(t, settings)
		f := load(t, c, "add")
		want := 0
		for _, k := range cuda.Catalogue() {
			if k.Name == "add" {
				want = k.Args
			}
		}
		if f.Args() != want || want == 0 {
			t.Errorf("vapp_add takes %d bytes, want %d", f.Args(), want)
		}
		x, into := floats(t, c, s, []float32{1, 2, 3, 4}), floats(t, c, s, []float32{1, 1, 1, 1})
		l, err := NewList([]Launch{addition(t, f, x, into, 4)})
		must(t, err)
		start, err := c.Event()
		must(t, err)
		end, err := c.Event()
		must(t, err)
		must(t, errors.Join(s.Record(start), l.Run(s, 0, 1, [NumBound]int32{1}), s.Record(end), s.Wait(soon)))
		if got := fetch(t, s, into, 4); got[3] != 5 {
			t.Errorf("sum %v", got)
		}
		if _, err := end.Since(start); err != nil {
			t.Errorf("time between events: %v", err)
		}
		t.Logf("cuFuncLoad was called %d times", Counted("cuFuncLoad"))
		return
	}
	path := cudatest.Driver(t)
	for settings, want := range map[string]string{
		"driver=12000": "cuFuncLoad was called 0 times",
		"driver=12040": "cuFuncLoad was called 1 times",
		"driver=13000": "cuFuncLoad was called 1 times",
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestOlderDrivers$", "-test.v")
		cmd.Env = append(os.Environ(), "DRIVER_TEST_OLDER="+settings, "VAPP_LIBCUDA="+path)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, want %q in\n%s", settings, err, want, out)
		}
	}
}

// TestWildAccess: a kernel that reads unmapped memory makes its context unusable, as on a
// device, whatever thread its block ran on. The process continues, and Go still turns its own
// invalid accesses into panics.
func TestWildAccess(t *testing.T) {
	for _, settings := range []string{"threads=1", "threads=3"} {
		c, s := open(t, settings)
		f := load(t, c, "add")
		const cols = 64 * 256
		v := floats(t, c, s, make([]float32, cols))
		l, err := NewList([]Launch{addition(t, f, 4096, v, cols)})
		must(t, err)
		err = l.Run(s, 0, 1, [NumBound]int32{1})
		if err == nil {
			err = s.Wait(soon)
		}
		if e := (*Error)(nil); !errors.As(err, &e) || e.Code != 700 || e.Name != "CUDA_ERROR_ILLEGAL_ADDRESS" {
			t.Errorf("%s: %v", settings, err)
		}
		l.Close()
		c.Close()
	}
	defer func() {
		if recover() == nil {
			t.Error("an access of Go's to no memory is not its own any more")
		}
	}()
	var none *[1]int
	none[0]++
}

// TestLaunchErrors: the error of a launch is returned by the wait, names the device, and
// makes the context unusable.
func TestLaunchErrors(t *testing.T) {
	for code, want := range map[int]string{214: "CUDA_ERROR_ECC_UNCORRECTABLE", 700: "CUDA_ERROR_ILLEGAL_ADDRESS", 719: "CUDA_ERROR_LAUNCH_FAILED"} {
		c, s := open(t, "order=lazy")
		f := load(t, c, "add")
		v := floats(t, c, s, make([]float32, 512))
		l, err := NewList([]Launch{addition(t, f, v, v, 256), addition(t, f, v, v, 256), addition(t, f, v, v, 256)})
		must(t, err)
		must(t, Emulate("fault=kernel:2:"+map[int]string{214: "214", 700: "700", 719: "719"}[code]))
		must(t, l.Run(s, 0, 3, [NumBound]int32{1}))
		ran := Counted("kernel")
		err = s.Wait(soon)
		if e := (*Error)(nil); !errors.As(err, &e) || e.Code != code || e.Name != want || !e.Fatal() || !strings.Contains(e.Device, "emulated GPU") {
			t.Errorf("%d: %v", code, err)
		}
		if n := Counted("kernel") - ran; n != 2 {
			t.Errorf("%d: %d kernels ran, want none behind the one that failed", code, n)
		}
		for call, err := range map[string]error{"Run": l.Run(s, 0, 1, [NumBound]int32{1}), "Wait": s.Wait(soon), "Fill": s.Fill(v, 0, 4)} {
			if e := (*Error)(nil); !errors.As(err, &e) || e.Code != code {
				t.Errorf("%d: %s after it: %v", code, call, err)
			}
		}
		c.Close()
	}
}

// TestHung: waits for a kernel that never ends return an error after the limit, and no later
// work runs.
func TestHung(t *testing.T) {
	for _, order := range []string{"eager", "lazy"} {
		c, s := open(t, "order="+order)
		f := load(t, c, "add")
		v := floats(t, c, s, make([]float32, 512))
		l, err := NewList([]Launch{addition(t, f, v, v, 256)})
		must(t, err)
		e, err := c.Event()
		must(t, err)
		other, err := c.Stream()
		must(t, err)
		must(t, s.Wait(soon))
		must(t, Emulate("fault=kernel:1:600"))
		must(t, errors.Join(l.Run(s, 0, 1, [NumBound]int32{1}), s.Record(e), other.WaitFor(e)))
		start := time.Now()
		for what, wait := range map[string]func(time.Duration) error{"a stream": s.Wait, "an event": e.Wait, "a stream behind the event": other.Wait} {
			err := wait(20 * time.Millisecond)
			if h := (*HungError)(nil); !errors.As(err, &h) || h.Waited != 20*time.Millisecond || !strings.Contains(err.Error(), "emulated GPU: no answer for 20ms: ") {
				t.Errorf("%s, %s: %v", order, what, err)
			}
		}
		if d := time.Since(start); d < 60*time.Millisecond || d > 10*time.Second {
			t.Errorf("%s: three waits of 20 ms took %v", order, d)
		}
		must(t, Emulate("reset")) // impossible on a real device
		open(t, "")
	}
}

// TestIllegalKernels: kernels whose errors would fail on a device return an error here too.
func TestIllegalKernels(t *testing.T) {
	c, s := open(t, "")
	f := load(t, c, "add")
	v := floats(t, c, s, make([]float32, 255))
	l, err := NewList([]Launch{addition(t, f, v, v, 256)})
	must(t, err)
	must(t, l.Run(s, 0, 1, [NumBound]int32{1}))
	err = s.Wait(soon)
	if e := (*Error)(nil); !errors.As(err, &e) || e.Code != codeIllegalAddress || !e.Fatal() {
		t.Errorf("a write beyond an allocation: %v", err)
	}
	c.Close()

	c, s = open(t, "")
	f = load(t, c, "norm")
	// With threads that are no whole warps, a lane that the kernel's shuffles use does not
	// exist.
	x := floats(t, c, s, make([]float32, 4*64)) // a row for each block, which run at once
	args := make([]byte, f.Args())
	for i := range 8 {
		args[i] = byte(x >> (8 * i))
		args[40+i] = byte(x >> (8 * i))
	}
	args[48], args[52] = 64, 64
	l, err = NewList([]Launch{{Function: f, Blocks: [3]int{4, 1, 1}, Threads: [3]int{40, 1, 1}, Args: args}})
	must(t, err)
	must(t, l.Run(s, 0, 1, [NumBound]int32{}))
	err = s.Wait(soon)
	if e := (*Error)(nil); !errors.As(err, &e) || e.Code != codeLaunchFailed {
		t.Errorf("missing lanes: %v", err)
	}
}

func TestClosedContext(t *testing.T) {
	c, s := open(t, "")
	f := load(t, c, "add")
	v := floats(t, c, s, make([]float32, 256))
	l, err := NewList([]Launch{addition(t, f, v, v, 256)})
	must(t, err)
	must(t, c.Close())
	if err := l.Run(s, 0, 1, [NumBound]int32{1}); err == nil {
		t.Error("a launch on a closed context")
	}
	if err := s.Fill(v, 0, 4); err == nil {
		t.Error("a fill on a closed context")
	}
	if _, err := c.Alloc(8); err == nil {
		t.Error("an allocation on a closed context")
	}
	if n := Counted("bytes"); n != 0 {
		t.Errorf("%d bytes are still taken", n)
	}
}

// TestEnter: a context is current only on threads that entered it. Open does not enter.
func TestEnter(t *testing.T) {
	emulated(t, "")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, err := Open(0)
	must(t, err)
	defer c.Close()
	alloc := func() error {
		p, err := c.Alloc(8)
		if err != nil {
			return err
		}
		return c.Free(p)
	}
	none := errors.New("memory on a thread that did not enter")
	if alloc() == nil {
		t.Error(none)
	}
	must(t, c.Enter())
	must(t, alloc())
	done := make(chan error, 1)
	go func() {
		if alloc() == nil {
			done <- none
			return
		}
		done <- c.Do(alloc)
	}()
	must(t, <-done)
}

func TestPinned(t *testing.T) {
	c, s := open(t, "order=lazy")
	host, at, err := c.Pinned(4 * 256)
	must(t, err)
	f := load(t, c, "add")
	in := unsafe.Slice((*float32)(unsafe.Pointer(&host[0])), 256)
	for i := range in {
		in[i] = float32(i)
	}
	l, err := NewList([]Launch{addition(t, f, at, at, 256)})
	must(t, err)
	must(t, l.Run(s, 0, 1, [NumBound]int32{1}))
	e, err := c.Timer()
	must(t, err)
	start, err := c.Timer()
	must(t, err)
	must(t, s.Record(start))
	must(t, s.Record(e))
	if done, err := e.Query(); done || err != nil {
		t.Errorf("the event before anybody waited: %v %v", done, err)
	}
	must(t, e.Wait(soon))
	if in[3] != 6 {
		t.Errorf("%v behind the event", in[3])
	}
	if d, err := e.Since(start); d < 0 || err != nil {
		t.Errorf("%v %v", d, err)
	}
	must(t, c.FreePinned(host))
	if err := c.FreePinned(host); err == nil {
		t.Error("freed twice")
	}
}

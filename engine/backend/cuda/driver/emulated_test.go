//go:build linux && cgo && cuda

package driver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cudatest"
)

// soon is longer than any finite work takes.
const soon = time.Minute

// open opens the emulated device with settings, and a stream.
func open(t testing.TB, settings string) (*Context, *Stream) {
	t.Helper()
	emulated(t, settings)
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	c, err := Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	must(t, c.Enter())
	s, err := c.Stream()
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

// emulated makes the process use the emulated driver.
func emulated(t testing.TB, settings string) {
	t.Helper()
	if err := os.Setenv("VAPP_LIBCUDA", cudatest.Driver(t)); err != nil {
		t.Fatal(err)
	}
	if err := Emulate("reset," + settings); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Emulate("reset") })
}

// floats copies numbers to the device.
func floats(t testing.TB, c *Context, s *Stream, v []float32) Address {
	t.Helper()
	p, err := c.Alloc(int64(4 * len(v)))
	if err != nil {
		t.Fatal(err)
	}
	must(t, s.ToDevice(p, unsafe.Pointer(&v[0]), int64(4*len(v))))
	return p
}

func fetch(t testing.TB, s *Stream, p Address, n int) []float32 {
	t.Helper()
	out := make([]float32, n)
	must(t, s.FromDevice(unsafe.Pointer(&out[0]), p, int64(4*n)))
	must(t, s.Wait(soon))
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func load(t testing.TB, c *Context, name string) *Function {
	t.Helper()
	m, err := c.Load(nil)
	must(t, err)
	f, err := m.Function(cuda.Prefix + name)
	must(t, err)
	return f
}

// addition returns a launch of into += x over bound[0] rows of cols numbers.
func addition(t testing.TB, f *Function, x, into Address, cols int32) Launch {
	args := cuda.AddArgs{X: x, Into: into}
	return Launch{
		Function: f, Blocks: [3]int{1, 1, 1}, Threads: [3]int{256, 1, 1}, Args: slices.Clone(cudatest.Struct(&args)),
		Symbols: []Symbol{{At: int(unsafe.Offsetof(args.N)), Times: cols, Over: 1}, {At: -1, Times: cols, Over: 256}},
	}
}

func TestListRuns(t *testing.T) {
	c, s := open(t, "")
	f := load(t, c, "add")
	const cols = 100
	x, into := make([]float32, 10*cols), make([]float32, 10*cols)
	for i := range x {
		x[i], into[i] = float32(i), 1
	}
	dx, dinto := floats(t, c, s, x), floats(t, c, s, into)
	l, err := NewList([]Launch{addition(t, f, dx, dinto, cols), addition(t, f, dx, dinto, cols)})
	must(t, err)
	defer l.Close()
	check := func(what string, rows, times int) {
		t.Helper()
		for i, got := range fetch(t, s, dinto, len(into)) {
			want := into[i]
			if i < rows*cols {
				want += float32(times) * x[i]
			}
			if got != want {
				t.Fatalf("%s: element %d is %v, want %v", what, i, got, want)
			}
			into[i] = got
		}
	}
	must(t, l.Run(s, 0, 2, [NumBound]int32{7}))
	check("two launches of 7 rows", 7, 2)
	must(t, l.Run(s, 1, 2, [NumBound]int32{10}))
	check("one launch of 10 rows", 10, 1)
	before := Counted("cuLaunchKernel")
	must(t, l.Run(s, 0, 2, [NumBound]int32{0}))
	if n := Counted("cuLaunchKernel") - before; n != 0 {
		t.Errorf("%d launches without rows", n)
	}
	check("no row", 0, 0)
	binary.LittleEndian.PutUint64(l.Args(0), uint64(dinto))
	must(t, l.Run(s, 0, 1, [NumBound]int32{10}))
	for i := range x {
		x[i] = into[i]
	}
	check("patched", 10, 1)

	if err := l.Run(s, 0, 1, [NumBound]int32{math.MaxInt32}); err == nil || !strings.Contains(err.Error(), "vapp_add") {
		t.Errorf("too many rows: %v", err)
	}
	if n := testing.AllocsPerRun(10, func() { l.Run(s, 0, 2, [NumBound]int32{1}) }); n != 0 {
		t.Errorf("Run allocates %v times", n)
	}
}

// dependents returns how many launches were dependent while f ran.
func dependents(t *testing.T, f func() error) int64 {
	t.Helper()
	before := Counted("dependent")
	must(t, f())
	return Counted("dependent") - before
}

// TestDependentLaunches: kernels behind kernels of one run are launched so that they may begin before those have ended, also
// in graphs; others are not, nor any on a device or driver without such launches.
func TestDependentLaunches(t *testing.T) {
	for settings, want := range map[string]int64{
		"order=lazy": 2, "capability=10.0": 2, "capability=12.0": 2, "driver=12030": 2,
		"driver=12020": 0, "capability=8.0": 0, "capability=8.9": 0, "capability=11.0": 0,
	} {
		t.Run(settings, func(t *testing.T) {
			c, s := open(t, settings)
			if c.Dependent() != (want > 0) {
				t.Errorf("dependent launches: %v", c.Dependent())
			}
			f := load(t, c, "add")
			const cols = 100
			x := make([]float32, cols)
			x[3] = 1
			dx, dinto := floats(t, c, s, x), floats(t, c, s, x)
			one := addition(t, f, dx, dinto, cols)
			l, err := NewList([]Launch{one, one, one})
			must(t, err)
			defer l.Close()
			run := func() error { return l.Run(s, 0, 3, [NumBound]int32{1}) }
			if got := dependents(t, run); got != want {
				t.Errorf("%d of three launches are dependent, want %d", got, want)
			}
			if got := dependents(t, func() error {
				return errors.Join(l.Run(s, 0, 1, [NumBound]int32{1}), l.Run(s, 1, 2, [NumBound]int32{1}))
			}); got != 0 {
				t.Errorf("%d dependent launches at the begin of a run", got)
			}
			var g *Graph
			if got := dependents(t, func() (err error) { g, err = s.Capture(run); return err }); got != want {
				t.Errorf("%d of three captured launches are dependent, want %d", got, want)
			}
			must(t, errors.Join(g.Launch(s), g.Launch(s)))
			if got := fetch(t, s, dinto, 4); got[3] != 1+3+2+2*3 {
				t.Errorf("sum %v", got)
			}
			must(t, g.Close())
		})
	}
	t.Run("plain", func(t *testing.T) {
		t.Setenv(plainLaunches, "1")
		if c, _ := open(t, ""); c.Dependent() {
			t.Error("launches are dependent in spite of " + plainLaunches)
		}
	})
}

// TestPrefetchBefore: what a dependent product prefetches is there before the kernel before it has run, and an address that
// is not there ends the context.
func TestPrefetchBefore(t *testing.T) {
	for _, there := range []bool{true, false} {
		c, s := open(t, "order=lazy")
		const rows, in, out = 1, 64, 32
		w, x, y := floats(t, c, s, make([]float32, in*out/2)), floats(t, c, s, make([]float32, 8*in)), floats(t, c, s, make([]float32, rows*out))
		must(t, s.Wait(soon))
		if !there {
			w += 1 << 40
		}
		args := cuda.LinearArgs{W: w, X: x, Y: y, Rows: rows, In: in, Out: out, Splits: 1, Parts: 1, ScaleRows: 1, ScaleCols: 1, ScaleAcross: 1}
		choice, _ := cuda.ChooseLinear(kernels.BF16, rows)
		product := Launch{Function: load(t, c, choice.Kernel), Blocks: choice.Blocks(out, rows, 1), Threads: [3]int{choice.Threads, 1, 1}, Shared: choice.Shared, Args: cudatest.Struct(&args)}
		l, err := NewList([]Launch{addition(t, load(t, c, "add"), y, y, out), product})
		must(t, err)
		ran, prefetched := Counted("kernel"), Counted("prefetch")
		must(t, l.Run(s, 0, 2, [NumBound]int32{1}))
		if n := Counted("kernel") - ran; n != 0 {
			t.Errorf("%d kernels ran already", n)
		}
		if n := Counted("prefetch") - prefetched; there && n != 2 { // a block of two panels
			t.Errorf("%d pieces are prefetched before the kernel before has run", n)
		}
		if err := s.Wait(soon); (err == nil) != there {
			t.Errorf("weights are there: %v; error %v", there, err)
		}
		l.Close()
	}
}

func TestNewListRefuses(t *testing.T) {
	c, _ := open(t, "")
	f := load(t, c, "add")
	good := Launch{Function: f, Blocks: [3]int{1, 1, 1}, Threads: [3]int{32, 1, 1}, Args: make([]byte, f.Args())}
	for name, change := range map[string]func(*Launch){
		"arguments":        func(l *Launch) { l.Args = l.Args[:8] },
		"too many threads": func(l *Launch) { l.Threads = [3]int{1024, 2, 1} },
		"no threads":       func(l *Launch) { l.Threads[1] = 0 },
		"blocks":           func(l *Launch) { l.Blocks[1] = 65536 },
		"offset":           func(l *Launch) { l.Symbols = []Symbol{{At: f.Args() - 2, Over: 1}} },
		"division":         func(l *Launch) { l.Symbols = []Symbol{{At: 0}} },
		"number":           func(l *Launch) { l.Symbols = []Symbol{{Of: NumBound, At: 0, Over: 1}} },
		"dimension":        func(l *Launch) { l.Symbols = []Symbol{{At: -1, Dim: 3, Over: 1}} },
	} {
		l := good
		change(&l)
		if _, err := NewList([]Launch{good, l}); err == nil || !strings.Contains(err.Error(), "launch 1, vapp_add") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCaptureAndReplay(t *testing.T) {
	for _, order := range []string{"eager", "lazy"} {
		c, s := open(t, "order="+order)
		f := load(t, c, "add")
		const n = 512
		one, zero := make([]float32, n), make([]float32, n)
		for i := range one {
			one[i] = 1
		}
		host, _, err := c.Pinned(4 * n)
		must(t, err)
		in := unsafe.Slice((*float32)(unsafe.Pointer(&host[0])), n)
		copy(in, one)
		dx, dinto := floats(t, c, s, zero), floats(t, c, s, zero)
		l, err := NewList([]Launch{addition(t, f, dx, dinto, n)})
		must(t, err)
		work := func() error {
			if err := s.ToDevice(dx, unsafe.Pointer(&host[0]), 4*n); err != nil {
				return err
			}
			return l.Run(s, 0, 1, [NumBound]int32{1})
		}
		g, err := s.Capture(work)
		must(t, err)
		if g.Nodes() != 2 {
			t.Errorf("%s: %d nodes", order, g.Nodes())
		}
		if got := fetch(t, s, dinto, n); got[0] != 0 {
			t.Errorf("%s: what was captured ran: %v", order, got[0])
		}
		for i, want := range []float32{1, 2} {
			must(t, g.Launch(s))
			if got := fetch(t, s, dinto, n); got[0] != want || got[n-1] != want {
				t.Errorf("%s, replay %d: %v", order, i, got[0])
			}
		}
		for i := range in {
			in[i] = 10
		}
		must(t, g.Launch(s))
		if got := fetch(t, s, dinto, n); got[5] != 12 {
			t.Errorf("%s, new input: %v", order, got[5])
		}
		must(t, g.Close())
		must(t, c.FreePinned(host))
		c.Close()
	}
}

func TestCaptureRefuses(t *testing.T) {
	c, s := open(t, "")
	other, err := c.Stream()
	must(t, err)
	e, err := c.Event()
	must(t, err)
	p := floats(t, c, s, []float32{1, 2, 3})
	mine := errors.New("mine")
	for name, f := range map[string]func() error{
		"an allocation":         func() error { _, err := c.Alloc(8); return err },
		"a free":                func() error { return c.Free(p) },
		"a wait":                func() error { return s.Wait(soon) },
		"a question":            func() error { _, err := s.Query(); return err },
		"memory not pinned":     func() error { v := []float32{1}; return s.ToDevice(p, unsafe.Pointer(&v[0]), 4) },
		"an event from outside": func() error { return errors.Join(other.Record(e), s.WaitFor(e)) },
		"an error of f":         func() error { return mine },
		"a stream left alone": func() error {
			return errors.Join(s.Fill(p, 0, 4), s.Record(e), other.WaitFor(e), other.Fill(p, 0, 4))
		},
	} {
		if _, err := s.Capture(f); err == nil {
			t.Errorf("%s was captured", name)
		} else if name == "an error of f" && !errors.Is(err, mine) {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.Fill(p, 0, 4); err != nil {
			t.Fatalf("after %s: %v", name, err)
		}
	}
	g, err := s.Capture(func() error {
		return errors.Join(s.Fill(p, 0, 4), s.Record(e), other.WaitFor(e), other.Fill(p, 1, 4), other.Record(e), s.WaitFor(e))
	})
	must(t, err)
	if g.Nodes() != 2 {
		t.Errorf("%d nodes", g.Nodes())
	}
}

func TestMemory(t *testing.T) {
	c, s := open(t, fmt.Sprintf("memory=%d,context=%d", 64<<20, 4<<20))
	free, total, err := c.Memory()
	if err != nil || free != 60<<20 || total != 64<<20 {
		t.Fatalf("%d of %d bytes free: %v", free, total, err)
	}
	p, err := c.Alloc(3 << 20)
	must(t, err)
	if free, _, _ := c.Memory(); free != 56<<20 {
		t.Errorf("%d bytes free with 3 MiB allocated", free)
	}
	if n := Counted("bytes"); n != 3<<20 {
		t.Errorf("%d bytes asked for", n)
	}
	_, err = c.Alloc(57 << 20)
	if e := (*MemoryError)(nil); !errors.As(err, &e) || e.Free != 56<<20 || e.TooSmall() {
		t.Errorf("too much: %v", err)
	}
	_, err = c.Alloc(1 << 40)
	if e := (*MemoryError)(nil); !errors.As(err, &e) || !e.TooSmall() {
		t.Errorf("far too much: %v", err)
	}
	if _, err := c.Alloc(0); err == nil {
		t.Error("no bytes were allocated")
	}
	b := make([]byte, 4<<20)
	if err := s.ToDevice(p, unsafe.Pointer(&b[0]), 3<<20+1); err == nil {
		t.Error("a copy beyond the allocation")
	}
	must(t, c.Free(p))
	for name, err := range map[string]error{"copied to": s.ToDevice(p, unsafe.Pointer(&b[0]), 1), "freed again": c.Free(p), "filled": s.Fill(p, 0, 1)} {
		if err == nil {
			t.Errorf("freed memory was %s", name)
		}
	}
}

// TestLazyOrder: the emulated driver runs a stream's work only when something waits for it.
func TestLazyOrder(t *testing.T) {
	c, s := open(t, "order=lazy")
	other, err := c.Stream()
	must(t, err)
	p, err := c.Alloc(4)
	must(t, err)
	host, _, err := c.Pinned(4)
	must(t, err)
	e, err := c.Event()
	must(t, err)
	must(t, s.Fill(p, 7, 4))
	must(t, s.Record(e))
	must(t, other.FromDevice(unsafe.Pointer(&host[0]), p, 4))
	must(t, other.Wait(soon))
	if host[0] == 7 {
		t.Error("a copy that waits for nothing saw what another stream had not done")
	}
	must(t, other.WaitFor(e))
	must(t, other.FromDevice(unsafe.Pointer(&host[0]), p, 4))
	if done, err := other.Query(); done || err != nil {
		t.Errorf("done before anybody waited: %v", err)
	}
	must(t, other.Wait(soon))
	if host[0] != 7 {
		t.Errorf("read %d behind the event", host[0])
	}
}

func TestSharedMemoryAndAttributes(t *testing.T) {
	c, s := open(t, "")
	f := load(t, c, "sample_edit")
	a, err := f.Attributes()
	if err != nil || a.MaxThreads != 1024 || a.SharedMax != 48<<10 {
		t.Errorf("%+v %v", a, err)
	}
	l, err := NewList([]Launch{{Function: f, Blocks: [3]int{1, 1, 1}, Threads: [3]int{32, 1, 1}, Shared: 49 << 10, Args: make([]byte, f.Args())}})
	must(t, err)
	if err := l.Run(s, 0, 1, [NumBound]int32{}); err == nil {
		t.Error("49 KiB of shared memory without being allowed")
	}
	if err := f.SharedMax(300 << 10); err == nil {
		t.Error("300 KiB of shared memory")
	}
	must(t, f.SharedMax(49<<10))
	if n, err := f.Occupancy(1024, 0); err != nil || n != 2 {
		t.Errorf("%d blocks an SM: %v", n, err)
	}
	if _, err := c.Load(nil); err != nil {
		t.Error(err)
	}
	m, err := c.Load([]byte{1})
	must(t, err)
	_, err = m.Function("vapp_none")
	if e := (*Error)(nil); !errors.As(err, &e) || e.Code != codeNotFound || e.Kernel != "vapp_none" {
		t.Errorf("a missing kernel: %v", err)
	}
}

// BenchmarkGEMV runs a 4096×4096 product in BF16 with one row: the speed of the emulation.
func BenchmarkGEMV(b *testing.B) {
	c, s := open(b, "")
	const n = 4096
	choice, ok := cuda.ChooseLinear(kernels.BF16, 1)
	if !ok {
		b.Fatal("no kernel")
	}
	f := load(b, c, choice.Kernel)
	must(b, f.SharedMax(choice.Shared))
	w, err := c.Alloc(2 * n * n)
	must(b, err)
	x, err := c.Alloc(2 * 8 * n)
	must(b, err)
	y, err := c.Alloc(4 * n)
	must(b, err)
	must(b, s.Fill(w, 0, 2*n*n))
	must(b, s.Fill(x, 0, 2*8*n))
	args := cuda.LinearArgs{W: w, X: x, Y: y, Rows: 1, In: n, Out: n, Splits: 1}
	l, err := NewList([]Launch{{
		Function: f, Blocks: [3]int{n / cuda.PanelRows / choice.Panels, 1, 1}, Threads: [3]int{choice.Threads, 1, 1},
		Shared: choice.Shared, Args: cudatest.Struct(&args),
	}})
	must(b, err)
	for b.Loop() {
		must(b, l.Run(s, 0, 1, [NumBound]int32{}))
	}
	must(b, s.Wait(soon))
}

func BenchmarkList(b *testing.B) {
	c, s := open(b, "")
	f := load(b, c, "add")
	launches := make([]Launch, 500)
	for i := range launches {
		launches[i] = addition(b, f, 0, 0, 4096)
	}
	l, err := NewList(launches)
	must(b, err)
	// The work of the emulated driver for a launch is not measured.
	must(b, Emulate("blocks=none"))
	for b.Loop() {
		l.Run(s, 0, len(launches), [NumBound]int32{1})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(launches)), "ns/launch")
}

package cuda_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cudatest"
	"vapp.dev/kernels/ref"
)

// rig is a device with helpers for tests.
type rig struct {
	*testing.T
	*cudatest.Device
	rnd  *rand.Rand
	most int // rows of the list that launches which pack rows are in
}

func newRig(t *testing.T) *rig {
	t.Parallel()
	d := cudatest.Open(t)
	d.OnLaunch(func(kernel string) { launches.Store(kernel, true) })
	return &rig{T: t, Device: d, rnd: rand.New(rand.NewPCG(1, 2))}
}

// launches holds the kernels that tests launched.
var launches sync.Map

// TestMain checks, after a run of all tests, that they launched every kernel.
func TestMain(m *testing.M) {
	code := m.Run()
	if run := flag.Lookup("test.run").Value.String(); code == 0 && run == "" && flag.Lookup("test.skip").Value.String() == "" && flag.Lookup("test.list").Value.String() == "" {
		for _, k := range cuda.Catalogue() {
			if _, ok := launches.Load(k.Name); !ok {
				fmt.Printf("no test launches %s\n", k.Name)
				code = 1
			}
		}
	}
	os.Exit(code)
}

// floats returns n numbers around zero.
func (r *rig) floats(n int, scale float64) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(r.rnd.NormFloat64() * scale)
	}
	return out
}

// up uploads s; nil becomes a null address.
func up[T any](r *rig, s []T) cuda.Ptr {
	r.Helper()
	if s == nil {
		return 0
	}
	p, err := r.Alloc(len(cudatest.Bytes(s)))
	if err != nil {
		r.Fatal(err)
	}
	r.Write(p, cudatest.Bytes(s))
	return p
}

// alloc allocates n of T on the device.
func alloc[T any](r *rig, n int) cuda.Ptr {
	r.Helper()
	p, err := r.Alloc(len(cudatest.Bytes(make([]T, n))))
	if err != nil {
		r.Fatal(err)
	}
	return p
}

// down downloads n of T.
func down[T any](r *rig, p cuda.Ptr, n int) []T {
	r.Helper()
	out := make([]T, n)
	if err := r.Read(p, cudatest.Bytes(out)); err != nil {
		r.Fatal(err)
	}
	return out
}

// launch runs a kernel with one schedule.
func launch[T any](r *rig, kernel string, g cudatest.Grid, args *T) {
	r.Helper()
	if err := r.Launch(kernel, g, cudatest.Struct(args)); err != nil {
		r.Fatal(err)
	}
}

// eachSchedule runs f with every schedule; f returns the kernels' results, whose bits must be
// the same each time.
func (r *rig) eachSchedule(f func() []float32) []float32 {
	r.Helper()
	var first []float32
	for _, s := range cudatest.Schedules {
		r.Schedule(s)
		got := f()
		if first == nil {
			first = got
			continue
		}
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(first[i]) {
				r.Fatalf("element %d is %v by schedule %d and %v by schedule 0: a race", i, got[i], s, first[i])
			}
		}
	}
	r.Schedule(0)
	return first
}

// near compares got with want: errors are relative to the largest number of want.
func (r *rig) near(what string, got, want []float32, bound float64) {
	r.Helper()
	if len(got) != len(want) {
		r.Fatalf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	var most float64
	for _, v := range want {
		if v == v && !math.IsInf(float64(v), 0) {
			most = max(most, math.Abs(float64(v)))
		}
	}
	for i := range got {
		d := math.Abs(float64(got[i]) - float64(want[i]))
		if got[i] == want[i] || got[i] != got[i] && want[i] != want[i] {
			continue
		}
		if !(d <= bound*max(most, 1e-30)) {
			r.Fatalf("%s: element %d is %v, want %v (largest %v, bound %g of it)", what, i, got[i], want[i], most, bound)
		}
	}
}

// stored quantizes x to f; back is its value as floats.
func stored(f kernels.Format, x []float32) (b []byte, back []float32) {
	b, back = make([]byte, f.Bytes(int64(len(x)))), make([]float32, len(x))
	ref.Quantize(f, x, b)
	ref.Dequantize(f, b, back)
	return b, back
}

// inBF16 checks that a kernel that reads x in bf16 computes what it does of the float32 numbers that these are, to the bit. run launches
// it and returns what it wrote.
func (r *rig) inBF16(what string, x []float32, run func(x cuda.Ptr, bf16 int32) []byte) {
	r.Helper()
	b, back := stored(kernels.BF16, x)
	if !bytes.Equal(run(up(r, b), 1), run(up(r, back), 0)) {
		r.Errorf("%s: other bits than of float32 if x is bf16", what)
	}
}

func ceil(n, d int) int { return (n + d - 1) / d }

// short returns the name of a format in kernels' names.
func short(f kernels.Format) string {
	switch f {
	case kernels.F8E4M3:
		return "e4m3"
	case kernels.F8E5M2:
		return "e5m2"
	}
	return fmt.Sprint(f)
}

//go:build linux && cgo && cuda

package cuda

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/engine/backend/dry"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cost"
	"vapp.dev/kernels/cuda/cudatest"
	"vapp.dev/kernels/ref"
)

// shapeModels are the models whose products TestShapes multiplies.
var shapeModels = []struct {
	name, model string
	build       models.Build
}{
	{"llama-3.2-1b", "meta-llama/Llama-3.2-1B", models.Build{}},
	{"llama-3.1-8b", "meta-llama/Llama-3.1-8B", models.Build{}},
	{"gpt-oss-20b", "openai/gpt-oss-20b", models.Build{}},
	{"gemma4-fp8", "google/gemma-4-26B-A4B-it", models.Build{Quantize: kernels.F8E4M3}},
	{"qwen35-27b-fp8", "Qwen/Qwen3.5-27B-FP8", models.Build{}},
}

// shapeRows are those around which kernels change: blocks without tiles, tiles, warpgroups.
var shapeRows = []int{1, 8, 16, 17, 64, 128, 129, 256, 2048}

// TestShapes multiplies by matrices of the models' shapes and formats, those of experts as single matrices, with every
// number of rows of shapeRows. Results are poisoned before, must have the same bits three times, and are compared with
// sums in float64 at a part of the rows and columns; those of bf16 also with cuBLASLt's, all of them, where there is one.
// It logs a Figure for each kernel: measured on the device after the poison has filled the second cache, and as
// kernels/cuda/cost predicts it. An emulated device has smaller matrices, and outside of bundles and of the tag soak two of one model.
func TestShapes(t *testing.T) {
	names := []string{shapeModels[0].name}
	if os.Getenv("VAPP_GPU") != "" || allShapes {
		names = nil
		for _, m := range shapeModels {
			names = append(names, m.name)
		}
	}
	cudatest.Apart(t, 1, names, func(t *testing.T, name string) {
		emulated(t)
		for _, m := range shapeModels {
			if m.name != name {
				continue
			}
			all := productsOf(t, m.model, m.build)
			if os.Getenv("VAPP_GPU") == "" && !allShapes {
				all = all[:2]
			}
			for _, p := range all {
				t.Run(p.String(), p.test)
			}
		}
	})
}

// shaped is the shape and the format of a product.
type shaped struct {
	in, out int
	format  kernels.Format
	scaling backend.Scaling
	head    bool // its rows are those that are sampled
}

func (p shaped) String() string {
	s := fmt.Sprintf("%dx%d %v", p.out, p.in, p.format)
	if p.scaling != backend.NoScale {
		s += " " + p.scaling.String()
	}
	return s
}

// productsOf returns the products of a model, each shape once.
func productsOf(t *testing.T, name string, build models.Build) (out []shaped) {
	m, err := engine.Inspect(engine.Source{Path: name, Name: name, Format: "dummy", Build: build})
	check(t, err)
	defer m.Close()
	f, err := Opener{}.Probe()
	check(t, err)
	a, err := engine.NewAccount(engine.Options{
		MaxModelLen: 2048, MaxNumSeqs: 1, MaxNumBatchedTokens: 2048, BlockSize: 16, KVFormat: kernels.BF16, ChunkedPrefill: true,
	}, m, Opener{}, f)
	check(t, err)
	seen := map[shaped]bool{}
	for _, w := range a.Reservation.Weights {
		p := shaped{in: w.Cols, out: w.Rows, format: w.Stored(), scaling: w.Scaling, head: w.Group == "head" || w.Use&backend.Lookup != 0}
		if w.Target == kernels.F8E4M3 {
			p.scaling = backend.PerChannel
		}
		if w.Use&backend.Multiply == 0 || p.format != kernels.BF16 && p.format != kernels.F8E4M3 && p.format != kernels.MXFP4 {
			continue
		}
		if driver.Counted("kernel") >= 0 { // emulated
			p.in, p.out = smaller(p.in), smaller(p.out)
		}
		if !seen[p] {
			seen[p] = true
			out = append(out, p)
		}
	}
	if len(out) < 2 {
		t.Fatalf("%s has the products %v", name, out)
	}
	return out
}

// smaller returns a length that an emulated device multiplies in milliseconds.
func smaller(n int) int { return (n%4096/1024 + 1) * 128 }

// test multiplies with all rows.
func (p shaped) test(t *testing.T) {
	rows := shapeRows
	if p.head {
		rows = rows[:8]
	}
	if driver.Counted("kernel") >= 0 {
		rows = []int{1, 17, 129}
	}
	var library *shapeDevice // before own: loading kernels takes the emulated driver's permissions for shared memory back
	if p.format == kernels.BF16 && haveLibrary(t) {
		library = p.open(t, backend.Settings{TimeOps: true, Linear: backend.CUBLASLt}, rows[len(rows)-1])
	}
	own := p.open(t, backend.Settings{TimeOps: true}, rows[len(rows)-1])
	for _, n := range rows {
		if end, ok := t.Deadline(); ok && time.Until(end) < 3*time.Second {
			t.Logf("no time is left for %d rows", n)
			return
		}
		y, times := own.multiply(t, n)
		p.compare(t, n, y)
		var other map[string]float64
		if library != nil && n > cuda.DecodeRows {
			var z []float32
			z, other = library.multiply(t, n)
			alike(t, n, y, z)
		}
		own.log(t, n, times, other)
	}
}

// haveLibrary reports whether there is a cuBLASLt: the machine's, or without VAPP_GPU the emulated one.
func haveLibrary(t *testing.T) bool {
	if os.Getenv("VAPP_GPU") == "" { // a bundle has no compiler
		t.Setenv("VAPP_LIBCUBLASLT", cudatest.BLAS(t))
	}
	c, err := driver.Open(0)
	check(t, err)
	defer c.Close()
	err = c.Do(func() error {
		b, err := c.BLAS()
		if err != nil {
			return err
		}
		return b.Close()
	})
	if why := libraryMissing(err); why != "" {
		t.Log(why)
		return false
	}
	check(t, err)
	return true
}

// shapeDevice is a device with one product.
type shapeDevice struct {
	*device
	shaped
	facts backend.Facts
	p     *backend.Program
	exe   backend.Executable
	y     backend.Value
}

// open opens a device for the product.
func (p shaped) open(t *testing.T, s backend.Settings, most int) *shapeDevice {
	f, err := Opener{}.Probe()
	check(t, err)
	l, err := Opener{}.Layout(f, s)
	check(t, err)
	w := backend.WeightSpec{Name: "w", Group: "test", Rows: p.out, Cols: p.in, Source: p.format, Use: backend.Multiply, Scaling: p.scaling}
	part := backend.Part{Tensor: "w", Rows: p.out, Format: p.format}
	switch {
	case p.format == kernels.MXFP4:
		part.Scale, part.ScaleFormat = "exponents", kernels.U8
	case p.scaling != backend.NoScale:
		part.Scale, part.ScaleFormat = "scales", kernels.F32
	}
	w.Parts = []backend.Part{part}
	d := &shapeDevice{shaped: p, facts: f, p: &backend.Program{Name: "shape", Bucket: backend.Bucket{Tokens: most, Seqs: 1, Samples: 1}, Vocab: most}}
	d.p.Weights = []backend.WeightSpec{
		{Name: "x", Group: "test", Rows: most, Cols: p.in, Source: kernels.F32, Use: backend.Lookup, Parts: []backend.Part{{Tensor: "x", Rows: most, Format: kernels.F32}}}, w,
	}
	r := backend.Record(d.p)
	ids, x := r.New("ids", kernels.I32, backend.PerToken, 1), r.New("x", kernels.F32, backend.PerToken, p.in)
	d.y = r.New("y", kernels.F32, backend.PerToken, p.out)
	r.Do(backend.Tokens{Out: ids})
	r.Do(backend.Embed{Ids: ids, Table: 0, Y: x, Scale: 1})
	r.Do(backend.Linear{X: x, W: 1, Bias: backend.NoWeight, Y: d.y})
	r.Free(ids, x, d.y)
	res, err := dry.Run(l, d.p.Weights, []*backend.Program{d.p}, backend.StepShape{Tokens: most, Seqs: 1, Samples: 1, Vocab: most}, 0)
	check(t, err)
	dev, err := Opener{}.Open(f, s, res)
	check(t, err)
	t.Cleanup(func() { check(t, dev.Close()) })
	d.device = dev.(*device)
	for i := range d.p.Weights {
		check(t, dev.Pack(i, rings{p.format}))
	}
	d.exe, err = dev.Compile(d.p)
	check(t, err)
	return d
}

// multiply returns the results for so many rows, and the microseconds of each kernel.
func (d *shapeDevice) multiply(t *testing.T, rows int) ([]float32, map[string]float64) {
	var first []byte
	const repeats = 3
	before := map[string]time.Duration{}
	sums := func() []backend.OpTime {
		decode, prompts := d.KernelTimes()
		if rows > 1 {
			return prompts
		}
		return decode
	}
	for i := range 1 + repeats { // the first loads the kernels
		if i == 1 {
			for _, k := range sums() {
				before[k.Op] = k.Wall
			}
		}
		check(t, d.do(func() error { // all bits are 1: NaN
			if err := d.work.Fill(d.arenas[backend.Scratch], 0xff, d.r.Arenas[backend.Scratch]); err != nil {
				return err
			}
			return d.work.Wait(hangTimeout)
		}))
		s := d.Step(0)
		for i := range rows {
			s.Tokens[i], s.Positions[i], s.Seq[i] = int32(i), int32(i), 0
		}
		s.First[0], s.First[1] = 0, int32(rows)
		check(t, d.Launch(d.exe, backend.Binding{Tokens: rows, Seqs: 1}))
		check(t, d.Wait(0))
		y := d.Scratch(d.y, d.p)[:4*rows*d.out]
		if first == nil {
			first = y
		} else if !bytes.Equal(first, y) {
			t.Errorf("%d rows: the results differ from those of the first time", rows)
		}
	}
	took := map[string]float64{}
	for _, k := range sums() {
		if us := (k.Wall - before[k.Op]).Seconds() * 1e6 / repeats; strings.HasPrefix(k.Op, "linear_") {
			took[k.Op] = us
		}
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&first[0])), len(first)/4), took
}

// compare checks that no result is poison, and compares a part of them with sums in float64. The unit of an error is
// the rounding of an input to bf16 and of sums to float32; the bounds are 8 of them, and 1 in the mean.
func (p shaped) compare(t *testing.T, rows int, y []float32) {
	for i, v := range y {
		if v != v {
			t.Errorf("%d rows: row %d, column %d was not computed", rows, i/p.out, i%p.out)
			return
		}
	}
	x, w, b := make([]float32, p.in), make([]float32, p.in), make([]byte, 4*p.in)
	square, n := 0.0, 0.0
	for _, row := range some(rows, 6) {
		check(t, rings{p.format}.ReadRows("x", row, 1, b))
		copy(x, unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), p.in))
		for _, col := range some(p.out, 40) {
			p.row(t, col, w)
			sum, size := 0.0, 0.0
			for i := range x {
				a := float64(x[i]) * float64(w[i])
				sum, size = sum+a, size+a*a
			}
			unit := math.Sqrt(size) * (1.0/362 + math.Sqrt(float64(p.in))/(1<<24))
			e := math.Abs(float64(y[row*p.out+col])-sum) / unit
			if square, n = square+e*e, n+1; e > 8 {
				t.Errorf("%d rows: row %d, column %d is %v, want %v: %.1f units", rows, row, col, y[row*p.out+col], sum, e)
				return
			}
		}
	}
	if e := math.Sqrt(square / n); e > 1 {
		t.Errorf("%d rows: the error is %.2f units in the mean", rows, e)
	}
}

// row computes row i of W.
func (p shaped) row(t *testing.T, i int, w []float32) {
	raw := make([]byte, p.format.Bytes(int64(p.in)))
	if p.format == kernels.MXFP4 {
		halves, exponents := make([]byte, p.in/2), make([]byte, p.in/32)
		check(t, rings{p.format}.ReadRows("w", i*p.in/32, p.in/32, halves))
		check(t, rings{p.format}.ReadRows("exponents", i, 1, exponents))
		kernels.JoinBlocks(halves, exponents, raw)
	} else {
		check(t, rings{p.format}.ReadRows("w", i, 1, raw))
	}
	ref.Dequantize(p.format, raw, w)
	across, block := 1, len(w)
	switch p.scaling {
	case backend.PerBlock:
		across, block, i = (p.in+backend.ScaleBlock-1)/backend.ScaleBlock, backend.ScaleBlock, i/backend.ScaleBlock
	case backend.NoScale:
		return
	}
	scales := make([]byte, 4*across)
	check(t, rings{p.format}.ReadRows("scales", i, 1, scales))
	for k := range w {
		w[k] *= math.Float32frombits(binary.LittleEndian.Uint32(scales[4*(k/block):]))
	}
}

// some returns up to n of the numbers below most: the first, the last, and others at random between.
func some(most, n int) []int {
	out := []int{0}
	r := rand.New(rand.NewPCG(uint64(most), 7))
	for len(out) < n-1 && most > 2 {
		out = append(out, 1+r.IntN(most-2))
	}
	if most > 1 {
		out = append(out, most-1)
	}
	return out
}

// alike compares all results with cuBLASLt's, whose sums have another order.
func alike(t *testing.T, rows int, y, z []float32) {
	var apart, size float64
	for i := range y {
		a := float64(y[i]) - float64(z[i])
		apart, size = apart+a*a, size+float64(z[i])*float64(z[i])
	}
	if e := math.Sqrt(apart / size); !(e < 1e-3) {
		t.Errorf("%d rows: they differ from cuBLASLt's by %.2g of their size", rows, e)
	}
}

// log logs the figures of the kernels: microseconds, measured and predicted, and what the GPU needs at best.
func (d *shapeDevice) log(t *testing.T, rows int, times, other map[string]float64) {
	list, err := d.layout.Launches(d.p)
	check(t, err)
	launches, err := list(rows, 1, 0)
	check(t, err)
	gpu, known := cost.Find(d.facts.Device)
	c := cost.Counter{Rows: []cost.Row{{Count: rows}}}
	for _, l := range launches {
		w, err := c.Count(l)
		check(t, err)
		us, ok := times[l.Kernel]
		if !ok || strings.HasPrefix(l.Kernel, "linear_pack") {
			continue
		}
		figure := map[string]any{"kernel": l.Kernel, "shape": d.shaped.String(), "rows": rows, "us": us, "mb": w.Bytes() / 1e6, "gflop": w.Flops / 1e9}
		if known {
			figure["predicted_us"], figure["limit_us"] = 1e6*gpu.Time(w).Seconds(), 1e6*gpu.Limit([]cost.Work{w})
		}
		for k, us := range other {
			if strings.HasSuffix(k, "_cublaslt") {
				figure["library_us"] = us
			}
		}
		b, err := json.Marshal(figure)
		check(t, err)
		t.Logf("%s%s", strings.TrimSuffix(cudatest.Figure, "{"), b)
	}
}

// rings is a checkpoint whose tensors repeat numbers at a distance that is no multiple of their rows.
type rings struct{ weights kernels.Format } // the format of w

// ringWords is the distance, in words of four bytes: a prime.
const ringWords = 65537

var ringsMade sync.Map

// ReadRows implements backend.RowReader. x is of 0.5 to 2, bf16 of 2⁻⁵ to 2⁻³ and scales of 2⁻⁷ to 2⁻⁵.
func (r rings) ReadRows(name string, row0, rows int, dst []byte) error {
	kept, set := uint32(0xffffffff), uint32(0) // any halves of mxfp4
	switch {
	case name == "x":
		kept, set = 0x80ffffff, 0x3f000000
	case name == "scales":
		kept, set = 0x00ffffff, 0x3c000000
	case name == "exponents":
		kept, set = 0x01010101, 0x76767676
	case r.weights == kernels.BF16:
		kept, set = 0x80ff80ff, 0x3d003d00
	case r.weights == kernels.F8E4M3:
		kept, set = 0x9f9f9f9f, 0x20202020
	}
	made, ok := ringsMade.Load([2]uint32{kept, set})
	if !ok {
		b, random := make([]byte, 4*ringWords), rand.New(rand.NewPCG(uint64(kept), uint64(set)))
		for i := range ringWords {
			binary.LittleEndian.PutUint32(b[4*i:], random.Uint32()&kept|set)
		}
		made, _ = ringsMade.LoadOrStore([2]uint32{kept, set}, b)
	}
	b := made.([]byte)
	for at := row0 * (len(dst) / rows) % len(b); len(dst) > 0; at = 0 {
		dst = dst[copy(dst, b[at:]):]
	}
	return nil
}

// TestMultiplication: a request to the library has what a launch's arguments say.
func TestMultiplication(t *testing.T) {
	a := cuda.LibraryArgs{W: 1, X: 2, Scales: 3, Sums: 4, Bias: 5, Y: 6, Workspace: 7, In: 8, Out: 9, Most: 10}
	want := driver.Multiplication{
		Numbers: driver.F16, In: 8, Out: 9, Most: 10, Unit: cuda.LibraryUnit, W: 1, X: 2, WScales: 3, XScales: 4, Bias: 5, Y: 6, Workspace: 7,
		Bytes: backend.CUBLASLtWorkspace, Args: int(unsafe.Sizeof(a)), RowsAt: int(unsafe.Offsetof(a.Rows)),
	}
	for range 2 {
		if got := multiplication(launch{kernel: "linear_f16_cublaslt", args: bytesAt([]cuda.LibraryArgs{a})}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		a.YBF16, want.YBF16 = 1, true
	}
}

package speed

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/kernels"
)

func close2(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b), 1e-12) }

// TestCurve: points, between, below the first and beyond the last.
func TestCurve(t *testing.T) {
	c := Curve{X: []float64{1, 2, 4}, Y: []float64{10, 20, 80}}
	for x, want := range map[float64]float64{0.5: 10, 1: 10, 1.5: 15, 2: 20, 3: 50, 4: 80, 6: 140} {
		if got := c.At(x); got != want {
			t.Errorf("at %g: %g, want %g", x, got, want)
		}
	}
	if fall := (Curve{X: []float64{1, 2}, Y: []float64{5, 4}}); fall.At(9) != 4 || fall.Held(9) != 4 || c.Held(6) != 80 || c.Held(3) != 50 {
		t.Errorf("beyond the last point: %g, %g, %g", fall.At(9), fall.Held(9), c.Held(6))
	}
	if got := (Curve{X: []float64{1, 2, 4}, Y: []float64{5, 3, 4}}).Rising().Y; got[0] != 3 || got[1] != 3 || got[2] != 4 {
		t.Error(got)
	}
	for _, bad := range []Curve{{}, {X: []float64{1}}, {X: []float64{1, 1}, Y: []float64{1, 1}}, {X: []float64{1}, Y: []float64{math.NaN()}}, {X: []float64{1}, Y: []float64{-1}}, {X: []float64{1}, Y: []float64{11}}, {X: []float64{1e19}, Y: []float64{1}}} {
		if bad.check(mostSeconds) == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}

// TestPairs compares the count with a loop over tokens.
func TestPairs(t *testing.T) {
	for i := range 10 {
		window := []int{0, 1, 5, 16, 100}[i%5]
		o := backend.Attention{Window: window, Chunked: i > 5}
		for from := range 20 {
			for count := 1; count < 20; count++ {
				want := 0.0
				for p := from; p < from+count; p++ {
					want += float64(seen(p, o))
					if o.Chunked && (p-seen(p, o)+1)%window != 0 {
						t.Fatalf("position %d sees %d in a chunk of %d", p, seen(p, o), window)
					}
				}
				if got := pairs(Row{From: from, Count: count}, o); got != want {
					t.Fatalf("%d+%d in a window of %d, chunked %t: %g pairs, want %g", from, count, window, o.Chunked, got, want)
				}
			}
		}
	}
}

// flat returns rates with a constant for each kind of work.
func flat() *Rates {
	one := func(y float64) Curve { return Curve{X: []float64{1}, Y: []float64{y}} }
	r := &Rates{Threads: 1, Read: 1e9, F32: 1e9, BF16: 1e9, Product: 1e-6, Ops: map[string]Curve{}}
	r.Linear = []Linear{{Kernel: "linear.avx2.bf16", Bytes: 2, Rows: Curve{X: []float64{1, 2}, Y: []float64{1e-9, 2e-9}}}}
	r.Attention = []Attention{{Format: "f16", HeadDim: 64, Group: 1, Fixed: 1e-6, Seq: 1e-7, Keys: one(1e-8), Row: 1e-7, Pair: 1e-9}}
	for _, op := range []string{"norm", "tokens", "embed", "sample", "experts"} {
		r.Ops[op] = one(1e-5)
	}
	return r
}

// TestStep adds the ops of a step up by hand: products at the rows of tokens and of samples, attention of a
// prompt and of a decoding sequence.
func TestStep(t *testing.T) {
	p := &backend.Program{Name: "step", Bucket: backend.Bucket{Tokens: 64, Seqs: 4, Samples: 4}, Vocab: 96}
	for range 2 {
		p.Weights = append(p.Weights, backend.WeightSpec{Name: "w", Rows: 96, Cols: 64, Source: kernels.BF16, Use: backend.Multiply, Parts: []backend.Part{{Tensor: "w", Format: kernels.BF16, Rows: 96}}})
	}
	rec := backend.Record(p)
	f32 := func(rows backend.Rows, cols int) backend.Value { return rec.New("v", kernels.F32, rows, cols) }
	x, y, q, k := f32(backend.PerToken, 64), f32(backend.PerToken, 96), f32(backend.PerToken, 128), rec.New("k", kernels.F16, backend.PerToken, 128)
	last, logits := f32(backend.PerSample, 64), f32(backend.PerSample, 96)
	rec.Do(backend.Norm{X: x, Residual: backend.NoValue, W: backend.NoWeight, Y: x})
	rec.Do(backend.Linear{X: x, W: 0, Bias: backend.NoWeight, Y: y})
	rec.Do(backend.Attention{Q: q, K: k, V: k, Y: q, Heads: 2, KVHeads: 2, HeadDim: 64})
	rec.Do(backend.Linear{X: last, W: 1, Bias: backend.NoWeight, Y: logits})
	rec.Free(x, y, q, k, last, logits)
	p, err := rec.Program()
	if err != nil {
		t.Fatal(err)
	}
	l, err := cpu.Opener{}.Layout(backend.Facts{Variants: []string{"avx2"}, Cores: 1}, backend.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(l, p, flat())
	if err != nil {
		t.Fatal(err)
	}
	got := m.Step([]Row{{From: 9, Count: 1, Draw: true}, {From: 0, Count: 20}})
	const weights = 96 * 64
	want := StepFixed + 2*StepSequence + 1e-5 + // norm
		1e-6 + weights*21*1e-9 + // 21 tokens
		1e-6 + 2*(1e-7*20+1e-9*210) + 2*1e-7 + 2*10*1e-8 + // attention
		1e-6 + weights*1e-9 // one sampled row
	if !close2(got, want) {
		t.Errorf("%g seconds, want %g", got, want)
	}
	if b := m.Bases()["linear.avx2.bf16"]; b != Measured {
		t.Error(b)
	}
	// Without a sampled row the head does not run.
	if less := m.Step([]Row{{From: 9, Count: 1}, {From: 0, Count: 20}}); !close2(want-less, 1e-6+weights*1e-9) {
		t.Errorf("the head takes %g", want-less)
	}
	r := flat()
	delete(r.Ops, "norm")
	var unknown *UnknownOpError
	if _, err := New(l, p, r); !errors.As(err, &unknown) || unknown.Op != "norm" {
		t.Error(err)
	}
}

// TestMoreIsSlower: more sequences and more rows take longer, with the reference's rates.
func TestMoreIsSlower(t *testing.T) {
	p := &backend.Program{Name: "step", Bucket: backend.Bucket{Tokens: 4096, Seqs: 1024, Samples: 1024}, Vocab: 64}
	const cols = 4096
	for _, rows := range []int{2 * cols, cols} { // of an expert: gate and up, down
		p.Weights = append(p.Weights, backend.WeightSpec{Name: "w", Rows: rows, Cols: cols, Source: kernels.BF16, Use: backend.Multiply, Experts: 32,
			Parts: []backend.Part{{Tensor: "w", Format: kernels.BF16, Rows: rows, Stride: rows}}})
	}
	rec := backend.Record(p)
	q, k := rec.New("q", kernels.F32, backend.PerToken, 64*128), rec.New("k", kernels.BF16, backend.PerToken, 8*128)
	x, routed := rec.New("x", kernels.F32, backend.PerToken, cols), rec.New("routed", kernels.I32, backend.PerToken, 4)
	share := rec.New("share", kernels.F32, backend.PerToken, 4)
	rec.Do(backend.Attention{Q: q, K: k, V: k, Y: q, Heads: 64, KVHeads: 8, HeadDim: 128})
	rec.Do(backend.Experts{X: x, Ids: routed, Weights: share, Y: x, GateUp: 0, Down: 1, GateUpBias: backend.NoWeight, DownBias: backend.NoWeight, Top: 4, Width: cols})
	rec.Free(q, k, x, routed, share)
	p, err := rec.Program()
	if err != nil {
		t.Fatal(err)
	}
	f := backend.Facts{Backend: "cpu", Variants: []string{"avx512bf16"}, Cores: 2}
	l, err := cpu.Opener{}.Layout(f, backend.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := reference()
	if err != nil {
		t.Fatal(err)
	}
	r.Ops["experts"] = Curve{X: []float64{1, 256, 512}, Y: []float64{2, 2, 1.5}}
	m, err := New(l, p, r)
	if err != nil {
		t.Fatal(err)
	}
	before, chunk := 0.0, 0.0
	for n := 1; n <= 2048; n++ {
		if n <= 256 {
			now := m.Step(slices.Repeat([]Row{{From: 4095, Count: 1, Draw: true}}, n))
			if now <= before {
				t.Fatalf("%d sequences take %g s, one fewer %g s", n, now, before)
			}
			before = now
		}
		if n > few {
			now := m.Step([]Row{{Count: n}})
			if now <= chunk {
				t.Fatalf("%d rows take %g s, one fewer %g s", n, now, chunk)
			}
			chunk = now
		}
	}
}

// TestKernel: a measured kernel, one whose variant was measured, and one that is estimated: it is never faster than
// reading, and more rows take longer.
func TestKernel(t *testing.T) {
	r := flat()
	if k := r.Kernel("linear.avx2.bf16", 2); k.Basis != Measured || !close2(k.Decode, 2e9) || !close2(k.Prefill, 2e9) {
		t.Errorf("%+v", k)
	}
	if k := r.Kernel("linear.avx2.f32", 4); k.Basis != Similar || !close2(k.Decode, 2e9) {
		t.Errorf("%+v", k)
	}
	for _, name := range []string{"linear.amx.q4_0", "linear.avx512bf16.bf16", "linear.avx512+int8.q8_0", "linear.generic.f32", "what"} {
		k := r.Kernel(name, 0.6)
		if k.Basis != Estimated || k.Decode > r.Read || k.Prefill > r.BF16 || k.Decode <= 0 || k.Prefill <= 0 {
			t.Errorf("%s: %+v", name, k)
		}
		at, _ := r.linear(name, 0.6)
		for n := 1.0; n < 600; n++ {
			if at(n+1) < at(n) {
				t.Fatalf("%s: %g rows take longer than %g", name, n, n+1)
			}
		}
	}
}

// TestEstimates: what a layout estimates of a kernel counts in place of the shares of all kernels.
func TestEstimates(t *testing.T) {
	r := flat()
	r.BF16 = 1e12
	r.Estimates = map[string]backend.KernelRate{"linear.amx.q4_0": {Decode: 0.70, Prefill: 0.40, Basis: "estimated"}}
	if k := r.Kernel("linear.amx.q4_0", 0.5625); k.Basis != Estimated || !close2(k.Decode, 0.70*r.Read) || !close2(k.Prefill, 0.40*r.BF16) {
		t.Errorf("%+v", k)
	}
	if k := r.Kernel("linear.amx.q4_k", 0.5625); close2(k.Decode, 0.70*r.Read) || close2(k.Prefill, 0.40*r.BF16) {
		t.Errorf("another kernel: %+v", k)
	}
}

// TestAttentionRates: the nearest format and head size, between two groups.
func TestAttentionRates(t *testing.T) {
	c := func(y float64) Curve { return Curve{X: []float64{1, 16}, Y: []float64{y, y}} }
	r := &Rates{Attention: []Attention{
		{Format: "f16", HeadDim: 64, Group: 1, Fixed: 1, Seq: 1, Keys: c(1), Row: 1, Pair: 1},
		{Format: "f16", HeadDim: 64, Group: 8, Fixed: 1, Seq: 1, Keys: c(8), Row: 1, Pair: 2},
		{Format: "bf16", HeadDim: 128, Group: 1, Fixed: 1, Seq: 1, Keys: c(9), Row: 1, Pair: 9},
	}}
	a, ok := r.attention("f16", 128, 4)
	if part := 3.0 / 7; !ok || !close2(a.Keys.At(1), 2*(1+part*7)) || !close2(a.Pair, 2*(1+part)) {
		t.Errorf("%+v", a)
	}
	if a, _ := r.attention("bf16", 128, 16); a.Pair != 9 {
		t.Errorf("%+v", a)
	}
}

// TestEstimate: every variant has rates that pass Check, more threads are no slower, and other machines are
// refused.
func TestEstimate(t *testing.T) {
	for _, p := range table {
		slow, row, err := Estimate(backend.Facts{Backend: "cpu"}, p.variant, 2)
		if err != nil || slow.Check() != nil || !strings.HasPrefix(row, p.name) {
			t.Fatalf("%s: %q, %v", p.variant, row, err)
		}
		fast, _, err := Estimate(backend.Facts{Backend: "cpu"}, p.variant, 32)
		if err != nil {
			t.Fatal(err)
		}
		name := "linear." + p.variant + ".q8_0"
		a, b := slow.Kernel(name, 1.0625), fast.Kernel(name, 1.0625)
		if a.Decode >= b.Decode || a.Prefill >= b.Prefill || b.Decode > p.most {
			t.Errorf("%s: two threads %+v, 32 %+v", p.variant, a, b)
		}
	}
	if r, _, err := Estimate(backend.Facts{Backend: "cpu", Bandwidth: 5e9}, "avx2", 8); err != nil || r.Read != 5e9 {
		t.Error(r.Read, err)
	}
	var none *NoRowError
	for _, f := range []backend.Facts{{Backend: "cuda"}, {Backend: "ref"}, {Backend: "cpu", SMs: 1}} {
		if _, _, err := Estimate(f, "avx2", 2); !errors.As(err, &none) {
			t.Error(f, err)
		}
	}
	if _, _, err := Estimate(backend.Facts{Backend: "cpu"}, "avx2", 0); !errors.As(err, &none) || !strings.Contains(err.Error(), "vapp doctor --measure") {
		t.Error(err)
	}
	if r, row, err := Estimate(backend.Facts{Backend: "cpu"}, "neon", 2); err != nil || !strings.HasPrefix(row, "any other processor") || r.Kernel("linear.neon.bf16", 2).Prefill <= 0 {
		t.Error(row, err)
	}
	// A row's rate of f32 is that of its own instructions.
	for variant, share := range map[string]float64{"avx2": 0.70, "generic": 0.40} {
		r, _, err := Estimate(backend.Facts{Backend: "cpu"}, variant, 2)
		if err != nil || !close2(r.Kernel("linear."+variant+".f32", 4).Prefill, share*r.F32) {
			t.Errorf("%s: %+v of %g, %v", variant, r.Kernel("linear."+variant+".f32", 4), r.F32, err)
		}
	}
	if r := flat(); !close2(r.Kernel("linear.generic.f32", 4).Prefill, 0.40*r.F32/16) {
		t.Error("the generic kernel is as fast as vectors")
	}
}

// TestCheck: rates with an impossible number, or without one that steps need, are refused in one line.
func TestCheck(t *testing.T) {
	for name, change := range map[string]func(*Rates){
		"read":    func(r *Rates) { r.Read = 1e300 },
		"product": func(r *Rates) { r.Product = 1e9 },
		"bytes":   func(r *Rates) { r.Linear[0].Bytes = 0 },
		"weight":  func(r *Rates) { r.Linear[0].Rows.Y[0] = 1e6 },
		"pair":    func(r *Rates) { r.Attention[0].Pair = 1e6 },
		"keys":    func(r *Rates) { r.Attention[0].Keys.Y[0] = 1e6 },
		"heads":   func(r *Rates) { r.Attention = nil },
		"norm":    func(r *Rates) { delete(r.Ops, "norm") },
		"experts": func(r *Rates) { r.Ops["experts"] = Curve{X: []float64{1}, Y: []float64{1e6}} },
	} {
		r, err := reference()
		if err != nil {
			t.Fatal(err)
		}
		change(r)
		if err := r.Check(); err == nil || strings.ContainsAny(err.Error(), "!\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWith: half of the threads multiply half as fast.
func TestWith(t *testing.T) {
	r, err := reference()
	if err != nil {
		t.Fatal(err)
	}
	one := r.With(1)
	if err := one.Check(); err != nil || one.Threads != 1 || len(one.Linear) != len(r.Linear) {
		t.Fatal(err)
	}
	a, b := r.Kernel("linear.avx512bf16.bf16", 2), one.Kernel("linear.avx512bf16.bf16", 2)
	if b.Basis != Measured || b.Prefill >= a.Prefill || b.Decode >= a.Decode {
		t.Errorf("%+v, one thread %+v", a, b)
	}
	if r.With(r.Threads) != r {
		t.Error("the rates of the same threads are others")
	}
}

// TestAtRead: where memory reads at half the rate, the seconds of reading double and the rest stays.
func TestAtRead(t *testing.T) {
	for _, c := range []struct{ t, bytes, from, to, want float64 }{
		{10, 10, 1, 0.5, 20}, // reads only
		{10, 4, 1, 0.5, 14},
		{10, 4, 1, 2, 8},
		{10, 40, 1, 0.5, 20}, // faster than memory: from a cache, or the rate rose meanwhile
		{10, 0, 1, 0.5, 10},
	} {
		if got := AtRead(c.t, c.bytes, c.from, c.to); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v seconds, %v bytes, from %v to %v: %v, want %v", c.t, c.bytes, c.from, c.to, got, c.want)
		}
	}
	r := Rates{Read: 1, Linear: []Linear{{Bytes: 1, Rows: Curve{X: []float64{1, 8}, Y: []float64{1, 4}}}}}
	half := r.AtRead(0.5)
	if y := half.Linear[0].Rows.Y; half.Read != 0.5 || y[0] != 2 || y[1] != 5 || r.Linear[0].Rows.Y[0] != 1 {
		t.Errorf("at half the rate %v", half)
	}
}

package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// ropeForm is a set of Rope's options besides rotation: norms of heads, gates, V from K.
type ropeForm struct {
	name          string
	norm          *backend.HeadNorm // weights NoWeight: ones
	gated, shared bool
	dim, rotary   int
	format        kernels.Format
	interleaved   bool
}

// ropeHeads tests every set of options, with the head sizes of all models.
func (s *subject) ropeHeads(t *testing.T) {
	norm, centred, values := &backend.HeadNorm{Eps: 1e-6}, &backend.HeadNorm{Eps: 1e-6, Offset: 1}, &backend.HeadNorm{Eps: 1e-6, V: true}
	whole, centredWhole, each := &backend.HeadNorm{Eps: 1e-6, Whole: true}, &backend.HeadNorm{Eps: 1e-5, Whole: true, Offset: 1}, &backend.HeadNorm{Eps: 1e-6, Each: true}
	mean, eachMean := &backend.HeadNorm{Eps: 1e-5, Plain: true}, &backend.HeadNorm{Eps: 1e-5, Plain: true, Each: true}
	behind, ones := &backend.HeadNorm{Eps: 1e-6, After: true}, &backend.HeadNorm{Eps: 1e-5, After: true, V: true, Q: backend.NoWeight, K: backend.NoWeight}
	for _, f := range []ropeForm{
		{"norm", norm, false, false, 64, 64, kernels.F32, false}, {"norm", norm, false, false, 128, 128, kernels.BF16, false},
		{"norm", norm, false, false, 20, 12, kernels.F16, false}, {"gated", nil, true, false, 48, 16, kernels.F32, false},
		{"gated with norm", centred, true, false, 256, 64, kernels.BF16, false}, {"norm of V", values, false, false, 256, 256, kernels.F32, false},
		{"shared", nil, false, true, 64, 64, kernels.F16, false}, {"shared with norms", values, false, true, 512, 128, kernels.BF16, false},
		{"all heads", whole, false, false, 128, 128, kernels.F32, false}, {"all heads", centredWhole, false, false, 20, 12, kernels.F16, false},
		{"all heads, V from K", whole, false, true, 64, 64, kernels.BF16, false}, {"a weight each", each, false, false, 72, 72, kernels.F32, false},
		{"gated with a weight each", each, true, false, 64, 32, kernels.F16, false}, {"mean", mean, false, false, 96, 96, kernels.F32, false},
		{"mean, a weight each", eachMean, false, false, 128, 64, kernels.BF16, false}, {"mean", mean, false, false, 20, 12, kernels.F32, false},
		{"behind", behind, false, false, 128, 128, kernels.BF16, false}, {"behind", behind, false, false, 80, 20, kernels.F32, false},
		{"behind with V, ones", ones, true, false, 64, 64, kernels.F32, false}, {"no rotation", nil, false, false, 64, 0, kernels.F16, false},
		{"norm without rotation", centred, false, false, 40, 0, kernels.F32, false}, {"all heads without rotation", whole, false, false, 64, 0, kernels.F32, false},
	} {
		name := fmt.Sprintf("%s/%d of %d in %v", f.name, f.rotary, f.dim, f.format)
		t.Run(name, func(t *testing.T) { f.test(t, s) })
		if f.interleaved = f.rotary > 0; f.interleaved {
			t.Run(name+", neighbours", func(t *testing.T) { f.test(t, s) })
		}
	}
}

// Heads of the test.
const formHeads, formKV = 6, 2

// columns returns the columns of a row of QKV.
func (f ropeForm) columns() int {
	n := formHeads + 2*formKV
	if f.gated {
		n += formHeads
	}
	if f.shared {
		n -= formKV
	}
	return n * f.dim
}

func (f ropeForm) test(t *testing.T, s *subject) {
	const most = 9
	cols := f.columns()
	r, m := rng(uint64(f.dim)), &tensors{}
	x, freqs := normal(r, most*cols, 2), ropeFreqs(f.rotary)
	for i := range x {
		x[i] += 0.5 // LayerNorm subtracts it
	}
	wq, wk := normal(r, f.dim, 0.5), normal(r, f.dim, 0.5)
	if f.perHead() {
		wq, wk = normal(r, formHeads*f.dim, 0.5), normal(r, formKV*f.dim, 0.5)
	}
	table, tq, tk := m.table("x", x, cols), m.vector("wq", kernels.F32, wq), m.vector("wk", kernels.F32, wk)
	var inv backend.WeightID
	if f.rotary > 0 {
		inv = m.literal("freqs", freqs)
	}
	var angles, q, k, v, gate backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 2, Samples: 1}, record: func(rec *backend.Recorder) {
		angles = backend.NoValue
		in := input(rec, table, cols)
		if f.rotary > 0 {
			angles = rec.New("angles", kernels.F32, backend.PerToken, f.rotary)
			rec.Do(backend.Angles{InvFreq: inv, Scale: 1.25, Y: angles})
		}
		q, gate = rec.New("q", kernels.F32, backend.PerToken, formHeads*f.dim), rec.New("gate", kernels.F32, backend.PerToken, formHeads*f.dim)
		k, v = rec.New("k", f.format, backend.PerToken, formKV*f.dim), rec.New("v", f.format, backend.PerToken, formKV*f.dim)
		o := backend.Rope{QKV: in, Angles: angles, Q: q, K: k, V: v, Heads: formHeads, KVHeads: formKV, HeadDim: f.dim, Rotary: f.rotary, Gated: f.gated, Gate: gate, Shared: f.shared, Interleaved: f.interleaved}
		if f.norm != nil {
			n := *f.norm
			if n.Q != backend.NoWeight {
				n.Q, n.K = tq, tk
			}
			o.Norm = &n
		}
		rec.Do(o)
	}})
	if f.norm != nil && f.norm.Q == backend.NoWeight {
		wq, wk = nil, nil
	}
	var alone []float32
	for _, rows := range []int{1, most} {
		rig.run(feed{tokens: upTo(rows), at: 77})
		var a []float32
		if f.rotary > 0 {
			a = rig.floats(angles, rows)
		}
		gq, gk, gv, gg := rig.floats(q, rows), rig.floats(k, rows), rig.floats(v, rows), rig.floats(gate, rows)
		if alone == nil {
			alone = append(append(append(alone, gq...), gk...), gv...)
		} else if first := append(append(append([]float32(nil), gq[:formHeads*f.dim]...), gk[:formKV*f.dim]...), gv[:formKV*f.dim]...); bits(alone, first) >= 0 {
			t.Fatal("the first row has other bits among other rows")
		}
		for row := range rows {
			in, angle := x[row*cols:(row+1)*cols], a[row*f.rotary:(row+1)*f.rotary]
			step := 1
			if f.gated {
				step = 2
			}
			for h := range formHeads {
				f.head(t, in[:formHeads*step*f.dim], h, step, wq, angle, gq[(row*formHeads+h)*f.dim:], 0)
				if got := gg[(row*formHeads+h)*f.dim:][:f.dim]; f.gated && bits(got, in[(2*h+1)*f.dim:]) >= 0 {
					t.Fatalf("row %d: gate of head %d is not its columns", row, h)
				}
			}
			round := map[kernels.Format]float64{kernels.F16: 1.0 / 2048, kernels.BF16: 1.0 / 256}[f.format]
			for h := range formKV {
				value := in[(formHeads*step+h)*f.dim:]
				if !f.shared {
					value = in[(formHeads*step+formKV+h)*f.dim:]
				}
				f.head(t, in[formHeads*step*f.dim:][:formKV*f.dim], h, 1, wk, angle, gk[(row*formKV+h)*f.dim:], round)
				f.value(t, value, gv[(row*formKV+h)*f.dim:], round)
			}
		}
	}
}

// least returns the rounding error of numbers below the normal ones of a format whose relative
// error is round.
func least(round float64) float64 {
	if round == 1.0/2048 { // fp16
		return 1.0 / (1 << 25)
	}
	return 1e-7 * round
}

// perHead reports whether each head has weights of its own.
func (f ropeForm) perHead() bool { return f.norm != nil && (f.norm.Whole || f.norm.Each) }

// head compares head h of a row's heads x, which begin every step heads, with a computation in
// float64, within 2⁻²⁰ of what its numbers are sums of, and the format's rounding.
func (f ropeForm) head(t *testing.T, x []float32, h, step int, w, angle, got []float32, round float64) {
	t.Helper()
	d := f.dim
	y, size := make([]float64, d), make([]float64, d)
	for i, v := range x[h*step*d:][:d] {
		y[i], size[i] = float64(v), math.Abs(float64(v))
	}
	if f.perHead() && w != nil {
		w = w[h*d:][:d]
	}
	half := f.rotary / 2
	rotate := func() {
		for i := range half {
			a, b := i, i+half
			if f.interleaved {
				a, b = 2*i, 2*i+1
			}
			p, q, c, s := y[a], y[b], float64(angle[i]), float64(angle[half+i])
			y[a], y[b] = p*c-q*s, q*c+p*s
			size[a] = 1.25 * (size[a] + size[b])
			size[b] = size[a]
		}
	}
	if f.norm == nil {
		rotate()
	} else if f.norm.After {
		rotate()
		f.normalize(y, size, y, w)
	} else if all := []float64(nil); f.norm.Whole {
		for _, v := range x {
			all = append(all, float64(v))
		}
		f.normalize(y, size, all, w)
		rotate()
	} else {
		f.normalize(y, size, y, w)
		rotate()
	}
	for i, want := range y {
		if d := math.Abs(float64(got[i]) - want); !(d <= size[i]/(1<<20)+math.Abs(want)*round+least(round)) {
			t.Fatalf("dimension %d of head %d: %v, want %v", i, h, got[i], want)
		}
	}
}

// normalize applies the norm of the numbers in `of` to a head and to the sizes of its terms.
func (f ropeForm) normalize(y, size, of []float64, w []float32) {
	mean, sum := 0.0, 0.0
	for _, v := range of {
		mean += v / float64(len(of))
	}
	if !f.norm.Plain {
		mean = 0
	}
	for _, v := range of {
		sum += (v - mean) * (v - mean)
	}
	inverse := 1 / math.Sqrt(sum/float64(len(of))+float64(f.norm.Eps))
	for i := range y {
		weight := 1.0
		if w != nil {
			weight = float64(f.norm.Offset) + float64(w[i])
		}
		y[i], size[i] = (y[i]-mean)*inverse*weight, (size[i]+math.Abs(mean))*inverse*math.Abs(weight)
	}
}

// value compares a head of V: copied, or normalised with weights of 1.
func (f ropeForm) value(t *testing.T, x, got []float32, round float64) {
	t.Helper()
	want, size, bound := make([]float64, f.dim), make([]float64, f.dim), round
	for i := range want {
		want[i] = float64(x[i])
	}
	if f.norm != nil && f.norm.V {
		f.normalize(want, size, want, nil)
		bound += 1.0 / (1 << 20)
	}
	for i, y := range want {
		if d := math.Abs(float64(got[i]) - y); !(d <= math.Abs(y)*bound+least(round)) {
			t.Fatalf("dimension %d of V: %v, want %v", i, got[i], y)
		}
	}
}

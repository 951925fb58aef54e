package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// ropeForm is a set of Rope's options besides rotation: norms of heads, gates, V from K.
type ropeForm struct {
	name          string
	norm          *backend.HeadNorm
	gated, shared bool
	dim, rotary   int
	format        kernels.Format
}

// ropeHeads tests every set of options, with the head sizes of all models.
func (s *subject) ropeHeads(t *testing.T) {
	norm, centred, values := &backend.HeadNorm{Eps: 1e-6}, &backend.HeadNorm{Eps: 1e-6, Offset: 1}, &backend.HeadNorm{Eps: 1e-6, V: true}
	for _, f := range []ropeForm{
		{"norm", norm, false, false, 64, 64, kernels.F32}, {"norm", norm, false, false, 128, 128, kernels.BF16},
		{"norm", norm, false, false, 20, 12, kernels.F16}, {"gated", nil, true, false, 48, 16, kernels.F32},
		{"gated with norm", centred, true, false, 256, 64, kernels.BF16}, {"norm of V", values, false, false, 256, 256, kernels.F32},
		{"shared", nil, false, true, 64, 64, kernels.F16}, {"shared with norms", values, false, true, 512, 128, kernels.BF16},
	} {
		t.Run(fmt.Sprintf("%s/%d of %d in %v", f.name, f.rotary, f.dim, f.format), func(t *testing.T) { f.test(t, s) })
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
	x, freqs := normal(r, most*cols, 2), make([]float32, f.rotary/2)
	for i := range freqs {
		freqs[i] = float32(math.Pow(10000, -2*float64(i)/float64(f.rotary)))
	}
	wq, wk := normal(r, f.dim, 0.5), normal(r, f.dim, 0.5)
	table, inv, tq, tk := m.table("x", x, cols), m.literal("freqs", freqs), m.vector("wq", kernels.F32, wq), m.vector("wk", kernels.F32, wk)
	var angles, q, k, v, gate backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 2, Samples: 1}, record: func(rec *backend.Recorder) {
		angles = rec.New("angles", kernels.F32, backend.PerToken, f.rotary)
		in := input(rec, table, cols)
		rec.Do(backend.Angles{InvFreq: inv, Scale: 1, Y: angles})
		q, gate = rec.New("q", kernels.F32, backend.PerToken, formHeads*f.dim), rec.New("gate", kernels.F32, backend.PerToken, formHeads*f.dim)
		k, v = rec.New("k", f.format, backend.PerToken, formKV*f.dim), rec.New("v", f.format, backend.PerToken, formKV*f.dim)
		o := backend.Rope{QKV: in, Angles: angles, Q: q, K: k, V: v, Heads: formHeads, KVHeads: formKV, HeadDim: f.dim, Rotary: f.rotary, Gated: f.gated, Gate: gate, Shared: f.shared}
		if f.norm != nil {
			n := *f.norm
			n.Q, n.K = tq, tk
			o.Norm = &n
		}
		rec.Do(o)
	}})
	for _, rows := range []int{1, most} {
		rig.run(feed{tokens: upTo(rows), at: 77})
		a, gq, gk, gv, gg := rig.floats(angles, rows), rig.floats(q, rows), rig.floats(k, rows), rig.floats(v, rows), rig.floats(gate, rows)
		for row := range rows {
			in, angle := x[row*cols:(row+1)*cols], a[row*f.rotary:(row+1)*f.rotary]
			step := 1
			if f.gated {
				step = 2
			}
			for h := range formHeads {
				f.head(t, in[h*step*f.dim:], wq, angle, gq[(row*formHeads+h)*f.dim:], 0)
				if got := gg[(row*formHeads+h)*f.dim:][:f.dim]; f.gated && bits(got, in[(2*h+1)*f.dim:]) >= 0 {
					t.Fatalf("row %d: gate of head %d is not its columns", row, h)
				}
			}
			round := map[kernels.Format]float64{kernels.F16: 1.0 / 2048, kernels.BF16: 1.0 / 256}[f.format]
			for h := range formKV {
				key := in[(formHeads*step+h)*f.dim:]
				value := key
				if !f.shared {
					value = in[(formHeads*step+formKV+h)*f.dim:]
				}
				f.head(t, key, wk, angle, gk[(row*formKV+h)*f.dim:], round)
				f.value(t, value, gv[(row*formKV+h)*f.dim:], round)
			}
		}
	}
}

// head compares a rotated head, within 2⁻²⁰ of both numbers of a pair and the format's
// rounding.
func (f ropeForm) head(t *testing.T, x, w, angle, got []float32, round float64) {
	t.Helper()
	in, want := append([]float32(nil), x[:f.dim]...), make([]float32, f.dim)
	if f.norm != nil {
		ref.NormOffset(in, nil, w, f.norm.Offset, f.norm.Eps, in)
	}
	ref.Rotate(in, angle, want)
	h := f.rotary / 2
	for i, y := range want {
		size := math.Abs(float64(in[i]))
		if i < 2*h {
			size = math.Abs(float64(in[i%h])) + math.Abs(float64(in[i%h+h]))
		}
		if d := math.Abs(float64(got[i] - y)); !(d <= size/(1<<20)+math.Abs(float64(y))*round+1e-7*round) {
			t.Fatalf("dimension %d: %v, want %v", i, got[i], y)
		}
	}
}

// value compares a head of V: copied, or normalised with weights of 1.
func (f ropeForm) value(t *testing.T, x, got []float32, round float64) {
	t.Helper()
	want := append([]float32(nil), x[:f.dim]...)
	bound := round
	if f.norm != nil && f.norm.V {
		ref.Norm(want, nil, nil, f.norm.Eps, want)
		bound += 1.0 / (1 << 20)
	}
	for i, y := range want {
		if d := math.Abs(float64(got[i] - y)); !(d <= math.Abs(float64(y))*bound+1e-7*round) {
			t.Fatalf("dimension %d of V: %v, want %v", i, got[i], y)
		}
	}
}

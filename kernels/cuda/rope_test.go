package cuda_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cudatest"
	"vapp.dev/kernels/ref"
)

func TestAngles(t *testing.T) {
	r := newRig(t)
	const half = 5
	freq := make([]float32, half)
	for i := range freq {
		freq[i] = float32(math.Pow(1e4, -float64(i)/half))
	}
	positions := []int32{0, 7, 131071, 3}
	angles := func(p int32) []float32 {
		y := make([]float32, 2*half)
		ref.Angles(p, freq, 1.25, y)
		return y
	}
	run := func(what string, rows int, a cuda.AnglesArgs, want []float32) {
		a.Frequencies, a.Y, a.Half, a.Scale = up(r, freq), alloc[float32](r, len(want)), half, 1.25
		launch(r, "angles", cudatest.Line(rows, 32), &a)
		r.near(what, down[float32](r, a.Y, len(want)), want, 1e-6)
	}
	var want []float32
	for _, p := range positions {
		want = append(want, angles(p)...)
	}
	run("rows", 4, cuda.AnglesArgs{Positions: up(r, positions)}, want)
	// Rows that are sequences, two positions after the accepted row; one has no accepted row
	// and any position.
	run("ahead", 2, cuda.AnglesArgs{Positions: up(r, positions), AcceptedRow: up(r, []int32{3, 1}), By: 2}, append(angles(5), angles(9)...))
	a, b := angles(2), angles(9)
	both := cuda.AnglesArgs{Across: up(r, []int32{2}), Down: up(r, []int32{9})}
	run("grid", 1, both, append(append([]float32{}, a...), b...))
	both.Joined = 1
	run("joined", 1, both, append(append(append(append([]float32{}, a[:half]...), b[:half]...), a[half:]...), b[half:]...))
	want = nil
	for _, p := range positions {
		for _, y := range angles(p) {
			want = append(want, y*ref.Temperature(p, 0.1, 4, 1))
		}
	}
	run("temperature", 4, cuda.AnglesArgs{Positions: up(r, positions), Every: 4, Offset: 1, Beta: 0.1}, want)
	places := []int32{4, 5, 6}
	want = make([]float32, 2*half)
	for i, axis := range []int{0, 1, 2, 0, 0} { // sections 2, 1, 1: frequency 4 is beyond 3·1
		y := angles(places[axis])
		want[i], want[half+i] = y[i], y[half+i]
	}
	run("sections", 1, cuda.AnglesArgs{Positions: up(r, []int32{4}), Places: up(r, places), Sections: [3]int32{2, 1, 1}}, want)
}

// ropeCase is one shape of rope.
type ropeCase struct {
	heads, kv, dim, rotary int
	parts                  int
	norm                   int32
	gated, shared          bool
	tempered, interleaved  bool
}

func TestRope(t *testing.T) {
	r := newRig(t)
	for i, c := range []ropeCase{
		{heads: 4, kv: 2, dim: 64, rotary: 64, parts: 1},
		{heads: 3, kv: 1, dim: 40, rotary: 20, parts: 1, norm: cuda.NormQK, gated: true},
		{heads: 2, kv: 2, dim: 96, rotary: 96, parts: 1, norm: cuda.NormQK | cuda.NormV, shared: true},
		{heads: 2, kv: 1, dim: 32, rotary: 24, parts: 2},
		{heads: 3, kv: 2, dim: 40, rotary: 40, parts: 1, norm: cuda.NormQK | cuda.NormWhole | cuda.NormEach},
		{heads: 3, kv: 2, dim: 40, rotary: 20, parts: 1, norm: cuda.NormQK | cuda.NormPlain | cuda.NormEach},
		{heads: 4, kv: 2, dim: 64, rotary: 48, parts: 1, norm: cuda.NormQK | cuda.NormAfter},
		{heads: 4, kv: 2, dim: 64, rotary: 64, parts: 1, norm: cuda.NormQK, tempered: true},
		{heads: 4, kv: 1, dim: 40, rotary: 0, parts: 1, norm: cuda.NormQK},
		{heads: 4, kv: 2, dim: 64, rotary: 64, parts: 1, interleaved: true},
		{heads: 3, kv: 2, dim: 40, rotary: 20, parts: 1, norm: cuda.NormQK | cuda.NormPlain | cuda.NormEach, interleaved: true},
		{heads: 4, kv: 2, dim: 64, rotary: 48, parts: 1, norm: cuda.NormQK | cuda.NormAfter, interleaved: true},
	} {
		for _, f := range []kernels.Format{kernels.BF16, kernels.F16, kernels.F32, kernels.F8E4M3, kernels.F8E5M2} {
			if i > 0 && f != kernels.F32 {
				continue
			}
			testRope(r, c, f)
		}
	}
}

func testRope(r *rig, c ropeCase, f kernels.Format) {
	const rows = 3
	step, parts := 1, 2
	if c.gated {
		step = 2
	}
	if c.shared {
		parts = 1
	}
	cols := (step*c.heads + parts*c.kv) * c.dim
	x, angles := r.floats(rows*cols, 1), r.floats(rows*c.rotary, 1)
	ofQ := angles
	if c.tempered {
		ofQ = r.floats(rows*c.rotary, 1)
	}
	wq, wk, whole := r.floats(c.heads*c.dim, 1), r.floats(c.kv*c.dim, 1), c.norm&cuda.NormWhole != 0
	a := cuda.RopeArgs{
		QKV: up(r, x), Angles: up(r, angles), Heads: int32(c.heads), KVHeads: int32(c.kv), HeadDim: int32(c.dim),
		Rotary: int32(c.rotary), Parts: int32(c.parts), Eps: 1e-6, Offset: 1,
	}
	if c.norm&cuda.NormPlain != 0 {
		a.Offset = 0
	}
	if c.tempered {
		a.QueryAngles = up(r, ofQ)
	}
	if c.norm != 0 {
		a.WQ, a.WK = up(r, wq), up(r, wk)
	} else {
		wq, wk = nil, nil
	}
	a.Shared, a.Norm, a.Interleaved = yes(c.shared), c.norm, yes(c.interleaved)
	rotate := ref.Rotate
	if c.interleaved {
		rotate = ref.RotatePairs
	}
	nq, nkv := rows*c.heads*c.dim, rows*c.kv*c.dim
	a.Q, a.K, a.V = alloc[float32](r, nq), alloc[byte](r, int(f.Bytes(int64(nkv)))), alloc[byte](r, int(f.Bytes(int64(nkv))))
	if c.gated {
		a.Gate = alloc[float32](r, nq)
	}
	launch(r, "rope_"+short(f), cudatest.Line(rows, 96), &a)
	var q, k, v, gate []float32
	for row := range rows {
		in := x[row*cols : (row+1)*cols]
		turn := func(heads, w, ang []float32, h int) []float32 {
			ang = ang[row*c.rotary : (row+1)*c.rotary]
			y := append([]float32{}, heads[h*c.dim:][:c.dim]...)
			normalize := func() {
				switch of := w[c.dim*h*int(c.norm/cuda.NormEach%2):]; {
				case whole:
					all := append([]float32{}, heads...)
					ref.NormOffset(all, nil, w, 1, 1e-6, all)
					copy(y, all[h*c.dim:])
				case c.norm&cuda.NormPlain != 0:
					ref.LayerNorm(y, of, nil, 1e-6, y)
				default:
					ref.NormOffset(y, nil, of[:c.dim], 1, 1e-6, y)
				}
			}
			if w != nil && c.norm&cuda.NormAfter == 0 {
				normalize()
			}
			for p := range c.parts {
				n := c.rotary / c.parts
				end := (p + 1) * n
				if p == c.parts-1 {
					end = len(y)
				}
				rotate(y[p*n:end], ang[p*n:(p+1)*n], y[p*n:end])
			}
			if c.norm&cuda.NormAfter != 0 {
				normalize()
			}
			return y
		}
		for h := range c.heads {
			q = append(q, turn(in[:step*c.heads*c.dim], wq, ofQ, step*h)...)
			if c.gated {
				gate = append(gate, in[(2*h+1)*c.dim:][:c.dim]...)
			}
		}
		keys := in[step*c.heads*c.dim:]
		for h := range c.kv {
			k = append(k, turn(keys[:c.kv*c.dim], wk, angles, h)...)
			value := append([]float32{}, keys[(c.kv*(parts-1)+h)*c.dim:][:c.dim]...)
			if c.norm&cuda.NormV != 0 {
				ref.Norm(value, nil, nil, 1e-6, value)
			}
			v = append(v, value...)
		}
	}
	bound := map[kernels.Format]float64{kernels.F32: 1e-6, kernels.BF16: 1.0 / 256, kernels.F16: 1.0 / 2048, kernels.F8E4M3: 1.0 / 16, kernels.F8E5M2: 1.0 / 8}[f]
	read := func(p cuda.Ptr) []float32 {
		out := make([]float32, nkv)
		ref.Dequantize(f, down[byte](r, p, int(f.Bytes(int64(nkv)))), out)
		return out
	}
	what := fmt.Sprint(c, f)
	r.near(what+" q", down[float32](r, a.Q, nq), q, 1e-6)
	r.near(what+" k", read(a.K), k, bound)
	r.near(what+" v", read(a.V), v, bound)
	if c.gated {
		r.near(what+" gate", down[float32](r, a.Gate, nq), gate, 0)
	}
	q = down[float32](r, a.Q, nq)
	s, halves := cuda.QueryFormat(f)
	queries := func() []byte { // in 16 bits
		inHalves := a
		inHalves.Q, inHalves.QStored = alloc[byte](r, 2*nq), storeOf(s)
		launch(r, "rope_"+short(f), cudatest.Line(rows, 96), &inHalves)
		return down[byte](r, inHalves.Q, 2*nq)
	}
	if halves {
		if b, _ := stored(s, q); !bytes.Equal(queries(), b) {
			r.Errorf("%s: queries in %v are not those in float32, rounded", what, s)
		}
	}
	r.inBF16(what, x, func(x cuda.Ptr, bf16 int32) []byte {
		a.QKV, a.XBF16 = x, bf16
		launch(r, "rope_"+short(f), cudatest.Line(rows, 96), &a)
		out := slices.Concat(down[byte](r, a.Q, 4*nq), down[byte](r, a.K, int(f.Bytes(int64(nkv)))), down[byte](r, a.V, int(f.Bytes(int64(nkv)))))
		if halves {
			out = append(out, queries()...)
		}
		if c.gated {
			out = append(out, down[byte](r, a.Gate, 4*nq)...)
		}
		return out
	})
}

// storeOf returns the Store of a format of queries.
func storeOf(f kernels.Format) int32 {
	n, _ := cuda.Store(f)
	return n
}

// TestStoredNumbers checks that values are stored as in ref, bit for bit: 8-bit formats
// saturate at their largest number, and a NaN stays a NaN. Queries in 16 bits are
// infinite beyond the largest number, as where attention rounds them.
func TestStoredNumbers(t *testing.T) {
	r := newRig(t)
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	special := []float32{nan, inf, -inf, 1e9, -1e9, 448, 464, 465, 480, -57344, 61440, 65504, 65520, 0x1p-9, 0x1p-10, 0x1.8p-10, -0x1p-16, 0x1p-17, 0x1p-25, 1 + 0x1p-8, 1.0625, 1.125, 1.1875}
	dim := (len(special) + 7) / 8 * 8
	v := append(special, r.floats(dim-len(special), 100)...)
	q := append([]float32{1, 2}, v[2:]...) // the two that are rotated, by nothing
	qkv := slices.Concat(q, make([]float32, dim), v)
	for _, f := range []kernels.Format{kernels.BF16, kernels.F16, kernels.F8E4M3, kernels.F8E5M2} {
		n := int(f.Bytes(int64(dim)))
		a := cuda.RopeArgs{
			QKV: up(r, qkv), Angles: up(r, []float32{1, 0}), Q: alloc[float32](r, dim), K: alloc[byte](r, n), V: alloc[byte](r, n),
			Heads: 1, KVHeads: 1, HeadDim: int32(dim), Rotary: 2, Parts: 1,
		}
		if f == kernels.BF16 || f == kernels.F16 {
			a.QStored = storeOf(f)
		}
		launch(r, "rope_"+short(f), cudatest.Line(1, 32), &a)
		check := func(p cuda.Ptr, v []float32) {
			got := make([]float32, dim)
			ref.Dequantize(f, down[byte](r, p, n), got)
			_, want := stored(f, v)
			for i := range v {
				if got[i] != want[i] && (got[i] == got[i] || want[i] == want[i]) {
					t.Errorf("%v: %v is stored as %v, want %v", f, v[i], got[i], want[i])
				}
			}
		}
		check(a.V, v)
		if a.QStored != 0 {
			check(a.Q, q)
		}
	}
}

func yes(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// rope tests Angles and Rope: whole and partial rotation, every K/V format, queries without keys.
func (s *subject) rope(t *testing.T) {
	for _, f := range kvFormats {
		for _, dims := range [][2]int{{32, 32}, {64, 64}, {96, 96}, {128, 128}, {64, 32}, {80, 80}} {
			t.Run(fmt.Sprintf("%v/%d of %d", f, dims[1], dims[0]), func(t *testing.T) { s.ropeOf(t, f, dims[0], dims[1], 1) })
		}
	}
	for _, dims := range [][2]int{{64, 64}, {80, 20}} {
		t.Run(fmt.Sprintf("queries alone/%d of %d", dims[1], dims[0]), func(t *testing.T) { s.ropeOf(t, kernels.F32, dims[0], dims[1], 0) })
	}
}

// ropeFreqs returns the frequencies of a rope of base 10000.
func ropeFreqs(rotary int) []float32 {
	freqs := make([]float32, rotary/2)
	for i := range freqs {
		freqs[i] = float32(math.Pow(10000, -2*float64(i)/float64(rotary)))
	}
	return freqs
}

func (s *subject) ropeOf(t *testing.T, f kernels.Format, dim, rotary, kv int) {
	const heads, most, scale = 3, 17, 1.25
	cols := (heads + 2*kv) * dim
	r, m := rng(uint64(dim)), &tensors{}
	x, freqs := normal(r, most*cols, 2), ropeFreqs(rotary)
	table, inv := m.table("x", x, cols), m.literal("freqs", freqs)
	var angles, q, k, v backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 2, Samples: 1}, record: func(rec *backend.Recorder) {
		in := input(rec, table, cols)
		angles = rec.New("angles", kernels.F32, backend.PerToken, rotary)
		rec.Do(backend.Angles{InvFreq: inv, Scale: scale, Y: angles})
		q = rec.New("q", kernels.F32, backend.PerToken, heads*dim)
		k, v = backend.NoValue, backend.NoValue
		if kv > 0 {
			k, v = rec.New("k", f, backend.PerToken, kv*dim), rec.New("v", f, backend.PerToken, kv*dim)
		}
		rec.Do(backend.Rope{QKV: in, Angles: angles, Q: q, K: k, V: v, Heads: heads, KVHeads: kv, HeadDim: dim, Rotary: rotary})
	}})
	ids := upTo(most)
	rig.run(feed{tokens: ids[:5], at: 0}, feed{tokens: ids[5:], at: 130000})
	a := rig.floats(angles, most)
	checkAngles(t, a, freqs, scale)
	gq, gk := rig.floats(q, most), []float32(nil)
	if kv > 0 {
		gk = rig.floats(k, most)
		if want := encode(f, valuesOf(x, most, cols, dim)); string(rig.bytes(v, most)) != string(want) {
			t.Error("V is not the input rounded to its format")
		}
	}
	for row := range most {
		angle := a[row*rotary : (row+1)*rotary]
		for h := range heads + kv {
			in, got, round := x[row*cols+h*dim:][:dim], []float32(nil), 0.0
			if h < heads {
				got = gq[(row*heads+h)*dim:][:dim]
			} else {
				got, round = gk[row*dim:][:dim], map[kernels.Format]float64{kernels.F16: 1.0 / 2048, kernels.BF16: 1.0 / 256}[f]
			}
			checkRotated(t, row, h, got, in, angle, round)
		}
	}
}

// valuesOf returns V, the last dim columns of each row.
func valuesOf(x []float32, rows, cols, dim int) []float32 {
	var v []float32
	for i := range rows {
		v = append(v, x[(i+1)*cols-dim:(i+1)*cols]...)
	}
	return v
}

// checkAngles: the angle is a float32 product; cos and sin of it within two
// units of the last place of 1, at positions up to 130011.
func checkAngles(t *testing.T, a, freqs []float32, scale float32) {
	t.Helper()
	n := 2 * len(freqs)
	want := make([]float32, n)
	for row := range len(a) / n {
		pos := int32(row)
		if row >= 5 {
			pos = 130000 + int32(row-5)
		}
		ref.Angles(pos, freqs, scale, want)
		for i, x := range a[row*n : (row+1)*n] {
			if d := math.Abs(float64(x - want[i])); !(d <= 2.4e-7*float64(scale)) {
				t.Fatalf("angle %d of position %d: %v, want %v", i, pos, x, want[i])
			}
		}
	}
}

// checkRotated allows 2⁻²² of the two products, and the rounding to K's format.
func checkRotated(t *testing.T, row, head int, got, x, angle []float32, round float64) {
	t.Helper()
	want := make([]float32, len(x))
	ref.Rotate(x, angle, want)
	h := len(angle) / 2
	for i := range got {
		bound := 0.0 // copied elements are exact except for the format
		if i < 2*h {
			bound = (math.Abs(float64(x[i%h])) + math.Abs(float64(x[i%h+h]))) * 2 / (1 << 22)
		}
		if d := math.Abs(float64(got[i]) - float64(want[i])); !(d <= bound+math.Abs(float64(want[i]))*round+least(round)) {
			t.Fatalf("row %d head %d dimension %d: %v, want %v", row, head, i, got[i], want[i])
		}
	}
}

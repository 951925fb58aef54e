package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// ropeLatent compares LatentRope with a computation in float64.
func (s *subject) ropeLatent(t *testing.T) {
	for _, f := range []kernels.Format{kernels.F32, kernels.F16, kernels.BF16, kernels.F8E4M3, kernels.F8E5M2} {
		for _, c := range []latentForm{
			{f, 3, 128, 512, 64, true}, {f, 3, 128, 512, 64, false}, {f, 2, 16, 40, 16, true}, {f, 1, 0, 32, 32, false},
		} {
			s.run(t, fmt.Sprintf("%v/%d heads of %d+%d, rank %d, pairs %t", f, c.heads, c.nope, c.rotary, c.rank, c.pairs), func(t *testing.T) { c.test(t, s) })
		}
	}
}

// latentForm is one geometry; pairs is LatentRope.Interleaved.
type latentForm struct {
	format                    kernels.Format
	heads, nope, rank, rotary int
	pairs                     bool
}

func (c latentForm) test(t *testing.T, s *subject) {
	const most, scale, eps = 17, 1.25, 1e-3
	r, m := rng(uint64(c.rank)), &tensors{}
	q, kv, before := normal(r, most*c.heads*(c.nope+c.rotary), 2), normal(r, most*(c.rank+c.rotary), 2), normal(r, most*c.heads*(c.rank+c.rotary), 1)
	w, freqs := normal(r, c.rank, 1), ropeFreqs(c.rotary)
	tables := [3]backend.WeightID{m.table("q", q, len(q)/most), m.table("kv", kv, len(kv)/most), m.table("before", before, len(before)/most)}
	inv, weight := m.literal("freqs", freqs), m.literal("norm", w)
	var angles, query, k, v backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 2, Samples: 1}, record: func(rec *backend.Recorder) {
		in := input(rec, tables[0], len(q)/most)
		down := rec.New("down", kernels.F32, backend.PerToken, len(kv)/most)
		query = rec.New("query", kernels.F32, backend.PerToken, len(before)/most)
		rec.Do(backend.Embed{Ids: 0, Table: tables[1], Y: down, Scale: 1})
		rec.Do(backend.Embed{Ids: 0, Table: tables[2], Y: query, Scale: 1})
		angles = rec.New("angles", kernels.F32, backend.PerToken, c.rotary)
		rec.Do(backend.Angles{InvFreq: inv, Scale: scale, Y: angles})
		k, v = rec.New("k", c.format, backend.PerToken, c.rotary), rec.New("v", c.format, backend.PerToken, c.rank)
		rec.Do(backend.LatentRope{Q: in, KV: down, Angles: angles, Query: query, K: k, V: v, Norm: weight, Eps: eps,
			Heads: c.heads, Nope: c.nope, Rank: c.rank, Rotary: c.rotary, Interleaved: c.pairs})
	}})
	ids := upTo(most)
	rig.run(feed{tokens: ids[:5], at: 0}, feed{tokens: ids[5:], at: 130000})
	a, gq, gk, gv := rig.floats(angles, most), rig.floats(query, most), rig.floats(k, most), rig.floats(v, most)
	round := map[kernels.Format]float64{kernels.F16: 1.0 / 2048, kernels.BF16: 1.0 / 256, kernels.F8E4M3: 1.0 / 16, kernels.F8E5M2: 1.0 / 8}[c.format]
	for row := range most {
		angle, x := a[row*c.rotary:][:c.rotary], kv[row*(c.rank+c.rotary):][:c.rank+c.rotary]
		for h := range c.heads {
			got := gq[(row*c.heads+h)*(c.rank+c.rotary):][:c.rank+c.rotary]
			if at := bits(got[:c.rank], before[(row*c.heads+h)*(c.rank+c.rotary):][:c.rank]); at >= 0 {
				t.Fatalf("row %d head %d: column %d was changed", row, h, at)
			}
			c.rotated(t, fmt.Sprintf("row %d head %d", row, h), got[c.rank:], q[(row*c.heads+h)*(c.nope+c.rotary)+c.nope:][:c.rotary], angle, 0)
		}
		c.rotated(t, fmt.Sprintf("row %d key", row), gk[row*c.rotary:][:c.rotary], x[c.rank:], angle, round)
		square := 0.0
		for _, y := range x[:c.rank] {
			square += float64(y) * float64(y)
		}
		for i, y := range gv[row*c.rank:][:c.rank] {
			want := float64(x[i]) * float64(w[i]) / math.Sqrt(square/float64(c.rank)+eps)
			if d := math.Abs(float64(y) - want); !(d <= math.Abs(want)*(1.0/(1<<20)+round)+c.least()) {
				t.Fatalf("row %d: latent number %d is %v, want %v", row, i, y, want)
			}
		}
	}
}

// least returns the rounding error of numbers below the format's least normal one.
func (c latentForm) least() float64 {
	return map[kernels.Format]float64{kernels.F16: 1.0 / (1 << 25), kernels.F8E4M3: 1.0 / (1 << 10), kernels.F8E5M2: 1.0 / (1 << 17)}[c.format] + 1e-30
}

// rotated compares rotated numbers with those of x.
func (c latentForm) rotated(t *testing.T, what string, got, x, angle []float32, round float64) {
	t.Helper()
	h := len(x) / 2
	for i := range h {
		first, second := i, i+h
		if c.pairs {
			first, second = 2*i, 2*i+1
		}
		p, q := float64(x[first]), float64(x[second])
		cos, sin := float64(angle[i]), float64(angle[h+i])
		for at, want := range map[int]float64{first: p*cos - q*sin, second: q*cos + p*sin} {
			if d := math.Abs(float64(got[at]) - want); !(d <= (math.Abs(p)+math.Abs(q))*2/(1<<22)+math.Abs(want)*round+c.least()) {
				t.Fatalf("%s, number %d: %v, want %v", what, at, got[at], want)
			}
		}
	}
}

package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/kernels"
)

// rebuilt tests attention over pages that store only the rotated part of a key and rebuild
// the rest from values. It compares with whole keys in the oracle, and bit for bit with whole
// keys in pages of the same backend. A value times its weight is exact in every format.
func (s *subject) rebuilt(t *testing.T) {
	for _, k := range []struct {
		name    string
		long    int
		turning int
		attentionCase
	}{
		{"gemma4", 40, 128, attentionCase{heads: 4, kv: 1, dim: 512, block: 16}},
		{"beyond a span", 300, 16, attentionCase{heads: 4, kv: 2, dim: 32, block: 32}},
		{"three of each half", 70, 6, attentionCase{heads: 6, kv: 3, dim: 72, block: 16}},
		{"in a window", 70, 8, attentionCase{heads: 2, kv: 2, dim: 32, block: 16, window: 33, keeps: 33}},
	} {
		for _, f := range []kernels.Format{kernels.F32, kernels.F16, kernels.BF16, kernels.F8E4M3, kernels.F8E5M2} {
			s.run(t, fmt.Sprintf("%s/%v", k.name, f), func(t *testing.T) {
				c := k.attentionCase
				c.format, c.turning, c.weights = f, k.turning, make([]float32, c.dim)
				for i := range c.weights {
					c.weights[i] = []float32{1, 2, -1, 4, -2}[i%5]
				}
				whole := c.test(t, s, k.long)
				c.rebuilds = true
				for i, got := range c.test(t, s, k.long) {
					if at := bits(got, whole[i]); at >= 0 {
						t.Errorf("sequence %d: number %d is %v, with whole keys %v", i, at, got[at], whole[i][at])
					}
				}
			})
		}
	}
}

// prepare sets the numbers of every row's K that are not rotated: to the rebuilt values for
// whole keys, or to values that a backend must not read.
func (c attentionCase) prepare() {
	if c.turning == 0 {
		return
	}
	first, width := c.heads*c.dim, c.kv*c.dim
	for at := first; at < len(c.x); at += c.cols {
		k := c.x[at:][:width]
		if !c.rebuilds {
			c.share(k, c.x[at+width:][:width])
			continue
		}
		for i := range k {
			if !c.turns(i % c.dim) {
				k[i] = float32(math.NaN())
			}
		}
	}
}

// share sets the numbers of keys that are not rotated from the stored values.
func (c attentionCase) share(k, v []float32) {
	for i, x := range decode(c.format, encode(c.format, v)) {
		if d := i % c.dim; !c.turns(d) {
			k[i] = x * c.weights[d]
		}
	}
}

// turns reports whether number d of a key is rotated.
func (c attentionCase) turns(d int) bool { return d%(c.dim/2) < c.turning/2 }

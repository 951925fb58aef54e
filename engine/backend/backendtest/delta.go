package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// delta tests DeltaNet: heads that share keys, odd sizes, long sequences, several chunkings,
// and steps that go back to before rejected proposals.
func (s *subject) delta(t *testing.T) {
	for _, c := range []deltaCase{
		{keyHeads: 1, valueHeads: 1, keyDim: 8, valueDim: 4}, {keyHeads: 2, valueHeads: 4, keyDim: 64, valueDim: 64},
		{keyHeads: 1, valueHeads: 3, keyDim: 128, valueDim: 128}, {keyHeads: 1, valueHeads: 2, keyDim: 33, valueDim: 50},
		{keyHeads: 1, valueHeads: 1, keyDim: 256, valueDim: 96},
	} {
		s.run(t, fmt.Sprintf("%d keys of %d, %d values of %d", c.keyHeads, c.keyDim, c.valueHeads, c.valueDim), func(t *testing.T) {
			c.open(0)
			want := c.oracle()
			bound := c.bounds(want)
			c.recurrent.test(t, s, want, func(seq, i int) float64 { return bound[seq][i] })
		})
	}
	for _, drafts := range []int{0, 3} {
		s.run(t, fmt.Sprintf("checkpoints, %d proposals", drafts), func(t *testing.T) {
			for _, c := range []deltaCase{{keyHeads: 2, valueHeads: 4, keyDim: 32, valueDim: 64}, {keyHeads: 1, valueHeads: 2, keyDim: 33, valueDim: 50}} {
				c.open(drafts)
				c.resume(t, s)
			}
		})
	}
	s.run(t, "proposals", func(t *testing.T) {
		const drafts = 3
		c := deltaCase{keyHeads: 2, valueHeads: 4, keyDim: 32, valueDim: 40}
		c.open(drafts)
		r := c.rig(t, s)
		plain, want := c.runs(r, []int{0}, []int{16})[0], c.oracle()
		for i, bound := range c.bounds(want)[0] {
			if d := math.Abs(float64(plain[i] - want[0][i])); !(d <= bound) {
				t.Fatalf("number %d: %v, want %v", i, plain[i], want[0][i])
			}
		}
		c.rollback(t, s, plain, drafts)
	})
}

// deltaCase is one geometry.
type deltaCase struct {
	recurrent
	keyHeads, valueHeads, keyDim, valueDim int
	qkv, ba, aLog, bias                    []float32
}

func (c *deltaCase) open(drafts int) {
	keys, h := 2*c.keyHeads*c.keyDim, c.valueHeads
	cols := keys + h*c.valueDim
	c.recurrent = recurrent{lengths: []int{100, 33, 1, 2}, most: 140, tensors: &tensors{}, width: h * c.valueDim}
	if drafts > 0 {
		c.lengths = []int{90, 90}
	}
	c.shape = backend.StateShape{ConvRows: 3, ConvCols: 16, ConvFormat: kernels.BF16, Heads: h, Rows: c.keyDim, Cols: c.valueDim, Copies: 1 + drafts}
	c.qkv, c.ba = c.inputs(1, cols, 1), c.inputs(2, 2*h, 1.5)
	c.aLog, c.bias = normal(rng(3), h, 1), normal(rng(4), h, 1)
	c.aLog[0] = -5 // a head that forgets next to nothing
	m := c.tensors
	tx, tb, ta, td := m.table("x", c.qkv, cols), m.table("ba", c.ba, 2*h), m.vector("a_log", kernels.F32, c.aLog), m.vector("dt_bias", kernels.F32, c.bias)
	c.record = func(rec *backend.Recorder) backend.Value {
		x, ba := input(rec, tx, cols), input(rec, tb, 2*h)
		y := rec.New("y", kernels.F32, backend.PerToken, c.width)
		rec.Do(backend.DeltaNet{QKV: x, BA: ba, Y: y, ALog: ta, DtBias: td, KeyHeads: c.keyHeads, ValueHeads: h, KeyDim: c.keyDim, ValueDim: c.valueDim, Layer: 1})
		return y
	}
}

// oracle returns the results of each sequence, by the recurrence in float64.
func (c *deltaCase) oracle() [][]float32 {
	var want [][]float32
	h, keys, group := c.valueHeads, c.keyHeads*c.keyDim, c.valueHeads/c.keyHeads
	for seq, n := range c.lengths {
		y, state, first := make([]float32, n*c.width), make([]float32, h*c.keyDim*c.valueDim), int(c.tokens(seq, 0, 1)[0])
		for t := range n {
			x, ba := split(c.qkv, 2*keys+c.width)[first+t], split(c.ba, 2*h)[first+t]
			for i := range h {
				ref.Delta(ref.DeltaArgs{
					Q: x[i/group*c.keyDim:][:c.keyDim], K: x[keys+i/group*c.keyDim:][:c.keyDim], V: x[2*keys+i*c.valueDim:][:c.valueDim],
					B: ba[i], A: ba[h+i], ALog: c.aLog[i], Bias: c.bias[i],
					State: state[i*c.keyDim*c.valueDim:][:c.keyDim*c.valueDim], Y: y[t*c.width+i*c.valueDim:][:c.valueDim],
				})
			}
		}
		want = append(want, y)
	}
	return want
}

// bounds returns 2⁻¹⁷ of the head's largest result so far, because sums can cancel the values
// of a state.
func (c *deltaCase) bounds(want [][]float32) [][]float64 {
	var out [][]float64
	for _, y := range want {
		bound, top := make([]float64, len(y)), make([]float64, c.valueHeads)
		for at := 0; at < len(y); at += c.valueDim {
			h := at / c.valueDim % c.valueHeads
			for _, v := range y[at : at+c.valueDim] {
				top[h] = max(top[h], math.Abs(float64(v))/(1<<17))
			}
			for i := range c.valueDim {
				bound[at+i] = top[h]
			}
		}
		out = append(out, bound)
	}
	return out
}

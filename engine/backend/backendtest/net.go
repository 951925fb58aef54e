package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// net is a small Llama written by hand: every op that the family records, two
// layers, random weights.
type net struct {
	weights, pages kernels.Format
	block          int
	rows, seqs     int // of the bucket
	sampled        bool
	tops           int
	swap           bool                  // Swap has as many slots as KV has pages
	latent         bool                  // attention is latent
	shared         backend.PackedWeights // of another rig

	logits backend.Value
}

// Sizes of a net: whole blocks in every format.
const (
	netHidden = 256
	netInner  = 256
	netHeads  = 4
	netKV     = 2
	netDim    = 64
	netVocab  = 96
	netLayers = 2
	netMax    = 96 // positions of a sequence
)

// rig opens the net. pages is the size of the arena in sequences of netMax.
func (n *net) rig(t testing.TB, s *subject, sequences int) *rig {
	t.Helper()
	m := &tensors{}
	w := n.add(m)
	width := netMax / n.block
	return s.rig(t, plan{
		tensors: m, vocab: netVocab, bucket: backend.Bucket{Tokens: n.rows, Seqs: n.seqs, Samples: n.rows},
		classes: []backend.KVClass{n.class(width)}, pages: sequences * width, bias: 4, tops: n.tops, swap: n.swap, weights: n.shared,
		record: func(rec *backend.Recorder) { n.record(rec, w) },
	})
}

// class returns the class of the net's pages.
func (n *net) class(maxPages int) backend.KVClass {
	if !n.latent {
		return class(n.pages, n.block, netLayers, netKV, netDim, maxPages)
	}
	c := class(n.pages, n.block, netLayers, 1, netRank, maxPages)
	c.KeyDim = netRotary
	c.SlabBytes = 2*c.PageBytes() + 64
	return c
}

// rotary returns how many dimensions of a head are rotated.
func (n *net) rotary() int {
	if n.latent {
		return netRotary
	}
	return netDim
}

// netWeights are the ids of the net's weights.
type netWeights struct {
	table, freqs, norm backend.WeightID
	layers             [netLayers]struct {
		norm1, qkv, bias, out, norm2, up, down backend.WeightID
		latent                                 latentWeights
	}
}

func (n *net) add(m *tensors) (w netWeights) {
	r := rng(99)
	matrix := func(name string, use backend.Use, rows, cols int) backend.WeightID {
		return m.matrix(name, use, n.weights, rows, cols, random(r, n.weights, rows*cols, 1.5/math.Sqrt(float64(cols))))
	}
	vector := func(name string, cols int) backend.WeightID {
		x := normal(r, cols, 0.1)
		for i := range x {
			x[i]++
		}
		return m.vector(name, kernels.BF16, x)
	}
	w.table = matrix("table", backend.Lookup|backend.Multiply, netVocab, netHidden)
	w.freqs = m.literal("freqs", ropeFreqs(n.rotary()))
	for i := range w.layers {
		l, p := &w.layers[i], fmt.Sprintf("%d.", i)
		l.norm1, l.norm2 = vector(p+"norm1", netHidden), vector(p+"norm2", netHidden)
		if n.latent {
			l.latent = n.addLatent(m, p, matrix, vector)
		} else {
			l.qkv = matrix(p+"qkv", backend.Multiply, (netHeads+2*netKV)*netDim, netHidden)
			l.bias = vector(p+"bias", (netHeads+2*netKV)*netDim)
		}
		l.out = matrix(p+"out", backend.Multiply, netHidden, netHeads*netDim)
		l.up = matrix(p+"up", backend.Multiply, 2*netInner, netHidden)
		m.specs[l.up].GateUp = true
		l.down = matrix(p+"down", backend.Multiply, netHidden, netInner)
	}
	w.norm = vector("norm", netHidden)
	return w
}

func (n *net) record(r *backend.Recorder, w netWeights) {
	val := func(name string, cols int) backend.Value { return r.New(name, kernels.F32, backend.PerToken, cols) }
	ids := r.New("ids", kernels.I32, backend.PerToken, 1)
	r.Do(backend.Tokens{Out: ids})
	r.Do(backend.StoreTokens{Ids: ids})
	x, angles := val("residual", netHidden), val("angles", n.rotary())
	r.Do(backend.Embed{Ids: ids, Table: w.table, Y: x, Scale: 1})
	r.Do(backend.Angles{InvFreq: w.freqs, Scale: 1, Y: angles})
	delta, normed := val("delta", netHidden), val("normed", netHidden)
	qkv, q, y := val("qkv", (netHeads+2*netKV)*netDim), val("q", netHeads*netDim), val("y", netHeads*netDim)
	k, v := r.New("k", n.pages, backend.PerToken, netKV*netDim), r.New("v", n.pages, backend.PerToken, netKV*netDim)
	up, act := val("up", 2*netInner), val("act", netInner)
	first := backend.Norm{X: x, Residual: backend.NoValue, W: w.layers[0].norm1, Eps: 1e-5, Y: normed}
	for i, l := range w.layers {
		if first.W = l.norm1; i > 0 {
			first.X, first.Residual = delta, x
		}
		r.Do(first)
		if n.latent {
			n.recordLatent(r, l.latent, normed, angles, y, i)
		} else {
			r.Do(backend.Linear{X: normed, W: l.qkv, Bias: l.bias, Y: qkv})
			r.Do(backend.Rope{QKV: qkv, Angles: angles, Q: q, K: k, V: v, Heads: netHeads, KVHeads: netKV, HeadDim: netDim, Rotary: netDim})
			r.Do(backend.Attention{Q: q, K: k, V: v, Y: y, Layer: i, Heads: netHeads, KVHeads: netKV, HeadDim: netDim, Scale: 0.125})
			r.Do(backend.StoreKV{K: k, V: v, Layer: i})
		}
		r.Do(backend.Linear{X: y, W: l.out, Bias: backend.NoWeight, Y: delta})
		r.Do(backend.Norm{X: delta, Residual: x, W: l.norm2, Eps: 1e-5, Y: normed})
		r.Do(backend.Linear{X: normed, W: l.up, Bias: backend.NoWeight, Y: up})
		r.Do(backend.GLU{X: up, Y: act})
		r.Do(backend.Linear{X: act, W: l.down, Bias: backend.NoWeight, Y: delta})
	}
	r.Do(backend.Norm{X: delta, Residual: x, W: w.norm, Eps: 1e-5, Y: normed})
	last := r.New("last", kernels.F32, backend.PerSample, netHidden)
	r.Do(backend.Gather{X: normed, Y: last})
	n.logits = r.New("logits", kernels.F32, backend.PerSample, netVocab)
	r.Do(backend.Linear{X: last, W: w.table, Bias: backend.NoWeight, Y: n.logits})
	if n.sampled {
		r.Do(backend.Sample{Logits: n.logits})
	}
}

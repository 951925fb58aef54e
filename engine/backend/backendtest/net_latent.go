package backendtest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// equalLatent checks the bits of rows of a net with latent attention.
func (s *subject) equalLatent(t *testing.T) {
	for _, f := range slices.Backward(kvFormats) { // BF16 first: backends that run few cases run this one
		for _, kv := range slices.Backward(kvFormats) {
			if f == kernels.BF16 || f == kv {
				s.run(t, fmt.Sprintf("%v on %v", f, kv), func(t *testing.T) { s.equalNet(t, net{weights: f, pages: kv, latent: true}) })
			}
		}
	}
}

// The sizes of a net with latent attention.
const (
	netNope   = 48
	netRotary = 32
	netRank   = 128
)

// latentWeights are those of latent attention in one layer.
type latentWeights struct{ q, down, norm, key, value backend.WeightID }

func (n *net) addLatent(m *tensors, name string, matrix func(string, backend.Use, int, int) backend.WeightID, vector func(string, int) backend.WeightID) (w latentWeights) {
	w.q = matrix(name+"q", backend.Multiply, netHeads*(netNope+netRotary), netHidden)
	w.down, w.norm = matrix(name+"kv", backend.Multiply, netRank+netRotary, netHidden), vector(name+"kv_norm", netRank)
	r := rng(uint64(len(name)))
	w.key = m.stack(name+"key", n.weights, netHeads, netRank, netNope, random(r, n.weights, netHeads*netRank*netNope, 1/math.Sqrt(netNope)), true)
	w.value = m.stack(name+"value", n.weights, netHeads, netDim, netRank, random(r, n.weights, netHeads*netRank*netDim, 1/math.Sqrt(netRank)), false)
	return w
}

// recordLatent records the attention of one layer on x.
func (n *net) recordLatent(r *backend.Recorder, w latentWeights, x, angles, y backend.Value, layer int) {
	val := func(name string, cols int) backend.Value { return r.New(name, kernels.F32, backend.PerToken, cols) }
	q, down, query, mid := val("q", netHeads*(netNope+netRotary)), val("down", netRank+netRotary), val("query", netHeads*(netRank+netRotary)), val("mid", netHeads*netRank)
	k, v := r.New("k", n.pages, backend.PerToken, netRotary), r.New("v", n.pages, backend.PerToken, netRank)
	r.Do(backend.Linear{X: x, W: w.q, Bias: backend.NoWeight, Y: q})
	r.Do(backend.Linear{X: x, W: w.down, Bias: backend.NoWeight, Y: down})
	r.Do(backend.LatentRope{Q: q, KV: down, Angles: angles, Query: query, K: k, V: v, Norm: w.norm, Eps: 1e-5, Heads: netHeads, Nope: netNope, Rank: netRank, Rotary: netRotary, Interleaved: true})
	r.Do(backend.HeadLinear{X: q, W: w.key, Y: query, Heads: netHeads})
	r.Do(backend.Attention{Q: query, K: k, V: v, Y: mid, Layer: layer, Heads: netHeads, KVHeads: 1, HeadDim: netRank, Latent: netRotary, Scale: 0.125})
	r.Do(backend.StoreKV{K: k, V: v, Layer: layer})
	r.Do(backend.HeadLinear{X: mid, W: w.value, Y: y, Heads: netHeads})
	r.Free(q, down, query, mid, k, v)
}

// addLatent adds the weights of latentPass.
func (c *passCase) addLatent(m *tensors, vocab int) {
	r, ones := rng(6), make([]float32, c.dim)
	for i := range ones {
		ones[i] = 1
	}
	c.down = m.table("down", normal(r, vocab*(c.dim+c.latent), 1), c.dim+c.latent)
	c.norm = m.literal("norm", ones)
	c.key = m.stack("key", kernels.BF16, c.heads, c.dim, c.latent, encode(kernels.BF16, normal(r, c.heads*c.dim*c.latent, 0.1)), false)
}

// latentPass is pass for latent attention; q has as many numbers without rotation as with it.
func (c *passCase) latentPass(rec *backend.Recorder, ids backend.Value, row0 int, q, angles backend.Value, a *backend.DraftPosition, store bool) backend.Value {
	rows := rec.Info(ids).Rows
	down, query := rec.New("down", kernels.F32, rows, c.dim+c.latent), rec.New("query", kernels.F32, rows, c.heads*(c.dim+c.latent))
	k, v, y := rec.New("k", c.format, rows, c.latent), rec.New("v", c.format, rows, c.dim), rec.New("y", kernels.F32, rows, c.heads*c.dim)
	rec.Do(backend.Embed{Ids: ids, Table: c.down, Y: down, Scale: 1, Row0: row0})
	rec.Do(backend.LatentRope{Q: q, KV: down, Angles: angles, Query: query, K: k, V: v, Norm: c.norm, Eps: 1e-6, Heads: c.heads, Nope: c.latent, Rank: c.dim, Rotary: c.latent})
	rec.Do(backend.HeadLinear{X: q, W: c.key, Y: query, Heads: c.heads})
	rec.Do(backend.Attention{Q: query, K: k, V: v, Y: y, Layer: 1, Heads: c.heads, KVHeads: 1, HeadDim: c.dim, Latent: c.latent, Scale: 0.1, Draft: a})
	if store {
		rec.Do(backend.StoreKV{K: k, V: v, Layer: 1, Draft: a})
	}
	return y
}

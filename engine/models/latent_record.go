package models

import (
	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// projectLatent returns the absorbed queries [rows, heads·(rank+rotary)], the rotated keys [rows,
// rotary] and the normalized latents [rows, rank] of a layer.
func (s *decoderPass) projectLatent(layer int) (q, k, v backend.Value) {
	r, a, w := s.r, s.latent, s.layers[layer].latent
	n := s.input(s.layers[layer].attnNorm)
	f, rows := r.Class(s.class+s.paging.at[layer].class).Format, r.Info(n).Rows
	linear := func(x backend.Value, weight backend.WeightID, name string, cols int) backend.Value {
		y := r.New(name, kernels.F32, rows, cols)
		r.Do(backend.Linear{X: x, W: weight, Bias: backend.NoWeight, Y: y})
		return y
	}
	x := n
	if w.queryDown != backend.NoWeight {
		x = linear(n, w.queryDown, "q_latent", a.queryRank)
		r.Do(backend.Norm{X: x, Residual: backend.NoValue, W: w.queryNorm, Eps: latentEps, Y: x})
	}
	heads := linear(x, w.query, "q_heads", s.heads*(a.nope+a.rotary))
	if x != n {
		r.Free(x)
	}
	kv := linear(n, w.down, "kv", a.rank+a.rotary)
	r.Free(n)
	q = r.New("q", kernels.F32, rows, s.heads*(a.rank+a.rotary))
	k, v = r.New("k", f, rows, a.rotary), r.New("v", f, rows, a.rank)
	r.Do(backend.LatentRope{Q: heads, KV: kv, Angles: s.angles[0], Query: q, K: k, V: v, Norm: w.norm, Eps: latentEps,
		Heads: s.heads, Nope: a.nope, Rank: a.rank, Rotary: a.rotary, Interleaved: a.interleaved})
	r.Do(backend.HeadLinear{X: heads, W: w.keys, Y: q, Heads: s.heads})
	r.Free(heads, kv)
	return q, k, v
}

// expandValues consumes the heads' sums of latents and returns their values [rows, heads·value].
func (s *decoderPass) expandValues(latents backend.Value, layer int) backend.Value {
	y := s.r.New("values", kernels.F32, s.r.Info(latents).Rows, s.heads*s.latent.value)
	s.r.Do(backend.HeadLinear{X: latents, W: s.layers[layer].latent.values, Y: y, Heads: s.heads})
	s.r.Free(latents)
	return y
}

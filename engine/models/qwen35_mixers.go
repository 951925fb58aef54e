package models

import (
	"math"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// attend consumes n and returns the attention outputs, each head multiplied by the sigmoid of its
// gate. store is true if a later op or step reads the rows' keys.
func (s *qwen35Pass) attend(n backend.Value, w qwen35Layer, store bool) backend.Value {
	r, heads, kv, d := s.r, s.rank.heads, s.rank.kvHeads, s.cfg.HeadDim
	f := r.Class(w.class).Format
	qkv := s.linear(n, w.attention.qkv, "qkv", 2*(heads+kv)*d)
	r.Free(n)
	q, gate := r.New("q", kernels.F32, s.rows, heads*d), r.New("gate", kernels.F32, s.rows, heads*d)
	k, v := r.New("k", f, s.rows, kv*d), r.New("v", f, s.rows, kv*d)
	norm := &backend.HeadNorm{Q: w.attention.qNorm, K: w.attention.kNorm, Eps: float32(s.cfg.RMSNormEps), Offset: s.cfg.normOffset}
	r.Do(backend.Rope{QKV: qkv, Angles: s.angles, Q: q, K: k, V: v, Heads: heads, KVHeads: kv, HeadDim: d,
		Rotary: 2 * len(s.cfg.rope.InvFreq), Norm: norm, Gated: true, Gate: gate})
	r.Free(qkv)
	y := r.New("attn", kernels.F32, s.rows, heads*d)
	r.Do(backend.Attention{Q: q, K: k, V: v, Y: y, Class: w.class, Layer: w.slot, Heads: heads, KVHeads: kv, HeadDim: d,
		Scale: float32(1 / math.Sqrt(float64(d))), Draft: s.ahead})
	if store {
		r.Do(backend.StoreKV{K: k, V: v, Class: w.class, Layer: w.slot, Draft: s.ahead})
	}
	r.Do(backend.Gate{X: y, Gate: gate})
	r.Free(q, k, v, gate)
	return y
}

// deltaNet consumes n and returns the mixer's outputs: the convolution, the recurrence, and a norm
// of each head gated by z.
func (s *qwen35Pass) deltaNet(n backend.Value, w qwen35Layer) backend.Value {
	r, q, d := s.r, s.cfg, w.delta
	cols, values := q.channels(s.rank.keyHeads, s.rank.valueHeads), s.rank.valueHeads*q.valueDim
	in := s.linear(n, d.qkv, "qkv", cols)
	ba := s.linear(n, d.ba, "ba", 2*s.rank.valueHeads)
	z := s.linear(n, d.z, "z", values)
	r.Free(n)
	qkv := r.New("conv", kernels.F32, s.rows, cols)
	r.Do(backend.Conv{X: in, Y: qkv, W: d.conv, Kernel: q.kernel, Class: w.class, Layer: w.slot})
	r.Free(in)
	y := r.New("delta_net", kernels.F32, s.rows, values)
	r.Do(backend.DeltaNet{QKV: qkv, BA: ba, Y: y, ALog: d.aLog, DtBias: d.dtBias, KeyHeads: s.rank.keyHeads, ValueHeads: s.rank.valueHeads,
		KeyDim: q.keyDim, ValueDim: q.valueDim, Class: w.class, Layer: w.slot})
	r.Free(qkv, ba)
	r.Do(backend.Norm{X: y, Residual: backend.NoValue, W: d.norm, Eps: float32(q.RMSNormEps), Y: y, Segment: q.valueDim, Gated: true, Gate: z})
	r.Free(z)
	return y
}

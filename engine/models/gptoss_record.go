package models

import (
	"math"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

func (m *gptOss) Weights() []backend.WeightSpec { return m.weights }
func (m *gptOss) Vocab() int                    { return m.size }

// Classes returns the classes of the full layers and of the windows.
func (m *gptOss) Classes(blockSize int, f kernels.Format) []backend.KVClass {
	k := backend.KVClass{KVHeads: m.kvHeads, HeadDim: m.cfg.HeadDim}
	window := k
	window.Window = m.cfg.SlidingWindow
	return m.paging.classes(k, window, blockSize, f)
}

// Record records the forward pass of the stage. The residual stream x stays F32. The last layer's
// mixture and the head run on sampled rows only.
func (m *gptOss) Record(p *backend.Program) (*backend.Program, error) {
	c := m.cfg
	p.Weights, p.Vocab, p.Shard, p.AdapterSlots = m.weights, m.size, m.Shard, m.LoRA.Slots
	r := backend.Record(p)
	ids, x := beginResidual(r, m.vocabulary, m.stage)
	angles := r.New("angles", kernels.F32, backend.PerToken, c.HeadDim)
	r.Do(backend.Angles{InvFreq: m.freqs, Scale: m.ropeScale, Y: angles})
	delta := backend.NoValue
	for i, w := range m.layers {
		n := m.normalize(r, x, delta, w.attnNorm)
		attn, keys, values := m.attention(r, n, angles, i)
		if m.stage.last && i == len(m.layers)-1 {
			attn, x = takeSampled(r, attn), takeSampled(r, x)
		}
		delta = r.New("delta", kernels.F32, r.Info(attn).Rows, c.HiddenSize)
		r.Do(backend.Linear{X: attn, W: w.out, Bias: w.outBias, Y: delta})
		r.Do(backend.AllReduce{X: delta})
		r.Free(attn)
		n = m.normalize(r, x, delta, w.mlpNorm)
		r.Free(keys, values) // a backend may store them as late as with the norm
		delta = m.mixture(r, n, w)
	}
	r.Free(angles)
	if !m.stage.last {
		r.Do(backend.Add{X: delta, Into: x, Scale: backend.NoWeight})
		r.Do(backend.Send{X: x})
		r.Free(delta, x)
		return r.Program()
	}
	last := m.normalize(r, x, delta, m.norm)
	r.Free(x)
	m.finish(r, last, ids, 0)
	return r.Program()
}

// normalize consumes delta, adds it to x and returns the norm of the sum.
func (m *gptOss) normalize(r *backend.Recorder, x, delta backend.Value, w backend.WeightID) backend.Value {
	n := backend.Norm{X: x, Residual: backend.NoValue, W: w, Eps: float32(m.cfg.RMSNormEps)}
	if delta != backend.NoValue {
		n.X, n.Residual = delta, x
	}
	n.Y = r.New("normed", kernels.F32, r.Info(x).Rows, m.cfg.HiddenSize)
	r.Do(n)
	if delta != backend.NoValue {
		r.Free(delta)
	}
	return n.Y
}

// attention consumes n and returns the heads' outputs [T, heads·headDim], and the keys and values.
func (m *gptOss) attention(r *backend.Recorder, n, angles backend.Value, layer int) (y, keys, values backend.Value) {
	at, w := m.paging.at[layer], m.layers[layer]
	k := r.Class(at.class)
	heads, kv, d := m.heads, m.kvHeads, m.cfg.HeadDim
	qkv := r.New("qkv", kernels.F32, backend.PerToken, (heads+2*kv)*d)
	r.Do(backend.Linear{X: n, W: w.qkv, Bias: w.qkvBias, Y: qkv})
	r.Free(n)
	q := r.New("q", kernels.F32, backend.PerToken, heads*d)
	keys = r.New("k", k.Format, backend.PerToken, kv*d)
	values = r.New("v", k.Format, backend.PerToken, kv*d)
	r.Do(backend.Rope{QKV: qkv, Angles: angles, Q: q, K: keys, V: values, Heads: heads, KVHeads: kv, HeadDim: d, Rotary: d})
	r.Free(qkv)
	y = r.New("attn", kernels.F32, backend.PerToken, heads*d)
	r.Do(backend.Attention{Q: q, K: keys, V: values, Y: y, Class: at.class, Layer: at.layer, Heads: heads, KVHeads: kv, HeadDim: d,
		Scale: float32(1 / math.Sqrt(float64(d))), Window: k.Window, Sinked: true, Sinks: w.sinks})
	r.Do(backend.StoreKV{K: keys, V: values, Class: at.class, Layer: at.layer})
	r.Free(q)
	return y, keys, values
}

// mixture consumes n and returns the experts' contribution to the residual.
func (m *gptOss) mixture(r *backend.Recorder, n backend.Value, w gptOssLayer) backend.Value {
	c, rows := m.cfg, r.Info(n).Rows
	logits := r.New("router", kernels.F32, rows, c.NumExperts)
	r.Do(backend.Linear{X: n, W: w.router, Bias: w.routerBias, Y: logits})
	ids := r.New("expert_ids", kernels.I32, rows, c.ExpertsPerToken)
	shares := r.New("expert_weights", kernels.F32, rows, c.ExpertsPerToken)
	r.Do(backend.Route{Logits: logits, Ids: ids, Weights: shares, Top: c.ExpertsPerToken, Scale: backend.NoWeight})
	r.Free(logits)
	d := r.New("delta", kernels.F32, rows, c.HiddenSize)
	r.Do(backend.Experts{X: n, Ids: ids, Weights: shares, Y: d, GateUp: w.gateUp, Down: w.down,
		GateUpBias: w.gateUpBias, DownBias: w.downBias, Top: c.ExpertsPerToken, Width: m.width, Activation: m.act})
	r.Do(backend.AllReduce{X: d})
	r.Free(n, ids, shares)
	return d
}

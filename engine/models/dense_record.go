package models

import (
	"math"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// Record is the forward pass of the stage. The residual stream x stays F32; the
// last layer's MLP and the head run on sampled rows only.
func (m *dense) Record(p *backend.Program) (*backend.Program, error) {
	c := m.cfg
	p.Weights, p.Vocab, p.Shard = m.weights, m.size, m.Shard
	r := backend.Record(p)
	x := enter(r, m.vocabulary, m.stage)
	angles := r.New("angles", kernels.F32, backend.PerToken, c.HeadDim)
	r.Do(backend.Angles{InvFreq: m.freqs, Scale: m.ropeScale, Y: angles})
	delta := backend.NoValue
	rows := backend.PerToken
	for i, w := range m.layers {
		n := r.New("normed", kernels.F32, rows, c.HiddenSize)
		r.Do(m.normed(x, delta, w.attnNorm, n))
		if delta != backend.NoValue {
			r.Free(delta)
		}
		attn := m.attention(r, n, angles, i)
		if m.stage.last && i == len(m.layers)-1 {
			attn, x = sampled(r, attn), sampled(r, x)
			rows = backend.PerSample
		}
		delta = m.project(r, attn, rows, w)
		n = r.New("normed", kernels.F32, rows, c.HiddenSize)
		r.Do(m.normed(x, delta, w.mlpNorm, n))
		r.Free(delta)
		delta = m.mlp(r, n, rows, w)
	}
	if !m.stage.last {
		r.Do(backend.Add{X: delta, Into: x, Scale: backend.NoWeight})
		r.Do(backend.Send{X: x})
		r.Free(delta, x, angles)
		return r.Program()
	}
	last := r.New("normed", kernels.F32, rows, c.HiddenSize)
	r.Do(m.normed(x, delta, m.norm, last))
	r.Free(delta, x, angles)
	logits := m.logits(r, last)
	r.Do(backend.Sample{Logits: logits})
	r.Free(last, logits)
	return r.Program()
}

func (m *dense) normed(x, delta backend.Value, w backend.WeightID, y backend.Value) backend.Norm {
	n := backend.Norm{X: x, Residual: backend.NoValue, W: w, Eps: float32(m.cfg.RMSNormEps), Y: y}
	if delta != backend.NoValue {
		n.X, n.Residual = delta, x
	}
	return n
}

// attention consumes n and returns the heads' outputs [T, heads·headDim].
func (m *dense) attention(r *backend.Recorder, n, angles backend.Value, layer int) backend.Value {
	f, heads, kv, d := r.Class(0).Format, m.heads, m.kvHeads, m.cfg.HeadDim
	w := m.layers[layer]
	qkv := r.New("qkv", kernels.F32, backend.PerToken, (heads+2*kv)*d)
	r.Do(backend.Linear{X: n, W: w.qkv, Bias: w.qkvBias, Y: qkv})
	r.Free(n)
	q := r.New("q", kernels.F32, backend.PerToken, heads*d)
	k := r.New("k", f, backend.PerToken, kv*d)
	v := r.New("v", f, backend.PerToken, kv*d)
	r.Do(backend.Rope{QKV: qkv, Angles: angles, Q: q, K: k, V: v, Heads: heads, KVHeads: kv, HeadDim: d, Rotary: d, Norm: w.headNorm})
	r.Free(qkv)
	y := r.New("attn", kernels.F32, backend.PerToken, heads*d)
	r.Do(backend.Attention{Q: q, K: k, V: v, Y: y, Layer: layer, Heads: heads, KVHeads: kv, HeadDim: d,
		Scale: float32(1 / math.Sqrt(float64(d)))})
	r.Do(backend.StoreKV{K: k, V: v, Layer: layer})
	r.Free(q, k, v)
	return y
}

// project consumes attn and returns attention's contribution to the residual.
func (m *dense) project(r *backend.Recorder, attn backend.Value, rows backend.Rows, w denseLayer) backend.Value {
	d := r.New("delta", kernels.F32, rows, m.hidden)
	r.Do(backend.Linear{X: attn, W: w.out, Bias: w.outBias, Y: d})
	r.Do(backend.AllReduce{X: d})
	r.Free(attn)
	return d
}

// mlp consumes n and returns the MLP's contribution to the residual.
func (m *dense) mlp(r *backend.Recorder, n backend.Value, rows backend.Rows, w denseLayer) backend.Value {
	gu := r.New("gate_up", kernels.F32, rows, 2*m.width)
	r.Do(backend.Linear{X: n, W: w.gateUp, Bias: w.gateUpBias, Y: gu})
	r.Free(n)
	a := r.New("act", kernels.F32, rows, m.width)
	r.Do(backend.GLU{X: gu, Y: a})
	r.Free(gu)
	d := r.New("delta", kernels.F32, rows, m.hidden)
	r.Do(backend.Linear{X: a, W: w.down, Bias: w.downBias, Y: d})
	r.Do(backend.AllReduce{X: d})
	r.Free(a)
	return d
}

// sampled consumes a value of all tokens and returns its sampled rows.
func sampled(r *backend.Recorder, v backend.Value) backend.Value {
	in := r.Info(v)
	y := r.New(in.Name+".sampled", in.Format, backend.PerSample, in.Cols)
	r.Do(backend.Gather{X: v, Y: y})
	r.Free(v)
	return y
}

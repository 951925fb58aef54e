package models

import (
	"math"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// Record records the forward pass of the stage. The residual stream x stays F32. The last layer's
// MLP and the head run on sampled rows only.
func (m *gemma) Record(p *backend.Program) (*backend.Program, error) {
	p.Weights, p.Vocab, p.Shard = m.weights, m.size, m.Shard
	r := backend.Record(p)
	ids, x := beginResidual(r, m.vocabulary, m.stage)
	if m.Vision && m.stage.first {
		r.Do(backend.Merge{X: x})
	}
	sliding, full := backend.NoValue, backend.NoValue
	if m.paging.window > 0 {
		sliding = m.slidingAngles.record(r, "angles.sliding")
	}
	if m.paging.full > 0 {
		full = m.fullAngles.record(r, "angles.full")
	}
	for i, w := range m.layers {
		attn := m.attention(r, x, i, sliding, full)
		if m.stage.last && i == len(m.layers)-1 {
			attn, x = takeSampled(r, attn), takeSampled(r, x)
		}
		delta := m.rowParallel(r, attn, w.out)
		m.normalizeInPlace(r, delta, w.attnPost)
		n := m.normalize(r, backend.Norm{X: delta, Residual: x, W: w.mlpNorm})
		r.Free(delta)
		delta = m.mlp(r, n, w)
		if m.text.moe {
			m.normalizeInPlace(r, delta, w.densePost)
			experts := m.mixture(r, x, w)
			m.normalizeInPlace(r, experts, w.expertPost)
			r.Do(backend.Add{X: experts, Into: delta, Scale: backend.NoWeight})
			r.Free(experts)
		}
		m.normalizeInPlace(r, delta, w.mlpPost)
		r.Do(backend.Add{X: delta, Into: x, Scale: w.scalar})
		r.Free(delta)
	}
	for _, v := range []backend.Value{sliding, full} {
		if v != backend.NoValue {
			r.Free(v)
		}
	}
	if !m.stage.last {
		r.Do(backend.Send{X: x})
		r.Free(x)
		return r.Program()
	}
	last := m.normalize(r, backend.Norm{X: x, Residual: backend.NoValue, W: m.norm})
	r.Free(x)
	m.finish(r, last, ids, m.cfg.FinalLogitSoftcap)
	return r.Program()
}

func (a gemmaAngles) record(r *backend.Recorder, name string) backend.Value {
	y := r.New(name, kernels.F32, backend.PerToken, a.rotary)
	r.Do(backend.Angles{InvFreq: a.freqs, Scale: a.scale, Y: y})
	return y
}

// normalize records n with the config's epsilon and returns its new result.
func (m *gemma) normalize(r *backend.Recorder, n backend.Norm) backend.Value {
	in := r.Info(n.X)
	n.Eps, n.Y = float32(m.cfg.RMSNormEps), r.New("normed", kernels.F32, in.Rows, in.Cols)
	r.Do(n)
	return n.Y
}

// normalizeInPlace normalizes x in place.
func (m *gemma) normalizeInPlace(r *backend.Recorder, x backend.Value, w backend.WeightID) {
	r.Do(backend.Norm{X: x, Residual: backend.NoValue, W: w, Eps: float32(m.cfg.RMSNormEps), Y: x})
}

// kv returns this rank's share of n key/value heads.
func (m *gemma) kv(n int) int {
	_, own := m.part(n)
	return own
}

// attention normalizes x and returns the heads' outputs [T, heads·headDim].
func (m *gemma) attention(r *backend.Recorder, x backend.Value, layer int, sliding, full backend.Value) backend.Value {
	w, at, k := m.layers[layer], m.paging.at[layer], m.text.kind(m.stage.layer0+layer)
	class, kv, d := r.Class(at.class), m.kv(k.kvHeads), k.headDim
	angles, rope := sliding, m.slidingAngles
	op := backend.Attention{Class: at.class, Layer: at.layer, Heads: m.heads, KVHeads: kv, HeadDim: d, Scale: 1, Window: class.Window,
		Items: m.Vision && !k.full && m.text.seesItems}
	cols := m.heads + 2*kv
	if k.full {
		angles, rope = full, m.fullAngles
		if m.Rebuild {
			op.Rebuild = &backend.Rebuild{Weight: w.heads.K, Rotary: class.KeyDim}
		}
	}
	if k.shared {
		cols -= kv
	}
	n := m.normalize(r, backend.Norm{X: x, Residual: backend.NoValue, W: w.attnNorm})
	qkv := r.New("qkv", kernels.F32, backend.PerToken, cols*d)
	r.Do(backend.Linear{X: n, W: w.qkv, Bias: backend.NoWeight, Y: qkv})
	r.Free(n)
	op.Q = r.New("q", kernels.F32, backend.PerToken, m.heads*d)
	op.K = r.New("k", class.Format, backend.PerToken, kv*d)
	op.V = r.New("v", class.Format, backend.PerToken, kv*d)
	r.Do(backend.Rope{QKV: qkv, Angles: angles, Q: op.Q, K: op.K, V: op.V, Heads: m.heads, KVHeads: kv, HeadDim: d,
		Rotary: rope.rotary, Norm: &w.heads, Shared: k.shared})
	r.Free(qkv)
	op.Y = r.New("attn", kernels.F32, backend.PerToken, m.heads*d)
	r.Do(op)
	r.Do(backend.StoreKV{K: op.K, V: op.V, Class: at.class, Layer: at.layer})
	r.Free(op.Q, op.K, op.V)
	return op.Y
}

// rowParallel consumes x and returns its product with a row-parallel matrix, summed over the ranks.
func (m *gemma) rowParallel(r *backend.Recorder, x backend.Value, w backend.WeightID) backend.Value {
	d := r.New("delta", kernels.F32, r.Info(x).Rows, m.hidden)
	r.Do(backend.Linear{X: x, W: w, Bias: backend.NoWeight, Y: d})
	r.Do(backend.AllReduce{X: d})
	r.Free(x)
	return d
}

// mlp consumes n and returns the dense MLP's result.
func (m *gemma) mlp(r *backend.Recorder, n backend.Value, w gemmaLayer) backend.Value {
	return gatedMLP{gateUp: w.gateUp, gateUpBias: backend.NoWeight, down: w.down, downBias: backend.NoWeight,
		width: m.width, act: backend.Activation{Act: backend.GELUTanh}}.record(r, n)
}

// mixture returns the experts' result for x, the residual before the MLP. The router and the
// experts each apply their own norm to x.
func (m *gemma) mixture(r *backend.Recorder, x backend.Value, w gemmaLayer) backend.Value {
	c, rows := m.cfg, r.Info(x).Rows
	n := m.normalize(r, backend.Norm{X: x, Residual: backend.NoValue, W: w.routerScale, Scale: float32(1 / math.Sqrt(float64(m.hidden)))})
	logits := r.New("router", kernels.F32, rows, c.NumExperts)
	r.Do(backend.Linear{X: n, W: w.router, Bias: backend.NoWeight, Y: logits})
	r.Free(n)
	ids := r.New("expert_ids", kernels.I32, rows, c.ExpertsPerToken)
	shares := r.New("expert_weights", kernels.F32, rows, c.ExpertsPerToken)
	r.Do(backend.Route{Logits: logits, Ids: ids, Weights: shares, Top: c.ExpertsPerToken, Scale: w.expertScale})
	r.Free(logits)
	n = m.normalize(r, backend.Norm{X: x, Residual: backend.NoValue, W: w.expertNorm})
	y := r.New("experts", kernels.F32, rows, m.hidden)
	r.Do(backend.Experts{X: n, Ids: ids, Weights: shares, Y: y, GateUp: w.expertGateUp, Down: w.expertDown,
		GateUpBias: backend.NoWeight, DownBias: backend.NoWeight, Top: c.ExpertsPerToken, Width: m.expertWidth,
		Activation: backend.Activation{Act: backend.GELUTanh}})
	r.Do(backend.AllReduce{X: y})
	r.Free(n, ids, shares)
	return y
}

package models

import (
	"math"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// Record records the forward pass of the stage. The residual stream x stays F32. The last layer's
// MLP and the head run on sampled rows only.
func (m *gemma) Record(p *backend.Program) (*backend.Program, error) {
	p.Weights, p.Vocab, p.Shard, p.AdapterSlots = m.weights, m.size, m.Shard, m.LoRA.Slots
	r := backend.Record(p)
	ids, x := beginResidual(r, m.vocabulary, m.stage)
	if m.Vision && m.stage.first {
		r.Do(backend.Merge{X: x})
	}
	own := m.beginPerLayer(r)
	sliding, full := backend.NoValue, backend.NoValue
	if m.paging.window > 0 {
		sliding = m.slidingAngles.record(r, "angles.sliding")
	}
	if m.paging.full > 0 {
		full = m.fullAngles.record(r, "angles.full")
	}
	kept := map[int]keptKV{}
	for i, w := range m.layers {
		attn, held := m.attention(r, x, i, sliding, full, kept)
		input := own.of(m, r, w.perLayer)
		if m.stage.last && i == len(m.layers)-1 {
			attn, x = takeSampled(r, attn), takeSampled(r, x)
			if input != backend.NoValue {
				input = takeSampled(r, input)
			}
		}
		delta := m.rowParallel(r, attn, w.out)
		m.normalizeInPlace(r, delta, w.attnPost)
		n := m.normalize(r, backend.Norm{X: delta, Residual: x, W: w.mlpNorm})
		r.Free(delta)
		r.Free(held...)
		delta = m.mlp(r, n, w)
		if m.text.moe {
			experts := m.mixture(r, x, w)
			m.normalizeInPlace(r, delta, w.densePost) // beside the norms that follow: backend cuda launches them together
			m.normalizeInPlace(r, experts, w.expertPost)
			r.Do(backend.Add{X: experts, Into: delta, Scale: backend.NoWeight})
			r.Free(experts)
		}
		m.normalizeInPlace(r, delta, w.mlpPost)
		if input != backend.NoValue {
			r.Do(backend.Add{X: delta, Into: x, Scale: backend.NoWeight})
			r.Free(delta)
			delta = m.addPerLayer(r, x, input, w.perLayer)
		}
		r.Do(backend.Add{X: delta, Into: x, Scale: w.scalar})
		r.Free(delta)
	}
	for _, v := range []backend.Value{sliding, full, own.ids, own.x} {
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

// embeddings are the step's tokens [T,1] and their embeddings [T,hidden], which per-layer
// embeddings are computed from; NoValue in models without.
type embeddings struct{ ids, x backend.Value }

// beginPerLayer records what per-layer embeddings are computed from. Each stage looks the tokens up:
// the residual that it receives is no longer their embedding.
func (m *gemma) beginPerLayer(r *backend.Recorder) embeddings {
	if m.text.perLayer == 0 {
		return embeddings{backend.NoValue, backend.NoValue}
	}
	ids := r.New("ids.per_layer", kernels.I32, backend.PerToken, 1)
	r.Do(backend.Tokens{Out: ids})
	return embeddings{ids, m.lookup(r, ids, "embeddings")}
}

// of returns a layer's own embedding of each token [T, perLayer]: with p values a layer, √p · table[id]
// plus the normalized projection of the token's embedding, both times √½. The projection is divided
// by √hidden before its norm, which here multiplies epsilon by hidden.
func (e embeddings) of(m *gemma, r *backend.Recorder, w perLayerInput) backend.Value {
	if e.x == backend.NoValue {
		return backend.NoValue
	}
	y := r.New("per_layer", kernels.F32, backend.PerToken, m.text.perLayer)
	r.Do(backend.Linear{X: e.x, W: w.project, Bias: backend.NoWeight, Y: y})
	r.Do(backend.Norm{X: y, Residual: backend.NoValue, W: m.perLayerNorm, Eps: float32(m.cfg.RMSNormEps * float64(m.hidden)), Y: y, Scale: perLayerShare})
	v := r.New("per_layer.table", kernels.F32, backend.PerToken, m.text.perLayer)
	first, _ := m.part(m.size)
	r.Do(backend.Embed{Ids: e.ids, Table: w.table, Y: v, Scale: m.perLayerScale, Row0: first})
	r.Do(backend.AllReduce{X: v})
	r.Do(backend.Add{X: v, Into: y, Scale: backend.NoWeight})
	r.Free(v)
	return y
}

// addPerLayer consumes a layer's own embeddings and returns what they add to x: the normalized
// projection of gelu(gate · x) · input.
func (m *gemma) addPerLayer(r *backend.Recorder, x, input backend.Value, w perLayerInput) backend.Value {
	rows, n := r.Info(x).Rows, m.text.perLayer
	gate := r.New("per_layer.gate", kernels.F32, rows, n)
	r.Do(backend.Linear{X: x, W: w.gate, Bias: backend.NoWeight, Y: gate})
	both := r.New("per_layer.both", kernels.F32, rows, 2*n)
	r.Do(backend.Concat{A: gate, B: input, Y: both})
	r.Free(gate, input)
	act := r.New("per_layer.act", kernels.F32, rows, n)
	r.Do(backend.GLU{X: both, Y: act, Activation: backend.Activation{Act: backend.GELUTanh}})
	r.Free(both)
	delta := r.New("delta", kernels.F32, rows, m.hidden)
	r.Do(backend.Linear{X: act, W: w.out, Bias: backend.NoWeight, Y: delta})
	r.Free(act)
	m.normalizeInPlace(r, delta, w.post)
	return delta
}

// keptKV is a layer's keys and values that later layers read too. readers is how many are left.
type keptKV struct {
	k, v    backend.Value
	readers int
}

// readers returns how many later layers read the keys and values of a layer of the stage.
func (m *gemma) readers(layer int) int {
	n := 0
	for i := range m.layers {
		if i > layer && m.text.source(m.stage.layer0+i) == m.stage.layer0+layer {
			n++
		}
	}
	return n
}

// attention normalizes x and returns the heads' outputs [T, heads·headDim]. Keys and values are
// stored behind the last layer that reads them. Before a mixture those that are stored, held, live on: a backend may store them as late
// as with the norm before it, which is also written where a plain MLP's input is only packed (release).
func (m *gemma) attention(r *backend.Recorder, x backend.Value, layer int, sliding, full backend.Value, kept map[int]keptKV) (y backend.Value, held []backend.Value) {
	source := m.text.source(m.stage.layer0+layer) - m.stage.layer0
	reuses := source != layer
	w, at, k := m.layers[layer], m.paging.at[layer], m.text.kind(m.stage.layer0+layer)
	class, kv, d := r.Class(at.class), m.kv(k.kvHeads), k.headDim
	angles, rope := sliding, m.slidingAngles
	op := backend.Attention{Class: at.class, Layer: at.layer, Heads: m.heads, KVHeads: kv, HeadDim: d, Scale: 1, Window: class.Window,
		Items: m.Vision && !k.full && m.text.seesItems}
	cols := m.heads + 2*kv
	if k.full {
		angles, rope = full, m.fullAngles
		if m.Rebuild {
			op.Rebuild = &backend.Rebuild{Weight: m.layers[source].heads.K, Rotary: class.KeyDim}
		}
	}
	switch {
	case reuses:
		cols, kv = m.heads, 0
	case k.shared:
		cols -= kv
	}
	n := m.normalize(r, backend.Norm{X: x, Residual: backend.NoValue, W: w.attnNorm})
	qkv := r.New("qkv", kernels.F32, backend.PerToken, cols*d)
	r.Do(backend.Linear{X: n, W: w.qkv, Bias: backend.NoWeight, Y: qkv})
	r.Free(n)
	op.Q = r.New("q", kernels.F32, backend.PerToken, m.heads*d)
	own := keptKV{backend.NoValue, backend.NoValue, m.readers(layer)}
	if !reuses {
		own.k = r.New("k", class.Format, backend.PerToken, kv*d)
		own.v = r.New("v", class.Format, backend.PerToken, kv*d)
	}
	r.Do(backend.Rope{QKV: qkv, Angles: angles, Q: op.Q, K: own.k, V: own.v, Heads: m.heads, KVHeads: kv, HeadDim: d,
		Rotary: rope.rotary, Norm: &w.heads, Shared: k.shared && !reuses})
	r.Free(qkv)
	if reuses {
		own = kept[source]
		own.readers--
	}
	kept[source] = own
	op.K, op.V = own.k, own.v
	op.Y = r.New("attn", kernels.F32, backend.PerToken, m.heads*d)
	r.Do(op)
	if own.readers == 0 {
		r.Do(backend.StoreKV{K: op.K, V: op.V, Class: at.class, Layer: at.layer})
		held = []backend.Value{op.K, op.V}
		if !m.text.moe {
			r.Free(held...)
			held = nil
		}
	}
	r.Free(op.Q)
	return op.Y, held
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
		width: w.width, act: backend.Activation{Act: backend.GELUTanh}}.record(r, n)
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

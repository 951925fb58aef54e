package models

import (
	"math"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// densePass is a pass of the stage's layers over rows of one kind: all tokens, the sampled tokens,
// or one row per sequence in a draft pass.
type densePass struct {
	*dense
	r      *backend.Recorder
	x      backend.Value // the residual stream [rows,hidden]
	delta  backend.Value // the pending addition to it; NoValue: none
	angles backend.Value
	ahead  *backend.DraftPosition // where the rows are; nil: tokens
}

// pass starts a pass with the residual stream x.
func (m *dense) pass(r *backend.Recorder, x backend.Value, ahead *backend.DraftPosition) *densePass {
	y := r.New("angles", kernels.F32, r.Info(x).Rows, m.cfg.HeadDim)
	r.Do(backend.Angles{InvFreq: m.freqs, Scale: m.ropeScale, Y: y, Draft: ahead})
	return &densePass{dense: m, r: r, x: x, delta: backend.NoValue, angles: y, ahead: ahead}
}

// Record records the forward pass of the stage. The residual stream x stays F32. The last layer's
// MLP and the head run on sampled rows only.
func (m *dense) Record(p *backend.Program) (*backend.Program, error) {
	p.Weights, p.Vocab, p.Shard = m.weights, m.size, m.Shard
	r := backend.Record(p)
	ids, x := beginResidual(r, m.vocabulary, m.stage)
	s := m.pass(r, x, nil)
	for i := range m.layers {
		attn := s.attention(i, true)
		if m.stage.last && i == len(m.layers)-1 {
			attn, s.x = takeSampled(r, attn), takeSampled(r, s.x)
		}
		s.finishLayer(attn, m.layers[i])
	}
	if !m.stage.last {
		r.Do(backend.Add{X: s.delta, Into: s.x, Scale: backend.NoWeight})
		r.Do(backend.Send{X: s.x})
		r.Free(s.delta, s.x, s.angles)
		return r.Program()
	}
	last := s.normalize(s.norm)
	r.Free(s.x, s.angles)
	m.finish(r, last, ids, 0)
	return r.Program()
}

// normalize adds the pending delta to the residual stream and returns its norm.
func (s *densePass) normalize(w backend.WeightID) backend.Value {
	y := s.r.New("normed", kernels.F32, s.r.Info(s.x).Rows, s.cfg.HiddenSize)
	n := backend.Norm{X: s.x, Residual: backend.NoValue, W: w, Eps: float32(s.cfg.RMSNormEps), Y: y}
	if s.delta != backend.NoValue {
		n.X, n.Residual = s.delta, s.x
	}
	s.r.Do(n)
	free(s.r, s.delta)
	s.delta = backend.NoValue
	return y
}

// projectQKV returns the queries, keys and values of a layer.
func (s *densePass) projectQKV(layer int) (q, k, v backend.Value) {
	r, w, heads, kv, d := s.r, s.layers[layer], s.heads, s.kvHeads, s.cfg.HeadDim
	n := s.normalize(w.attnNorm)
	f, rows := r.Class(s.class).Format, r.Info(n).Rows
	qkv := r.New("qkv", kernels.F32, rows, (heads+2*kv)*d)
	r.Do(backend.Linear{X: n, W: w.qkv, Bias: w.qkvBias, Y: qkv})
	r.Free(n)
	q = r.New("q", kernels.F32, rows, heads*d)
	k = r.New("k", f, rows, kv*d)
	v = r.New("v", f, rows, kv*d)
	r.Do(backend.Rope{QKV: qkv, Angles: s.angles, Q: q, K: k, V: v, Heads: heads, KVHeads: kv, HeadDim: d, Rotary: d, Norm: w.headNorm})
	r.Free(qkv)
	return q, k, v
}

// attention returns the heads' outputs [rows, heads·headDim]. store is true if later rows read the
// keys and values.
func (s *densePass) attention(layer int, store bool) backend.Value {
	r, heads, kv, d := s.r, s.heads, s.kvHeads, s.cfg.HeadDim
	q, k, v := s.projectQKV(layer)
	y := r.New("attn", kernels.F32, r.Info(q).Rows, heads*d)
	r.Do(backend.Attention{Q: q, K: k, V: v, Y: y, Class: s.class, Layer: layer, Heads: heads, KVHeads: kv, HeadDim: d,
		Scale: float32(1 / math.Sqrt(float64(d))), Draft: s.ahead})
	if store {
		r.Do(backend.StoreKV{K: k, V: v, Class: s.class, Layer: layer, Draft: s.ahead})
	}
	r.Free(q, k, v)
	return y
}

// finishLayer consumes attention's outputs and records their projection and the MLP.
func (s *densePass) finishLayer(attn backend.Value, w denseLayer) {
	s.delta = s.rowParallel(attn, w.out, w.outBias)
	m := gatedMLP{gateUp: w.gateUp, gateUpBias: w.gateUpBias, down: w.down, downBias: w.downBias, width: s.width}
	s.delta = m.record(s.r, s.normalize(w.mlpNorm))
}

// rowParallel consumes x and returns W·x, summed over the ranks.
func (s *densePass) rowParallel(x backend.Value, w, bias backend.WeightID) backend.Value {
	d := s.r.New("delta", kernels.F32, s.r.Info(x).Rows, s.hidden)
	s.r.Do(backend.Linear{X: x, W: w, Bias: bias, Y: d})
	s.r.Do(backend.AllReduce{X: d})
	s.r.Free(x)
	return d
}

// head ends the pass and returns the logits of its rows.
func (s *densePass) head() backend.Value {
	last := s.normalize(s.norm)
	s.r.Free(s.x, s.angles)
	logits := s.logits(s.r, last)
	s.r.Free(last)
	return logits
}

// takeSampled consumes a value of all tokens and returns its sampled rows.
func takeSampled(r *backend.Recorder, v backend.Value) backend.Value {
	in := r.Info(v)
	y := r.New(in.Name+".sampled", in.Format, backend.PerSample, in.Cols)
	r.Do(backend.Gather{X: v, Y: y})
	r.Free(v)
	return y
}

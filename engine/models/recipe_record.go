package models

import (
	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// decoderPass is a pass of the stage's layers over rows of one kind: all tokens, the sampled tokens,
// or one row per sequence in a draft pass.
type decoderPass struct {
	*decoder
	r      *backend.Recorder
	x      backend.Value          // the residual stream [rows,hidden]
	delta  backend.Value          // the pending addition to it; NoValue: none
	normed backend.Value          // of parallel blocks: attention's input, which the MLP reads too; NoValue: none
	held   []backend.Value        // the keys and values of a layer that are not freed yet
	angles []backend.Value        // by rope; NoValue: no layer of the stage has it
	ofQ    []backend.Value        // by rope: angles of scaled queries; NoValue: they have those of keys
	ahead  *backend.DraftPosition // where the rows are; nil: tokens
}

// pass starts a pass with the residual stream x.
func (m *decoder) pass(r *backend.Recorder, x backend.Value, ahead *backend.DraftPosition) *decoderPass {
	s := &decoderPass{decoder: m, r: r, x: x, delta: backend.NoValue, normed: backend.NoValue, ahead: ahead}
	for i, rope := range m.ropes {
		y, q := backend.NoValue, backend.NoValue
		if m.freqs[i] != backend.NoWeight {
			y = s.turns(i, "angles", backend.Temperature{})
			if rope.temperature.Every > 0 {
				q = s.turns(i, "query_angles", rope.temperature)
			}
		}
		s.angles, s.ofQ = append(s.angles, y), append(s.ofQ, q)
	}
	return s
}

// turns records the angles of a rope, times a temperature.
func (s *decoderPass) turns(rope int, name string, temperature backend.Temperature) backend.Value {
	y := s.r.New(dotted(name, s.ropes[rope].name), kernels.F32, s.r.Info(s.x).Rows, s.rotary(rope))
	s.r.Do(backend.Angles{InvFreq: s.freqs[rope], Scale: s.ropes[rope].angles.Scale, Y: y, Draft: s.ahead, Temperature: temperature})
	return y
}

// rotary returns how many dimensions of a head a rope rotates.
func (d recipe) rotary(rope int) int { return 2 * len(d.ropes[rope].angles.InvFreq) }

// Record records the forward pass of the stage. The residual stream x stays F32. The last layer's
// MLP and the head run on sampled rows only.
func (m *decoder) Record(p *backend.Program) (*backend.Program, error) {
	p.Weights, p.Vocab, p.Shard, p.AdapterSlots = m.weights, m.size, m.Shard, m.LoRA.Slots
	r := backend.Record(p)
	ids, x := beginResidual(r, m.vocabulary, m.stage)
	s := m.pass(r, x, nil)
	for i := range m.layers {
		attn := s.attention(i, true)
		if m.stage.last && i == len(m.layers)-1 {
			attn = s.sampledOnly(attn)
		}
		s.finishLayer(attn, m.layers[i])
	}
	if !m.stage.last {
		s.settle()
		r.Do(backend.Send{X: s.x})
		r.Free(s.x)
		free(r, append(s.angles, s.ofQ...)...)
		return r.Program()
	}
	last := s.finalNorm()
	m.finish(r, last, ids, m.logitCap)
	return r.Program()
}

// sampledOnly continues with the sampled rows, after the last attention. It consumes attn and
// returns its sampled rows.
func (s *decoderPass) sampledOnly(attn backend.Value) backend.Value {
	attn = takeSampled(s.r, attn)
	s.x = takeSampled(s.r, s.x)
	if s.normed != backend.NoValue {
		s.normed = takeSampled(s.r, s.normed)
	}
	return attn
}

// finalNorm ends the pass and returns the norm of its rows, scaled as the logits are.
func (s *decoderPass) finalNorm() backend.Value {
	y := s.normalize(backend.Norm{W: s.norm, Scale: s.headScale()})
	s.r.Free(s.x)
	free(s.r, append(s.angles, s.ofQ...)...)
	return y
}

// headScale returns the scale of logits; rows that are not multiplied by the vocabulary have none.
func (m *decoder) headScale() float32 {
	if m.pools() && m.Pooling.Head != TokenClassifier {
		return 0
	}
	return m.logitScale
}

// settle adds the pending delta to the residual stream.
func (s *decoderPass) settle() {
	if s.delta != backend.NoValue {
		s.r.Do(backend.Add{X: s.delta, Into: s.x, Scale: backend.NoWeight})
		s.r.Free(s.delta)
		s.delta = backend.NoValue
	}
}

// normalize adds the pending delta to the residual stream and returns its norm.
func (s *decoderPass) normalize(n backend.Norm) backend.Value {
	n.Y = s.r.New("normed", kernels.F32, s.r.Info(s.x).Rows, s.cfg.HiddenSize)
	n.X, n.Residual = s.x, backend.NoValue
	if s.delta != backend.NoValue {
		n.X, n.Residual = s.delta, s.x
	}
	s.do(n, s.eps)
	free(s.r, s.delta)
	s.delta = backend.NoValue
	return n.Y
}

// do records a norm of the recipe's kind.
func (s *decoderPass) do(n backend.Norm, eps float32) {
	n.Eps, n.Offset, n.Plain, n.Bias = eps, s.normOffset, s.layerNorm, backend.NoWeight
	if !n.Plain {
		n.Bias = 0
	}
	s.r.Do(n)
}

// input returns what a part of a layer reads: the norm of the residual stream or, without one, the
// stream.
func (s *decoderPass) input(norm backend.WeightID) backend.Value {
	if norm == backend.NoWeight {
		s.settle()
		return s.x
	}
	return s.normalize(backend.Norm{W: norm})
}

// after normalizes the pending delta in place, if the recipe has a norm there.
func (s *decoderPass) after(norm backend.WeightID) {
	if norm != backend.NoWeight {
		s.do(backend.Norm{X: s.delta, Residual: backend.NoValue, W: norm, Y: s.delta}, float32(s.cfg.RMSNormEps))
	}
}

// projectQKV returns the queries, keys and values of a layer.
func (s *decoderPass) projectQKV(layer int) (q, k, v backend.Value) {
	if s.latent != nil {
		return s.projectLatent(layer)
	}
	r, w, heads, kv, d := s.r, s.layers[layer], s.heads, s.kvHeads, s.cfg.HeadDim
	n := s.input(w.attnNorm)
	f, rows := r.Class(s.class+s.paging.at[layer].class).Format, r.Info(n).Rows
	var qkv backend.Value
	if w.gathered != nil {
		qkv = s.projectGathered(n, w.gathered)
	} else {
		qkv = r.New("qkv", kernels.F32, rows, (heads+2*kv)*d)
		r.Do(backend.Linear{X: n, W: w.qkv, Bias: w.qkvBias, Y: qkv})
	}
	switch {
	case s.parallel:
		s.normed = n
	case n != s.x:
		r.Free(n)
	}
	q = r.New("q", kernels.F32, rows, heads*d)
	k = r.New("k", f, rows, kv*d)
	v = r.New("v", f, rows, kv*d)
	rope := s.ropeAt(s.stage.layer0 + layer)
	r.Do(backend.Rope{QKV: qkv, Angles: s.angles[rope], Q: q, K: k, V: v, Heads: heads, KVHeads: kv, HeadDim: d, Rotary: s.rotary(rope), Norm: w.headNorm, Interleaved: s.interleaved,
		Tempered: s.ofQ[rope] != backend.NoValue, QueryAngles: s.ofQ[rope]})
	r.Free(qkv)
	return q, k, v
}

// attention returns the heads' outputs [rows, heads·valueDim], or those of the mixer that a layer has in
// the place of attention. store is true if later rows read the keys and values.
func (s *decoderPass) attention(layer int, store bool) backend.Value {
	if s.layers[layer].mamba != nil {
		return s.mix(layer)
	}
	r, heads, kv, d := s.r, s.heads, s.kvHeads, s.cfg.HeadDim
	q, k, v := s.projectQKV(layer)
	at := s.paging.at[layer]
	y := r.New("attn", kernels.F32, r.Info(q).Rows, heads*d)
	o := backend.Attention{Q: q, K: k, V: v, Y: y, Class: s.class + at.class, Layer: at.layer, Heads: heads, KVHeads: kv, HeadDim: d,
		Scale: s.scores(), Softcap: s.attnCap, Window: r.Class(s.class + at.class).Window, Chunked: r.Class(s.class + at.class).Chunked, Draft: s.ahead}
	if s.latent != nil {
		o.Latent = s.latent.rotary
	}
	r.Do(o)
	if store {
		r.Do(backend.StoreKV{K: k, V: v, Class: s.class + at.class, Layer: at.layer, Draft: s.ahead})
	}
	r.Free(q)
	if s.held = []backend.Value{k, v}; gatedMLPOf(s.layers[layer]) {
		s.release()
	}
	if s.latent != nil {
		return s.expandValues(y, layer)
	}
	return y
}

// gatedMLPOf reports whether a layer has a dense MLP, of whose input a backend needs only the form that the product takes.
func gatedMLPOf(w decoderLayer) bool {
	_, dense := w.mlp.(gatedMLP)
	return dense
}

// release frees the keys and values that a layer held: a backend may store them as late as with the norm before the MLP, unless
// that is written where they are.
func (s *decoderPass) release() {
	s.r.Free(s.held...)
	s.held = nil
}

// finishLayer consumes attention's outputs and records their projection and the MLP.
func (s *decoderPass) finishLayer(attn backend.Value, w decoderLayer) {
	s.delta = s.rowParallel(attn, w.out, w.outBias)
	s.after(w.attnPost)
	if s.parallel {
		s.release()
		y := w.mlp.record(s.r, s.normed)
		s.normed = backend.NoValue
		s.r.Do(backend.Add{X: y, Into: s.delta, Scale: backend.NoWeight})
		s.r.Free(y)
		return
	}
	x := s.input(w.mlpNorm)
	s.release()
	s.delta = w.mlp.record(s.r, x)
	s.after(w.mlpPost)
}

// rowParallel consumes x and returns W·x, summed over the ranks.
func (s *decoderPass) rowParallel(x backend.Value, w, bias backend.WeightID) backend.Value {
	d := s.r.New("delta", kernels.F32, s.r.Info(x).Rows, s.hidden)
	s.r.Do(backend.Linear{X: x, W: w, Bias: bias, Y: d})
	s.r.Do(backend.AllReduce{X: d})
	s.r.Free(x)
	return d
}

// headLogits ends the pass and returns the logits of its rows.
func (s *decoderPass) headLogits() backend.Value {
	last := s.finalNorm()
	logits := s.logits(s.r, last)
	s.r.Free(last)
	if s.logitCap > 0 {
		s.r.Do(backend.Softcap{X: logits, Cap: float32(s.logitCap)})
	}
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

package models

import (
	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// qwen35Pass is a pass of blocks over rows of one kind.
type qwen35Pass struct {
	*qwen35
	r      *backend.Recorder
	x      backend.Value // the residual stream [rows,hidden]
	delta  backend.Value // the pending addition to it; NoValue: none
	rows   backend.Rows
	angles backend.Value          // NoValue if the stage has no attention
	ahead  *backend.DraftPosition // where the rows are, nil: tokens
}

// Record records the forward pass of the stage. The residual stream stays F32. Without an MTP head
// the last layer's MLP and the head run on sampled rows only; with one, the drafter reads every
// token's normalized hidden state.
func (m *qwen35) Record(p *backend.Program) (*backend.Program, error) {
	p.Weights, p.Vocab, p.Shard, p.AdapterSlots = m.weights, m.size, m.Shard, m.LoRA.Slots
	if m.Vision {
		p.Axes = 3
	}
	r := backend.Record(p)
	ids, x := beginResidual(r, m.vocabulary, m.stage)
	if m.Vision && m.stage.first {
		r.Do(backend.Merge{X: x})
	}
	s := &qwen35Pass{qwen35: m, r: r, x: x, delta: backend.NoValue, rows: backend.PerToken, angles: m.recordAngles(r, nil)}
	for i := range m.layers {
		s.block(m.layers[i], m.stage.last && m.drafter == nil && i == len(m.layers)-1)
	}
	if !m.stage.last {
		r.Do(backend.Add{X: s.delta, Into: s.x, Scale: backend.NoWeight})
		r.Do(backend.Send{X: s.x})
		r.Free(s.delta, s.x)
		free(r, s.angles)
		return r.Program()
	}
	last := s.finish(m.norm)
	v, x := m.vocabulary, last
	if m.drafter != nil {
		x = copySampled(r, last)
		v.propose = func(r *backend.Recorder, ids, kept backend.Value) { m.drafter.record(r, ids, kept, last, s.angles) }
	} else {
		free(r, s.angles)
	}
	v.finish(r, x, ids, 0)
	return r.Program()
}

// recordAngles records the rotary angles of the rows; NoValue if no layer of the stage reads them.
func (m *qwen35) recordAngles(r *backend.Recorder, ahead *backend.DraftPosition) backend.Value {
	reads := m.drafter != nil
	for _, w := range m.layers {
		reads = reads || w.attention != nil
	}
	if !reads {
		return backend.NoValue
	}
	rows := backend.PerToken
	if ahead != nil {
		rows = backend.PerSeq
	}
	y := r.New("angles", kernels.F32, rows, 2*len(m.cfg.rope.InvFreq))
	a := backend.Angles{InvFreq: m.freqs, Scale: m.cfg.rope.Scale, Y: y, Draft: ahead}
	if m.Vision {
		a.Sections = m.cfg.vision.sections
	}
	r.Do(a)
	return y
}

// block records one layer. gather is true if only sampled rows continue after the mixer.
func (s *qwen35Pass) block(w qwen35Layer, gather bool) {
	n := s.normalize(w.mixerNorm)
	var y backend.Value
	if w.delta != nil {
		y = s.deltaNet(n, w)
	} else {
		y = s.attend(n, w, true)
	}
	if gather {
		y, s.x = takeSampled(s.r, y), takeSampled(s.r, s.x)
		s.rows = backend.PerSample
	}
	s.project(y, w)
}

// project consumes a mixer's result, projects it and runs the MLP.
func (s *qwen35Pass) project(y backend.Value, w qwen35Layer) {
	s.delta = s.rowParallel(y, w.out)
	s.delta = w.mlp.record(s.r, s.normalize(w.mlpNorm))
}

// linear returns W·x as a new value.
func (s *qwen35Pass) linear(x backend.Value, w backend.WeightID, name string, cols int) backend.Value {
	y := s.r.New(name, kernels.F32, s.rows, cols)
	s.r.Do(backend.Linear{X: x, W: w, Bias: backend.NoWeight, Y: y})
	return y
}

// rowParallel consumes x and returns W·x, summed over the ranks.
func (s *qwen35Pass) rowParallel(x backend.Value, w backend.WeightID) backend.Value {
	y := s.linear(x, w, "delta", s.hidden)
	s.r.Do(backend.AllReduce{X: y})
	s.r.Free(x)
	return y
}

// normalize adds the pending delta to the residual stream and returns its norm.
func (s *qwen35Pass) normalize(w backend.WeightID) backend.Value {
	y := s.r.New("normed", kernels.F32, s.rows, s.hidden)
	n := s.zeroCentred(s.x, w, y)
	if s.delta != backend.NoValue {
		n.X, n.Residual = s.delta, s.x
	}
	s.r.Do(n)
	free(s.r, s.delta)
	s.delta = backend.NoValue
	return y
}

// finish records the last norm and frees the residual stream.
func (s *qwen35Pass) finish(w backend.WeightID) backend.Value {
	y := s.normalize(w)
	s.r.Free(s.x)
	return y
}

func (m *qwen35) zeroCentred(x backend.Value, w backend.WeightID, y backend.Value) backend.Norm {
	return backend.Norm{X: x, Residual: backend.NoValue, W: w, Eps: float32(m.cfg.RMSNormEps), Y: y, Offset: m.cfg.normOffset}
}

// copySampled returns the sampled rows of a value without consuming it.
func copySampled(r *backend.Recorder, v backend.Value) backend.Value {
	in := r.Info(v)
	y := r.New(in.Name+".sampled", in.Format, backend.PerSample, in.Cols)
	r.Do(backend.Gather{X: v, Y: y})
	return y
}

// free frees values, ignoring NoValue.
func free(r *backend.Recorder, vs ...backend.Value) {
	for _, v := range vs {
		if v != backend.NoValue {
			r.Free(v)
		}
	}
}

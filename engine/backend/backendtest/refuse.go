package backendtest

import (
	"errors"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// refusals: what a backend cannot do is an error with a reason, before start.
func (s *subject) refusals(t *testing.T) {
	t.Run("variant", s.refuseVariant)
	t.Run("weights", s.refuseWeights)
	t.Run("programs", s.refusePrograms)
	t.Run("steps", s.refuseSteps)
}

func (s *subject) refuseVariant(t *testing.T) {
	set := s.settings
	set.Variant = "no-such-variant"
	if _, err := s.opener.Layout(s.facts, set); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("Layout of an unknown variant: %v", err)
	}
}

func (s *subject) refuseWeights(t *testing.T) {
	for _, w := range []backend.WeightSpec{
		{Name: "integers", Rows: 4, Cols: 64, Source: kernels.I32, Use: backend.Multiply, Parts: []backend.Part{{Tensor: "x", Rows: 4, Format: kernels.I32}}},
		{Name: "half a block", Rows: 4, Cols: 48, Source: kernels.Q8_0, Use: backend.Multiply, Parts: []backend.Part{{Tensor: "x", Rows: 4, Format: kernels.Q8_0}}},
	} {
		if p, err := s.layout.Weight(w); !errors.Is(err, backend.ErrUnsupported) {
			t.Errorf("weight %s: packed as %+v, error %v", w.Name, p, err)
		}
	}
	// Parts in several formats are converted, with a note in the plan, or each has its own
	// kernel.
	mixed := backend.WeightSpec{Name: "mixed", Rows: 4, Cols: 64, Use: backend.Multiply, Parts: []backend.Part{
		{Tensor: "a", Rows: 2, Format: kernels.Q8_0}, {Tensor: "b", Rows: 2, Format: kernels.F32}}}
	if p, err := s.layout.Weight(mixed); err != nil || (p.Note == "") != (p.Format == kernels.Invalid) || p.Bytes <= 0 {
		t.Errorf("weight of two formats: %+v, %v; want a Note, or no format", p, err)
	}
}

// refusePrograms: Compile rejects ops that do not match their operands.
func (s *subject) refusePrograms(t *testing.T) {
	n := net{weights: kernels.F32, pages: kernels.F32, block: 16, rows: 8, seqs: 1}
	r := n.rig(t, s, 1)
	change := func(what string, edit func(p *backend.Program)) {
		p := *r.p
		p.Ops, p.Values = append([]backend.Op(nil), p.Ops...), append([]backend.ValueInfo(nil), p.Values...)
		edit(&p)
		_, err := r.dev.Compile(&p)
		var bad *backend.ProgramError
		if !errors.As(err, &bad) {
			t.Errorf("%s: Compile returned %v", what, err)
		}
	}
	last := len(r.p.Ops) - 1
	head := r.p.Ops[last].(backend.Linear)
	change("another width", func(p *backend.Program) { p.Values[head.Y].Cols-- })
	change("another format", func(p *backend.Program) { p.Values[head.Y].Format = kernels.F16 })
	change("outside of scratch", func(p *backend.Program) { p.Values[head.Y].Offset = p.Scratch })
	change("no such value", func(p *backend.Program) { head := head; head.X = 1000; p.Ops[last] = head })
	change("no such weight", func(p *backend.Program) { head := head; head.W = -1; p.Ops[last] = head })
	change("rows of another kind", func(p *backend.Program) { p.Values[head.Y].Rows = backend.PerToken })
	change("no such class", func(p *backend.Program) { p.Ops[1] = backend.StoreTokens{Class: 1} })
}

// refuseSteps: a step that would leave its buffers is an error of Launch or Wait, and the
// device runs the next one.
func (s *subject) refuseSteps(t *testing.T) {
	n := net{weights: kernels.F32, pages: kernels.F32, block: 16, rows: 8, seqs: 2, sampled: true}
	r := n.rig(t, s, 2)
	pages := netPages(r, 2, upTo(r.pageCount()))
	good := []feed{{tokens: []int32{1, 2, 3}, pages: pages[0], sampled: []int{2}}, {tokens: []int32{4}, at: 20, pages: pages[1], sampled: []int{0}}}
	for what, spoil := range map[string]func(*backend.Step, *backend.Binding){
		"too many tokens":       func(_ *backend.Step, b *backend.Binding) { b.Tokens = 9 },
		"too many sequences":    func(_ *backend.Step, b *backend.Binding) { b.Seqs = 3 },
		"a token too large":     func(s *backend.Step, _ *backend.Binding) { s.Tokens[1] = netVocab },
		"a row that is not":     func(s *backend.Step, _ *backend.Binding) { s.Tokens[1] = -1000 },
		"a sequence that isn't": func(s *backend.Step, _ *backend.Binding) { s.Seq[1] = 7 },
		"positions with a hole": func(s *backend.Step, _ *backend.Binding) { s.Positions[1] = 5 },
		"a position too far":    func(s *backend.Step, _ *backend.Binding) { s.Positions[3] = netMax },
		"a page that is not":    func(s *backend.Step, _ *backend.Binding) { s.Pages[0][0] = 1 << 20 },
		"no page":               func(s *backend.Step, _ *backend.Binding) { s.Pages[0][r.p.Classes[0].MaxPages] = -1 },
		"rows beyond the step":  func(s *backend.Step, _ *backend.Binding) { s.Rows[0] = 4 },
		"a target too large": func(s *backend.Step, _ *backend.Binding) {
			s.Sampling[0].Flags, s.Sampling[0].Target = backend.UseTarget, netVocab
		},
		"history too long": func(s *backend.Step, _ *backend.Binding) { s.Sampling[0].HistoryLen = 4 },
		"an edit outside":  func(s *backend.Step, _ *backend.Binding) { s.Sampling[0].NumBias, s.Bias[0].Token = 1, netVocab },
	} {
		b := r.fill(0, good)
		spoil(r.dev.Step(0), &b)
		err := r.dev.Launch(r.exe, b)
		if err == nil {
			err = r.dev.Wait(0)
		}
		if err == nil {
			t.Errorf("%s: no error", what)
		}
		b = r.fill(0, good)
		if err := errors.Join(r.dev.Launch(r.exe, b), r.dev.Wait(0)); err != nil {
			t.Fatalf("after %s: %v", what, err)
		}
	}
}

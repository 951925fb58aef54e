package models

import (
	"fmt"
	"slices"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// A draft model (vLLM's method "draft_model") is a second, smaller model of the same
// vocabulary whose greedy tokens are proposed. It is part of the step's program, and its
// weights and pages are part of the reservation:
//
//  1. The target runs, samples and verifies, as with any proposals.
//  2. The draft's layers run on all token rows of the step for their keys and values;
//     what the last one gives beside these has no reader and is left out. Rows behind kept
//     are of proposals that were refused; the next step overwrites their pages, as it does
//     in the target's layers.
//  3. One pass of S rows for each proposal, from the token that was drawn behind kept on:
//     pass n is n positions ahead of it. Its keys and values go into the pages as the next
//     pass reads them; the last pass has no reader and stores nothing.
//
// Positions that the page table does not reach are passed over: that may cost a
// proposal, never a token.

// draftTensors is before the names of a draft model's tensors, so that one reader serves
// both models.
const draftTensors = "draft:"

// DraftTensor is the name that a tensor of a weight has in the draft model's checkpoint;
// false for those of the model itself.
func DraftTensor(name string) (string, bool) { return strings.CutPrefix(name, draftTensors) }

// withDraft is a model and what proposes its tokens.
type withDraft struct {
	Model
	draft   *dense
	of      int                  // proposals
	weights []backend.WeightSpec // of both
}

// NewWithDraft applies the family of target's architecture as New does, and adds a draft
// model that proposes b.Draft tokens a step. Its weights stay as they are stored, but for
// b.Dtype. It fails where the two are of different vocabularies, and for drafts that are no
// dense model.
func NewWithDraft(target, draft *checkpoint.Checkpoint, b Build) (Model, error) {
	of := b.Draft
	b.Verify, b.Draft = max(b.Verify, b.Draft), 0
	m, err := New(target, b)
	if err != nil {
		return nil, err
	}
	if err := checkDraft(target.Config(), draft.Config(), b, of); err != nil {
		return nil, err
	}
	f, l, err := prepare(draft, Build{Shard: b.Shard, Dtype: b.Dtype})
	if err != nil {
		return nil, fmt.Errorf("draft model: %w", err)
	}
	l.specs = slices.Clone(m.Weights())
	own := len(l.specs)
	d, err := f.build(draft.Config(), l)
	if err == nil {
		err = l.finish()
	}
	if err != nil {
		return nil, fmt.Errorf("draft model: %w", err)
	}
	out := &withDraft{Model: m, draft: d.(*dense), of: of, weights: l.specs}
	out.draft.class = len(m.Classes(16, kernels.BF16))
	for i := range l.specs[own:] {
		nameDraft(&l.specs[own+i])
	}
	m.(interface{ setProposer(proposer) }).setProposer(out.propose)
	return out, nil
}

// checkDraft refuses pairs that do not fit.
func checkDraft(target, draft checkpoint.Config, b Build, of int) error {
	i := slices.IndexFunc(families, func(f family) bool { return f.architecture == draft.Architecture })
	switch {
	case of < 1 || of > maxDraft:
		return &UnsupportedError{fmt.Sprintf("a draft model that proposes %d tokens", of), fmt.Sprintf("1 to %d are", maxDraft)}
	case i < 0 || !families[i].drafts:
		var known []string
		for _, f := range families {
			if f.drafts {
				known = append(known, f.architecture)
			}
		}
		return &UnsupportedError{"a draft model of architecture " + draft.Architecture, "drafts are " + strings.Join(known, ", ")}
	case draft.VocabSize != target.VocabSize:
		return &UnsupportedError{fmt.Sprintf("a draft model with a vocabulary of %d", draft.VocabSize), fmt.Sprintf("its proposals must be tokens of the model, which has %d", target.VocabSize)}
	case b.Pipe.World > 1:
		return &UnsupportedError{fmt.Sprintf("pipeline parallel size %d with a draft model", b.Pipe.World), "its layers are not split over ranks"}
	case b.Vision:
		return &UnsupportedError{"a draft model beside a vision tower", "it reads tokens alone"}
	}
	return nil
}

// nameDraft marks a weight as the draft model's.
func nameDraft(w *backend.WeightSpec) {
	w.Name, w.Group = "draft."+w.Name, "draft"
	for i := range w.Parts {
		for _, name := range []*string{&w.Parts[i].Tensor, &w.Parts[i].Scale} {
			if *name != "" {
				*name = draftTensors + *name
			}
		}
	}
}

// proposed says by whom the tokens behind a step's are proposed.
func (v *vocabulary) setProposer(by proposer) { v.propose = by }

// Weights are the model's, then the draft's.
func (m *withDraft) Weights() []backend.WeightSpec { return m.weights }

// Classes are the model's, then the draft's.
func (m *withDraft) Classes(blockSize int, f kernels.Format) []backend.KVClass {
	own := m.draft.Classes(blockSize, f)[0]
	own.Name, own.Plane = "draft", false
	return append(m.Model.Classes(blockSize, f), own)
}

// Record is the model's step, which records propose where it has verified.
func (m *withDraft) Record(p *backend.Program) (*backend.Program, error) {
	p, err := m.Model.Record(p)
	if err == nil {
		p.Weights = m.weights
	}
	return p, err
}

// propose is the draft model's part of a step.
func (m *withDraft) propose(r *backend.Recorder, ids, kept backend.Value) {
	next := r.New("next", kernels.I32, backend.PerToken, 1)
	r.Do(backend.Drafted{Ids: ids, Out: next})
	id := gatherAccepted(r, next, kept)
	m.draft.store(r, ids)
	for n := 1; n <= m.of; n++ {
		x := m.draft.lookup(r, id, "residual")
		r.Free(id)
		s := m.draft.pass(r, x, &backend.Ahead{Kept: kept, By: n})
		for i, w := range m.draft.layers {
			s.finishLayer(s.attention(i, n < m.of), w)
		}
		logits := s.head()
		id = r.New("proposed", kernels.I32, backend.PerSeq, 1)
		r.Do(backend.Propose{Logits: logits, Ids: id, N: n - 1, Of: m.of})
		r.Free(logits)
	}
	r.Free(id)
}

// store runs the layers on the step's tokens for their keys and values.
func (m *dense) store(r *backend.Recorder, ids backend.Value) {
	s := m.pass(r, m.lookup(r, ids, "residual"), nil)
	last := len(m.layers) - 1
	for i, w := range m.layers[:last] {
		s.finishLayer(s.attention(i, true), w)
	}
	q, k, v := s.projectQKV(last)
	r.Do(backend.StoreKV{K: k, V: v, Class: m.class, Layer: last})
	r.Free(q, k, v, s.x, s.angles)
}

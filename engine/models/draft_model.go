package models

import (
	"fmt"
	"slices"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// A draft model (vLLM's method "draft_model") is a second, smaller model with the same vocabulary.
// Its greedy tokens are the proposals. It runs within the step's program, and the memory
// reservation includes its weights and pages:
//
//  1. The target model runs, samples and verifies, as with any proposals.
//  2. The draft's layers run on all token rows of the step to compute their keys and values. The
//     last layer's other results are not needed and not computed. Rows after the accepted one
//     belong to rejected proposals; the next step overwrites their pages, as it does in the
//     target's layers.
//  3. Each proposal takes one pass of S rows. The first starts at the token sampled after the
//     accepted row; pass n is n positions after that row. A pass stores its keys and values for the
//     next pass; the last pass stores nothing.
//
// A draft pass ignores positions beyond the page table. This may lose a proposal, never a token.

// draftTensors prefixes the names of a draft model's tensors, so that one reader serves both
// models.
const draftTensors = "draft:"

// DraftTensor returns a tensor's name in the draft model's checkpoint; false if the tensor is the
// target's.
func DraftTensor(name string) (string, bool) { return strings.CutPrefix(name, draftTensors) }

// withDraft is a model with its draft model.
type withDraft struct {
	Model
	draft   *decoder
	of      int                  // number of proposals
	weights []backend.WeightSpec // of both models
}

// NewWithDraft applies the family of target's architecture as New does, and adds a draft model that
// proposes b.Draft tokens a step. The draft's weights stay as stored, except for b.Dtype. It fails
// if the vocabularies differ or if the draft is not a dense model.
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
	f, l, err := prepare(draft, Build{Shard: b.Shard, Dtype: b.Dtype, Length: b.Length})
	if err != nil {
		return nil, fmt.Errorf("draft model: %w", err)
	}
	l.specs = slices.Clone(m.Weights())
	own := len(l.specs)
	d, err := f.build(b.config(draft), l)
	if err == nil {
		err = l.finish()
	}
	if err != nil {
		return nil, fmt.Errorf("draft model: %w", err)
	}
	if of := d.(*decoder); of.slides() || of.mamba != nil {
		return nil, &UnsupportedError{"a draft model with sliding windows or Mamba-2 layers", "its pages are those of full attention"}
	}
	out := &withDraft{Model: m, draft: d.(*decoder), of: of, weights: l.specs}
	out.draft.class = len(m.Classes(16, kernels.BF16))
	for i := range l.specs[own:] {
		nameDraft(&l.specs[own+i])
	}
	m.(interface{ setProposer(proposer) }).setProposer(out.propose)
	return out, nil
}

// checkDraft refuses a draft model that does not fit the target.
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
		return &UnsupportedError{"a draft model with a vision tower", "a draft model reads only tokens"}
	}
	return nil
}

// nameDraft renames a weight and its tensors as the draft model's.
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

// setProposer sets the recorder of the ops that propose tokens.
func (v *vocabulary) setProposer(by proposer) { v.propose = by }

// Weights returns the target's weights, then the draft's.
func (m *withDraft) Weights() []backend.WeightSpec { return m.weights }

// Classes returns the target's classes, then the draft's.
func (m *withDraft) Classes(blockSize int, f kernels.Format) []backend.KVClass {
	own := m.draft.Classes(blockSize, f)[0]
	own.Name, own.Plane = "draft", false
	return append(m.Model.Classes(blockSize, f), own)
}

// Record records the target's step, which calls propose after verifying.
func (m *withDraft) Record(p *backend.Program) (*backend.Program, error) {
	p, err := m.Model.Record(p)
	if err == nil {
		p.Weights = m.weights
	}
	return p, err
}

// propose records the draft model's part of a step.
func (m *withDraft) propose(r *backend.Recorder, ids, kept backend.Value) {
	next := r.New("next", kernels.I32, backend.PerToken, 1)
	r.Do(backend.DraftInput{Ids: ids, Out: next})
	id := gatherAccepted(r, next, kept)
	m.draft.store(r, ids)
	for n := 1; n <= m.of; n++ {
		x := m.draft.lookup(r, id, "residual")
		r.Free(id)
		s := m.draft.pass(r, x, &backend.DraftPosition{AcceptedRow: kept, By: n})
		for i, w := range m.draft.layers {
			s.finishLayer(s.attention(i, n < m.of), w)
		}
		logits := s.headLogits()
		id = r.New("proposed", kernels.I32, backend.PerSeq, 1)
		r.Do(backend.Propose{Logits: logits, Ids: id, N: n - 1, Of: m.of})
		r.Free(logits)
	}
	r.Free(id)
}

// store runs the layers on the step's tokens to store their keys and values.
func (m *decoder) store(r *backend.Recorder, ids backend.Value) {
	s := m.pass(r, m.lookup(r, ids, "residual"), nil)
	last := len(m.layers) - 1
	for i, w := range m.layers[:last] {
		s.finishLayer(s.attention(i, true), w)
	}
	q, k, v := s.projectQKV(last)
	r.Do(backend.StoreKV{K: k, V: v, Class: m.class, Layer: last})
	r.Free(q, k, v, s.x)
	free(r, s.normed)
	free(r, s.angles...)
}

// PlaceAdapter implements Adaptable for the target; the draft has no adapters.
func (m *withDraft) PlaceAdapter(a *checkpoint.Adapter, slot int, write func(w backend.WeightID, row0 int, data []byte) error) error {
	return m.Model.(Adaptable).PlaceAdapter(a, slot, write)
}

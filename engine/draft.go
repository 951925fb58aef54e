package engine

import (
	"bytes"
	"encoding/json"
	"fmt"

	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// openDraft opens the model that proposes, where the source names one.
func (m *Model) openDraft() error {
	s := m.Source.Draft
	if s == nil || m.Source.Build.Draft == 0 {
		return nil
	}
	d := &Model{Source: *s, Where: FromCheckpoint}
	if err := d.open(); err != nil {
		return fmt.Errorf("draft %w", err)
	}
	m.Draft = d
	d.Config = d.Checkpoint.Config()
	return d.bounded()
}

// build applies the families of the model and of its draft.
func (m *Model) build(b models.Build) (models.Model, error) {
	if m.Draft != nil && b.Draft > 0 {
		return models.NewWithDraft(m.Checkpoint, m.Draft.Checkpoint, b)
	}
	return models.New(m.Checkpoint, b)
}

// holder is whose tensor a weight's part is, and its name there.
func (m *Model) holder(tensor string) (*Model, string) {
	if own, ok := models.DraftTensor(tensor); ok && m.Draft != nil {
		return m.Draft, own
	}
	return m, tensor
}

// rowsOf is the tensors of a model and of its draft, by the names that weights have.
type rowsOf struct{ m *Model }

// ReadRows implements backend.RowReader.
func (r rowsOf) ReadRows(name string, row0, rows int, dst []byte) error {
	holder, own := r.m.holder(name)
	return holder.Checkpoint.ReadRows(own, row0, rows, dst)
}

// Dummy implements backend.DummySource.
func (r rowsOf) Dummy(name string) (kernels.Dummy, bool) {
	holder, own := r.m.holder(name)
	return holder.Checkpoint.Dummy(own)
}

// VocabularyError says that a draft model's tokens are others than the model's.
type VocabularyError struct {
	Draft, Model string // names
	Token        string // the first that differs
	Ids          [2]int // of it, in the model and in the draft; −1: none
	Count        int    // how many differ
}

func (e *VocabularyError) Error() string {
	return fmt.Sprintf("draft model %s: %d tokens are others than those of %s, %q is %d there and %d here; name a draft of the same vocabulary in speculative.model",
		e.Draft, e.Count, e.Model, e.Token, e.Ids[0], e.Ids[1])
}

// sameTokens compares the tokenizers of both models, where both have one: proposals are
// ids, which must mean the same.
func (m *Model) sameTokens() error {
	a, errA := m.Checkpoint.TokenizerJSON()
	b, errB := m.Draft.Checkpoint.TokenizerJSON()
	if errA != nil || errB != nil || bytes.Equal(a, b) {
		return nil // none at hand, or the same
	}
	ids, other := vocabularyOf(a), vocabularyOf(b)
	wrong := &VocabularyError{Draft: m.Draft.Source.Name, Model: m.Source.Name}
	differ := func(token string, id, draft int) {
		if wrong.Count++; wrong.Count == 1 || token < wrong.Token {
			wrong.Token, wrong.Ids = token, [2]int{id, draft}
		}
	}
	for token, id := range ids {
		if at, ok := other[token]; !ok {
			differ(token, id, -1)
		} else if at != id {
			differ(token, id, at)
		}
	}
	for token, at := range other {
		if _, ok := ids[token]; !ok {
			differ(token, -1, at)
		}
	}
	if wrong.Count > 0 {
		return wrong
	}
	return nil
}

// vocabularyOf is the tokens of a tokenizer.json and their ids: a table, or of Unigram
// models a list, and what was added. What cannot be read has none.
func vocabularyOf(text []byte) map[string]int {
	var t struct {
		Added []struct {
			ID      int    `json:"id"`
			Content string `json:"content"`
		} `json:"added_tokens"`
		Model struct {
			Vocab json.RawMessage `json:"vocab"`
		} `json:"model"`
	}
	ids := map[string]int{}
	if json.Unmarshal(text, &t) != nil {
		return ids
	}
	var list [][]any
	if json.Unmarshal(t.Model.Vocab, &ids) != nil && json.Unmarshal(t.Model.Vocab, &list) == nil {
		for i, pair := range list {
			if len(pair) > 0 {
				token, _ := pair[0].(string)
				ids[token] = i
			}
		}
	}
	for _, a := range t.Added {
		ids[a.Content] = a.ID
	}
	return ids
}

package engine

import (
	"bytes"
	"encoding/json"
	"fmt"

	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// openDraft opens the draft model if the source names one.
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
	return d.checkSize()
}

// build builds the model from its checkpoint, with its draft model if it has one.
func (m *Model) build(b models.Build) (models.Model, error) {
	if m.Draft != nil && b.Draft > 0 {
		return models.NewWithDraft(m.Checkpoint, m.Draft.Checkpoint, b)
	}
	return models.New(m.Checkpoint, b)
}

// tensorOwner returns the model, m or its draft, that a weight's tensor belongs to, and the
// tensor's name in that model's checkpoint.
func (m *Model) tensorOwner(tensor string) (*Model, string) {
	if own, ok := models.DraftTensor(tensor); ok && m.Draft != nil {
		return m.Draft, own
	}
	return m, tensor
}

// rowReader reads the tensors of a model and its draft by the names used in WeightSpecs.
type rowReader struct{ m *Model }

// ReadRows implements backend.RowReader.
func (r rowReader) ReadRows(name string, row0, rows int, dst []byte) error {
	holder, own := r.m.tensorOwner(name)
	return holder.Checkpoint.ReadRows(own, row0, rows, dst)
}

// ReadColumns implements backend.ColumnReader.
func (r rowReader) ReadColumns(name string, row0, rows int, first int64, dst []byte) error {
	holder, own := r.m.tensorOwner(name)
	return holder.Checkpoint.ReadColumns(own, row0, rows, first, dst)
}

// Dummy implements backend.DummySource.
func (r rowReader) Dummy(name string) (kernels.Dummy, bool) {
	holder, own := r.m.tensorOwner(name)
	return holder.Checkpoint.Dummy(own)
}

// VocabularyError reports that a draft model has another vocabulary than the model.
type VocabularyError struct {
	Draft, Model string // names
	Token        string // the first token that differs, in the order of the texts
	Ids          [2]int // that token's id in the model and in the draft; −1: none
	Count        int    // number of tokens that differ
}

func (e *VocabularyError) Error() string {
	return fmt.Sprintf("draft model %s: its vocabulary differs from that of %s in %d tokens: %q is id %d in the model and id %d in the draft (-1: none); name a draft model of the same vocabulary in speculative.model",
		e.Draft, e.Model, e.Count, e.Token, e.Ids[0], e.Ids[1])
}

// checkVocabulary compares the tokenizers of the model and its draft, if both have one: a
// proposed id must mean the same token in both. The error is a *VocabularyError.
func (m *Model) checkVocabulary() error {
	a, errA := m.Checkpoint.TokenizerJSON()
	b, errB := m.Draft.Checkpoint.TokenizerJSON()
	if errA != nil || errB != nil || bytes.Equal(a, b) {
		return nil // a tokenizer is missing, or both are equal
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

// vocabularyOf returns the ids of a tokenizer.json by token, added tokens included. The
// vocabulary is an object, or a list for Unigram models. It is empty if it cannot be read.
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

package grammar

import (
	"bytes"

	"vapp.dev/engine/tokenizer"
)

// Preamble describes the part of a reply before the grammar applies, such as a model's reasoning.
// It may take up the whole reply except the end token. The zero Preamble is empty.
type Preamble struct {
	Inside bool     // the reply begins inside it
	Open   string   // a marker that begins it, if the reply starts with this marker; "": none
	Ends   []string // texts that end it, any of them
}

// preambleWatch finds the end of a preamble in the generated tokens.
type preambleWatch struct {
	tok  *tokenizer.Tokenizer
	free bool
	open int32   // the token that begins it, −1: none
	ids  []int32 // tokens that end it
	ends [][]byte
	tail []byte
	most int
}

func newPreambleWatch(t *tokenizer.Tokenizer, l Preamble) preambleWatch {
	w := preambleWatch{tok: t, free: l.Inside, open: -1}
	if id, is := t.ID(l.Open); is && l.Open != "" {
		w.open = id
	}
	for _, e := range l.Ends {
		if id, is := t.ID(e); is {
			w.ids = append(w.ids, id)
			continue
		}
		w.ends = append(w.ends, []byte(e))
		w.most = max(w.most, len(e))
	}
	return w
}

// take reports whether a token ends the preamble: it is an end token, or the text up to it contains
// an end.
func (w *preambleWatch) take(id int32) bool {
	for _, e := range w.ids {
		if e == id {
			return true
		}
	}
	if w.most == 0 {
		return false
	}
	w.tail = append(w.tail, w.tok.TokenBytes(id)...)
	for _, e := range w.ends {
		if bytes.Contains(w.tail, e) {
			return true
		}
	}
	if over := len(w.tail) - w.most + 1; over > 0 {
		w.tail = append(w.tail[:0], w.tail[over:]...)
	}
	return false
}

package grammar

import (
	"bytes"

	"vapp.dev/engine/tokenizer"
)

// Lead is the part of a reply that the grammar does not cover: a thought. All but the end
// of the reply may come in it. The zero Lead is none.
type Lead struct {
	Inside bool     // the reply begins in it
	Open   string   // the marker that begins it, where the reply begins with this; "": none does
	Ends   []string // texts of which each ends it
}

// watch finds the end of a lead in the tokens that come.
type watch struct {
	tok  *tokenizer.Tokenizer
	free bool
	open int32   // the token that opens it, −1: none
	ids  []int32 // tokens that end it
	ends [][]byte
	tail []byte
	most int
}

func newWatch(t *tokenizer.Tokenizer, l Lead) watch {
	w := watch{tok: t, free: l.Inside, open: -1}
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

// take says that a token ends the lead: it is an end, or the text with it holds one.
func (w *watch) take(id int32) bool {
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

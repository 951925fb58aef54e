package engine

import (
	"bytes"

	"vapp.dev/engine/sched"
)

// Thinking bounds the thought in a reply: after Budget tokens of it Close is all that
// may come. What follows is free, or for the request's Grammar to say.
type Thinking struct {
	Budget int      // tokens, those of the markers not counted
	Inside bool     // the reply begins in a thought
	Open   Marker   // begins one
	Again  bool     // another may begin after the first
	Ends   []Marker // each of them ends it
	Close  []int32  // the tokens that end it when the budget is spent
	// Bytes is the text of a token, for markers that are no token.
	Bytes func(id int32) []byte
}

// Marker is a text that means something; ID is the token that it is, −1 where it takes
// several.
type Marker struct {
	Text string
	ID   int32
}

// begin follows one reply; next is the grammar behind the thought, or nil.
func (t *Thinking) begin(next sched.Grammar) *thought {
	out := &thought{Thinking: t, next: next, inside: t.Inside}
	out.unsure = !t.Inside && t.Open.ID < 0 && t.Open.Text != ""
	out.checkBudget()
	return out
}

// thought is where one reply stands in it.
type thought struct {
	*Thinking
	next   sched.Grammar
	inside bool
	over   bool    // no thought begins any more
	unsure bool    // nothing has come but what may become Open
	spent  int     // tokens of thought
	queue  []int32 // that must come now
	tail   []byte  // text that may become a marker
}

// Take moves on by the token that came.
func (t *thought) Take(token int32) (forced []int32, ended bool, err error) {
	t.move(token)
	if t.next == nil {
		return nil, false, nil
	}
	return t.next.Take(token)
}

func (t *thought) move(token int32) {
	switch {
	case len(t.queue) > 0:
		if token != t.queue[0] {
			return
		}
		if t.queue = t.queue[1:]; len(t.queue) == 0 {
			t.end()
		}
		return
	case t.unsure:
		t.opening(token)
	case !t.inside:
		t.inside = !t.over && token == t.Open.ID
	case t.endsThought(token):
		t.end()
	case token != t.Open.ID:
		t.spent++
	}
	t.checkBudget()
}

func (t *thought) end() { t.inside, t.over, t.tail = false, !t.Again, nil }

// Free says that whatever n tokens come, the one behind them may be any, so that nobody
// has to wait for them.
func (t *thought) Free(n int) bool {
	return t.next == nil && (t.over || t.spent+n < t.Budget)
}

// due begins the end of a thought that has spent its budget.
func (t *thought) checkBudget() {
	if t.inside && t.spent >= t.Budget {
		t.queue = t.Close
	}
}

// opening looks for the marker at the start of a reply.
func (t *thought) opening(token int32) {
	t.tail = append(t.tail, t.Bytes(token)...)
	text, open := bytes.TrimLeft(t.tail, " \t\r\n"), []byte(t.Open.Text)
	switch {
	case bytes.HasPrefix(text, open):
		t.unsure, t.inside, t.tail = false, true, nil
	case !bytes.HasPrefix(open, text):
		t.unsure, t.over, t.tail = false, true, nil
	}
}

// ended says that a marker that ends the thought is complete with this token.
func (t *thought) endsThought(token int32) bool {
	longest := 0
	for _, m := range t.Ends {
		if m.ID >= 0 && m.ID == token {
			return true
		}
		if m.ID < 0 {
			longest = max(longest, len(m.Text))
		}
	}
	if longest == 0 {
		return false
	}
	t.tail = append(t.tail, t.Bytes(token)...)
	for _, m := range t.Ends {
		if m.ID < 0 && bytes.Contains(t.tail, []byte(m.Text)) {
			return true
		}
	}
	if over := len(t.tail) - longest + 1; over > 0 {
		t.tail = append(t.tail[:0], t.tail[over:]...)
	}
	return false
}

// Mask allows the one token that must come now, or what the grammar behind says.
func (t *thought) Mask(words []uint32) bool {
	if len(t.queue) == 0 {
		return t.next != nil && t.next.Mask(words)
	}
	clear(words)
	if id := t.queue[0]; int(id/32) < len(words) {
		words[id/32] |= 1 << (id % 32)
	}
	return true
}

// Err is that of the grammar behind.
func (t *thought) Err() error {
	if t.next == nil {
		return nil
	}
	return t.next.Err()
}

package engine

import (
	"bytes"

	"vapp.dev/engine/sched"
)

// Thinking limits the reasoning part of a reply (the thought): after Budget tokens of it, the
// tokens of Close are forced. What follows is constrained by the request's Grammar, if any.
type Thinking struct {
	Budget int      // tokens of thought, without its markers
	Inside bool     // the reply begins inside a thought
	Open   Marker   // begins a thought
	Again  bool     // a reply may have more than one thought
	Ends   []Marker // each of them ends a thought
	Close  []int32  // tokens that are forced when the budget is spent
	// Bytes returns the text of a token, to find markers that are not a single token.
	Bytes func(id int32) []byte
}

// Marker is a text that begins or ends a thought. ID is its token, −1 if it is not a single token.
type Marker struct {
	Text string
	ID   int32
}

// begin returns the state of one reply. next is the grammar of what follows the thought, or nil.
func (t *Thinking) begin(next sched.Grammar) *thought {
	out := &thought{Thinking: t, next: next, inside: t.Inside}
	out.unsure = !t.Inside && t.Open.ID < 0 && t.Open.Text != ""
	out.checkBudget()
	return out
}

// thought implements sched.Grammar for one reply under a Thinking limit.
type thought struct {
	*Thinking
	next   sched.Grammar
	inside bool
	over   bool    // no further thought may begin
	unsure bool    // the reply so far may be the start of Open
	spent  int     // tokens of thought so far
	queue  []int32 // forced tokens still to come
	tail   []byte  // recent text, which may contain a part of a marker
}

// Take implements sched.Grammar.
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

// Free reports whether the token after the next n is unconstrained, whatever those are. The
// scheduler then need not wait for them.
func (t *thought) Free(n int) bool {
	return t.next == nil && (t.over || t.spent+n < t.Budget)
}

// checkBudget starts to force Close when a thought has spent its budget.
func (t *thought) checkBudget() {
	if t.inside && t.spent >= t.Budget {
		t.queue = t.Close
	}
}

// opening looks for the Open marker at the start of a reply.
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

// endsThought reports whether this token completes a marker that ends the thought.
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

// Mask allows the next forced token only, or what the following grammar allows.
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

// Err returns the error of the following grammar.
func (t *thought) Err() error {
	if t.next == nil {
		return nil
	}
	return t.next.Err()
}

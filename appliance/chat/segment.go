package chat

import (
	"slices"

	"vapp.dev/appliance/chat/dialect"
)

// Said is a run of one kind in what a choice says. The runs of all deltas, joined
// where their neighbours are of one kind (of calls: of one index), are the same
// however the tokens came.
type Said struct {
	Kind dialect.Kind
	Text string    // of a thought or of the content
	Call CallDelta // of a call: what it has gained
	// Logprobs are those of a content's tokens when asked for, markup left out.
	Logprobs []TokenLogprob
}

// order keeps what a choice says in its order, and which tokens were spent on what.
type order struct {
	thought int            // tokens of thoughts so far
	owed    []int          // bytes of tokens whose text has not come out
	probs   []TokenLogprob // theirs, when asked for
	last    dialect.Kind   // of what came out last
}

// say adds a run to a delta.
func (o *order) say(d *Delta, s Said) {
	if o != nil {
		d.Said = append(d.Said, s)
	}
}

// before notes a token whose text is decoded next. Of a thought the parser knows
// that it is one while it reads it; what comes in harmony's channels is known by
// what comes out.
func (o *order) before(thinking, markup bool, bytes int, l *TokenLogprob) {
	switch {
	case thinking:
		o.thought++
	case !markup:
		o.owed = append(o.owed, bytes)
		if l != nil {
			o.probs = append(o.probs, *l)
		}
	}
}

// after gives the tokens that are owed to what has come out since: the runs from
// index from on.
func (o *order) after(d *Delta, from int, markup bool) {
	if o == nil {
		return
	}
	if fresh := d.Said[from:]; len(fresh) > 0 {
		last := &fresh[len(fresh)-1]
		switch last.Kind {
		case dialect.Content:
			if o.last != dialect.Content || len(fresh) > 1 {
				o.shorten(len(last.Text))
			}
			last.Logprobs = append(last.Logprobs, o.probs...)
		case dialect.Reasoning:
			o.thought += len(o.owed)
		}
		o.last = last.Kind
		o.forget()
		d.Said = joined(d.Said, from)
	}
	if markup {
		o.forget()
	}
}

func (o *order) forget() { o.owed, o.probs = o.owed[:0], nil }

// shorten keeps the last tokens that make up n bytes: where a content begins, those
// before it are markup that is no token of its own.
func (o *order) shorten(n int) {
	i := len(o.owed)
	for i > 0 && n > 0 {
		i--
		n -= o.owed[i]
	}
	if o.probs != nil {
		o.probs = o.probs[i:]
	}
}

// joined joins the runs from index i on with those before them where they go on.
func joined(list []Said, i int) []Said {
	for i = max(i, 1); i < len(list); {
		was, s := &list[i-1], &list[i]
		if was.Kind != s.Kind || was.Call.Index != s.Call.Index {
			i++
			continue
		}
		was.Text += s.Text
		was.Call.Arguments += s.Call.Arguments
		was.Logprobs = append(was.Logprobs, s.Logprobs...)
		list = slices.Delete(list, i, i+1)
	}
	return list
}

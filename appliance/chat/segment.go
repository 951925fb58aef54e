package chat

import (
	"slices"

	"vapp.dev/appliance/chat/dialect"
)

// Segment is a part of a reply of one kind. Joined where neighbours have the same kind (for
// calls also the same index), the segments of all deltas do not depend on how the tokens
// were batched.
type Segment struct {
	Kind dialect.Kind
	Text string    // of reasoning and content
	Call CallDelta // of a call: the part since its last segment
	// Logprobs of the content's tokens, without markup, if requested.
	Logprobs []TokenLogprob
}

// segmenter collects the segments of a choice and assigns its tokens to them.
type segmenter struct {
	reasoning int            // reasoning tokens so far
	pending   []int          // byte lengths of tokens whose text the parser has not returned yet
	probs     []TokenLogprob // their logprobs, if requested
	last      dialect.Kind   // of the last segment
}

// add appends a segment to a delta.
func (o *segmenter) add(d *Delta, s Segment) {
	if o != nil {
		d.Segments = append(d.Segments, s)
	}
}

// beforeToken records a token before its text is decoded. thinking: the parser is inside
// reasoning. In harmony the kind of a token is known only when its text comes out of the
// parser, by afterToken.
func (o *segmenter) beforeToken(thinking, markup bool, bytes int, l *TokenLogprob) {
	switch {
	case thinking:
		o.reasoning++
	case !markup:
		o.pending = append(o.pending, bytes)
		if l != nil {
			o.probs = append(o.probs, *l)
		}
	}
}

// afterToken assigns the pending tokens to the segments that were added since, which begin
// at index from.
func (o *segmenter) afterToken(d *Delta, from int, markup bool) {
	if o == nil {
		return
	}
	if fresh := d.Segments[from:]; len(fresh) > 0 {
		last := &fresh[len(fresh)-1]
		switch last.Kind {
		case dialect.Content:
			if o.last != dialect.Content || len(fresh) > 1 {
				o.shorten(len(last.Text))
			}
			last.Logprobs = append(last.Logprobs, o.probs...)
		case dialect.Reasoning:
			o.reasoning += len(o.pending)
		}
		o.last = last.Kind
		o.forget()
		d.Segments = joined(d.Segments, from)
	}
	if markup {
		o.forget()
	}
}

// forget drops the pending tokens.
func (o *segmenter) forget() { o.pending, o.probs = o.pending[:0], nil }

// shorten keeps the last pending tokens that make up n bytes. Where content begins, the
// tokens before them are markup that has no token of its own.
func (o *segmenter) shorten(n int) {
	i := len(o.pending)
	for i > 0 && n > 0 {
		i--
		n -= o.pending[i]
	}
	if o.probs != nil {
		o.probs = o.probs[i:]
	}
}

// joined returns list with each segment from index i on joined to its predecessor if both
// have the same kind and call index.
func joined(list []Segment, i int) []Segment {
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

package chat

import (
	"strings"

	"vapp.dev/engine"
)

// TokenLogprob is the log probability of a token at its position, and those of the best
// alternatives.
type TokenLogprob struct {
	Token   int32
	Text    string // of the token alone
	Bytes   []byte // that a generated token adds to the reply's text; of a special token: its text
	Known   bool   // false for the first token of a prompt, which has none
	Logprob float32
	Rank    int32
	Top     []TopLogprob // best first
	Offset  int          // characters of the choice's text before it
}

// TopLogprob is one alternative.
type TopLogprob struct {
	Token   int32
	Text    string
	Bytes   []byte
	Logprob float32
}

// floor stands for minus infinity, which JSON cannot represent.
const floor = -9999

func tokenLogprob(l engine.Logprob, text Text) TokenLogprob {
	out := TokenLogprob{
		Token: l.Token, Text: text.TokenText(l.Token), Known: true,
		Logprob: finite(l.Logprob), Rank: l.Rank, Top: make([]TopLogprob, len(l.Top)),
	}
	for i, t := range l.Top {
		out.Top[i] = TopLogprob{Token: t.Token, Text: text.TokenText(t.Token), Logprob: finite(t.Logprob)}
	}
	return out
}

// withBytes returns the logprob of a generated token with the Bytes of it and its
// alternatives. It must be called for every token of a reply in order.
func (c *choice) withBytes(l TokenLogprob) TokenLogprob {
	for i := range l.Top {
		l.Top[i].Bytes, _ = c.bytes(l.Top[i].Token)
	}
	var shown bool
	l.Bytes, shown = c.bytes(l.Token)
	c.begun = c.begun || shown
	return l
}

// bytes returns the bytes that a token adds to the text at this point; shown reports whether
// it adds any. A decoder that strips spaces from the start of a text strips them from the
// first token that is shown.
func (c *choice) bytes(id int32) (b []byte, shown bool) {
	b = c.vocabulary.TokenBytes(id)
	if c.begun || len(b) == 0 {
		return b, len(b) > 0
	}
	text := c.text.TokenText(id)
	if c.skip && text != "" {
		if kept, err := c.text.Decode([]int32{id}, true); err == nil && kept == "" {
			return b, false
		}
	}
	if at := len(b) - len(text); at > 0 && strings.Trim(string(b[:at]), " ") == "" && string(b[at:]) == text {
		return b[at:], true
	}
	return b, true
}

// finite returns v, or floor if v is lower or not a number.
func finite(v float32) float32 {
	if !(v > floor) {
		return floor
	}
	return v
}

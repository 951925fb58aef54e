package chat

import "vapp.dev/engine"

// TokenLogprob is the log probability of a token where it stands, and of the
// best alternatives.
type TokenLogprob struct {
	Token   int32
	Text    string // the token alone, decoded
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
	Logprob float32
}

// floor stands for minus infinity, which JSON cannot say.
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

func finite(v float32) float32 {
	if !(v > floor) {
		return floor
	}
	return v
}

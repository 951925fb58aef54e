package dialect

import "strings"

// Thought is the part of a reply that comes before what is constrained.
type Thought struct {
	Inside bool     // the reply begins in it
	Open   string   // the marker that begins it where the reply does not; "": it cannot begin
	Ends   []string // texts, each of which ends it
}

// Bounds are the markers of a thought that may be cut short.
type Bounds struct {
	Inside      bool // the reply begins in it
	Open, Close string
	Again       bool     // another may begin after it
	Ends        []string // texts, each of which ends it; Close is one
}

// Bound says how a thought of a reply begins and ends; not ok: the dialect's cannot be
// cut short. Plain says that the prompt is no chat, so that only its own open marker
// begins one.
func Bound(o Options, plain bool) (b Bounds, ok bool) {
	r, found := findReasoning(o.Reasoning)
	if !found || r.spec == nil || Harmony(o.Reasoning, o.Tools) {
		return Bounds{}, false
	}
	b = Bounds{Open: r.spec.open, Close: r.spec.close, Again: r.spec.reopens, Ends: append([]string{r.spec.close}, r.spec.ends...)}
	if r.always || o.thinks() {
		b.Inside = r.spec.begins(o.Prompt) && (!plain || strings.Contains(o.Prompt, r.spec.open))
	}
	return b, true
}

// Before returns what of a reply may come before what a client constrains: the reasoning.
// The options' Reasoning, Tools, Prompt and Kwargs count. In harmony the constraint is of
// the whole reply, and only Inside counts.
func Before(o Options) Thought {
	if Harmony(o.Reasoning, o.Tools) {
		return Thought{Inside: !OpenHarmony(o.Prompt).Shown()}
	}
	r, ok := findReasoning(o.Reasoning)
	if !ok || r.spec == nil || !r.always && !o.thinks() {
		return Thought{}
	}
	t := Thought{Inside: r.spec.begins(o.Prompt), Ends: []string{r.spec.close}}
	if r.spec.reopens {
		t.Open = r.spec.open
	}
	return t
}

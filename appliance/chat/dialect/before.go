package dialect

import "strings"

// Thought describes the reasoning before the constrained part of a reply.
type Thought struct {
	Inside bool     // the reply begins inside reasoning
	Open   string   // the marker that begins reasoning later; "": it cannot begin later
	Ends   []string // alternative texts that end it
}

// Bounds holds the markers of reasoning that can be ended early.
type Bounds struct {
	Inside      bool // the reply begins inside reasoning
	Open, Close string
	Again       bool     // reasoning may begin again after its end
	Ends        []string // alternative texts that end it, including Close
}

// Bound returns how the reasoning of a reply begins and ends. ok is false if the dialect's
// reasoning cannot be ended early. plain: the prompt is not a chat, so that reasoning is
// open only if the prompt itself has the open marker.
func Bound(o Options, plain bool) (b Bounds, ok bool) {
	r, found := findReasoning(o.Reasoning)
	if !found || r.spec == nil || Harmony(o.Reasoning, o.Tools) {
		return Bounds{}, false
	}
	b = Bounds{Open: r.spec.open, Close: r.spec.close, Again: r.spec.reopens, Ends: append([]string{r.spec.close}, r.spec.ends...)}
	if r.thinks(&o) {
		b.Inside = r.spec.begins(o.Prompt) && (!plain || strings.Contains(o.Prompt, r.spec.open))
	}
	return b, true
}

// Before returns the reasoning that a reply may have before its constrained part. It uses
// Reasoning, Tools, Prompt and Kwargs of the options. In harmony the constraint covers the
// whole reply, and only Inside is set.
func Before(o Options) Thought {
	if Harmony(o.Reasoning, o.Tools) {
		return Thought{Inside: !OpenHarmony(o.Prompt).Shown()}
	}
	r, ok := findReasoning(o.Reasoning)
	if !ok || r.spec == nil || !r.thinks(&o) {
		return Thought{}
	}
	t := Thought{Inside: r.spec.begins(o.Prompt), Ends: []string{r.spec.close}}
	if r.spec.reopens {
		t.Open = r.spec.open
	}
	return t
}

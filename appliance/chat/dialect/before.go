package dialect

// Thought is the part of a reply that comes before what is constrained.
type Thought struct {
	Inside bool     // the reply begins in it
	Open   string   // the marker that begins it where the reply does not; "": it cannot begin
	Ends   []string // texts, each of which ends it
}

// Before says what of a reply may come before what a client constrains: the reasoning, of
// harmony all before the message to the user. The options' Reasoning, Tools, Prompt and Kwargs
// count.
func Before(o Options) Thought {
	if Harmony(o.Reasoning, o.Tools) {
		return Thought{Inside: true, Ends: []string{
			"<|channel|>final<|message|>", "<|channel|>final <|constrain|>json<|message|>", "<|channel|>final<|constrain|>json<|message|>",
		}}
	}
	r, ok := findReasoning(o.Reasoning)
	if !ok || r.spec == nil || !r.always && !o.thinks() {
		return Thought{}
	}
	return Thought{Inside: r.spec.begins(o.Prompt), Open: r.spec.open, Ends: []string{r.spec.close}}
}

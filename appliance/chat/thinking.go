package chat

import (
	"context"
	"slices"

	"vapp.dev/appliance/chat/dialect"
	"vapp.dev/engine"
)

// checkThinking refuses a thinking budget that the reasoning parser cannot enforce.
func checkThinking(a *RequestParams, s *Settings) error {
	n := a.ThinkingBudget
	if n == nil || *n == -1 {
		return nil
	}
	_, known := dialect.Bound(dialect.Options{Reasoning: s.Reasoning, Tools: s.Tools}, false)
	switch {
	case a.ThinkingHint && !known:
		a.ThinkingBudget = nil
		return nil
	case *n < 0:
		return invalid("thinking_token_budget", "thinking_token_budget must be at least 0, or -1 for none, got %d.", *n)
	case s.Reasoning == "":
		return invalid("thinking_token_budget", "thinking_token_budget is set but the server has no reasoning parser: name one in the profile (parsers.reasoning).")
	case !known:
		return invalid("thinking_token_budget", "thinking_token_budget is not supported for this model, whose thoughts are messages of their own: use reasoning_effort.")
	}
	return nil
}

// thinking returns the bound on the reasoning of replies to p; nil: no bound.
func (s *Service) thinking(ctx context.Context, r *Request, p *EncodedPrompt) (*engine.Thinking, error) {
	a, set := &r.params, r.settings
	if a.ThinkingBudget == nil || *a.ThinkingBudget < 0 {
		return nil, nil
	}
	o := dialect.Options{Reasoning: set.Reasoning, Tools: set.Tools, Prompt: s.textOf(p)}
	if a.Chat != nil {
		o.Kwargs = a.Chat.kwargs(set)
	}
	b, _ := dialect.Bound(o, a.Chat == nil && !a.Rendered)
	out := &engine.Thinking{Budget: *a.ThinkingBudget, Inside: b.Inside, Open: s.mark(b.Open), Again: b.Again, Bytes: s.cfg.Vocabulary.TokenBytes}
	for _, e := range b.Ends {
		out.Ends = append(out.Ends, s.mark(e))
	}
	var err error
	if out.Close, _, err = s.encodeText(ctx, b.Close, false, tokenLimit{most: s.cfg.ModelLen}); err != nil {
		return nil, err
	}
	return out, s.mayClose(ctx, a, out.Close)
}

// textOf returns a prompt's text; prompts that came as tokens are decoded.
func (s *Service) textOf(p *EncodedPrompt) string {
	if p.text != "" {
		return p.text
	}
	text, err := s.cfg.Text.Decode(p.Tokens, false)
	if err != nil { // the tokens are not valid text, so they are no chat prompt
		return ""
	}
	return text
}

// mark returns a marker with its token id, −1 if it is not one token.
func (s *Service) mark(text string) engine.Marker {
	if id, is := s.markers[text]; is {
		return engine.Marker{Text: text, ID: id}
	}
	return engine.Marker{Text: text, ID: -1}
}

// mayClose refuses parameters that forbid the tokens that end reasoning.
func (s *Service) mayClose(ctx context.Context, a *RequestParams, ids []int32) error {
	words, err := s.badWords(ctx, a.BadWords)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if a.AllowedTokenIDs != nil && !slices.Contains(a.AllowedTokenIDs, id) {
			return invalid("allowed_token_ids", "allowed_token_ids must hold token %d, which ends the thinking that thinking_token_budget bounds.", id)
		}
		if slices.ContainsFunc(words, func(w []int32) bool { return w[len(w)-1] == id }) {
			return invalid("bad_words", "bad_words must not end with token %d, which ends the thinking that thinking_token_budget bounds.", id)
		}
	}
	return nil
}

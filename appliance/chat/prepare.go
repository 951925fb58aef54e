package chat

import (
	"context"

	"vapp.dev/appliance/chat/dialect"
)

// Prepared is a prompt as the engine would get it.
type Prepared struct {
	Model  string // the name that a reply would carry
	Tokens []int32
	Sampling
	// ReasoningEnded: a reply has no thought before what Structure says.
	ReasoningEnded bool
	Structure      *Structure // what the reply must be, tool_choice considered; nil: anything
}

// thoughtless says that a reply to p cannot begin with a thought.
func (s *Service) thoughtless(r *Request, p *Prompted) bool {
	a, set := &r.ask, r.settings
	if a.Chat == nil {
		return true
	}
	t := dialect.Before(dialect.Options{Reasoning: set.Reasoning, Tools: set.Tools, Prompt: p.text, Kwargs: a.Chat.kwargs(set)})
	return !t.Inside && t.Open == ""
}

// Prepare does everything up to the engine: it renders, encodes, truncates, layers the
// sampling parameters and checks them. The Sampling of each prompt leaves nothing open.
// Its errors are *Error.
func (s *Service) Prepare(ctx context.Context, r *Request) ([]Prepared, error) {
	var run Run
	if err := s.prompts(ctx, r, &run); err != nil {
		return nil, AsError(err)
	}
	must, whole, err := s.wanted(r, &run)
	if err != nil {
		return nil, AsError(err)
	}
	out := make([]Prepared, len(run.Prompts))
	for i := range run.Prompts {
		p := &run.Prompts[i]
		params, err := s.params(ctx, r, p)
		if err != nil {
			return nil, AsError(err)
		}
		out[i] = Prepared{r.model, p.Tokens, s.layered(r).inForce(), whole || s.thoughtless(r, p), must}
		out[i].MaxTokens = &params.MaxTokens
	}
	return out, nil
}

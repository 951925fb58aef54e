package chat

import (
	"context"

	"vapp.dev/appliance/chat/dialect"
	"vapp.dev/appliance/chat/structured"
)

// RenderedRequest is one prompt of a request as the engine would get it.
type RenderedRequest struct {
	Model  string // the model name of a reply
	Tokens []int32
	Sampling
	// ReasoningEnded: a reply has no reasoning before the part that Structure constrains.
	ReasoningEnded bool
	Structure      *structured.Constraint // the form of the reply, which tool_choice may set; nil: any
	Items          []PromptItem           // images whose tokens are among Tokens
}

// startsWithoutReasoning reports whether a reply to p cannot begin with reasoning.
func (s *Service) startsWithoutReasoning(r *Request, p *EncodedPrompt) bool {
	a, set := &r.params, r.settings
	if a.Chat == nil {
		return true
	}
	t := dialect.Before(dialect.Options{Reasoning: set.Reasoning, Tools: set.Tools, Prompt: p.text, Kwargs: a.Chat.kwargs(set)})
	return !t.Inside && t.Open == ""
}

// Prepare does what Start does before the engine: it renders, encodes and truncates the
// prompts, and merges and checks the sampling parameters. No field of the Sampling of a
// prompt is nil. Its errors are *Error.
func (s *Service) Prepare(ctx context.Context, r *Request) ([]RenderedRequest, error) {
	var run Run
	if err := s.prompts(ctx, r, &run); err != nil {
		return nil, AsError(err)
	}
	must, whole, err := s.constraint(r, &run)
	if err != nil {
		return nil, AsError(err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := s.loadMedia(ctx, r, &run); err != nil {
		return nil, AsError(err)
	}
	out := make([]RenderedRequest, len(run.Prompts))
	for i := range run.Prompts {
		p := &run.Prompts[i]
		params, err := s.engineParams(ctx, r, p)
		if err != nil {
			return nil, AsError(err)
		}
		out[i] = RenderedRequest{r.model, p.Tokens, s.sampling(r).effective(), whole || s.startsWithoutReasoning(r, p), must, p.Items}
		out[i].MaxTokens = &params.MaxTokens
	}
	return out, nil
}

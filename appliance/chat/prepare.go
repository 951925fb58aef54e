package chat

import "context"

// Prepared is a prompt as the engine would get it.
type Prepared struct {
	Model  string // the name that a reply would carry
	Tokens []int32
	Sampling
}

// Prepare does everything up to the engine: it renders, encodes, truncates, layers the
// sampling parameters and checks them. The Sampling of each prompt leaves nothing open.
// Its errors are *Error.
func (s *Service) Prepare(ctx context.Context, r *Request) ([]Prepared, error) {
	var run Run
	if err := s.prompts(ctx, r, &run); err != nil {
		return nil, AsError(err)
	}
	out := make([]Prepared, len(run.Prompts))
	for i := range run.Prompts {
		p := &run.Prompts[i]
		params, err := s.params(r, p)
		if err != nil {
			return nil, AsError(err)
		}
		out[i] = Prepared{r.model, p.Tokens, s.layered(r)}
		out[i].MaxTokens = &params.MaxTokens
	}
	return out, nil
}

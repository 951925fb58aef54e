package chat

import (
	"context"
	"slices"
)

// inputs are the texts of a request.
type inputs struct {
	n int
	// tokens encodes one of them; they are within the model length.
	tokens func(ctx context.Context, i int) ([]int32, error)
}

// inputs returns the texts of a request. What can be checked without encoding is.
func (s *Service) inputs(ctx context.Context, a *PoolAsk, set *Settings) (*inputs, error) {
	list := a.Inputs
	if a.Chat != nil {
		if err := checkConversation(&Ask{Chat: a.Chat}, set); err != nil {
			return nil, err
		}
		text, err := s.render(ctx, a.Chat, set)
		if err != nil {
			return nil, err
		}
		list = []Prompt{{Text: text}}
	}
	keep, err := s.keeps(a.Truncate)
	if err != nil {
		return nil, err
	}
	if a.pair != nil {
		return &inputs{a.pairs, func(ctx context.Context, i int) ([]int32, error) {
			text, err := a.pair(ctx, i)
			if err != nil {
				return nil, err
			}
			p := Prompt{Text: text}
			if err := s.checkInput(p, a, keep); err != nil {
				return nil, err
			}
			return s.input(ctx, p, a, keep)
		}}, nil
	}
	for _, p := range list {
		if err := s.checkInput(p, a, keep); err != nil {
			return nil, err
		}
	}
	return &inputs{len(list), func(ctx context.Context, i int) ([]int32, error) { return s.input(ctx, list[i], a, keep) }}, nil
}

// keeps is how many tokens of a text are kept; 0: all.
func (s *Service) keeps(n *int) (int, error) {
	switch most := s.cfg.ModelLen; {
	case n == nil:
		return 0, nil
	case *n == -1:
		return most, nil
	case *n < 1:
		return 0, invalid("truncate_prompt_tokens", "truncate_prompt_tokens must be -1 or at least 1, got %d.", *n)
	case *n > most:
		return 0, invalid("truncate_prompt_tokens", "truncate_prompt_tokens value (%d) is greater than max_model_len (%d). Please request a smaller truncation size.", *n, most)
	}
	return *n, nil
}

// checkInput refuses a text that is empty or too long to be encoded.
func (s *Service) checkInput(p Prompt, a *PoolAsk, keep int) error {
	if p.Tokens != nil && len(p.Tokens) == 0 || p.Tokens == nil && p.Text == "" && !a.AddSpecialTokens {
		return Errorf(Malformed, "input", "`input` must not hold an empty text.")
	}
	if err := s.inVocabulary("input", p.Tokens); err != nil {
		return err
	}
	return s.preCheck(p.Text, nil, keep > 0)
}

// input encodes one text and cuts it where that is asked for.
func (s *Service) input(ctx context.Context, p Prompt, a *PoolAsk, keep int) ([]int32, error) {
	ids, n, err := s.encode(ctx, p, a.AddSpecialTokens, a.Chat != nil, kept{most: s.maxText()})
	if err != nil {
		return nil, err
	}
	if keep > 0 && n > keep {
		return s.cutInput(ctx, p, ids, keep, a)
	}
	if most := s.cfg.ModelLen; n > most {
		return nil, Errorf(TooLong, "input_tokens", "This model's maximum context length is %d tokens. However, you requested 0 output tokens and your prompt contains %d input tokens, for a total of %d tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
			most, n, n)
	}
	return ids, nil
}

// cutInput keeps that many tokens of ids: what the tokenizer puts around a text stays, as
// its own truncation has it, and the text between loses its end, or its beginning.
func (s *Service) cutInput(ctx context.Context, p Prompt, ids []int32, keep int, a *PoolAsk) ([]int32, error) {
	before, after := 0, 0
	if p.Tokens == nil && a.AddSpecialTokens {
		bare, _, err := s.encodeText(ctx, p.Text, false, kept{most: s.maxText()})
		if err != nil {
			return nil, err
		}
		if around := len(ids) - len(bare); around > 0 && around < keep {
			for before = 0; before <= around && !slices.Equal(ids[before:before+len(bare)], bare); before++ {
			}
			if before > around {
				before = 0
			} else {
				after = around - before
			}
		}
	}
	text, room := ids[before:len(ids)-after], keep-before-after
	if a.TruncationSide == "left" {
		text = text[len(text)-room:]
	} else {
		text = text[:room]
	}
	return slices.Concat(ids[:before], text, ids[len(ids)-after:]), nil
}

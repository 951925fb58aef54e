package chat

import (
	"context"
	"slices"
)

// inputs are the texts of a request in tokens, each within the model length.
func (s *Service) inputs(ctx context.Context, a *PoolAsk, set *Settings) ([][]int32, error) {
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
	out := make([][]int32, 0, len(list))
	for _, p := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		ids, err := s.input(p, a, keep)
		if err != nil {
			return nil, err
		}
		out = append(out, ids)
	}
	return out, nil
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

// input encodes one text and cuts it where that is asked for.
func (s *Service) input(p Prompt, a *PoolAsk, keep int) ([]int32, error) {
	if p.Tokens != nil && len(p.Tokens) == 0 || p.Tokens == nil && p.Text == "" && !a.AddSpecialTokens {
		return nil, Errorf(Malformed, "input", "`input` must not hold an empty text.")
	}
	if err := s.inVocabulary("input", p.Tokens); err != nil {
		return nil, err
	}
	if err := s.preCheck(p.Text, nil, keep > 0); err != nil {
		return nil, err
	}
	ids, err := s.encode(p, a.AddSpecialTokens, a.Chat != nil)
	if err != nil {
		return nil, err
	}
	if keep > 0 && len(ids) > keep {
		return s.cutInput(p, ids, keep, a)
	}
	if n, most := len(ids), s.cfg.ModelLen; n > most {
		return nil, Errorf(TooLong, "input_tokens", "This model's maximum context length is %d tokens. However, you requested 0 output tokens and your prompt contains %d input tokens, for a total of %d tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
			most, n, n)
	}
	return ids, nil
}

// cutInput keeps that many tokens of ids: what the tokenizer puts around a text stays, as
// its own truncation has it, and the text between loses its end, or its beginning.
func (s *Service) cutInput(p Prompt, ids []int32, keep int, a *PoolAsk) ([]int32, error) {
	before, after := 0, 0
	if p.Tokens == nil && a.AddSpecialTokens {
		bare, err := s.cfg.Text.Encode(p.Text, false)
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

package pooling

import (
	"context"
	"slices"

	"vapp.dev/appliance/chat"
)

// inputs holds the inputs of a request.
type inputs struct {
	n int
	// tokens returns the tokens of input i, truncated as requested and not longer
	// than the model's context, and its images.
	tokens func(ctx context.Context, i int) ([]int32, []chat.PromptItem, error)
}

// inputs returns the inputs of a request. It makes all checks that need no encoding.
func (s *Service) inputs(ctx context.Context, a *Params, set *chat.Settings) (*inputs, error) {
	list := a.Inputs
	if a.Chat != nil {
		if err := chat.CheckConversation(a.Chat, set); err != nil {
			return nil, err
		}
		text, err := s.text.RenderText(ctx, a.Chat, set)
		if err != nil {
			return nil, err
		}
		list = []chat.Prompt{{Text: text}}
	}
	keep, err := s.truncation(a.Truncate)
	if err != nil {
		return nil, err
	}
	if err := chat.CheckMedia(a.Chat, keep > 0); err != nil {
		return nil, err
	}
	if a.pair != nil {
		return &inputs{a.pairs, func(ctx context.Context, i int) ([]int32, []chat.PromptItem, error) {
			text, err := a.pair(ctx, i)
			if err != nil {
				return nil, nil, err
			}
			p := chat.Prompt{Text: text}
			if err := s.checkInput(p, a, keep); err != nil {
				return nil, nil, err
			}
			ids, err := s.input(ctx, p, a, keep)
			return ids, nil, err
		}}, nil
	}
	for _, p := range list {
		if err := s.checkInput(p, a, keep); err != nil {
			return nil, err
		}
	}
	return &inputs{len(list), func(ctx context.Context, i int) ([]int32, []chat.PromptItem, error) {
		ids, err := s.input(ctx, list[i], a, keep)
		if err != nil || a.Chat == nil {
			return ids, nil, err
		}
		ids, items, err := s.text.WithMedia(ctx, a.Chat, set, ids)
		if err != nil {
			return nil, nil, err
		}
		return ids, items, s.fits(len(ids))
	}}, nil
}

// truncation returns to how many tokens an input is truncated; 0: not at all.
func (s *Service) truncation(n *int) (int, error) {
	switch most := s.text.ModelLen(); {
	case n == nil:
		return 0, nil
	case *n == -1:
		return most, nil
	case *n < 1:
		return 0, chat.Errorf(chat.Invalid, "truncate_prompt_tokens", "truncate_prompt_tokens must be -1 or at least 1, got %d.", *n)
	case *n > most:
		return 0, chat.Errorf(chat.Invalid, "truncate_prompt_tokens", "truncate_prompt_tokens value (%d) is greater than max_model_len (%d). Please request a smaller truncation size.", *n, most)
	}
	return *n, nil
}

// checkInput refuses an input that is empty or too long to be encoded.
func (s *Service) checkInput(p chat.Prompt, a *Params, keep int) error {
	if p.Tokens != nil && len(p.Tokens) == 0 || p.Tokens == nil && p.Text == "" && !a.AddSpecialTokens {
		return chat.Errorf(chat.Malformed, "input", "`input` must not hold an empty text.")
	}
	return s.text.CheckInput(p, keep > 0)
}

// input encodes one input and truncates it to keep tokens, if keep is not 0.
func (s *Service) input(ctx context.Context, p chat.Prompt, a *Params, keep int) ([]int32, error) {
	ids, n, err := s.text.Encode(ctx, p, a.AddSpecialTokens, a.Chat != nil)
	if err != nil {
		return nil, err
	}
	if keep > 0 && n > keep {
		return s.truncate(ctx, p, ids, keep, a)
	}
	return ids, s.fits(n)
}

// fits refuses an input of more tokens than the model's context.
func (s *Service) fits(n int) error {
	if most := s.text.ModelLen(); n > most {
		return chat.Errorf(chat.TooLong, "input_tokens", "This model's maximum context length is %d tokens. However, you requested 0 output tokens and your prompt contains %d input tokens, for a total of %d tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
			most, n, n)
	}
	return nil
}

// truncate returns keep of the ids. As in the tokenizer's own truncation, the special tokens
// around the text stay, and the text loses its end (truncation_side right) or its beginning.
func (s *Service) truncate(ctx context.Context, p chat.Prompt, ids []int32, keep int, a *Params) ([]int32, error) {
	before, after := 0, 0 // special tokens before and after the text
	if p.Tokens == nil && a.AddSpecialTokens {
		bare, err := s.text.EncodePlain(ctx, p.Text)
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
	text, n := ids[before:len(ids)-after], keep-before-after
	if a.TruncationSide == "left" {
		text = text[len(text)-n:]
	} else {
		text = text[:n]
	}
	return slices.Concat(ids[:before], text, ids[len(ids)-after:]), nil
}

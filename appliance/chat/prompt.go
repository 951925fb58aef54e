package chat

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"
)

// Prompted is one prompt of a run, in tokens.
type Prompted struct {
	Tokens []int32
	// Logprobs of the prompt's tokens when asked for; the first has none. It is
	// there once the first Delta of a choice of this prompt has come.
	Logprobs []TokenLogprob

	text    string // as it was given; for echo
	skip    bool   // special tokens are not in text
	added   bool   // nor is the first token, which encoding added
	output  int    // tokens each choice may have
	nothing bool   // echo alone: there is nothing to compute
}

// prompts fills the prompts of the run and decides how long replies may get.
func (s *Service) prompts(ctx context.Context, r *Request, run *Run) error {
	a := &r.ask
	list := a.Prompts
	if c := a.Chat; c != nil {
		text, err := s.render(ctx, c, r.settings)
		if err != nil {
			return err
		}
		list = []Prompt{{Text: text}}
		run.Role = c.replyRole()
		if last := c.Messages[len(c.Messages)-1]; a.Echo && last.Role == run.Role {
			run.Lead = last.text()
		}
	}
	asked, err := s.asked(r)
	if err != nil {
		return err
	}
	keep, err := s.truncation(a.Truncate, asked)
	if err != nil {
		return err
	}
	for _, p := range list { // all of them before the first is encoded
		if err := s.preCheck(p.Text, asked, keep.last); err != nil {
			return err
		}
	}
	for _, p := range list {
		ready, err := s.prompt(ctx, r, p, asked, keep)
		if err != nil {
			return err
		}
		run.Prompts = append(run.Prompts, ready)
	}
	return nil
}

// prompt encodes, truncates and measures one prompt, whose length was checked.
func (s *Service) prompt(ctx context.Context, r *Request, p Prompt, asked *int, keep kept) (Prompted, error) {
	a := &r.ask
	ids, n, err := s.encode(ctx, p, a.AddSpecialTokens, a.Chat != nil, keep)
	if err != nil {
		return Prompted{}, err
	}
	truncated := n
	if keep.last {
		n = len(ids)
	}
	out := Prompted{Tokens: ids, text: p.Text}
	if out.output, err = s.room(r, n, asked); err != nil {
		return Prompted{}, err
	}
	out.nothing = out.output == 0 && a.Logprobs == nil && a.PromptLogprobs == nil
	out.added = p.Tokens == nil && a.AddSpecialTokens && int(ids[0]) == s.cfg.Special.BOS.ID && !strings.HasPrefix(p.Text, s.cfg.Special.BOS.Text)
	if a.Echo && a.Chat == nil && (p.Tokens != nil || truncated != len(ids)) {
		out.skip, out.added = a.SkipSpecialTokens, false
		if out.text, err = s.cfg.Text.Decode(ids, out.skip); err != nil {
			return Prompted{}, err
		}
	}
	return out, nil
}

// asked is how many tokens the request asks for, nil for as many as there is
// room for.
func (s *Service) asked(r *Request) (*int, error) {
	asked := r.ask.MaxTokens
	switch {
	case asked == nil:
		return nil, nil
	case *asked == 0 && r.ask.Echo && r.ask.Chat == nil:
		return asked, nil
	case *asked < 1:
		return nil, invalid("max_tokens", "max_tokens must be at least 1, got %d.", *asked)
	case *asked > s.cfg.ModelLen:
		return nil, invalid("max_tokens", "max_tokens=%d cannot be greater than max_model_len=%d. Please request fewer output tokens.", *asked, s.cfg.ModelLen)
	}
	return asked, nil
}

// preCheck refuses a text that is too long whatever its tokens are, before any
// time is spent on encoding it.
func (s *Service) preCheck(text string, asked *int, truncated bool) error {
	if truncated {
		return s.checkLength(text)
	}
	room := s.cfg.ModelLen - deref(asked)
	if len(text) <= room*s.maxRunes {
		return nil
	}
	if n := utf8.RuneCountInString(text); n > room*s.maxRunes {
		return Errorf(TooLong, "input_text", "This model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt contains %d characters (more than %d characters, which is the upper bound for %d input tokens). Please reduce the length of the input prompt or the number of requested output tokens.",
			s.cfg.ModelLen, deref(asked), n, room*s.maxRunes, room)
	}
	return nil
}

// encode returns a prompt's tokens, as many as k keeps, and how many there are; a
// template's own BOS is not doubled.
func (s *Service) encode(ctx context.Context, p Prompt, addSpecial, templated bool, k kept) ([]int32, int, error) {
	if ids := p.Tokens; ids != nil {
		n := len(ids)
		if err := s.inVocabulary("prompt", ids); err != nil {
			return nil, 0, err
		}
		if k.last && n > k.most {
			ids = slices.Clone(ids[n-k.most:]) // a part of p.Tokens would keep all of it in memory
		}
		return ids, n, nil
	}
	ids, n, err := s.encodeText(ctx, p.Text, addSpecial, k)
	if err != nil {
		return nil, 0, err
	}
	whole := len(ids) == n || !k.last
	if bos := int32(s.cfg.Special.BOS.ID); whole && templated && addSpecial && bos >= 0 && len(ids) > 1 && ids[0] == bos && ids[1] == bos {
		ids, n = ids[1:], n-1
	}
	if n == 0 {
		return nil, 0, invalid("prompt", "The prompt has no tokens.")
	}
	return ids, n, nil
}

// truncation returns what truncate_prompt_tokens keeps of a prompt: its last tokens, −1
// as many as fit; without it the prompt's first ones, more than which are an error.
func (s *Service) truncation(keep, asked *int) (kept, error) {
	if keep == nil {
		return kept{most: s.cfg.ModelLen}, nil
	}
	room, n := s.cfg.ModelLen-max(1, deref(asked)), *keep
	switch {
	case n < -1 || n == 0:
		return kept{}, invalid("truncate_prompt_tokens", "truncate_prompt_tokens must be -1 or at least 1, got %d.", n)
	case n > room:
		return kept{}, invalid("truncate_prompt_tokens", "truncate_prompt_tokens value (%d) is greater than max_model_len - requested output tokens (%d). Please request a smaller truncation size.", n, room)
	case n == -1:
		n = room
	}
	return kept{most: n, last: true}, nil
}

// room decides the length of each reply to a prompt of n tokens, in tokens; 0
// for echo alone.
func (s *Service) room(r *Request, n int, asked *int) (int, error) {
	left := s.cfg.ModelLen - n
	switch {
	case left < deref(asked) || left < 0:
		out := deref(asked)
		return 0, Errorf(TooLong, "input_tokens", "This model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt contains %d input tokens, for a total of %d tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
			s.cfg.ModelLen, out, n, n+out)
	case asked == nil && left == 0:
		return 0, Errorf(TooLong, "max_tokens", "max_tokens must be at least 1, got 0.")
	case asked != nil:
		left = *asked
	case r.settings.GenerationConfig && deref(s.cfg.Generation.MaxNewTokens) > 0:
		left = min(left, *s.cfg.Generation.MaxNewTokens)
	}
	if most := r.settings.Sampling.MaxTokens; most != nil {
		left = min(left, *most)
	}
	return left, nil
}

func deref(p *int) int {
	if p == nil {
		return 0
	}
	return *p
}

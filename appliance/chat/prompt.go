package chat

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"
)

// EncodedPrompt is one prompt of a run as tokens.
type EncodedPrompt struct {
	Tokens []int32
	// Logprobs of the prompt's tokens if requested; the first token has none. Set from the
	// first Delta of a choice of this prompt on.
	Logprobs []TokenLogprob

	// Items are the images of the prompt, in order of position. Set before the engine gets
	// the prompt; their tokens are among Tokens.
	Items []PromptItem

	text    string // the source of Tokens; for echo
	skip    bool   // text leaves special tokens out
	added   bool   // the first token is a BOS that encoding added and text lacks
	output  int    // token limit of each choice
	nothing bool   // the reply is the echo alone; the engine is not needed
}

// prompts renders and encodes the prompts of a run and sets the token limits of its replies.
func (s *Service) prompts(ctx context.Context, r *Request, run *Run) error {
	a := &r.params
	list := a.Prompts
	if c := a.Chat; c != nil {
		text, err := s.render(ctx, c, r.settings)
		if err != nil {
			return err
		}
		list = []Prompt{{Text: text}}
		run.Role = c.replyRole()
		if last := c.Messages[len(c.Messages)-1]; a.Echo && last.Role == run.Role {
			run.EchoPrefix = last.text()
		}
	}
	requested, err := s.requestedTokens(r)
	if err != nil {
		return err
	}
	keep, err := s.truncation(a.Truncate, requested)
	if err != nil {
		return err
	}
	if err := CheckMedia(a.Chat, keep.last); err != nil {
		return err
	}
	for _, p := range list { // check all before encoding the first
		if err := s.preCheck(p.Text, requested, keep.last); err != nil {
			return err
		}
	}
	for _, p := range list {
		ready, err := s.prompt(ctx, r, p, requested, keep)
		if err != nil {
			return err
		}
		run.Prompts = append(run.Prompts, ready)
	}
	return nil
}

// prompt encodes and truncates one prompt, whose text passed preCheck, and sets the limit of
// its replies.
func (s *Service) prompt(ctx context.Context, r *Request, p Prompt, requested *int, keep tokenLimit) (EncodedPrompt, error) {
	a := &r.params
	ids, n, err := s.encode(ctx, p, a.AddSpecialTokens, a.Chat != nil, keep)
	if err != nil {
		return EncodedPrompt{}, err
	}
	truncated := n
	if keep.last {
		n = len(ids)
	}
	out := EncodedPrompt{Tokens: ids, text: p.Text}
	if out.output, err = s.replyLimit(r, n, requested); err != nil {
		return EncodedPrompt{}, err
	}
	out.nothing = out.output == 0 && a.Logprobs == nil && a.PromptLogprobs == nil
	out.added = p.Tokens == nil && a.AddSpecialTokens && int(ids[0]) == s.cfg.Special.BOS.ID && !strings.HasPrefix(p.Text, s.cfg.Special.BOS.Text)
	if a.Echo && a.Chat == nil && (p.Tokens != nil || truncated != len(ids)) {
		out.skip, out.added = a.SkipSpecialTokens, false
		if out.text, err = s.cfg.Text.Decode(ids, out.skip); err != nil {
			return EncodedPrompt{}, err
		}
	}
	return out, nil
}

// requestedTokens returns max_tokens of the request; nil: as many as fit the context.
func (s *Service) requestedTokens(r *Request) (*int, error) {
	requested := r.params.MaxTokens
	switch {
	case requested == nil:
		return nil, nil
	case *requested == 0 && r.params.Echo && r.params.Chat == nil:
		return requested, nil
	case *requested < 1:
		return nil, invalid("max_tokens", "max_tokens must be at least 1, got %d.", *requested)
	case *requested > s.cfg.ModelLen:
		return nil, invalid("max_tokens", "max_tokens=%d cannot be greater than max_model_len=%d. Please request fewer output tokens.", *requested, s.cfg.ModelLen)
	}
	return requested, nil
}

// preCheck refuses a text that must exceed the context, however it is tokenized. It runs
// before encoding, which would take time.
func (s *Service) preCheck(text string, requested *int, truncated bool) error {
	if truncated {
		return s.checkLength(text)
	}
	left := s.cfg.ModelLen - deref(requested)
	if len(text) <= left*s.maxRunes {
		return nil
	}
	if n := utf8.RuneCountInString(text); n > left*s.maxRunes {
		return Errorf(TooLong, "input_text", "This model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt contains %d characters (more than %d characters, which is the upper bound for %d input tokens). Please reduce the length of the input prompt or the number of requested output tokens.",
			s.cfg.ModelLen, deref(requested), n, left*s.maxRunes, left)
	}
	return nil
}

// encode returns the tokens of a prompt that k keeps and the number of all its tokens. If
// both the template and the tokenizer add a BOS, one is removed.
func (s *Service) encode(ctx context.Context, p Prompt, addSpecial, templated bool, k tokenLimit) ([]int32, int, error) {
	if ids := p.Tokens; ids != nil {
		n := len(ids)
		if err := s.inVocabulary("prompt", ids); err != nil {
			return nil, 0, err
		}
		if k.last && n > k.most {
			ids = slices.Clone(ids[n-k.most:]) // a subslice would keep all of p.Tokens in memory
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

// truncation returns the limit of truncate_prompt_tokens: the last n tokens, −1 for as many
// as fit. Without it the limit is the context length; a longer prompt is refused later.
func (s *Service) truncation(keep, requested *int) (tokenLimit, error) {
	if keep == nil {
		return tokenLimit{most: s.cfg.ModelLen}, nil
	}
	fits, n := s.cfg.ModelLen-max(1, deref(requested)), *keep
	switch {
	case n < -1 || n == 0:
		return tokenLimit{}, invalid("truncate_prompt_tokens", "truncate_prompt_tokens must be -1 or at least 1, got %d.", n)
	case n > fits:
		return tokenLimit{}, invalid("truncate_prompt_tokens", "truncate_prompt_tokens value (%d) is greater than max_model_len - requested output tokens (%d). Please request a smaller truncation size.", n, fits)
	case n == -1:
		n = fits
	}
	return tokenLimit{most: n, last: true}, nil
}

// replyLimit returns the token limit of each reply to a prompt of n tokens; 0: the reply is
// the echo alone.
func (s *Service) replyLimit(r *Request, n int, requested *int) (int, error) {
	left := s.cfg.ModelLen - n
	switch {
	case left < deref(requested) || left < 0:
		out := deref(requested)
		return 0, Errorf(TooLong, "input_tokens", "This model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt contains %d input tokens, for a total of %d tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
			s.cfg.ModelLen, out, n, n+out)
	case requested == nil && left == 0:
		return 0, Errorf(TooLong, "max_tokens", "max_tokens must be at least 1, got 0.")
	case requested != nil:
		left = *requested
	case r.settings.GenerationConfig && deref(s.cfg.Generation.MaxNewTokens) > 0:
		left = min(left, *s.cfg.Generation.MaxNewTokens)
	}
	if most := r.settings.Sampling.MaxTokens; most != nil {
		left = min(left, *most)
	}
	return left, nil
}

// deref returns *p, 0 for nil.
func deref(p *int) int {
	if p == nil {
		return 0
	}
	return *p
}

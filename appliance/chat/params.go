package chat

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"vapp.dev/appliance/chat/dialect"
	"vapp.dev/engine/sample"
)

// engineParams returns the checked sampling parameters of a request for the engine: those of
// the request over those of the settings, the model and the API's defaults.
func (s *Service) engineParams(ctx context.Context, r *Request, p *EncodedPrompt) (sample.Params, error) {
	a, set, open := &r.params, r.settings, s.sampling(r)
	out := sample.Params{
		Temperature: *open.Temperature, TopP: *open.TopP, TopK: *open.TopK, MinP: *open.MinP,
		Repetition: *open.RepetitionPenalty, Frequency: a.FrequencyPenalty, Presence: a.PresencePenalty,
		MaxTokens: max(1, p.output), MinTokens: a.MinTokens,
		StopTokenIDs: a.StopTokenIDs, EOS: s.ends(set), IgnoreEOS: a.IgnoreEOS,
		LogitBias: bias(a.LogitBias), AllowedTokenIDs: a.AllowedTokenIDs,
		Logprobs: s.alternatives(a.Logprobs), PromptLogprobs: s.alternatives(a.PromptLogprobs),
	}
	if a.Seed != nil && *a.Seed != -1 {
		out.Seed, out.HasSeed = uint64(*a.Seed), true
	}
	if p.output == 0 {
		out.MinTokens = 0
	}
	var err error
	if out.BadWords, err = s.badWords(ctx, a.BadWords); err != nil {
		return out, err
	}
	if err := out.Validate(s.limits(set)); err != nil {
		return out, paramError(err)
	}
	if a.Beam {
		return out, nil
	}
	return out, paramError(out.ValidateN(a.N))
}

// sampling returns the parameters that a request may omit, with those of the lower layers
// filled in; only MaxTokens may be nil.
func (s *Service) sampling(r *Request) Sampling {
	return r.params.Sampling.over(s.below(r.settings))
}

// below returns the parameters of a request that sets none. MaxTokens is the profile's.
func (s *Service) below(set *Settings) Sampling {
	open := set.Sampling
	if set.GenerationConfig {
		open = open.over(generation(s.cfg.Generation))
	}
	return open.over(neutral())
}

// Defaults are the sampling parameters of a request that sets none.
type Defaults struct {
	Temperature       float64 `json:"temperature"`
	TopP              float64 `json:"top_p"`
	TopK              int     `json:"top_k"` // 0: off
	MinP              float64 `json:"min_p"`
	RepetitionPenalty float64 `json:"repetition_penalty"`
	MaxTokens         int     `json:"max_tokens,omitempty"` // 0: to the end of the context
	ModelLen          int     `json:"max_model_len"`        // tokens of prompt and reply together
}

// Defaults returns the sampling parameters of a request that sets none, under these settings.
func (s *Service) Defaults(set *Settings) Defaults {
	v := s.below(set)
	most := deref(set.Sampling.MaxTokens)
	if n := deref(s.cfg.Generation.MaxNewTokens); set.GenerationConfig && n > 0 && (most == 0 || n < most) {
		most = n
	}
	return Defaults{*v.Temperature, *v.TopP, *v.TopK, *v.MinP, *v.RepetitionPenalty, most, s.cfg.ModelLen}
}

// ends returns the token ids that end a reply. In harmony they include the end of a message
// to a tool.
func (s *Service) ends(set *Settings) []int32 {
	if !dialect.Harmony(set.Reasoning, set.Tools) {
		return s.eos
	}
	out := slices.Clone(s.eos)
	for _, m := range dialect.HarmonyStops() {
		if id, is := s.markers[m]; is && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// paramError adds a Kind to an error of the sampler, whose text is written for clients.
func paramError(err error) error {
	var e *sample.ParamError
	if errors.As(err, &e) {
		return &Error{Kind: Invalid, Param: e.Param, Message: e.Text}
	}
	return err
}

// limits returns the engine's limits; the settings may lower that of logprobs.
func (s *Service) limits(set *Settings) sample.Limits {
	l := s.cfg.Limits
	if set.MaxLogprobs >= 0 {
		l.Logprobs = min(l.Logprobs, set.MaxLogprobs)
	}
	return l
}

// alternatives returns the number of logprob alternatives for the sampler: -1 for no
// logprobs, and the vocabulary size where the client sent -1.
func (s *Service) alternatives(n *int) int {
	switch {
	case n == nil:
		return -1
	case *n == -1:
		return s.cfg.Limits.Vocab
	}
	return *n
}

// badWords encodes each word in two forms: at the start of a text and after a space.
func (s *Service) badWords(ctx context.Context, words []string) ([][]int32, error) {
	var out [][]int32
	for _, w := range words {
		for _, form := range []string{w, " " + w} {
			seq, _, err := s.encodeText(ctx, form, false, tokenLimit{most: maxBadWordBytes})
			var bad *Error
			if errors.As(err, &bad) {
				return nil, invalid("bad_words", "bad_words: %.40q: %s", w, bad.Message)
			}
			if err != nil {
				return nil, err
			}
			same := func(o []int32) bool { return slices.Equal(o, seq) }
			if len(seq) > 0 && !slices.ContainsFunc(out, same) {
				out = append(out, seq)
			}
		}
	}
	return out, nil
}

// bias returns logit_bias in the order of token ids.
func bias(m map[int32]float64) []sample.Bias {
	var out []sample.Bias
	for id, v := range m {
		out = append(out, sample.Bias{Token: id, Value: v})
	}
	slices.SortFunc(out, func(a, b sample.Bias) int { return cmp.Compare(a.Token, b.Token) })
	return out
}

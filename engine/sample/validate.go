package sample

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Limits are the limits of a request's parameters, by the model and the step buffers.
type Limits struct {
	Vocab    int
	Logprobs int // most top logprobs
	Bias     int // most logit edits of a row
}

// ParamError reports an invalid parameter, with vLLM's message.
type ParamError struct {
	Param string
	Value any
	Text  string
}

func (e *ParamError) Error() string { return e.Text }

func wrong(param string, v any, format string, args ...any) error {
	return &ParamError{param, v, fmt.Sprintf(format, args...)}
}

// Validate checks all rules that depend on the parameters and limits only. The error is a
// *ParamError with vLLM's message. NaN and infinities are out of every range. As in vLLM a stop
// id may be outside of the vocabulary; Validate replaces it by −1, since it never occurs.
func (p *Params) Validate(l Limits) error {
	for _, check := range []func(Limits) error{p.checkPenalties, p.checkNumbers, p.checkLengths, p.checkLogprobs, p.checkTokens} {
		if err := check(l); err != nil {
			return err
		}
	}
	p.EOS, p.StopTokenIDs = within(p.EOS, l.Vocab), within(p.StopTokenIDs, l.Vocab)
	return nil
}

// within replaces the ids outside of the vocabulary by −1, in a copy if there are
// any.
func within(ids []int32, vocab int) []int32 {
	out := ids
	for i, id := range ids {
		if id >= 0 && int(id) < vocab {
			continue
		}
		if &out[0] == &ids[0] {
			out = slices.Clone(ids)
		}
		out[i] = -1
	}
	return out
}

func (p *Params) checkPenalties(Limits) error {
	in := func(v float64) bool { return v >= -2 && v <= 2 }
	switch {
	case !in(p.Presence):
		return wrong("presence_penalty", p.Presence, "presence_penalty must be in [-2, 2], got %s.", number(p.Presence))
	case !in(p.Frequency):
		return wrong("frequency_penalty", p.Frequency, "frequency_penalty must be in [-2, 2], got %s.", number(p.Frequency))
	case !(p.Repetition > 0) || math.IsInf(p.Repetition, 1):
		return wrong("repetition_penalty", p.Repetition, "repetition_penalty must be greater than zero, got %s.", number(p.Repetition))
	}
	return nil
}

func (p *Params) checkNumbers(Limits) error {
	switch {
	case !(p.Temperature >= 0) || math.IsInf(p.Temperature, 1):
		return wrong("temperature", p.Temperature, "temperature must be non-negative, got %s.", number(p.Temperature))
	case !(p.TopP > 0 && p.TopP <= 1):
		return wrong("top_p", p.TopP, "top_p must be in (0, 1], got %s.", number(p.TopP))
	case p.TopK < -1:
		return wrong("top_k", p.TopK, "top_k must be 0 (disable), or at least 1, got %d.", p.TopK)
	case !(p.MinP >= 0 && p.MinP <= 1):
		return wrong("min_p", p.MinP, "min_p must be in [0, 1], got %s.", number(p.MinP))
	}
	return nil
}

func (p *Params) checkLengths(Limits) error {
	switch {
	case p.MaxTokens < 1:
		return wrong("max_tokens", p.MaxTokens, "max_tokens must be at least 1, got %d.", p.MaxTokens)
	case p.MinTokens < 0:
		return wrong("min_tokens", p.MinTokens, "min_tokens must be greater than or equal to 0, got %d.", p.MinTokens)
	case p.MinTokens > p.MaxTokens:
		return wrong("min_tokens", p.MinTokens, "min_tokens must be less than or equal to max_tokens=%d, got %d.", p.MaxTokens, p.MinTokens)
	}
	return nil
}

func (p *Params) checkLogprobs(l Limits) error {
	switch {
	case p.Logprobs < -1:
		return wrong("logprobs", p.Logprobs, "`logprobs` must be a positive value.")
	case p.Logprobs > l.Logprobs:
		return wrong("logprobs", p.Logprobs, "Requested sample logprobs of %d, which is greater than max allowed: %d", p.Logprobs, l.Logprobs)
	case p.PromptLogprobs < -1:
		return wrong("prompt_logprobs", p.PromptLogprobs, "`prompt_logprobs` must be a positive value.")
	case p.PromptLogprobs > l.Logprobs:
		return wrong("prompt_logprobs", p.PromptLogprobs, "Requested prompt logprobs of %d, which is greater than max allowed: %d", p.PromptLogprobs, l.Logprobs)
	}
	return nil
}

func (p *Params) checkTokens(l Limits) error {
	biased := make([]int32, len(p.LogitBias))
	for i, b := range p.LogitBias {
		biased[i] = b.Token
	}
	if bad := outside(biased, l.Vocab); len(bad) > 0 {
		return wrong("logit_bias", bad, "token_id(s) %s in logit_bias contain out-of-vocab token ids. Vocabulary size: %d", list(bad), l.Vocab)
	}
	for _, b := range p.LogitBias {
		if math.IsNaN(b.Value) {
			return wrong("logit_bias", b.Value, "logit_bias of token_id %d must be a number, got nan.", b.Token)
		}
	}
	if p.AllowedTokenIDs != nil && len(p.AllowedTokenIDs) == 0 {
		return wrong("allowed_token_ids", p.AllowedTokenIDs, "allowed_token_ids is not None and empty!")
	}
	if bad := outside(p.AllowedTokenIDs, l.Vocab); len(bad) > 0 {
		return wrong("allowed_token_ids", bad, "allowed_token_ids contains out-of-vocab token id! Token ids: %s. Vocabulary size: %d", list(bad), l.Vocab)
	}
	for _, w := range p.BadWords {
		if len(w) == 0 {
			return wrong("bad_words", "", "bad_words cannot contain an empty string.")
		}
	}
	if bad := outside(slices.Concat(p.BadWords...), l.Vocab); len(bad) > 0 {
		return wrong("bad_words", bad, "The model vocabulary size is %d, but the following tokens were specified as bad: %s. All token id values should be integers satisfying: 0 <= token_id <= %d.", l.Vocab, list(bad), l.Vocab-1)
	}
	if n := p.edits(); n > l.Bias {
		return wrong("logit_bias", n, "logit_bias, bad_words and the stop ids that min_tokens holds back edit up to %d logits, which is greater than max allowed: %d", n, l.Bias)
	}
	return nil
}

// outside returns the ids that are not in the vocabulary.
func outside(ids []int32, vocab int) []int32 {
	var out []int32
	for _, id := range ids {
		if id < 0 || int(id) >= vocab {
			out = append(out, id)
		}
	}
	return out
}

// list formats ids like a Python list, as vLLM's messages do. After maxListed ids follows an
// ellipsis.
func list(ids []int32) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteString(", ")
		}
		if i == maxListed {
			b.WriteString("...")
			break
		}
		fmt.Fprint(&b, id)
	}
	return "[" + b.String() + "]"
}

// maxListed limits the length of messages that repeat a request's ids.
const maxListed = 1000

// ValidateN checks the number of choices of a request with these parameters. The error is a
// *ParamError.
func (p *Params) ValidateN(n int) error {
	switch {
	case n < 1:
		return wrong("n", n, "n must be at least 1, got %d.", n)
	case n > 1 && p.Greedy():
		return wrong("n", n, "n must be 1 when using greedy sampling, got %d.", n)
	}
	return nil
}

// number formats a float as Python does, for vLLM's messages.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "nan"
	case math.IsInf(v, 0):
		return map[bool]string{true: "inf", false: "-inf"}[v > 0]
	case a != 0 && (a < 1e-4 || a >= 1e16):
		return strconv.FormatFloat(v, 'e', -1, 64)
	case v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// Package openai converts between the JSON bodies of OpenAI's API, as vLLM serves it,
// and the types of package chat. It must not do input or output, nor know HTTP: its
// functions are pure. Start reading at DecodeChat in chat.go and ChatStream in
// chat_stream.go; fields.go reads JSON.
package openai

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"vapp.dev/appliance/chat"
)

// Wire is the form of the reply that a request asks for.
type Wire struct {
	Stream          bool
	IncludeUsage    bool // a chunk with the usage ends the stream
	ContinuousUsage bool // every chunk has the usage; needs IncludeUsage
	// ReasoningContent adds the reasoning under its older name, reasoning_content.
	ReasoningContent bool
	ReturnTokenIDs   bool
	TokensAsIDs      bool     // logprobs name tokens token_id:<n>
	PromptLogprobs   *int     // alternatives of each token of the prompt; -1: all, nil: none
	TopLogprobs      int      // alternatives of each token of the reply; -1: all
	Unknown          []string // ignored fields
	Deprecated       []string // fields that have a newer name
}

func (w *Wire) continuous() bool { return w.IncludeUsage && w.ContinuousUsage }

// common reads the fields that chat and completions share.
func common(f *fields, a *chat.RequestParams, w *Wire) {
	envelope(f, a, w)
	sampling(f, a)
	a.Echo = f.flag("echo", false)
	w.ReturnTokenIDs = f.flag("return_token_ids", false)
	w.TokensAsIDs = f.flag("return_tokens_as_token_ids", false)
	w.PromptLogprobs = a.PromptLogprobs
	a.Beam = f.flag("use_beam_search", false)
	a.LengthPenalty = f.numberOr("length_penalty", 1)
	f.checkUnsupported()
	a.Structure = structure(f, w)
	for _, name := range withoutEffect {
		f.seen[name] = true
	}
	if a.PromptLogprobs != nil {
		checkPromptLogprobs(f, *a.PromptLogprobs, w.Stream)
	}
}

// envelope reads the fields that generate requests have too: model, id, priority, cache
// salt and stream options.
func envelope(f *fields, a *chat.RequestParams, w *Wire) {
	a.Model = f.str("model")
	a.ID = f.str("request_id")
	a.Priority = f.intOr("priority", 0)
	a.CacheSalt = f.strOpt("cache_salt")
	w.Stream = f.flag("stream", false)
	streamOptions(f, w)
}

// sampling reads the sampling parameters. In a generate request they are in the object
// sampling_params.
func sampling(f *fields, a *chat.RequestParams) {
	a.N = f.intOr("n", 1)
	a.BestOf = f.intOpt("best_of")
	a.Temperature, a.TopP, a.MinP = f.number("temperature"), f.number("top_p"), f.number("min_p")
	a.RepetitionPenalty, a.TopK = f.number("repetition_penalty"), f.intOpt("top_k")
	a.FrequencyPenalty, a.PresencePenalty = f.numberOr("frequency_penalty", 0), f.numberOr("presence_penalty", 0)
	a.Seed = f.integer("seed")
	a.Stop = f.strings("stop")
	a.StopTokenIDs = f.ints("stop_token_ids")
	a.IncludeStop = f.flag("include_stop_str_in_output", false)
	a.IgnoreEOS = f.flag("ignore_eos", false)
	a.MinTokens = f.intOr("min_tokens", 0)
	a.LogitBias = logitBias(f)
	a.AllowedTokenIDs = distinct(f.ints("allowed_token_ids"))
	a.BadWords = f.strings("bad_words")
	a.PromptLogprobs = f.intOpt("prompt_logprobs")
	a.SkipSpecialTokens = f.flag("skip_special_tokens", true)
	f.flag("spaces_between_special_tokens", true) // ignored: only slow tokenizers of Hugging Face use it
	a.Truncate = f.intOpt("truncate_prompt_tokens")
	a.ThinkingBudget = f.intOpt("thinking_token_budget")
	a.Repetition = repetition(f)
}

func repetition(f *fields) *chat.Repetition {
	raw := f.object("repetition_detection")
	if raw == nil {
		return nil
	}
	o := newFields(f.at+"repetition_detection.", raw)
	out := &chat.Repetition{MinPattern: o.intOr("min_pattern_size", 0), MaxPattern: o.intOr("max_pattern_size", 0), MinCount: o.intOr("min_count", 0)}
	f.failIf(o.err)
	return out
}

// withoutEffect lists OpenAI's fields that are accepted and ignored.
var withoutEffect = []string{
	"user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier", "prompt_cache_retention",
	"verbosity", "modalities", "prediction",
}

func streamOptions(f *fields, w *Wire) {
	raw := f.object("stream_options")
	if raw == nil {
		return
	}
	if !w.Stream {
		f.fail(malformed("stream_options", "Stream options can only be defined when `stream=True`."))
		return
	}
	o := newFields("stream_options.", raw)
	w.IncludeUsage = o.flag("include_usage", false)
	w.ContinuousUsage = o.flag("continuous_usage_stats", false)
	f.failIf(o.err)
}

func checkPromptLogprobs(f *fields, n int, stream bool) {
	switch {
	case stream && n != 0:
		f.fail(malformed("prompt_logprobs", "`prompt_logprobs` are not available when `stream=True`."))
	case n < -1:
		f.fail(malformed("prompt_logprobs", "`prompt_logprobs` must be a positive value or -1."))
	}
}

// logitBias reads logit_bias, a map from token ids in decimal to biases.
func logitBias(f *fields) map[int32]float64 {
	raw := f.object("logit_bias")
	if len(raw) == 0 {
		return nil
	}
	o := newFields("logit_bias.", raw)
	out := make(map[int32]float64, len(raw))
	var bad []string
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		id, err := strconv.ParseInt(name, 10, 32)
		if err != nil {
			bad = append(bad, "'"+name+"'")
			continue
		}
		out[int32(id)] = min(max(o.numberOr(name, 0), -100), 100)
	}
	if len(bad) > 0 {
		f.fail(malformed("logit_bias", "logit_bias contains key(s) that cannot be converted to integer token IDs: [%s]", strings.Join(bad, ", ")))
	}
	f.failIf(o.err)
	return out
}

// manyIDs is larger than any vocabulary.
const manyIDs = 1 << 20

// distinct removes the duplicates of a list longer than any vocabulary, since the list
// stays in memory as long as the request. It may change the order.
func distinct(ids []int32) []int32 {
	if len(ids) <= manyIDs {
		return ids
	}
	slices.Sort(ids)
	return slices.Clone(slices.Compact(ids))
}

package openai

import (
	"encoding/json"
	"strconv"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/structured"
)

// generateBody is the request body of POST /inference/v1/generate, which the render
// routes return.
type generateBody struct {
	RequestID        string                 `json:"request_id"`
	TokenIDs         []int32                `json:"token_ids" required:"true" nullable:"false" minItems:"1"`
	Features         *features              `json:"features"`
	SamplingParams   samplingParams         `json:"sampling_params" required:"true"`
	Model            string                 `json:"model"`
	Stream           bool                   `json:"stream"`
	StreamOptions    *renderedStreamOptions `json:"stream_options"`
	CacheSalt        *string                `json:"cache_salt"`
	Priority         int                    `json:"priority"`
	ReasoningEnded   bool                   `json:"reasoning_ended"`
	KVTransferParams *struct{}              `json:"kv_transfer_params"`
}

// features names the images and videos of a prompt by kind; the tokens of each one, with those around
// its pictures, follow its offset.
// kwargs_data, the pictures themselves in vLLM's own encoding, is left out.
type features struct {
	Hashes       map[string][]string      `json:"mm_hashes"`
	Placeholders map[string][]placeholder `json:"mm_placeholders"`
}

type placeholder struct {
	Offset int `json:"offset"`
	Length int `json:"length"`
}

// featuresOf returns the features of a prompt, nil for one without media.
func featuresOf(items []chat.PromptItem) *features {
	if len(items) == 0 {
		return nil
	}
	f := &features{map[string][]string{}, map[string][]placeholder{}}
	for _, i := range items {
		f.Hashes[i.Kind] = append(f.Hashes[i.Kind], i.Hash)
		f.Placeholders[i.Kind] = append(f.Placeholders[i.Kind], placeholder{i.At, len(i.Tokens)})
	}
	return f
}

type renderedStreamOptions struct {
	IncludeUsage    bool `json:"include_usage"`
	ContinuousUsage bool `json:"continuous_usage_stats"`
}

// samplingParams are vLLM's SamplingParams.
type samplingParams struct {
	N                 int                 `json:"n"`
	PresencePenalty   float64             `json:"presence_penalty"`
	FrequencyPenalty  float64             `json:"frequency_penalty"`
	RepetitionPenalty float64             `json:"repetition_penalty"`
	Temperature       float64             `json:"temperature"`
	TopP              float64             `json:"top_p"`
	TopK              int                 `json:"top_k"`
	MinP              float64             `json:"min_p"`
	Seed              *int64              `json:"seed"`
	Stop              []string            `json:"stop"`
	StopTokenIDs      []int32             `json:"stop_token_ids"`
	IgnoreEOS         bool                `json:"ignore_eos"`
	MaxTokens         int                 `json:"max_tokens"`
	MinTokens         int                 `json:"min_tokens"`
	Logprobs          *int                `json:"logprobs"`
	PromptLogprobs    *int                `json:"prompt_logprobs"`
	SkipSpecialTokens bool                `json:"skip_special_tokens"`
	SpacesBetween     bool                `json:"spaces_between_special_tokens"`
	IncludeStop       bool                `json:"include_stop_str_in_output"`
	LogitBias         map[string]float64  `json:"logit_bias"`
	AllowedTokenIDs   []int32             `json:"allowed_token_ids"`
	BadWords          []string            `json:"bad_words"`
	Structured        map[string]any      `json:"structured_outputs"`
	ThinkingBudget    *int                `json:"thinking_token_budget"`
	Repetition        *renderedRepetition `json:"repetition_detection"`
}

type renderedRepetition struct {
	MaxPattern int `json:"max_pattern_size"`
	MinPattern int `json:"min_pattern_size"`
	MinCount   int `json:"min_count"`
}

// structuredOf returns a structure in the form of structured_outputs.
func structuredOf(s *structured.Constraint) map[string]any {
	switch {
	case s == nil:
		return nil
	case s.Kind == structured.JSONObject:
		return map[string]any{"json_object": true}
	case s.Kind == structured.Regex:
		return map[string]any{"regex": s.Source}
	case s.Kind == structured.Choice:
		return map[string]any{"choice": json.RawMessage(s.Source)}
	case s.Kind == structured.Lark:
		return map[string]any{"grammar": s.Source}
	}
	return map[string]any{"json": json.RawMessage(s.Source)}
}

func samplingOf(a *chat.RequestParams, p chat.RenderedRequest) samplingParams {
	out := samplingParams{
		N: a.N, PresencePenalty: a.PresencePenalty, FrequencyPenalty: a.FrequencyPenalty,
		RepetitionPenalty: *p.RepetitionPenalty, Temperature: *p.Temperature, TopP: *p.TopP, TopK: *p.TopK, MinP: *p.MinP,
		Seed: a.Seed, Stop: a.Stop, StopTokenIDs: a.StopTokenIDs, IgnoreEOS: a.IgnoreEOS,
		MaxTokens: *p.MaxTokens, MinTokens: min(a.MinTokens, *p.MaxTokens), Logprobs: a.Logprobs, PromptLogprobs: a.PromptLogprobs,
		SkipSpecialTokens: a.SkipSpecialTokens, SpacesBetween: true, IncludeStop: a.IncludeStop,
		AllowedTokenIDs: a.AllowedTokenIDs, BadWords: a.BadWords,
		Structured: structuredOf(p.Structure), ThinkingBudget: a.ThinkingBudget,
	}
	if r := a.Repetition; r != nil {
		out.Repetition = &renderedRepetition{r.MaxPattern, r.MinPattern, r.MinCount}
	}
	if len(a.LogitBias) > 0 {
		out.LogitBias = make(map[string]float64, len(a.LogitBias))
		for id, v := range a.LogitBias {
			out.LogitBias[strconv.Itoa(int(id))] = v
		}
	}
	return out
}

// generateOf returns the generate request of one rendered prompt.
func generateOf(a *chat.RequestParams, w *Wire, p chat.RenderedRequest, id string) generateBody {
	out := generateBody{
		RequestID: id, TokenIDs: p.Tokens, Features: featuresOf(p.Items), SamplingParams: samplingOf(a, p), Model: p.Model,
		Stream: w.Stream, ReasoningEnded: p.ReasoningEnded, CacheSalt: a.CacheSalt, Priority: a.Priority,
	}
	if w.Stream && w.IncludeUsage {
		out.StreamOptions = &renderedStreamOptions{w.IncludeUsage, w.ContinuousUsage}
	}
	return out
}

// RenderReply returns the body of a reply of POST /v1/chat/completions/render.
func (r *ChatRequest) RenderReply(p []chat.RenderedRequest) []byte {
	return encode(generateOf(&r.Ask, &r.Wire, p[0], r.Ask.ID))
}

// RenderReply returns the body of a reply of POST /v1/completions/render: a generate
// request for each prompt, whose id ends with the prompt's number.
func (r *CompletionRequest) RenderReply(p []chat.RenderedRequest) []byte {
	out := make([]generateBody, len(p))
	for i := range p {
		out[i] = generateOf(&r.Ask, &r.Wire, p[i], r.Ask.ID+"-"+strconv.Itoa(i))
	}
	return encode(out)
}

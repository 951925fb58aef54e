package chat

import (
	"encoding/json"
	"slices"
	"time"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/sample"
)

// Settings may change while the service runs. The caller passes them with each request,
// which keeps them to its end; a reload swaps the caller's pointer. A Settings that was
// passed is read-only.
type Settings struct {
	Models                   []string               // served names, the first is the default; at least one
	Adapter                  func(name string) bool // whether a LoRA adapter of that name is loaded; nil: none is
	MaxChoices               int                    // largest n
	MaxSequences             int                    // prompts × n that the engine can run and queue; 0: no bound
	MaxLogprobs              int                    // largest number of alternatives; -1: all
	RequestTimeout           time.Duration
	Sampling                 Sampling // of the profile, over the model's own; MaxTokens caps every reply
	GenerationConfig         bool     // use the model's generation_config.json
	Template                 Template // nil: chats are refused
	ToolTemplate             Template // for chats with tools; nil: Template
	TemplateKwargs           map[string]json.RawMessage
	TrustRequestChatTemplate bool
	PromptTokensDetails      bool          // usage reports cached tokens
	PriorityScheduling       bool          // the engine's policy is priority; otherwise requests must have priority 0
	Reasoning                string        // a parser of package dialect; "": none
	Tools                    string        // likewise
	AutoToolChoice           bool          // tool_choice auto is allowed
	ExcludeToolsWhenNone     bool          // with tool_choice none, the prompt lists no tools
	DialectPrompt            bool          // harmony's own renderer renders the prompts, not the template
	NewCallID                func() string // nil: random ids in the dialect's format
	Vision                   Vision        // of a model that takes images; nil: text only
	ScoreTemplate            bool          // Template renders a query with a document; false: they are concatenated
}

// Sampling holds the parameters that a layer may leave nil for the next one. The layers
// are the request, the profile, the model's generation config and the API's defaults.
type Sampling struct {
	Temperature, TopP, MinP, RepetitionPenalty *float64
	TopK, MaxTokens                            *int
}

// over returns s with its nil fields taken from below, except MaxTokens.
func (s Sampling) over(below Sampling) Sampling {
	return Sampling{
		Temperature:       or(s.Temperature, below.Temperature),
		TopP:              or(s.TopP, below.TopP),
		MinP:              or(s.MinP, below.MinP),
		RepetitionPenalty: or(s.RepetitionPenalty, below.RepetitionPenalty),
		TopK:              or(s.TopK, below.TopK),
		MaxTokens:         s.MaxTokens,
	}
}

// or returns a, or b if a is nil.
func or[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// neutral returns the API's defaults: sampling from the unmodified distribution.
func neutral() Sampling {
	one, zero, none := 1.0, 0.0, 0
	return Sampling{Temperature: &one, TopP: &one, MinP: &zero, RepetitionPenalty: &one, TopK: &none}
}

// Neutral returns s with its nil fields set to the API's defaults, so that the layers
// between have no effect; MaxTokens is not changed.
func (s Sampling) Neutral() Sampling { return s.over(neutral()) }

// effective returns s as the sampler applies it: a temperature of 0 turns top_p, top_k and
// min_p off, and a very low one is raised. No field of s but MaxTokens may be nil.
func (s Sampling) effective() Sampling {
	p := sample.Params{Temperature: *s.Temperature}
	switch {
	case p.Greedy():
		off := neutral()
		s.TopP, s.TopK, s.MinP = off.TopP, off.TopK, off.MinP
	case p.Temperature < sample.LeastTemperature:
		least := sample.LeastTemperature
		s.Temperature = &least
	}
	return s
}

// generation returns a model's generation config as a layer.
func generation(g checkpoint.GenerationConfig) Sampling {
	return Sampling{
		Temperature:       g.Temperature,
		TopP:              g.TopP,
		MinP:              g.MinP,
		RepetitionPenalty: g.RepetitionPenalty,
		TopK:              g.TopK,
		MaxTokens:         g.MaxNewTokens,
	}
}

// Name returns the model name of the replies to a request: the requested one, or the first
// served name for "". It refuses a name that is neither served nor that of an adapter.
func (s *Settings) Name(asked string) (string, error) {
	model, _, err := s.resolve(asked)
	return model, err
}

// resolve returns Name and the LoRA adapter that the name stands for, "" for the model itself. A
// served name is the model's.
func (s *Settings) resolve(asked string) (model, adapter string, err error) {
	switch {
	case asked == "":
		return s.Models[0], "", nil
	case slices.Contains(s.Models, asked):
		return asked, "", nil
	case s.Adapter != nil && s.Adapter(asked):
		return asked, asked, nil
	}
	return "", "", unknownModel(asked)
}

func unknownModel(name string) *Error {
	return Errorf(NotFound, "model", "The model `%s` does not exist.", name)
}

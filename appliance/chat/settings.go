package chat

import (
	"encoding/json"
	"slices"
	"time"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/sample"
)

// Settings are what may change while the service runs. Whoever calls Start
// gives them with the call, so that a request keeps those it started with and a
// change is one pointer elsewhere. Treat a Settings as read-only once given.
type Settings struct {
	Models                   []string // served names, the first is the default; at least one
	MaxChoices               int      // largest n
	MaxSequences             int      // prompts times n of one request: those that the engine can run and queue; 0: no bound
	MaxLogprobs              int      // largest number of alternatives; -1: all
	RequestTimeout           time.Duration
	Sampling                 Sampling // of the profile: before the model's own, MaxTokens caps every reply
	GenerationConfig         bool     // the model's generation_config.json counts
	Template                 Template // nil: none, chats are refused
	ToolTemplate             Template // for chats with tools; nil: Template
	TemplateKwargs           map[string]json.RawMessage
	TrustRequestChatTemplate bool
	PromptTokensDetails      bool   // usage tells cached tokens
	PriorityScheduling       bool   // the engine's policy: without it priority must be 0
	Reasoning                string // names of package dialect; "": none
	Tools                    string
	AutoToolChoice           bool          // the model may call tools by itself
	ExcludeToolsWhenNone     bool          // tools are no part of the prompt then
	DialectPrompt            bool          // harmony's own renderer makes the prompts, not the template
	NewCallID                func() string // nil: random ids in the dialect's form
	ScoreTemplate            bool          // Template pairs a query with a document; else both go end to end
}

// Sampling are parameters that a layer may leave open (nil) for the next one:
// the request, the profile, the model's generation config, the API's defaults.
type Sampling struct {
	Temperature, TopP, MinP, RepetitionPenalty *float64
	TopK, MaxTokens                            *int
}

// over fills what s leaves open from below; MaxTokens is not layered so.
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

func or[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// neutral are the API's defaults: plain sampling.
func neutral() Sampling {
	one, zero, none := 1.0, 0.0, 0
	return Sampling{Temperature: &one, TopP: &one, MinP: &zero, RepetitionPenalty: &one, TopK: &none}
}

// Neutral closes what s leaves open with the API's defaults, so that no other layer
// counts; MaxTokens stays.
func (s Sampling) Neutral() Sampling { return s.over(neutral()) }

// inForce returns what the sampler makes of s, which leaves nothing open: a temperature of 0
// switches top_p, top_k and min_p off, and a very low one is raised.
func (s Sampling) inForce() Sampling {
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

// generation is a model's generation config as a layer.
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

// Name checks the model a request asks for and returns the name that replies
// carry: the one asked for, the first served one for "".
func (s *Settings) Name(asked string) (string, error) {
	if asked == "" {
		return s.Models[0], nil
	}
	if !slices.Contains(s.Models, asked) {
		return "", Errorf(NotFound, "model", "The model `%s` does not exist.", asked)
	}
	return asked, nil
}

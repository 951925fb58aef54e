package chat

import (
	"strings"

	"vapp.dev/appliance/chat/structured"
)

// RequestParams holds all parameters of a request, not checked yet. Exactly one of Chat and
// Prompts is set.
type RequestParams struct {
	ID    string // of request and reply, such as chatcmpl-…
	Model string // "": the first served name

	Chat     *Conversation
	Prompts  []Prompt
	Rendered bool // the prompts are rendered chats: a reply may begin with reasoning
	Echo     bool // the reply begins with the prompt (chat: with the last message)

	ToolChoice    string // of a chat: none (also ""), auto, required, named
	ToolName      string // the named function
	OneCall       bool   // parallel_tool_calls false
	HideReasoning bool   // include_reasoning false
	Segments      bool   // deltas have Segments, and usage counts reasoning tokens

	Structure *structured.Constraint // the form of the reply; nil: any

	Sampling          // a nil field is set by the next layer
	N                 int
	BestOf            *int
	FrequencyPenalty  float64
	PresencePenalty   float64
	Seed              *int64
	Stop              []string
	StopTokenIDs      []int32
	IncludeStop       bool // include_stop_str_in_output
	IgnoreEOS         bool
	MinTokens         int
	LogitBias         map[int32]float64
	AllowedTokenIDs   []int32 // nil: all
	BadWords          []string
	Logprobs          *int // alternatives per token; 0: the chosen token only, -1: all, nil: no logprobs
	PromptLogprobs    *int
	SkipSpecialTokens bool
	AddSpecialTokens  bool
	Truncate          *int        // truncate_prompt_tokens
	Beam              bool        // use_beam_search: N replies, best first
	LengthPenalty     float64     // of beam search
	Repetition        *Repetition // nil: not detected
	ThinkingBudget    *int        // reasoning tokens; nil, -1: unlimited
	ThinkingHint      bool        // drop the budget if the reasoning parser cannot enforce it
	Priority          int
	CacheSalt         *string
}

// Request is a checked RequestParams with the settings it was checked against. Only
// NewRequest creates one.
type Request struct {
	params   RequestParams
	model    string
	adapter  string // the LoRA adapter that model stands for; "": none
	settings *Settings
}

// maxChoicesInAll bounds prompts × n of one request.
const maxChoicesInAll = 16384

// NewRequest checks the parameters that can be checked without the model. Its errors are
// *Error.
func NewRequest(a RequestParams, s *Settings) (*Request, error) {
	model, adapter, err := s.resolve(a.Model)
	if err != nil {
		return nil, err
	}
	for _, check := range []func(*RequestParams, *Settings) error{
		checkPrompt, checkChat, checkTools, checkStructure, checkThinking, checkRepetition, checkBeams, checkChoices, checkStop, checkScheduling, checkBadWords,
	} {
		if err := check(&a, s); err != nil {
			return nil, err
		}
	}
	return &Request{params: a, model: model, adapter: adapter, settings: s}, nil
}

// Adapter returns the name of the request's LoRA adapter, "" for none.
func (r *Request) Adapter() string { return r.adapter }

func checkPrompt(a *RequestParams, _ *Settings) error {
	if a.Chat != nil {
		return nil
	}
	missing := Errorf(Malformed, "prompt", "Either prompt or prompt_embeds must be provided and non-empty.")
	if len(a.Prompts) == 0 {
		return missing
	}
	for _, p := range a.Prompts {
		if p.Text == "" && len(p.Tokens) == 0 {
			return missing
		}
	}
	return nil
}

func checkChat(a *RequestParams, s *Settings) error {
	if a.Chat == nil {
		return nil
	}
	return CheckConversation(a.Chat, s)
}

// CheckConversation refuses a conversation that cannot be rendered under the settings. Its
// errors are *Error.
func CheckConversation(c *Conversation, s *Settings) error {
	switch {
	case len(c.Messages) == 0:
		return Errorf(Malformed, "messages", "`messages` must hold at least one message.")
	case c.ContinueFinal && c.AddGenerationPrompt:
		return Errorf(Malformed, "continue_final_message", "Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
	case c.Template != "" && !s.TrustRequestChatTemplate:
		return invalid("chat_template", "Chat template is passed with request, but --trust-request-chat-template is not set. Refused request with untrusted chat template.")
	case c.Template == "" && s.Template == nil && !s.DialectPrompt:
		return invalid("messages", "The model has no chat template; give one in the profile (parsers.chatTemplate) or use /v1/completions.")
	}
	return checkMedia(c, s)
}

func checkChoices(a *RequestParams, s *Settings) error {
	total := a.N * max(1, len(a.Prompts))
	switch {
	case a.N < 1:
		return invalid("n", "n must be at least 1, got %d.", a.N)
	case a.N > s.MaxChoices:
		return invalid("n", "n must be at most %d, got %d.", s.MaxChoices, a.N)
	case total > maxChoicesInAll:
		return invalid("prompt", "one request may have at most %d choices in all, got %d prompts times n=%d.", maxChoicesInAll, len(a.Prompts), a.N)
	case s.MaxSequences > 0 && total > s.MaxSequences:
		return TooManySequences(total, max(1, len(a.Prompts)), a.N, s.MaxSequences)
	case a.BestOf != nil && *a.BestOf < a.N:
		return invalid("best_of", "best_of must be greater than or equal to n, got n=%d and best_of=%d.", a.N, *a.BestOf)
	case a.BestOf != nil && *a.BestOf > a.N:
		return invalid("best_of", "best_of above n is not supported: ask for n=%d choices and rank them by their logprobs, got best_of=%d.", *a.BestOf, *a.BestOf)
	}
	return nil
}

// TooManySequences returns the error for a request with more sequences than the engine can
// run and queue.
func TooManySequences(total, prompts, n, most int) *Error {
	param := "n"
	if prompts > 1 {
		param = "prompt"
	}
	return Errorf(Invalid, param, "%d prompts times n=%d are %d sequences, and the server holds at most %d, running and queued. Please ask for fewer in one request.", prompts, n, total, most)
}

func checkStop(a *RequestParams, _ *Settings) error {
	switch {
	case len(a.Stop) > maxStops:
		return invalid("stop", "stop may hold at most %d strings, got %d.", maxStops, len(a.Stop))
	case len(a.StopTokenIDs) > maxStops:
		return invalid("stop_token_ids", "stop_token_ids may hold at most %d ids, got %d.", maxStops, len(a.StopTokenIDs))
	}
	total := 0
	for _, s := range a.Stop {
		if s == "" {
			return invalid("stop", "stop cannot contain an empty string.")
		}
		total += len(s)
	}
	if total > maxStopBytes {
		return invalid("stop", "stop may hold at most %d bytes in all, got %d.", maxStopBytes, total)
	}
	return nil
}

// CheckScheduling checks a request's priority and cache_salt. Its errors are *Error.
func CheckScheduling(priority int, salt *string, s *Settings) error {
	switch {
	case priority != 0 && !s.PriorityScheduling:
		return invalid("priority", "Got priority %d but priority scheduling is not enabled.", priority)
	case salt != nil && *salt == "":
		return Errorf(Malformed, "cache_salt", "Parameter 'cache_salt' must be a non-empty string if provided.")
	}
	return nil
}

func checkScheduling(a *RequestParams, s *Settings) error {
	return CheckScheduling(a.Priority, a.CacheSalt, s)
}

func checkBadWords(a *RequestParams, _ *Settings) error {
	if len(a.BadWords) > maxStops {
		return invalid("bad_words", "bad_words may hold at most %d strings, got %d.", maxStops, len(a.BadWords))
	}
	total := 0
	for _, w := range a.BadWords {
		if strings.TrimSpace(w) == "" {
			return invalid("bad_words", "bad_words cannot contain an empty string.")
		}
		total += len(w)
	}
	if total > maxBadWordBytes {
		return invalid("bad_words", "bad_words may hold at most %d bytes in all, got %d.", maxBadWordBytes, total)
	}
	return nil
}

package openai

import (
	"encoding/json"

	"vapp.dev/appliance/chat"
)

// ResponsesRequest is a decoded body of POST /v1/responses. Resolve sets the messages
// of Ask.
type ResponsesRequest struct {
	Ask  chat.RequestParams
	Wire Wire
	// Previous is the id of the stored response to continue, "" for none.
	Previous   string
	Store      bool // the client wants the response stored
	Background bool
	// ItemBase is the common part of the ids of items; "": the response's id.
	ItemBase string

	instructions string
	input        []json.RawMessage // items; a string becomes one item
	sealed       bool              // reasoning items have encrypted_content
	messages     bool              // enable_response_messages
	echo         responseEcho
}

// responseEcho holds the parameters that a reply repeats.
type responseEcho struct {
	Instructions *string           `json:"instructions"`
	MaxOutput    *int              `json:"max_output_tokens"`
	MaxToolCalls *int              `json:"max_tool_calls"`
	Metadata     json.RawMessage   `json:"metadata"`
	Parallel     bool              `json:"parallel_tool_calls"`
	Reasoning    json.RawMessage   `json:"reasoning"`
	ServiceTier  string            `json:"service_tier"`
	Temperature  *float64          `json:"temperature"`
	Text         json.RawMessage   `json:"text"`
	ToolChoice   json.RawMessage   `json:"tool_choice"`
	Tools        []json.RawMessage `json:"tools"`
	TopLogprobs  int               `json:"top_logprobs"`
	TopP         *float64          `json:"top_p"`
	Truncation   string            `json:"truncation"`
	User         *string           `json:"user"`
}

// DecodeResponses reads the body of POST /v1/responses. Its errors are *chat.Error.
func DecodeResponses(b []byte) (*ResponsesRequest, error) {
	f, bad := body(b)
	if bad != nil {
		return nil, bad
	}
	return readResponses(f)
}

func readResponses(f *fields) (*ResponsesRequest, error) {
	r := &ResponsesRequest{}
	common(f, &r.Ask, &r.Wire)
	// Parameters of chats that a response does not have.
	r.Ask.N, r.Ask.BestOf, r.Ask.Echo, r.Ask.PromptLogprobs = 1, nil, false, nil
	r.Ask.Segments = true
	r.Previous = f.str("previous_response_id")
	r.Store, r.Background = f.flag("store", true), f.flag("background", false)
	r.messages = f.flag("enable_response_messages", false)
	r.instructions = f.str("instructions")
	r.Ask.Chat = &chat.Conversation{
		AddGenerationPrompt: true, TemplateKwargs: cloneMembers(f.object("chat_template_kwargs")),
	}
	responseEchoes(f, r)
	for _, read := range []func(*fields, *ResponsesRequest){
		responseReasoning, responseText, responseInclude, responseTruncation, responseTools, responseElsewhere, responseInput,
	} {
		read(f, r)
	}
	if f.err != nil {
		return nil, f.err
	}
	r.Wire.Unknown = f.unknown()
	return r, nil
}

// responseEchoes reads the parameters that a reply repeats, max_output_tokens among
// them.
func responseEchoes(f *fields, r *ResponsesRequest) {
	e := &r.echo
	e.Instructions, e.User = f.strOpt("instructions"), f.strOpt("user")
	e.MaxOutput, e.MaxToolCalls = f.intOpt("max_output_tokens"), f.intOpt("max_tool_calls")
	e.ServiceTier = "default"
	if r.Ask.MaxTokens = e.MaxOutput; e.MaxOutput != nil && *e.MaxOutput < 1 {
		f.fail(chat.Errorf(chat.Invalid, "max_output_tokens", "max_output_tokens must be at least 1, got %d.", *e.MaxOutput))
	}
	if f.has("metadata") {
		e.Metadata = encode(f.object("metadata"))
	}
}

// responseElsewhere refuses references to conversations and prompts, which only OpenAI's
// servers store. Without them the request would have another meaning.
func responseElsewhere(f *fields, _ *ResponsesRequest) {
	for name, instead := range map[string]string{
		"conversation": "give `previous_response_id`, or the items themselves in `input`",
		"prompt":       "give the text itself in `instructions` and `input`",
	} {
		if f.has(name) {
			f.fail(chat.Errorf(chat.Invalid, name, "`%s` is not supported by this server, which stores none: %s.", name, instead))
		}
	}
}

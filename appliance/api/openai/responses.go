package openai

import (
	"encoding/json"

	"vapp.dev/appliance/chat"
)

// ResponsesRequest is a decoded body of POST /v1/responses. Ask lacks its messages
// until Resolve has been called.
type ResponsesRequest struct {
	Ask  chat.RequestParams
	Wire Wire
	// Previous is the id of a stored response to go on from, "" for none.
	Previous   string
	Store      bool // as the client wants it
	Background bool
	// ItemBase is what ids of items are made of; "": the id of the response.
	ItemBase string

	instructions string
	input        []json.RawMessage // items; a text alone is one
	sealed       bool              // reasoning items carry encrypted_content
	messages     bool              // enable_response_messages
	echo         responseEcho
}

// responseEcho are the parameters that a reply repeats.
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
	// what one response has not, whatever chats have
	r.Ask.N, r.Ask.BestOf, r.Ask.Echo, r.Ask.PromptLogprobs = 1, nil, false, nil
	r.Ask.Segments = true
	r.Previous = f.str("previous_response_id")
	r.Store, r.Background = f.flag("store", true), f.flag("background", false)
	r.messages = f.flag("enable_response_messages", false)
	r.instructions = f.str("instructions")
	r.Ask.Chat = &chat.Conversation{
		AddGenerationPrompt: true, TemplateKwargs: keptObject(f.object("chat_template_kwargs")),
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

// responseEchoes reads what a reply repeats and, of it, how long the reply may get.
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

// responseElsewhere refuses what names a thing that only OpenAI's servers have: to
// leave it out would answer another question.
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

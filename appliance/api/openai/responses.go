package openai

import (
	"encoding/json"
	"slices"

	"vapp.dev/appliance/chat"
)

// ResponsesRequest is a decoded body of POST /v1/responses.
type ResponsesRequest struct {
	Ask  chat.Ask
	Wire Wire
	// Previous is the id of a stored response to go on from, "" for none.
	Previous string

	echo responseEcho
}

// responseEcho are the parameters that a reply repeats.
type responseEcho struct {
	Instructions *string           `json:"instructions"`
	MaxOutput    *int              `json:"max_output_tokens"`
	Metadata     json.RawMessage   `json:"metadata"`
	Parallel     bool              `json:"parallel_tool_calls"`
	Reasoning    json.RawMessage   `json:"reasoning"`
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
	r := &ResponsesRequest{}
	common(f, &r.Ask, &r.Wire)
	// what one response has not, whatever chats have
	r.Ask.N, r.Ask.BestOf, r.Ask.Echo, r.Ask.PromptLogprobs = 1, nil, false, nil
	e := &r.echo
	e.Instructions, e.User = f.strOpt("instructions"), f.strOpt("user")
	e.MaxOutput = f.intOpt("max_output_tokens")
	e.Temperature, e.TopP, r.Ask.MaxTokens = r.Ask.Temperature, r.Ask.TopP, e.MaxOutput
	e.Metadata, _ = f.get("metadata")
	r.Previous = f.str("previous_response_id")
	r.Ask.Chat = &chat.Conversation{
		AddGenerationPrompt: true, TemplateKwargs: f.object("chat_template_kwargs"),
	}
	responseReasoning(f, r)
	responseText(f, r)
	responseLogprobs(f, r)
	responseTruncation(f, r)
	if f.flag("background", false) {
		f.fail(chat.Errorf(chat.Invalid, "background", "`background` is not supported: this server stores no responses. Leave the field out, and read the reply or its stream."))
	}
	if e.Instructions != nil && *e.Instructions != "" {
		r.Ask.Chat.Messages = append(r.Ask.Chat.Messages, chat.Message{Role: "system", Text: *e.Instructions, HasContent: true})
	}
	responseInput(f, r.Ask.Chat)
	responseTools(f, r)
	if f.err != nil {
		return nil, f.err
	}
	r.Wire.Unknown = f.unknown()
	return r, nil
}

func responseReasoning(f *fields, r *ResponsesRequest) {
	raw := f.object("reasoning")
	r.echo.Reasoning = json.RawMessage(`{"effort":null,"summary":null}`)
	if raw == nil {
		return
	}
	o := newFields("reasoning.", raw)
	c := r.Ask.Chat
	if c.ReasoningEffort = o.str("effort"); !slices.Contains(efforts, c.ReasoningEffort) {
		o.fail(malformed("reasoning.effort", "`reasoning.effort` must be one of none, minimal, low, medium, high, xhigh, max, got %q.", c.ReasoningEffort))
	}
	summary := o.strOpt("summary")
	if o.err != nil {
		f.fail(o.err)
		return
	}
	r.echo.Reasoning = encode(struct {
		Effort  *string `json:"effort"`
		Summary *string `json:"summary"`
	}{o.strOpt("effort"), summary})
}

// responseText reads text.format, which is response_format under another name.
func responseText(f *fields, r *ResponsesRequest) {
	r.echo.Text = json.RawMessage(`{"format":{"type":"text"}}`)
	raw := f.object("text")
	if raw == nil {
		return
	}
	o := newFields("text.", raw)
	format := newFields("text.format.", o.object("format"))
	switch kind := format.str("type"); {
	case format.err != nil:
		f.fail(format.err)
	case kind == "" || kind == "text":
	case kind == "json_object", kind == "json_schema":
		f.fail(chat.Errorf(chat.Invalid, "text.format", "`text.format` of type %q is not supported on this route: use response_format on /v1/chat/completions.", kind))
	default:
		f.fail(malformed("text.format.type", "`text.format.type` must be text, json_object or json_schema, got %q.", kind))
	}
	if o.err != nil {
		f.fail(o.err)
	}
}

func responseLogprobs(f *fields, r *ResponsesRequest) {
	top := f.intOpt("top_logprobs")
	if top != nil && *top < 0 {
		f.fail(malformed("top_logprobs", "`top_logprobs` must be a positive value."))
		return
	}
	if top != nil {
		r.echo.TopLogprobs = *top
	}
	if slices.Contains(f.strings("include"), "message.output_text.logprobs") {
		n := r.echo.TopLogprobs
		r.Ask.Logprobs, r.Wire.TopLogprobs = &n, n
	}
}

func responseTruncation(f *fields, r *ResponsesRequest) {
	r.echo.Truncation = "disabled"
	switch word := f.str("truncation"); word {
	case "", "disabled":
	case "auto":
		room := -1
		r.echo.Truncation, r.Ask.Truncate = word, &room
	default:
		f.fail(malformed("truncation", "`truncation` must be auto or disabled, got %q.", word))
	}
}

// responseTools reads tools and tool_choice, flat where chats have them nested.
func responseTools(f *fields, r *ResponsesRequest) {
	a := &r.Ask
	r.echo.Parallel = f.flag("parallel_tool_calls", true)
	a.OneCall = !r.echo.Parallel
	r.echo.Tools = []json.RawMessage{}
	list := f.list("tools")
	nested := make([]json.RawMessage, 0, len(list))
	for i, raw := range list {
		t, bad := responseTool(i, raw)
		if bad != nil {
			f.fail(bad)
			return
		}
		nested = append(nested, t)
		r.echo.Tools = append(r.echo.Tools, raw)
	}
	as := newFields("", map[string]json.RawMessage{})
	if list != nil {
		as.raw["tools"] = encode(nested)
	}
	r.echo.ToolChoice = json.RawMessage(`"auto"`)
	if choice, is := f.get("tool_choice"); is {
		r.echo.ToolChoice = choice
		if as.raw["tool_choice"] = choice; choice[0] == '{' {
			o := newFields("tool_choice.", f.object("tool_choice"))
			as.raw["tool_choice"] = encode(map[string]any{"function": map[string]string{"name": o.str("name")}})
			if o.err != nil {
				f.fail(o.err)
			}
		}
		// auto is what every client of this protocol sends, tools or not
		if string(choice) == `"auto"` && len(list) == 0 {
			delete(as.raw, "tool_choice")
		}
	}
	one := a.OneCall
	tools(as, a)
	a.OneCall = one
	if as.err != nil {
		f.fail(as.err)
	}
}

// responseTool nests one tool.
func responseTool(i int, raw json.RawMessage) (json.RawMessage, *chat.Error) {
	at := "tools." + itoa(i)
	obj, ok := object(raw)
	if !ok {
		return nil, malformed(at, "`%s` must be an object.", at)
	}
	t := newFields(at+".", obj)
	if kind := t.str("type"); t.err == nil && kind != "function" {
		t.fail(chat.Errorf(chat.Invalid, "tools", "`%s.type`: %q is a tool that OpenAI's own servers run; this server takes tools of type \"function\", which the client runs.", at, kind))
	}
	name, about := t.str("name"), t.strOpt("description")
	if t.err == nil && name == "" {
		t.fail(malformed(at+".name", "Field required: `%s.name`.", at))
	}
	parameters, _ := t.get("parameters")
	strict := t.flag("strict", false)
	if t.err != nil {
		return nil, t.err
	}
	type function struct {
		Name        string          `json:"name"`
		Description *string         `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
		Strict      bool            `json:"strict,omitempty"`
	}
	return encode(struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}{"function", function{name, about, parameters, strict}}), nil
}

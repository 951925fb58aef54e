// Package anthropic converts between the JSON bodies of Anthropic's Messages API and
// the types of package chat. It must not do input or output, nor know HTTP: its
// functions are pure. Start reading at Decode in this file and Stream in stream.go.
package anthropic

import (
	"encoding/json"
	"slices"

	"vapp.dev/appliance/api/rawjson"
	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/structured"
)

// Request is a decoded body of POST /v1/messages.
type Request struct {
	Ask     chat.RequestParams
	Stream  bool
	Unknown []string // ignored fields

	stops []string // stop_sequences
}

// Decode reads the body of POST /v1/messages. Its errors are *chat.Error.
func Decode(b []byte) (*Request, error) {
	o, bad := body(b)
	if bad != nil {
		return nil, bad
	}
	r := &Request{}
	n := o.count("max_tokens")
	switch {
	case n == nil && o.err == nil:
		o.missing("max_tokens")
	case n != nil && *n < 1:
		o.fail(malformed("max_tokens", "max_tokens must be positive, got %d.", *n))
	case n != nil:
		limit := int(*n)
		r.Ask.MaxTokens = &limit
	}
	r.Ask.Temperature, r.Ask.TopP = o.num("temperature"), o.num("top_p")
	if k := o.count("top_k"); k != nil {
		top := int(*k)
		r.Ask.TopK = &top
	}
	r.Ask.N, r.Ask.SkipSpecialTokens = 1, true
	r.stops = read[[]string](o, "stop_sequences", "an array of strings")
	r.Ask.Stop = r.stops
	r.Stream = o.flag("stream")
	prompt(o, &r.Ask)
	for _, name := range withoutEffect {
		o.seen[name] = true
	}
	if o.err != nil {
		return nil, o.err
	}
	r.Unknown = o.unknown()
	return r, nil
}

// withoutEffect lists Anthropic's fields that are accepted and ignored.
var withoutEffect = []string{"metadata", "service_tier", "container", "inference_geo", "cache_control"}

// DecodeCount reads the body of POST /v1/messages/count_tokens: a message without
// max_tokens. Its errors are *chat.Error.
func DecodeCount(b []byte) (chat.TokenizeParams, error) {
	o, bad := body(b)
	if bad != nil {
		return chat.TokenizeParams{}, bad
	}
	var a chat.RequestParams
	prompt(o, &a)
	if o.err != nil {
		return chat.TokenizeParams{}, o.err
	}
	return chat.TokenizeParams{Model: a.Model, Chat: a.Chat}, nil
}

type countReply struct {
	Input   int             `json:"input_tokens"`
	Context countManagement `json:"context_management"`
}

type countManagement struct {
	Original int `json:"original_input_tokens"`
}

// CountReply returns the body of a reply of POST /v1/messages/count_tokens.
func CountReply(n int) []byte { return encode(countReply{n, countManagement{n}}) }

func body(b []byte) (*object, *chat.Error) {
	if err := rawjson.Check(b); err != nil {
		return nil, malformed("", "JSON decode error: %v.", err)
	}
	o := newObject("", b)
	return o, o.err
}

// prompt reads the fields that make the prompt, and those that constrain the reply.
func prompt(o *object, a *chat.RequestParams) {
	a.Model = o.str("model")
	a.Chat = &chat.Conversation{
		AddGenerationPrompt: true,
		TemplateKwargs:      read[map[string]json.RawMessage](o, "chat_template_kwargs", "an object"),
	}
	system(o, a.Chat)
	if o.get("messages") == nil {
		o.missing("messages")
	}
	for i, raw := range o.list("messages") {
		turn(o, i, raw, a.Chat)
	}
	if o.err == nil && len(a.Chat.Messages) == 0 {
		o.wrong("messages", "an array of at least one message")
	}
	tools(o, a)
	thinking(o, a)
	outputConfig(o, a)
	if len(o.list("mcp_servers")) > 0 {
		o.fail(chat.Errorf(chat.Invalid, "mcp_servers", "`mcp_servers` is not supported: this server calls no other one. Let the client run the tools and give them in `tools`."))
	}
}

// thinking reads the field thinking. The type "disabled" sets enable_thinking to false
// for the template, and hides reasoning that the model writes nevertheless. A budget
// has an effect if the model's dialect has an end-of-thinking marker.
func thinking(o *object, a *chat.RequestParams) {
	if o.get("thinking") == nil {
		return
	}
	t := o.sub("thinking")
	switch kind := t.str("type"); {
	case t.err != nil:
	case kind == "disabled":
		a.HideReasoning = true
		if a.Chat.TemplateKwargs == nil {
			a.Chat.TemplateKwargs = map[string]json.RawMessage{}
		}
		if _, own := a.Chat.TemplateKwargs["enable_thinking"]; !own {
			a.Chat.TemplateKwargs["enable_thinking"] = json.RawMessage("false")
		}
	case kind == "enabled":
		if n := t.count("budget_tokens"); n != nil && *n < 1 {
			t.wrong("budget_tokens", "at least 1")
		} else if n != nil {
			budget := int(*n)
			a.ThinkingBudget, a.ThinkingHint = &budget, true
		}
	case kind != "adaptive":
		t.wrong("type", "enabled, disabled or adaptive")
	}
	if t.err != nil {
		o.fail(t.err)
	}
}

// efforts lists the values of output_config.effort.
var efforts = []string{"", "low", "medium", "high", "xhigh", "max"}

func outputConfig(o *object, a *chat.RequestParams) {
	if o.get("output_config") == nil {
		return
	}
	c := o.sub("output_config")
	a.Chat.ReasoningEffort = c.str("effort")
	if !slices.Contains(efforts, a.Chat.ReasoningEffort) {
		c.wrong("effort", "low, medium, high, xhigh or max")
	}
	if c.get("format") != nil && c.err == nil {
		format(c, a)
	}
	if c.err != nil {
		o.fail(c.err)
	}
}

// format reads output_config.format, a JSON schema for the reply's text.
func format(c *object, a *chat.RequestParams) {
	f := c.sub("format")
	kind, schema := f.str("type"), f.get("schema")
	switch {
	case f.err != nil:
	case kind != "json_schema":
		f.wrong("type", "json_schema")
	case schema == nil:
		f.missing("schema")
	default:
		at := f.at + "schema"
		source, err := structured.SchemaSource(schema, structured.SchemaOptions{})
		if err != nil {
			f.fail(malformed(at, "`%s`: %v.", at, err))
		}
		a.Structure = &structured.Constraint{Kind: structured.JSONSchema, Source: source, Param: at}
	}
	if f.err != nil {
		c.fail(f.err)
	}
}

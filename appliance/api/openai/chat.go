package openai

import (
	"slices"

	"vapp.dev/appliance/api/rawjson"
	"vapp.dev/appliance/chat"
)

// ChatRequest is a decoded body of POST /v1/chat/completions.
type ChatRequest struct {
	Ask  chat.RequestParams
	Wire Wire
}

// DecodeChat reads the body of POST /v1/chat/completions. Its errors are
// *chat.Error.
func DecodeChat(b []byte) (*ChatRequest, error) {
	f, bad := body(b)
	if bad != nil {
		return nil, bad
	}
	r, bad := decodeChat(f)
	if bad != nil {
		return nil, bad
	}
	return r, nil
}

func decodeChat(f *fields) (*ChatRequest, *chat.Error) {
	r := &ChatRequest{}
	common(f, &r.Ask, &r.Wire)
	r.Ask.MaxTokens = f.intOpt("max_tokens")
	if n := f.intOpt("max_completion_tokens"); n != nil {
		r.Ask.MaxTokens = n
	}
	r.Ask.AddSpecialTokens = f.flag("add_special_tokens", false)
	r.Ask.HideReasoning = !f.flag("include_reasoning", true)
	chatLogprobs(f, r)
	r.Ask.Chat = conversation(f)
	tools(f, &r.Ask)
	if f.err != nil {
		return nil, f.err
	}
	r.Wire.Unknown = f.unknown()
	return r, nil
}

func chatLogprobs(f *fields, r *ChatRequest) {
	on, top := f.flag("logprobs", false), f.intOpt("top_logprobs")
	if top != nil && *top < -1 {
		f.fail(malformed("top_logprobs", "`top_logprobs` must be a positive value or -1."))
		return
	}
	if top != nil && *top != 0 && !on {
		f.fail(malformed("top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true."))
		return
	}
	if on {
		n := 0
		if top != nil {
			n = *top
		}
		r.Ask.Logprobs, r.Wire.TopLogprobs = &n, n
	}
}

// efforts lists the values of reasoning_effort.
var efforts = []string{"", "none", "minimal", "low", "medium", "high", "xhigh", "max"}

func effort(f *fields) string {
	e := f.str("reasoning_effort")
	if !slices.Contains(efforts, e) {
		f.fail(malformed("reasoning_effort", "`reasoning_effort` must be one of none, minimal, low, medium, high, xhigh, max, got %q.", e))
	}
	return e
}

// conversation reads the fields that a chat template renders. /tokenize has them too.
func conversation(f *fields) *chat.Conversation {
	c := &chat.Conversation{
		AddGenerationPrompt: f.flag("add_generation_prompt", true),
		ContinueFinal:       f.flag("continue_final_message", false),
		Template:            f.str("chat_template"),
		TemplateKwargs:      cloneMembers(f.object("chat_template_kwargs")),
		ReasoningEffort:     effort(f),
		Documents:           cloneValues(f.list("documents")),
	}
	if raw, ok := c.TemplateKwargs["chat_template"]; ok {
		if c.Template, ok = rawjson.String(raw); !ok && string(raw) != "null" {
			f.wrong("chat_template_kwargs.chat_template", "a string")
		}
		delete(c.TemplateKwargs, "chat_template")
	}
	c.Messages = messages(f)
	mediaKwargs(f, c)
	if c.ContinueFinal && c.AddGenerationPrompt {
		f.fail(malformed("continue_final_message", "Cannot set both `continue_final_message` and `add_generation_prompt` to True."))
	}
	return c
}

// mediaKwargs reads mm_processor_kwargs and media_io_kwargs of a conversation with media;
// without media they have no effect.
func mediaKwargs(f *fields, c *chat.Conversation) {
	c.ProcessorKwargs, c.MediaKwargs = nil, nil
	for _, m := range c.Messages {
		if slices.ContainsFunc(m.Parts, func(p chat.Part) bool { return p.Media != nil }) {
			c.ProcessorKwargs = cloneMembers(f.object("mm_processor_kwargs"))
			c.MediaKwargs = cloneMembers(f.object("media_io_kwargs"))
			return
		}
	}
}

// messages reads the messages of a conversation.
func messages(f *fields) []chat.Message {
	if !f.has("messages") {
		f.fail(malformed("messages", "Field required: `messages`."))
		return nil
	}
	list := f.list("messages")
	out := make([]chat.Message, 0, len(list))
	for i, raw := range list {
		m, err := message(i, raw)
		if err != nil {
			f.fail(err)
			return nil
		}
		out = append(out, m)
	}
	if len(out) == 0 {
		f.fail(malformed("messages", "`messages` must be an array of at least one message."))
	}
	return out
}

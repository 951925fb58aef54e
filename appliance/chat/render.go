package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/tokenizer"
)

// Template is a compiled chat template.
type Template interface {
	// Render renders the template with the variables, a JSON object. If the template raises
	// an exception, the error is a *tokenizer.TemplateError.
	Render(ctx context.Context, vars []byte) (string, error)
	// ContentFormat returns tokenizer.ContentOpenAI if the template loops over
	// message.content, and therefore expects a list of parts.
	ContentFormat() string
}

// vars holds the variables of a template. encoding/json sorts the keys of maps and copies
// raw values unchanged, so that objects keep the client's key order.
type vars map[string]any

// render returns the prompt text of a conversation. A template of the server runs on a text
// worker, one that came with the request in a child process.
func (s *Service) render(ctx context.Context, c *Conversation, set *Settings) (string, error) {
	if err := s.checkConversationLength(c); err != nil {
		return "", err
	}
	if c.Template == "" {
		if err := s.workers.acquire(ctx, false); err != nil {
			return "", err
		}
		defer s.workers.release()
	}
	return s.renderNow(ctx, c, set)
}

// renderNow is render without the check of length and without a text worker.
func (s *Service) renderNow(ctx context.Context, c *Conversation, set *Settings) (string, error) {
	if set.DialectPrompt && c.Template == "" {
		return s.renderHarmony(c, set)
	}
	tmpl := set.Template
	if len(c.Tools) > 0 && set.ToolTemplate != nil {
		tmpl = set.ToolTemplate
	}
	if c.Template != "" {
		var err error
		if tmpl, err = s.sandboxed(ctx, c.Template); err != nil {
			return "", err
		}
	}
	values, err := s.variables(c, set, tmpl.ContentFormat() == tokenizer.ContentOpenAI)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(values)
	if err != nil {
		return "", fmt.Errorf("template variables: %w", err)
	}
	text, err := tmpl.Render(ctx, b)
	if err != nil {
		return "", templateError(ctx, err)
	}
	if c.ContinueFinal {
		return cutAfterFinal(text, c.Messages[len(c.Messages)-1])
	}
	return text, nil
}

// sandboxed compiles a template that came with the request.
func (s *Service) sandboxed(ctx context.Context, source string) (Template, error) {
	if s.cfg.Sandbox == nil {
		return nil, invalid("chat_template", "This server cannot render a chat template that comes with a request.")
	}
	tmpl, err := s.cfg.Sandbox(ctx, source)
	if err != nil {
		return nil, templateError(ctx, err)
	}
	return tmpl, nil
}

// templateError returns the error for a template that failed. It blames the client, with the
// unchanged text of raise_exception, unless the renderer itself failed.
func templateError(ctx context.Context, err error) error {
	var e *tokenizer.TemplateError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !errors.As(err, &e), e.Kind == tokenizer.KindPanic, e.Kind == tokenizer.KindSandbox, e.Kind == tokenizer.KindClosed:
		return err
	case e.Kind == tokenizer.KindBusy:
		return &Error{Kind: Overloaded, Param: "chat_template", Message: "The chat template could not be rendered: " + e.Msg + ". Please try again later."}
	case e.Kind == tokenizer.KindUnavailable:
		return &Error{Kind: Unavailable, Param: "chat_template", Message: "The chat template cannot be rendered now. Please try again later.", Cause: err}
	case e.Kind == tokenizer.KindUnsupported:
		return &Error{Kind: Unsupported, Param: "chat_template", Message: "The chat template cannot be rendered here: " + e.Msg + "."}
	case e.Kind == tokenizer.KindRaised:
		return invalid("", "%s", e.Msg)
	}
	return invalid("", "%s", e.Error())
}

// variables returns the template variables of a conversation. parts: message.content is a
// list of parts.
func (s *Service) variables(c *Conversation, set *Settings, parts bool) (vars, error) {
	v := vars{}
	for name, t := range map[string]checkpoint.Token{
		"bos_token": s.cfg.Special.BOS, "eos_token": s.cfg.Special.EOS, "pad_token": s.cfg.Special.PAD, "unk_token": s.cfg.Special.UNK,
	} {
		if t.ID >= 0 {
			v[name] = t.Text
		}
	}
	for k, x := range c.kwargs(set) {
		v[k] = x
	}
	messages := make([]vars, len(c.Messages))
	for i, m := range c.Messages {
		var err error
		if messages[i], err = messageVars(m, set.Vision, parts); err != nil {
			return nil, err
		}
	}
	v["messages"] = messages
	v["tools"], v["documents"] = nil, nil
	if len(c.Tools) > 0 {
		v["tools"] = c.Tools
	}
	if c.Documents != nil {
		v["documents"] = c.Documents
	}
	v["add_generation_prompt"] = c.AddGenerationPrompt
	return v, nil
}

func messageVars(m Message, vision Vision, parts bool) (vars, error) {
	v := vars{"role": m.Role}
	switch {
	case !parts:
		text, err := m.textWithPlaceholders(vision)
		if err != nil {
			return nil, err
		}
		v["content"] = text
	case m.Parts != nil:
		list := make([]vars, len(m.Parts))
		for i, p := range m.Parts {
			list[i] = vars{"type": "text", "text": p.Text}
			if p.Media != nil {
				list[i] = vars{"type": p.Media.Kind}
			}
		}
		v["content"] = list
	case m.HasContent:
		v["content"] = []vars{{"type": "text", "text": m.Text}}
	default:
		v["content"] = []vars{}
	}
	if m.Name != "" {
		v["name"] = m.Name
	}
	if m.ToolCallID != "" {
		v["tool_call_id"] = m.ToolCallID
	}
	if m.Reasoning != nil {
		v["reasoning"], v["reasoning_content"] = *m.Reasoning, *m.Reasoning
	}
	if len(m.Tools) > 0 {
		v["tools"] = m.Tools
	}
	if len(m.ToolCalls) > 0 {
		v["tool_calls"] = callVars(m.ToolCalls)
	}
	return v, nil
}

// callVars returns the tool calls of a message. Arguments that are JSON objects become
// objects, as templates expect; other texts stay strings.
func callVars(calls []ToolCall) []vars {
	list := make([]vars, len(calls))
	for i, c := range calls {
		var args any = c.Arguments
		trimmed := strings.TrimSpace(c.Arguments)
		if strings.HasPrefix(trimmed, "{") && json.Valid([]byte(trimmed)) {
			args = json.RawMessage(trimmed)
		} else if trimmed == "" {
			args = vars{}
		}
		list[i] = vars{"type": "function", "function": vars{"name": c.Name, "arguments": args}}
		if c.ID != "" {
			list[i]["id"] = c.ID
		}
	}
	return list
}

// cutAfterFinal cuts the text right after that of the last message, so that the model
// continues it.
func cutAfterFinal(text string, last Message) (string, error) {
	final := last.Text
	if n := len(last.Parts); n > 0 {
		final = last.Parts[n-1].Text
	}
	bare := strings.TrimSpace(final)
	if bare == "" {
		return "", invalid("continue_final_message", "continue_final_message is set but the last message has no text to continue.")
	}
	at := strings.LastIndex(text, bare)
	if at < 0 {
		return "", invalid("continue_final_message", "continue_final_message is set but the final message does not appear in the chat after applying the chat template.")
	}
	// keep trailing white space if the template kept it
	if left := strings.TrimLeft(final, " \t\r\n\v\f"); strings.HasPrefix(text[at:], left) {
		return text[:at+len(left)], nil
	}
	return text[:at+len(bare)], nil
}

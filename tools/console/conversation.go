package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
)

// conversation is what is sent with the next message.
type conversation struct {
	model    string
	messages []Message // without the system message
	values   map[string]any
}

// request returns the body of the request that asks for the next reply.
func (c *conversation) request() map[string]any {
	out := map[string]any{"model": c.model, "messages": c.all(), "stream": true, "stream_options": map[string]any{"include_usage": true}}
	maps.Copy(out, c.values)
	delete(out, "system")
	delete(out, "reasoning")
	if on, ok := c.values["reasoning"].(bool); ok {
		out["chat_template_kwargs"] = map[string]any{"enable_thinking": on}
	}
	return out
}

// all returns the messages with the system message.
func (c *conversation) all() []Message {
	if text, ok := c.values["system"].(string); ok && text != "" {
		return append([]Message{{Role: "system", Content: text}}, c.messages...)
	}
	return append([]Message{}, c.messages...)
}

// saved is the file of /save. Its messages are those of a request.
type saved struct {
	Model    string    `json:"model,omitempty"`
	Messages []Message `json:"messages"`
}

// save writes the conversation to a file. A file that is there is kept unless force is set.
func (c *conversation) save(path string, force bool) error {
	text, err := json.MarshalIndent(saved{c.model, c.all()}, "", "  ")
	if err != nil {
		return err
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if force {
		flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already and is kept; choose another name, or write /save --force %s", Printable(path), Printable(path))
	} else if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Close())
}

// maxSaved bounds a file of /load, in bytes.
const maxSaved = 64 << 20

// load replaces the conversation by that of a file: a file of /save, or a JSON list of messages.
func (c *conversation) load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSaved+1))
	if err != nil {
		return err
	}
	if len(text) > maxSaved {
		return fmt.Errorf("%s has more than %d bytes", Printable(path), maxSaved)
	}
	var s saved
	if json.Unmarshal(text, &s.Messages) != nil && json.Unmarshal(text, &s) != nil || len(s.Messages) == 0 {
		return fmt.Errorf("%s is no saved conversation; /save writes {\"messages\": [{\"role\": \"user\", \"content\": \"…\"}]}", Printable(path))
	}
	system := ""
	if s.Messages[0].Role == "system" {
		system, s.Messages = s.Messages[0].Content, s.Messages[1:]
	}
	for i, m := range s.Messages {
		if m.Role != "user" && m.Role != "assistant" {
			return fmt.Errorf("%s: message %d has the role %s; a chat has user and assistant, and system first", Printable(path), i+1, Printable(m.Role))
		}
	}
	c.messages = s.Messages
	if delete(c.values, "system"); system != "" {
		c.values["system"] = system
	}
	return nil
}

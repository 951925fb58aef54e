package batch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/chat"
)

// Item is one decoded prompt. A prompt that could not be decoded is an Item too, and its
// Result has the error.
type Item struct {
	CustomID string // the line's custom_id, "" for none
	Prompt   string // the text, "" for messages or token ids

	line  int // line number in the input, from 1, for errors
	ask   *chat.RequestParams
	reply func(*chat.Run, []chat.Reply) []byte // encodes the reply in OpenAI's batch form; nil: plain form
	batch bool                                 // the line has OpenAI's batch form
	err   *chat.Error
}

// Form describes how prompts become requests.
type Form struct {
	// Raw: prompts are completed without the chat template; else each prompt is a
	// user message of a chat.
	Raw bool
	// System is the system message of chats that have none; "": none.
	System string
	// Images are URLs of images that are put before the text of each prompt.
	Images []string
	// Params are fields of the API's bodies, such as max_tokens, for lines that do
	// not set them.
	Params map[string]any
}

// Text returns the item of a text prompt.
func (f Form) Text(prompt string) Item {
	raw, err := json.Marshal(prompt)
	if err != nil {
		return Item{Prompt: prompt, err: malformed("prompt", "%v.", err)}
	}
	return f.plain(Item{Prompt: prompt}, map[string]json.RawMessage{"prompt": raw})
}

// Lines returns the items of a text with one prompt in each line. It skips empty lines.
func (f Form) Lines(text []byte) []Item {
	var out []Item
	for n, line := range lines(text) {
		it := f.Text(line)
		it.line = n
		out = append(out, it.withID(len(out)))
	}
	return out
}

// JSONL returns the items of JSON Lines. A line is either the body of a request, with
// "prompt" or "messages", parameters, and optionally custom_id; or a request in OpenAI's
// batch form, with custom_id, method, url and body.
func (f Form) JSONL(text []byte) []Item {
	var out []Item
	for n, line := range lines(text) {
		it := f.json([]byte(line))
		it.line = n
		out = append(out, it.withID(len(out)))
	}
	return out
}

// withID gives the request an id if it has none.
func (it Item) withID(index int) Item {
	if it.ask != nil && it.ask.ID == "" {
		it.ask.ID = requestID(index)
	}
	return it
}

// requestID returns the default id of the request at an index of the list.
func requestID(index int) string { return fmt.Sprintf("batch_req_%d", index) }

// lines returns the non-empty lines of a text with their numbers.
func lines(text []byte) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		n := 0
		for line := range bytes.Lines(bytes.TrimPrefix(text, []byte("\uFEFF"))) {
			n++
			if line = bytes.TrimRight(line, "\r\n"); len(bytes.TrimSpace(line)) > 0 && !yield(n, string(line)) {
				return
			}
		}
	}
}

func malformed(param, format string, args ...any) *chat.Error {
	return chat.Errorf(chat.Malformed, param, format, args...)
}

// json reads one line.
func (f Form) json(line []byte) Item {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil || fields == nil {
		reason := "it is null"
		if err != nil {
			reason = err.Error()
		}
		return Item{err: malformed("", "The line is not a JSON object: %s.", reason)}
	}
	var it Item
	if raw, ok := fields["custom_id"]; ok {
		if json.Unmarshal(raw, &it.CustomID) != nil {
			return Item{err: malformed("custom_id", "`custom_id` must be a string.")}
		}
		delete(fields, "custom_id")
	}
	if _, ok := fields["body"]; ok || fields["url"] != nil {
		return f.request(it, fields)
	}
	if raw, ok := fields["prompt"]; ok {
		_ = json.Unmarshal(raw, &it.Prompt) // an error means token ids
	}
	return f.plain(it, fields)
}

// request reads a line of OpenAI's batch form.
func (f Form) request(it Item, fields map[string]json.RawMessage) Item {
	it.batch = true
	var method, url string
	_, _ = json.Unmarshal(fields["method"], &method), json.Unmarshal(fields["url"], &url)
	if fields["method"] != nil && method != "POST" {
		it.err = malformed("method", "`method` must be POST.")
		return it
	}
	body := fields["body"]
	if inner := map[string]json.RawMessage(nil); json.Unmarshal(body, &inner) == nil && inner != nil {
		body, it.err = f.over(inner)
	}
	switch {
	case it.err != nil:
	case url == "/v1/chat/completions":
		r, err := openai.DecodeChat(body)
		if it.err = decodeError(err); it.err == nil {
			it.ask, it.reply, it.err = &r.Ask, r.Reply, refuseStream(r.Wire)
		}
	case url == "/v1/completions":
		r, err := openai.DecodeCompletion(body)
		if it.err = decodeError(err); it.err == nil {
			it.ask, it.reply, it.err = &r.Ask, r.Reply, refuseStream(r.Wire)
		}
	default:
		it.err = chat.Errorf(chat.NotFound, "url", "`url` must be /v1/chat/completions or /v1/completions, got %q.", url)
	}
	return it
}

// over returns a body with the fields, and f's parameters for absent fields.
func (f Form) over(fields map[string]json.RawMessage) ([]byte, *chat.Error) {
	whole := map[string]any{}
	maps.Copy(whole, f.Params)
	for k, v := range fields {
		whole[k] = v
	}
	body, err := json.Marshal(whole)
	if err != nil {
		return nil, malformed("", "%v.", err)
	}
	return body, nil
}

func decodeError(err error) *chat.Error {
	if err == nil {
		return nil
	}
	return chat.AsError(err)
}

// refuseStream returns an error for a streamed request, since a result is one line.
func refuseStream(w openai.Wire) *chat.Error {
	if w.Stream {
		return chat.Errorf(chat.Invalid, "stream", "`stream` is not available here: the reply is one line of JSON. Leave the field out.")
	}
	return nil
}

// plainUnsupported lists fields whose effect the plain form of a result cannot contain.
var plainUnsupported = []string{"logprobs", "top_logprobs", "prompt_logprobs", "return_token_ids", "echo"}

// plain decodes the fields of a body, with f's parameters for absent fields.
func (f Form) plain(it Item, fields map[string]json.RawMessage) Item {
	for _, name := range plainUnsupported {
		if fields[name] != nil && string(fields[name]) != "null" && string(fields[name]) != "false" {
			it.err = chat.Errorf(chat.Invalid, name, "`%s` needs the whole reply of the API: write the line as {\"custom_id\": …, \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": {…}}.", name)
			return it
		}
	}
	if it.err = f.shape(fields); it.err != nil {
		return it
	}
	var body []byte
	if body, it.err = f.over(fields); it.err != nil {
		return it
	}
	var w openai.Wire
	if fields["messages"] != nil {
		r, err := openai.DecodeChat(body)
		if it.err = decodeError(err); it.err != nil {
			return it
		}
		it.ask, w = &r.Ask, r.Wire
	} else {
		r, err := openai.DecodeCompletion(body)
		if it.err = decodeError(err); it.err != nil {
			return it
		}
		it.ask, w = &r.Ask, r.Wire
		if len(r.Ask.Prompts) > 1 {
			it.err = malformed("prompt", "A line holds one prompt: a string or an array of token ids.")
		}
		if fields["max_tokens"] == nil && f.Params["max_tokens"] == nil {
			it.ask.MaxTokens = nil // as many as the context allows, not the API's default of 16
		}
	}
	if it.err == nil {
		it.err = refuseStream(w)
	}
	if len(w.Unknown) > 0 && it.err == nil {
		slices.Sort(w.Unknown)
		it.err = malformed(w.Unknown[0], "unknown field: %s.", strings.Join(w.Unknown, ", "))
	}
	return it
}

// content returns the content of a user's message: a string, or parts if there are images.
func (f Form) content(text string) ([]byte, error) {
	if len(f.Images) == 0 {
		return json.Marshal(text)
	}
	var parts []map[string]any
	for _, url := range f.Images {
		parts = append(parts, map[string]any{"type": "image_url", "image_url": map[string]any{"url": url}})
	}
	return json.Marshal(append(parts, map[string]any{"type": "text", "text": text}))
}

// shape turns a prompt into messages unless f is raw, and adds the system message.
func (f Form) shape(fields map[string]json.RawMessage) *chat.Error {
	prompt, messages := fields["prompt"], fields["messages"]
	switch {
	case (prompt == nil) == (messages == nil):
		return malformed("", "A line needs either `prompt` or `messages`.")
	case f.Raw && messages != nil:
		return malformed("messages", "Messages need a chat template: this model has none, or --raw is set.")
	case f.Raw:
		return nil
	}
	list := []json.RawMessage{}
	if prompt != nil {
		var text string
		if json.Unmarshal(prompt, &text) != nil || string(prompt) == "null" {
			return malformed("prompt", "`prompt` of a chat must be a string; token ids need --raw.")
		}
		content, err := f.content(text)
		if err != nil {
			return malformed("prompt", "%v.", err)
		}
		list = append(list, json.RawMessage(fmt.Sprintf(`{"role":"user","content":%s}`, content)))
		delete(fields, "prompt")
	} else if json.Unmarshal(messages, &list) != nil {
		return malformed("messages", "`messages` must be an array of messages.")
	}
	var first struct{ Role string }
	if len(list) > 0 {
		_ = json.Unmarshal(list[0], &first) // the decoder reports errors
	}
	if f.System != "" && first.Role != "system" && first.Role != "developer" {
		text, err := json.Marshal(f.System)
		if err != nil {
			return malformed("", "%v.", err)
		}
		list = slices.Insert(list, 0, json.RawMessage(fmt.Sprintf(`{"role":"system","content":%s}`, text)))
	}
	whole, err := json.Marshal(list)
	if err != nil {
		return malformed("messages", "%v.", err)
	}
	fields["messages"] = whole
	return nil
}

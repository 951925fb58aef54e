package anthropic

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"vapp.dev/appliance/chat"
)

type message struct {
	ID           string  `json:"id"`
	Type         string  `json:"type"`
	Role         string  `json:"role"`
	Content      []any   `json:"content"`
	Model        string  `json:"model"`
	StopReason   *string `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
	Usage        usage   `json:"usage"`
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type thinkingBlock struct {
	Type      string `json:"type"`
	Thinking  string `json:"thinking"`
	Signature string `json:"signature"`
}

type toolBlock struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// usage counts tokens. Those from the cache are told apart where the server tells
// them, and then input_tokens is the rest, as Anthropic counts.
type usage struct {
	Input        int  `json:"input_tokens"`
	Output       int  `json:"output_tokens"`
	CacheCreated *int `json:"cache_creation_input_tokens"`
	CacheRead    *int `json:"cache_read_input_tokens"`
}

func usageOf(u chat.Usage) usage {
	out := usage{Input: u.Prompt, Output: u.Completion}
	if u.ReportCached {
		none := 0
		out.Input, out.CacheCreated, out.CacheRead = u.Prompt-u.Cached, &none, &u.Cached
	}
	return out
}

// Reply is the body of a whole reply.
func (r *Request) Reply(run *chat.Run, replies []chat.Reply) []byte {
	said := replies[0]
	m := envelope(run)
	if said.Reasoning != "" {
		m.Content = append(m.Content, thinkingBlock{"thinking", said.Reasoning, signature(said.Reasoning)})
	}
	if said.Text != "" {
		m.Content = append(m.Content, textBlock{"text", said.Text})
	}
	for _, c := range said.Calls {
		m.Content = append(m.Content, toolBlock{"tool_use", c.ID, c.Name, input(c.Arguments)})
	}
	m.StopReason, m.StopSequence = r.stopped(&said.Delta)
	m.Usage = usageOf(run.Usage())
	return encode(m)
}

func envelope(run *chat.Run) message {
	return message{ID: run.ID, Type: "message", Role: run.Role, Content: []any{}, Model: run.Model}
}

// signature is a seal that this server sets and never asks for: the text's sum.
func signature(thinking string) string {
	sum := sha256.Sum256([]byte(thinking))
	return hex.EncodeToString(sum[:])
}

// input is the object of a call's arguments. Text that is none, as of a call that
// was cut, is kept under the name that Anthropic's guide gives it.
func input(arguments string) json.RawMessage {
	if b := bytes.TrimSpace([]byte(arguments)); json.Valid(b) && b[0] == '{' {
		return b
	} else if len(b) == 0 {
		return json.RawMessage("{}")
	}
	return encode(map[string]string{"INVALID_JSON": arguments})
}

// reasons are the words for what ended a reply; one that the server cut off may be
// sent back to be gone on with.
var reasons = map[string]string{"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "abort": "pause_turn"}

// stopped is stop_reason and stop_sequence.
func (r *Request) stopped(d *chat.Delta) (reason, sequence *string) {
	if s, is := d.Stop.(string); is && d.Finish == "stop" && slices.Contains(r.stops, s) {
		word := "stop_sequence"
		return &word, &s
	}
	word, known := reasons[d.Finish]
	if !known {
		word = d.Finish
	}
	if word == "end_turn" && r.Ask.ToolChoice == "named" { // OpenAI's format calls that end "stop"
		word = "tool_use"
	}
	return &word, nil
}

// encode writes JSON without escaping HTML. The types of this package cannot fail
// to encode.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("anthropic: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

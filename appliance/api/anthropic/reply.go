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

// usage counts tokens. If the server reports cached tokens, they have their own field
// and input_tokens counts the others only, as Anthropic does.
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

// Reply returns the body of a reply that is not streamed.
func (r *Request) Reply(run *chat.Run, replies []chat.Reply) []byte {
	reply := replies[0]
	m := envelope(run)
	if reply.Reasoning != "" {
		m.Content = append(m.Content, thinkingBlock{"thinking", reply.Reasoning, signature(reply.Reasoning)})
	}
	if reply.Text != "" {
		m.Content = append(m.Content, textBlock{"text", reply.Text})
	}
	for _, c := range reply.Calls {
		m.Content = append(m.Content, toolBlock{"tool_use", c.ID, c.Name, input(c.Arguments)})
	}
	m.StopReason, m.StopSequence = r.stopReason(&reply.Delta)
	m.Usage = usageOf(run.Usage())
	return encode(m)
}

func envelope(run *chat.Run) message {
	return message{ID: run.ID, Type: "message", Role: run.Role, Content: []any{}, Model: run.Model}
}

// signature returns the SHA-256 of a thinking block in hex. This server never checks
// signatures, but the protocol has them.
func signature(thinking string) string {
	sum := sha256.Sum256([]byte(thinking))
	return hex.EncodeToString(sum[:])
}

// input returns a call's arguments as a JSON object. Arguments that are not one, as in
// a truncated call, become the member INVALID_JSON, as in Anthropic's guide.
func input(arguments string) json.RawMessage {
	if b := bytes.TrimSpace([]byte(arguments)); json.Valid(b) && b[0] == '{' {
		return b
	} else if len(b) == 0 {
		return json.RawMessage("{}")
	}
	return encode(map[string]string{"INVALID_JSON": arguments})
}

// reasons maps a finish reason to Anthropic's stop_reason. The client may continue a
// reply that ended with pause_turn.
var reasons = map[string]string{"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "abort": "pause_turn"}

// stopReason returns stop_reason and stop_sequence.
func (r *Request) stopReason(d *chat.Delta) (reason, sequence *string) {
	if s, is := d.Stop.(string); is && d.Finish == "stop" && slices.Contains(r.stops, s) {
		word := "stop_sequence"
		return &word, &s
	}
	word, known := reasons[d.Finish]
	if !known {
		word = d.Finish
	}
	if word == "end_turn" && r.Ask.ToolChoice == "named" { // the finish reason of OpenAI's API for a named tool is "stop"
		word = "tool_use"
	}
	return &word, nil
}

// encode returns v as JSON without escaping HTML. The types of this package cannot
// fail to encode.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("anthropic: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

package batch

import (
	"bytes"
	"encoding/json"

	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/chat"
)

// line is a result in plain form: one choice of one prompt.
type line struct {
	Index        int             `json:"index"` // of the prompt, from 0
	CustomID     string          `json:"custom_id,omitempty"`
	Choice       *int            `json:"choice,omitempty"` // for prompts with several choices
	Prompt       string          `json:"prompt,omitempty"`
	Reasoning    string          `json:"reasoning,omitempty"`
	Text         *string         `json:"text,omitempty"`
	ToolCalls    []lineCall      `json:"tool_calls,omitempty"`
	FinishReason string          `json:"finish_reason,omitempty"`
	StopReason   any             `json:"stop_reason,omitempty"`
	Usage        *lineUsage      `json:"usage,omitempty"`
	Error        json.RawMessage `json:"error,omitempty"`
}

// lineCall is a call in the API's form.
type lineCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function lineFunction `json:"function"`
}

type lineFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type lineUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
}

// batchLine is a line of the output of OpenAI's batches.
type batchLine struct {
	ID       string        `json:"id"`
	CustomID string        `json:"custom_id"`
	Response batchResponse `json:"response"`
	Error    *struct{}     `json:"error"`
}

type batchResponse struct {
	Status    int             `json:"status_code"`
	RequestID string          `json:"request_id"`
	Body      json.RawMessage `json:"body"`
}

// Lines returns the result as JSON Lines in the form of its item: plain, with one line
// for each choice, or OpenAI's batch form. index is the item's index in the list.
func (r Result) Lines(index int) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, l := range r.lines(index) {
		if err := e.Encode(l); err != nil {
			panic("batch: " + err.Error()) // these types cannot fail to encode
		}
	}
	return b.Bytes()
}

func (r Result) lines(index int) []any {
	it := r.Item
	if it.batch {
		id := requestID(index)
		status, body := r.body()
		return []any{batchLine{ID: id, CustomID: it.CustomID, Response: batchResponse{status, id, body}}}
	}
	l := line{Index: index, CustomID: it.CustomID, Prompt: it.Prompt}
	if r.run == nil || r.Err != nil && !r.Interrupted() {
		l.Error = reason(r.Err, it.line)
		return []any{l}
	}
	var out []any
	for i, reply := range r.Replies {
		l := l
		if len(r.Replies) > 1 {
			l.Choice = &i
		}
		l.Text, l.FinishReason, l.StopReason = &reply.Text, reply.Finish, reply.Stop
		l.Reasoning = reply.Reasoning
		for _, c := range reply.Calls {
			l.ToolCalls = append(l.ToolCalls, lineCall{c.ID, "function", lineFunction{c.Name, c.Arguments}})
		}
		l.Usage = &lineUsage{len(r.run.Prompts[reply.Prompt].Tokens), len(reply.Tokens)}
		out = append(out, l)
	}
	return out
}

// body returns the status and body of the reply in the API's form.
func (r Result) body() (status int, body []byte) {
	if r.run == nil || r.Err != nil && !r.Interrupted() {
		return openai.Status(r.Err), openai.Error(r.Err)
	}
	return 200, r.Item.reply(r.run, r.Replies)
}

// reason returns the API's error object with the line number in the input.
func reason(e *chat.Error, at int) json.RawMessage {
	var body struct {
		Error map[string]any `json:"error"`
	}
	full := *e
	full.Message = e.Error() // with the cause, since the reader runs the engine
	if err := json.Unmarshal(openai.Error(&full), &body); err != nil {
		panic("batch: " + err.Error())
	}
	if at > 0 {
		body.Error["line"] = at
	}
	out, err := json.Marshal(body.Error)
	if err != nil {
		panic("batch: " + err.Error())
	}
	return out
}

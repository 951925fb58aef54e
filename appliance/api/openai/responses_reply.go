package openai

import (
	"encoding/json"
	"net/http"
	"strings"

	"vapp.dev/appliance/chat"
)

// response is the object that a reply is, and that events carry.
type response struct {
	ID         string            `json:"id"`
	Object     string            `json:"object"`
	CreatedAt  int64             `json:"created_at"`
	Status     string            `json:"status"`
	Background bool              `json:"background"`
	Error      *responseError    `json:"error"`
	Incomplete *responseCut      `json:"incomplete_details"`
	Model      string            `json:"model"`
	Output     []json.RawMessage `json:"output"`
	Previous   *string           `json:"previous_response_id"`
	Store      bool              `json:"store"`
	Usage      *responseUsage    `json:"usage"`
	responseEcho
}

type responseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type responseCut struct {
	Reason string `json:"reason"`
}

type responseUsage struct {
	Input         int            `json:"input_tokens"`
	InputDetails  map[string]int `json:"input_tokens_details"`
	Output        int            `json:"output_tokens"`
	OutputDetails map[string]int `json:"output_tokens_details"`
	Total         int            `json:"total_tokens"`
}

// outputItem is a message, a thought or a call.
type outputItem struct {
	Type      string       `json:"type"`
	ID        string       `json:"id"`
	CallID    string       `json:"call_id,omitempty"`
	Name      string       `json:"name,omitempty"`
	Arguments *string      `json:"arguments,omitempty"`
	Role      string       `json:"role,omitempty"`
	Status    string       `json:"status,omitempty"`
	Content   []outputPart `json:"content,omitzero"`
	Summary   []outputPart `json:"summary,omitzero"`
}

type outputPart struct {
	Type        string        `json:"type"`
	Text        string        `json:"text"`
	Annotations []struct{}    `json:"annotations,omitzero"`
	Logprobs    []chatLogprob `json:"logprobs,omitzero"`
}

// textPart is text of a message; a client that asks for no logprobs gets an empty
// list.
func textPart(text string, l *chatLogprobList) outputPart {
	p := outputPart{Type: "output_text", Text: text, Annotations: []struct{}{}, Logprobs: []chatLogprob{}}
	if l != nil {
		p.Logprobs = append(p.Logprobs, l.Content...)
	}
	return p
}

// itemID names item i of a response.
func itemID(prefix, response string, i int) string {
	return prefix + strings.TrimPrefix(response, "resp_") + "_" + itoa(i)
}

func messageItem(id string, part ...outputPart) outputItem {
	return outputItem{Type: "message", ID: id, Role: "assistant", Status: "completed", Content: append([]outputPart{}, part...)}
}

func reasoningItem(id string, part ...outputPart) outputItem {
	return outputItem{Type: "reasoning", ID: id, Content: append([]outputPart{}, part...), Summary: []outputPart{}}
}

func callItem(id string, c chat.CallDelta) outputItem {
	return outputItem{Type: "function_call", ID: id, CallID: c.ID, Name: c.Name, Arguments: &c.Arguments, Status: "completed"}
}

// object is a response that has not said anything yet.
func (r *ResponsesRequest) object(run *chat.Run) response {
	return response{
		ID: run.ID, Object: "response", CreatedAt: run.Created, Status: "in_progress", Model: run.Model,
		Output: []json.RawMessage{}, responseEcho: r.echo,
	}
}

// finish fills in how it ended; the item that max_tokens cut is incomplete too.
func (o *response) finish(run *chat.Run, reason string, items []outputItem) {
	switch o.Status = "completed"; reason {
	case "length":
		o.Status, o.Incomplete = "incomplete", &responseCut{"max_output_tokens"}
		if n := len(items); n > 0 && items[n-1].Status != "" {
			items[n-1].Status = "incomplete"
		}
	case "abort":
		o.Status, o.Error = "failed", &responseError{"server_error", "The server ended the reply before the model did."}
	}
	for _, item := range items {
		o.Output = append(o.Output, encode(item))
	}
	u := run.Usage()
	o.Usage = &responseUsage{
		Input: u.Prompt, InputDetails: map[string]int{"cached_tokens": 0},
		Output: u.Completion, OutputDetails: map[string]int{"reasoning_tokens": 0}, Total: u.Prompt + u.Completion,
	}
	if u.TellCached {
		o.Usage.InputDetails["cached_tokens"] = u.Cached
	}
}

// Reply is the body of a whole reply.
func (r *ResponsesRequest) Reply(run *chat.Run, replies []chat.Reply) []byte {
	said := replies[0]
	var items []outputItem
	id := func(prefix string) string { return itemID(prefix, run.ID, len(items)) }
	if said.Reasoning != "" {
		items = append(items, reasoningItem(id("rs_"), outputPart{Type: "reasoning_text", Text: said.Reasoning}))
	}
	if said.Text != "" {
		items = append(items, messageItem(id("msg_"), textPart(said.Text, r.Wire.chat(said.Logprobs))))
	}
	for _, c := range said.Calls {
		items = append(items, callItem(id("fc_"), c))
	}
	out := r.object(run)
	out.finish(run, said.Finish, items)
	return encode(out)
}

// ResponseNotFound is the body of an error about an id that is not stored.
func ResponseNotFound(id string) (int, []byte) {
	return http.StatusNotFound, ErrorOf(http.StatusNotFound, "invalid_request_error", "response_id", "Response with id '"+id+"' not found.")
}

// ResponsesError is the body of an error of these routes: one about the prompt's
// length is about input.
func ResponsesError(e *chat.Error) []byte {
	if e.Kind == chat.TooLong {
		return ErrorOf(http.StatusBadRequest, "invalid_request_error", "input", e.Message)
	}
	return Error(e)
}

// ResponsesBroken ends a stream that had begun when an error came.
func ResponsesBroken(e *chat.Error) []byte {
	var whole ErrorBody
	_ = json.Unmarshal(ResponsesError(e), &whole) // what this package has written
	return append(append([]byte("event: error\ndata: "), encode(struct {
		Type    string  `json:"type"`
		Code    string  `json:"code"`
		Message string  `json:"message"`
		Param   *string `json:"param"`
	}{"error", whole.Error.Type, whole.Error.Message, whole.Error.Param})...), '\n', '\n')
}

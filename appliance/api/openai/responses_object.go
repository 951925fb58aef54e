package openai

import (
	"encoding/json"
	"strings"

	"vapp.dev/appliance/chat"
)

// response is the response object of replies and events.
type response struct {
	ID         string         `json:"id"`
	Object     string         `json:"object"`
	CreatedAt  int64          `json:"created_at"`
	Status     string         `json:"status"`
	Background bool           `json:"background"`
	Error      *responseError `json:"error"`
	Incomplete *responseCut   `json:"incomplete_details"`
	Model      string         `json:"model"`
	Output     []outputItem   `json:"output"`
	Previous   *string        `json:"previous_response_id"`
	Store      bool           `json:"store"`
	Usage      *responseUsage `json:"usage"`
	InputRaw   []rawTokens    `json:"input_messages,omitempty"`
	OutputRaw  []rawTokens    `json:"output_messages,omitempty"`
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
	Input         int           `json:"input_tokens"`
	InputDetails  inputDetails  `json:"input_tokens_details"`
	Output        int           `json:"output_tokens"`
	OutputDetails outputDetails `json:"output_tokens_details"`
	Total         int           `json:"total_tokens"`
}

type inputDetails struct {
	Cached int `json:"cached_tokens"`
}

type outputDetails struct {
	Reasoning int `json:"reasoning_tokens"`
}

// rawTokens holds the prompt's or the reply's tokens, for enable_response_messages.
type rawTokens struct {
	Type    string  `json:"type"` // raw_message_tokens
	Message string  `json:"message"`
	Tokens  []int32 `json:"tokens"`
}

// outputItem is a message, a reasoning item or a call.
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
	Sealed    *string      `json:"encrypted_content,omitempty"`
}

type outputPart struct {
	Type        string        `json:"type"`
	Text        string        `json:"text"`
	Annotations []struct{}    `json:"annotations,omitzero"`
	Logprobs    []chatLogprob `json:"logprobs,omitzero"`
}

// textPart returns a text part of a message. Without logprobs it has an empty list.
func textPart(text string, list []chatLogprob) outputPart {
	return outputPart{Type: "output_text", Text: text, Annotations: []struct{}{}, Logprobs: append([]chatLogprob{}, list...)}
}

// itemID returns the id of item i of a response.
func (r *ResponsesRequest) itemID(prefix, response, i string) string {
	base := r.ItemBase
	if base == "" {
		base = strings.TrimPrefix(response, "resp_")
	}
	return prefix + base + "_" + i
}

func messageItem(id string) outputItem {
	return outputItem{Type: "message", ID: id, Role: "assistant", Status: "in_progress", Content: []outputPart{}}
}

// reasoningItem returns an empty reasoning item. In this protocol it has no status.
func reasoningItem(id string) outputItem {
	return outputItem{Type: "reasoning", ID: id, Content: []outputPart{}, Summary: []outputPart{}}
}

func callItem(id string, c chat.CallDelta) outputItem {
	none := ""
	return outputItem{Type: "function_call", ID: id, CallID: c.ID, Name: c.Name, Arguments: &none, Status: "in_progress"}
}

// object returns a response without output.
func (r *ResponsesRequest) object(run *chat.Run, status string) response {
	o := response{
		ID: run.ID, Object: "response", CreatedAt: run.Created, Status: status, Model: run.Model,
		Output: []outputItem{}, Store: r.Store, Background: r.Background, responseEcho: r.echo,
	}
	o.Temperature, o.TopP = run.Sampling.Temperature, run.Sampling.TopP
	if r.Previous != "" {
		o.Previous = &r.Previous
	}
	return o
}

func responseUsageOf(u chat.Usage) *responseUsage {
	out := &responseUsage{Input: u.Prompt, Output: u.Completion, Total: u.Prompt + u.Completion}
	out.OutputDetails.Reasoning = u.Reasoning
	if u.ReportCached {
		out.InputDetails.Cached = u.Cached
	}
	return out
}

// StoredItem is an item under its id.
type StoredItem struct {
	ID   string
	JSON json.RawMessage
}

// Items returns the request's own items in their stored form: with ids made from the
// response's id, and texts as lists of parts. Call Resolve first.
func (r *ResponsesRequest) Items(response string) []StoredItem {
	out := make([]StoredItem, len(r.input))
	for i, raw := range r.input {
		obj, _ := object(raw) // no error: Resolve has read it
		f := newFields("", obj)
		kind := f.str("type")
		if kind == "" {
			kind = "message"
		}
		prefix := map[string]string{"message": "msg_", "reasoning": "rs_", "function_call": "fc_", "function_call_output": "fco_"}[kind]
		id := r.itemID(prefix, response, "in"+itoa(i))
		obj["id"], obj["type"] = encode(id), encode(kind)
		if kind != "reasoning" {
			obj["status"] = encode("completed")
		}
		if v, is := f.get("content"); is && v[0] == '"' {
			part := outputPart{Type: "input_text", Text: f.str("content")}
			if f.str("role") == "assistant" {
				part = textPart(part.Text, nil)
			}
			obj["content"] = encode([]outputPart{part})
		}
		out[i] = StoredItem{id, encode(obj)}
	}
	return out
}

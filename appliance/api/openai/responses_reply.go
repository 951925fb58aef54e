package openai

import (
	"strings"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/dialect"
)

// ResponsesReply builds the items of one response from the deltas of its run, and
// writes the events of a stream. It is not safe for concurrent use.
type ResponsesReply struct {
	run    *chat.Run
	r      *ResponsesRequest
	decode func([]int32) string
	silent bool // no events are written
	seq    int

	items     []outputItem // the last item is open while kind is not 0
	kind      dialect.Kind // kind of the open item
	call      int          // index of the open call
	text      strings.Builder
	lps       []chatLogprob
	tokens    []int32
	finish    string
	failed    *responseError
	cancelled bool
}

// Events starts a streamed reply; decode detokenizes.
func (r *ResponsesRequest) Events(run *chat.Run, decode func([]int32) string) *ResponsesReply {
	return &ResponsesReply{run: run, r: r, decode: decode}
}

// Whole starts a reply without events, of which only the final object is needed.
func (r *ResponsesRequest) Whole(run *chat.Run, decode func([]int32) string) *ResponsesReply {
	return &ResponsesReply{run: run, r: r, decode: decode, silent: true}
}

// responseEvent is an event about the response or one item. event sets Sequence and
// Type.
type responseEvent struct {
	Type         string         `json:"type"`
	Sequence     int            `json:"sequence_number"`
	Response     *response      `json:"response,omitempty"`
	ItemID       string         `json:"item_id,omitempty"`
	OutputIndex  *int           `json:"output_index,omitempty"`
	ContentIndex *int           `json:"content_index,omitempty"`
	Item         *outputItem    `json:"item,omitempty"`
	Part         *outputPart    `json:"part,omitempty"`
	Delta        *string        `json:"delta,omitempty"`
	Text         *string        `json:"text,omitempty"`
	Name         string         `json:"name,omitempty"`
	Arguments    *string        `json:"arguments,omitempty"`
	Logprobs     *[]chatLogprob `json:"logprobs,omitempty"`
}

func (s *ResponsesReply) event(buf []byte, kind string, e responseEvent) []byte {
	if s.silent {
		return buf
	}
	e.Type, e.Sequence = "response."+kind, s.seq
	s.seq++
	buf = append(append(append(buf, "event: "...), e.Type...), "\ndata: "...)
	return append(append(buf, encode(e)...), '\n', '\n')
}

// about writes an event about the open item, with the index of its single part.
func (s *ResponsesReply) about(buf []byte, kind string, e responseEvent) []byte {
	i, none := len(s.items)-1, 0
	e.ItemID, e.OutputIndex = s.items[i].ID, &i
	if s.kind != dialect.ToolCall {
		e.ContentIndex = &none
	}
	return s.event(buf, kind, e)
}

// whole writes an event that contains the open item.
func (s *ResponsesReply) whole(buf []byte, kind string) []byte {
	i := len(s.items) - 1
	item := s.items[i]
	return s.event(buf, kind, responseEvent{OutputIndex: &i, Item: &item})
}

// Begin writes the first events: created, then in_progress or, for a background
// response, queued.
func (s *ResponsesReply) Begin(buf []byte) []byte {
	if !s.r.Background {
		return s.InProgress(s.event(buf, "created", responseEvent{Response: s.object("in_progress")}))
	}
	queued := s.object("queued")
	buf = s.event(buf, "created", responseEvent{Response: queued})
	return s.event(buf, "queued", responseEvent{Response: queued})
}

// InProgress writes the event in_progress.
func (s *ResponsesReply) InProgress(buf []byte) []byte {
	return s.event(buf, "in_progress", responseEvent{Response: s.object("in_progress")})
}

// Add adds one delta.
func (s *ResponsesReply) Add(buf []byte, d chat.Delta) []byte {
	if s.r.messages {
		s.tokens = append(s.tokens, d.Tokens...)
	}
	for _, said := range d.Segments {
		buf = s.say(buf, said)
	}
	if d.Finish != "" {
		s.finish = d.Finish
	}
	return buf
}

// deltaEvents maps the kind of an item to its delta event.
var deltaEvents = map[dialect.Kind]string{
	dialect.Reasoning: "reasoning_text.delta", dialect.Content: "output_text.delta", dialect.ToolCall: "function_call_arguments.delta",
}

func (s *ResponsesReply) say(buf []byte, said chat.Segment) []byte {
	if s.kind != said.Kind || s.kind == dialect.ToolCall && s.call != said.Call.Index {
		buf = s.open(s.close(buf), said)
	}
	text, e := said.Text, responseEvent{}
	switch said.Kind {
	case dialect.ToolCall:
		text = said.Call.Arguments
	case dialect.Content:
		list := []chatLogprob{}
		if l := s.r.Wire.chat(said.Logprobs); l != nil {
			list = l.Content
			s.lps = append(s.lps, list...)
		}
		e.Logprobs = &list
	}
	if text == "" {
		return buf
	}
	s.text.WriteString(text)
	e.Delta = &text
	return s.about(buf, deltaEvents[said.Kind], e)
}

// open begins an item.
func (s *ResponsesReply) open(buf []byte, said chat.Segment) []byte {
	s.kind, s.call = said.Kind, said.Call.Index
	id := func(prefix string) string { return s.r.itemID(prefix, s.run.ID, itoa(len(s.items))) }
	switch said.Kind {
	case dialect.Reasoning:
		s.items = append(s.items, reasoningItem(id("rs_")))
		buf = s.whole(buf, "output_item.added")
		return s.about(buf, "reasoning_part.added", responseEvent{Part: &outputPart{Type: "reasoning_text"}})
	case dialect.Content:
		s.items = append(s.items, messageItem(id("msg_")))
		part := textPart("", nil)
		buf = s.whole(buf, "output_item.added")
		return s.about(buf, "content_part.added", responseEvent{Part: &part})
	}
	s.items = append(s.items, callItem(id("fc_"), said.Call))
	return s.whole(buf, "output_item.added")
}

// close ends the open item.
func (s *ResponsesReply) close(buf []byte) []byte {
	if s.kind == 0 {
		return buf
	}
	text, item := s.text.String(), &s.items[len(s.items)-1]
	s.text.Reset()
	if item.Status != "" {
		item.Status = "completed"
		if s.finish == "length" || s.finish == "abort" || s.failed != nil || s.cancelled {
			item.Status = "incomplete"
		}
	}
	switch s.kind {
	case dialect.Content:
		part := textPart(text, s.lps)
		item.Content, s.lps = []outputPart{part}, nil
		buf = s.about(buf, "output_text.done", responseEvent{Text: &text, Logprobs: &part.Logprobs})
		buf = s.about(buf, "content_part.done", responseEvent{Part: &part})
	case dialect.Reasoning:
		part := outputPart{Type: "reasoning_text", Text: text}
		if item.Content = []outputPart{part}; s.r.sealed {
			item.Sealed = seal(text)
		}
		buf = s.about(buf, "reasoning_text.done", responseEvent{Text: &text})
		buf = s.about(buf, "reasoning_part.done", responseEvent{Part: &part})
	default:
		item.Arguments = &text
		buf = s.about(buf, "function_call_arguments.done", responseEvent{Name: item.Name, Arguments: &text})
	}
	s.kind = 0
	return s.whole(buf, "output_item.done")
}

// Close closes the last item.
func (s *ResponsesReply) Close(buf []byte) []byte {
	if s.finish == "abort" && s.failed == nil && !s.cancelled {
		s.failed = &responseError{"server_error", "The server ended the reply before the model did."}
	}
	return s.close(buf)
}

// End closes the last item and writes the final event with the response.
func (s *ResponsesReply) End(buf []byte) []byte {
	buf = s.Close(buf)
	o := s.final()
	kind := o.Status
	if s.cancelled {
		kind = "incomplete" // the protocol has no event for status cancelled
	}
	return s.event(buf, kind, responseEvent{Response: o})
}

// Aborted reports whether the engine aborted the reply.
func (s *ResponsesReply) Aborted() bool { return s.finish == "abort" }

// Fail marks the reply as failed. It keeps its output so far.
func (s *ResponsesReply) Fail(e *chat.Error) { s.failed = &responseError{"server_error", e.Message} }

// Cancel marks the reply as cancelled.
func (s *ResponsesReply) Cancel() { s.cancelled = true }

// MarkUnstored sets store to false in the reply, which could not be stored.
func (s *ResponsesReply) MarkUnstored() { s.r.Store = false }

// final returns the response after Close.
func (s *ResponsesReply) final() *response {
	status := "completed"
	switch {
	case s.cancelled:
		status = "cancelled"
	case s.failed != nil:
		status = "failed"
	case s.finish == "length":
		status = "incomplete"
	}
	o := s.object(status)
	o.Error, o.Usage = s.failed, responseUsageOf(s.run.Usage())
	if status == "incomplete" {
		o.Incomplete = &responseCut{"max_output_tokens"}
	}
	if s.r.messages {
		read := s.run.Prompts[0].Tokens
		o.InputRaw = []rawTokens{{"raw_message_tokens", s.decode(read), read}}
		o.OutputRaw = []rawTokens{{"raw_message_tokens", s.decode(s.tokens), append([]int32{}, s.tokens...)}}
	}
	return o
}

// object returns the response with its complete items.
func (s *ResponsesReply) object(status string) *response {
	o := s.r.object(s.run, status)
	whole := s.items
	if s.kind != 0 {
		whole = whole[:len(whole)-1]
	}
	o.Output = append(o.Output, whole...)
	return &o
}

// Now returns the response with the given status, queued or in_progress, as JSON.
func (s *ResponsesReply) Now(status string) []byte { return encode(s.object(status)) }

// Final returns the response after Close, as JSON.
func (s *ResponsesReply) Final() []byte { return encode(s.final()) }

// Background reports whether this is a background response.
func (s *ResponsesReply) Background() bool { return s.r.Background }

// Output returns the items of a completed reply, for storage.
func (s *ResponsesReply) Output() []StoredItem {
	out := make([]StoredItem, len(s.items))
	for i, item := range s.items {
		out[i] = StoredItem{item.ID, encode(item)}
	}
	return out
}

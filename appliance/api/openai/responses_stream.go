package openai

import (
	"strings"

	"vapp.dev/appliance/chat"
)

// ResponsesStream writes the events of one streamed response.
type ResponsesStream struct {
	run *chat.Run
	r   *ResponsesRequest
	seq int

	items  []outputItem // the last one is open while kind is set
	kind   string       // of the open item
	call   int          // index of the open call
	text   strings.Builder
	lps    []chatLogprob
	finish string
}

// Stream starts a streamed reply.
func (r *ResponsesRequest) Stream(run *chat.Run) Stream { return &ResponsesStream{run: run, r: r} }

// responseEvent is an event about the response or about one item. Sequence and Type
// are its own.
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

func (s *ResponsesStream) event(buf []byte, kind string, e responseEvent) []byte {
	e.Type, e.Sequence = "response."+kind, s.seq
	s.seq++
	buf = append(append(append(buf, "event: "...), e.Type...), "\ndata: "...)
	return append(append(buf, encode(e)...), '\n', '\n')
}

// about is an event about the open item; parts have an index of their own.
func (s *ResponsesStream) about(buf []byte, kind string, e responseEvent, part bool) []byte {
	i, none := len(s.items)-1, 0
	e.ItemID, e.OutputIndex = s.items[i].ID, &i
	if part {
		e.ContentIndex = &none
	}
	return s.event(buf, kind, e)
}

// whole is an event that carries the open item.
func (s *ResponsesStream) whole(buf []byte, kind string, item outputItem) []byte {
	i := len(s.items) - 1
	return s.event(buf, kind, responseEvent{OutputIndex: &i, Item: &item})
}

// Begin says that the response exists.
func (s *ResponsesStream) Begin(buf []byte) []byte {
	o := s.r.object(s.run)
	buf = s.event(buf, "created", responseEvent{Response: &o})
	return s.event(buf, "in_progress", responseEvent{Response: &o})
}

// Add writes one delta.
func (s *ResponsesStream) Add(buf []byte, d chat.Delta) []byte {
	if d.Reasoning != "" {
		buf = s.open(buf, "reasoning", chat.CallDelta{})
		buf = s.delta(buf, "reasoning_text.delta", d.Reasoning, nil)
	}
	if d.Text != "" {
		buf = s.open(buf, "message", chat.CallDelta{})
		lps := []chatLogprob{}
		if l := s.r.Wire.chat(d.Logprobs); l != nil {
			lps = append(lps, l.Content...)
			s.lps = append(s.lps, lps...)
		}
		buf = s.delta(buf, "output_text.delta", d.Text, &lps)
	}
	for _, c := range d.Calls {
		if s.kind == "function_call" && s.call != c.Index {
			buf = s.close(buf)
		}
		buf = s.open(buf, "function_call", c)
		if c.Arguments != "" {
			buf = s.delta(buf, "function_call_arguments.delta", c.Arguments, nil)
		}
	}
	if d.Finish != "" {
		s.finish = d.Finish
	}
	return buf
}

func (s *ResponsesStream) delta(buf []byte, kind, text string, lps *[]chatLogprob) []byte {
	s.text.WriteString(text)
	return s.about(buf, kind, responseEvent{Delta: &text, Logprobs: lps}, s.kind != "function_call")
}

// open begins an item unless one of the kind is open.
func (s *ResponsesStream) open(buf []byte, kind string, c chat.CallDelta) []byte {
	if s.kind == kind {
		return buf
	}
	buf = s.close(buf)
	s.kind, s.call = kind, c.Index
	id := func(prefix string) string { return itemID(prefix, s.run.ID, len(s.items)) }
	var item outputItem
	part := textPart("", nil)
	switch kind {
	case "reasoning":
		item, part = reasoningItem(id("rs_")), outputPart{Type: "reasoning_text"}
	case "message":
		item = messageItem(id("msg_"))
	default:
		c.Arguments = ""
		item = callItem(id("fc_"), c)
	}
	if item.Status != "" {
		item.Status = "in_progress"
	}
	s.items = append(s.items, item)
	buf = s.whole(buf, "output_item.added", item)
	if kind == "function_call" {
		return buf
	}
	return s.about(buf, "content_part.added", responseEvent{Part: &part}, true)
}

// close ends the open item.
func (s *ResponsesStream) close(buf []byte) []byte {
	if s.kind == "" {
		return buf
	}
	text, item := s.text.String(), &s.items[len(s.items)-1]
	s.text.Reset()
	part := outputPart{Type: "reasoning_text", Text: text}
	switch s.kind {
	case "message":
		part = textPart(text, &chatLogprobList{s.lps})
		s.lps = nil
		buf = s.about(buf, "output_text.done", responseEvent{Text: &text, Logprobs: &part.Logprobs}, true)
	case "reasoning":
		buf = s.about(buf, "reasoning_text.done", responseEvent{Text: &text}, true)
	default:
		item.Arguments = &text
		buf = s.about(buf, "function_call_arguments.done", responseEvent{Name: item.Name, Arguments: &text}, false)
	}
	if s.kind != "function_call" {
		item.Content = []outputPart{part}
		buf = s.about(buf, "content_part.done", responseEvent{Part: &part}, true)
	}
	if s.kind = ""; item.Status != "" {
		item.Status = "completed"
		if s.finish == "length" {
			item.Status = "incomplete"
		}
	}
	return s.whole(buf, "output_item.done", *item)
}

// End closes the last item and tells the whole response.
func (s *ResponsesStream) End(buf []byte) []byte {
	buf = s.close(buf)
	o := s.r.object(s.run)
	o.finish(s.run, s.finish, s.items)
	return s.event(buf, o.Status, responseEvent{Response: &o})
}

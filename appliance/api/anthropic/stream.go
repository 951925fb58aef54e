package anthropic

import (
	"encoding/json"
	"strings"

	"vapp.dev/appliance/chat"
)

// Stream writes the events of one streamed message; each method appends to buf.
type Stream struct {
	run  *chat.Run
	r    *Request
	last chat.Delta // how the reply ended

	open    string // kind of the open block, "" for none
	index   int    // of the open or next block
	call    int    // index of the call in the open tool_use block
	thought strings.Builder
}

// Events starts a streamed reply.
func (r *Request) Events(run *chat.Run) *Stream { return &Stream{run: run, r: r} }

// event appends one server-sent event named kind.
func event(buf []byte, kind string, v any) []byte {
	buf = append(buf, "event: "...)
	buf = append(buf, kind...)
	buf = append(buf, "\ndata: "...)
	buf = append(buf, encode(v)...)
	return append(buf, '\n', '\n')
}

// Begin writes message_start.
func (s *Stream) Begin(buf []byte) []byte {
	m := envelope(s.run)
	m.Usage = usageOf(s.run.Usage())
	m.Usage.Output = 0
	return event(buf, "message_start", struct {
		Type    string  `json:"type"`
		Message message `json:"message"`
	}{"message_start", m})
}

type blockStart struct {
	Type  string `json:"type"`
	Index int    `json:"index"`
	Block any    `json:"content_block"`
}

type blockDelta struct {
	Type  string            `json:"type"`
	Index int               `json:"index"`
	Delta map[string]string `json:"delta"`
}

// Add writes one delta.
func (s *Stream) Add(buf []byte, d chat.Delta) []byte {
	if d.Reasoning != "" {
		buf = s.start(buf, "thinking", thinkingBlock{Type: "thinking"})
		s.thought.WriteString(d.Reasoning)
		buf = s.delta(buf, "thinking_delta", "thinking", d.Reasoning)
	}
	if d.Text != "" {
		buf = s.start(buf, "text", textBlock{Type: "text"})
		buf = s.delta(buf, "text_delta", "text", d.Text)
	}
	for _, c := range d.Calls {
		if s.open == "tool_use" && s.call != c.Index {
			buf = s.stop(buf)
		}
		buf = s.start(buf, "tool_use", toolBlock{"tool_use", c.ID, c.Name, json.RawMessage("{}")})
		s.call = c.Index
		if c.Arguments != "" {
			buf = s.delta(buf, "input_json_delta", "partial_json", c.Arguments)
		}
	}
	if d.Finish != "" {
		s.last = d
	}
	return buf
}

// start opens a block unless one of this kind is open.
func (s *Stream) start(buf []byte, kind string, block any) []byte {
	if s.open == kind {
		return buf
	}
	buf = s.stop(buf)
	s.open = kind
	return event(buf, "content_block_start", blockStart{"content_block_start", s.index, block})
}

// delta adds text to the open block.
func (s *Stream) delta(buf []byte, kind, field, text string) []byte {
	return event(buf, "content_block_delta", blockDelta{
		"content_block_delta", s.index, map[string]string{"type": kind, field: text},
	})
}

// stop closes the open block. A thinking block ends with its signature.
func (s *Stream) stop(buf []byte) []byte {
	if s.open == "" {
		return buf
	}
	if s.open == "thinking" {
		buf = s.delta(buf, "signature_delta", "signature", signature(s.thought.String()))
		s.thought.Reset()
	}
	buf = event(buf, "content_block_stop", struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	}{"content_block_stop", s.index})
	s.open = ""
	s.index++
	return buf
}

// End closes the last block and writes the stop reason.
func (s *Stream) End(buf []byte) []byte {
	buf = s.stop(buf)
	type ending struct {
		Reason   *string `json:"stop_reason"`
		Sequence *string `json:"stop_sequence"`
	}
	reason, sequence := s.r.stopReason(&s.last)
	buf = event(buf, "message_delta", struct {
		Type  string `json:"type"`
		Delta ending `json:"delta"`
		Usage usage  `json:"usage"`
	}{"message_delta", ending{reason, sequence}, usageOf(s.run.Usage())})
	return event(buf, "message_stop", map[string]string{"type": "message_stop"})
}

// Broken appends the event of an error that ends a stream.
func StreamError(buf []byte, status int, message string) []byte {
	buf = append(buf, "event: error\ndata: "...)
	buf = append(buf, Error(status, message)...)
	return append(buf, '\n', '\n')
}

package dialect

import "strings"

// sink collects the deltas of a reply.
type sink struct {
	out     []Delta
	opts    *Options
	newID   func() string
	given   string // the ID of the next call, if the model wrote one
	calls   int    // calls so far, reported or not
	inCall  bool   // between begin and close
	space   string // white space since the start or the last call, not added yet
	written bool   // there is content since the start or the last call
	markup  bool   // inside markup around calls but not inside a call
}

// reasoning adds reasoning text.
func (s *sink) reasoning(t string) {
	if !s.opts.HideReasoning {
		s.add(Delta{Kind: Reasoning, Text: t})
	}
}

// content adds content text. White space next to a call is dropped, so that leading white
// space is held until other text follows.
func (s *sink) content(t string) {
	if !s.written {
		if strings.TrimSpace(t) == "" {
			s.space += t
			return
		}
		t, s.space, s.written = s.space+t, "", true
	}
	s.add(Delta{Kind: Content, Text: t})
}

// begin starts a call.
func (s *sink) begin(name string) {
	s.space, s.written = "", false
	s.calls++
	s.inCall = true
	if s.reported() {
		id := s.given
		if id == "" {
			id = s.newID()
		}
		s.out = append(s.out, Delta{Kind: ToolCall, Index: s.calls - 1, ID: id, Name: name})
	}
	s.given = ""
}

// arguments adds to the arguments of the last call.
func (s *sink) arguments(t string) {
	if s.reported() {
		s.add(Delta{Kind: ToolCall, Text: t, Index: s.calls - 1})
	}
}

// close ends the last call.
func (s *sink) close() { s.inCall, s.space, s.written = false, "", false }

// block begins or ends markup around calls.
func (s *sink) block(is bool) {
	if is != s.markup {
		s.space, s.written, s.markup = "", false, is
	}
}

// reported reports whether the client gets the last call.
func (s *sink) reported() bool {
	return s.opts.Choice != None && (s.calls == 1 || !s.opts.OneCall)
}

// add appends a delta, or joins it to the last one of the same kind and call.
func (s *sink) add(d Delta) {
	if d.Text == "" {
		return
	}
	if n := len(s.out); n > 0 && s.out[n-1].Kind == d.Kind && s.out[n-1].Index == d.Index {
		s.out[n-1].Text += d.Text
		return
	}
	s.out = append(s.out, d)
}

// end adds the held white space if the reply has no calls.
func (s *sink) end() {
	if s.calls == 0 && s.space != "" && !s.markup {
		s.add(Delta{Kind: Content, Text: s.space})
	}
	s.space = ""
}

// take returns and removes the collected deltas.
func (s *sink) take() []Delta {
	out := s.out
	s.out = nil
	return out
}

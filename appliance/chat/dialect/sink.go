package dialect

import "strings"

// sink collects what a reply says, as deltas.
type sink struct {
	out     []Delta
	opts    *Options
	newID   func() string
	calls   int    // begun, reported or not
	inCall  bool   // between begin and close
	space   string // white space since the start or the last call, not sent yet
	written bool   // content since the start or the last call
	markup  bool   // within markup around calls, where the text is none of a call
}

// reasoning adds to the thought.
func (s *sink) reasoning(t string) {
	if !s.opts.HideReasoning {
		s.add(Delta{Kind: Reasoning, Text: t})
	}
}

// content adds to the content. White space alone waits for what follows it: beside
// a call it is dropped.
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
		s.out = append(s.out, Delta{Kind: ToolCall, Index: s.calls - 1, ID: s.newID(), Name: name})
	}
}

// arguments adds to the call that began last.
func (s *sink) arguments(t string) {
	if s.reported() {
		s.add(Delta{Kind: ToolCall, Text: t, Index: s.calls - 1})
	}
}

// close ends the call that began last.
func (s *sink) close() { s.inCall, s.space, s.written = false, "", false }

// block says that the text is markup around calls now, or no longer.
func (s *sink) block(is bool) {
	if is != s.markup {
		s.space, s.written, s.markup = "", false, is
	}
}

// reported says whether the client is told of the call that began last.
func (s *sink) reported() bool {
	return s.opts.Choice != None && (s.calls == 1 || !s.opts.OneCall)
}

// add joins deltas of one kind.
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

// end sends the white space that no call made needless.
func (s *sink) end() {
	if s.calls == 0 && s.space != "" && !s.markup {
		s.add(Delta{Kind: Content, Text: s.space})
	}
	s.space = ""
}

// take gives the deltas out.
func (s *sink) take() []Delta {
	out := s.out
	s.out = nil
	return out
}

package chat

import "vapp.dev/appliance/chat/dialect"

// CallDelta is the part of a tool call since its last CallDelta. Only the first one of a
// call has ID and Name.
type CallDelta struct {
	Index     int
	ID, Name  string
	Arguments string
}

// replyParser passes the text of a choice to the dialect's parser. A marker that is one
// token is recognized by its id: the same characters in other tokens are text, and
// skip_special_tokens makes no difference.
type replyParser struct {
	parser  *dialect.Parser
	markers map[int32]string

	written  int    // bytes of text that entered the stop scanner
	released int    // bytes of it that left the scanner
	at       []spot // markers that are still in the scanner
	part     string // the bytes that have left of the marker at released
}

// spot is the position in the text of a marker that was a token.
type spot struct {
	from   int
	marker string
}

// newReplyParser returns the parser of one reply; nil if all of the reply is text.
func (s *Service) newReplyParser(r *Request, run *Run, p *EncodedPrompt) (*replyParser, error) {
	a, set := &r.params, r.settings
	if a.Chat == nil || set.Reasoning == "" && set.Tools == "" || run.Role != "assistant" {
		return nil, nil
	}
	choice := a.ToolChoice
	functions := a.Chat.AllTools()
	if choice == "" || len(functions) == 0 {
		choice = dialect.None
	}
	parser, err := dialect.New(dialect.Options{
		Reasoning: set.Reasoning, Tools: set.Tools, Prompt: p.text,
		Functions: functions, Choice: choice, Function: a.ToolName,
		Constrained:   run.grammar != nil,
		HideReasoning: a.HideReasoning || a.Chat.ReasoningEffort == "none", OneCall: a.OneCall,
		Kwargs: a.Chat.kwargs(set), NewID: set.NewCallID,
		Token: func(m string) bool { _, is := s.markers[m]; return is },
	})
	if err != nil {
		return nil, err
	}
	return &replyParser{parser: parser, markers: s.marks}, nil
}

// marker returns the marker of a token, "" if it is none.
func (p *replyParser) marker(id int32) string {
	if p == nil {
		return ""
	}
	return p.markers[id]
}

// thinking reports whether the parser reads the next text as reasoning.
func (p *replyParser) thinking() bool { return p != nil && p.parser.Thinking() }

// put records that a marker enters the stop scanner next.
func (p *replyParser) put(marker string) { p.at = append(p.at, spot{p.written, marker}) }

// take parses text that left the stop scanner. A marker that a stop string cuts off is
// dropped.
func (p *replyParser) take(d *Delta, text string, o *segmenter) {
	for text != "" {
		if len(p.at) == 0 || p.at[0].from > p.released {
			n := len(text)
			if len(p.at) > 0 {
				n = min(n, p.at[0].from-p.released)
			}
			d.add(p.parser.Feed(text[:n]), o)
			p.released, text = p.released+n, text[n:]
			continue
		}
		m := p.at[0].marker
		n := min(len(text), len(m)-len(p.part))
		p.part, text = p.part+text[:n], text[n:]
		if len(p.part) == len(m) {
			d.add(p.parser.Mark(m), o)
			p.released += len(m)
			p.at, p.part = p.at[1:], ""
		}
	}
}

// end ends the parse and returns the finish_reason.
func (p *replyParser) end(d *Delta, finish string, o *segmenter) string {
	last, finish := p.parser.Finish(finish)
	d.add(last, o)
	return finish
}

// add adds the output of a parser to a delta.
func (d *Delta) add(list []dialect.Delta, o *segmenter) {
	for _, x := range list {
		run := Segment{Kind: x.Kind, Text: x.Text}
		if x.Kind == dialect.ToolCall {
			run = Segment{Kind: x.Kind, Call: CallDelta{Index: x.Index, ID: x.ID, Name: x.Name, Arguments: x.Text}}
		}
		o.add(d, run)
		switch x.Kind {
		case dialect.Reasoning:
			d.Reasoning += x.Text
		case dialect.Content:
			d.Text += x.Text
		case dialect.ToolCall:
			d.Calls = addCall(d.Calls, run.Call)
		}
	}
}

// addCall appends to the arguments of the last call, or begins another one.
func addCall(list []CallDelta, c CallDelta) []CallDelta {
	if n := len(list); n > 0 && list[n-1].Index == c.Index {
		list[n-1].Arguments += c.Arguments
		return list
	}
	return append(list, c)
}

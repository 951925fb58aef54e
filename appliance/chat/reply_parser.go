package chat

import (
	"encoding/json"

	"vapp.dev/appliance/chat/dialect"
)

// CallDelta is what a tool call has gained. ID and Name come whole in its first one
// alone.
type CallDelta struct {
	Index     int
	ID, Name  string
	Arguments string
}

// speech is a choice's text on its way through the dialect's parser. A marker that
// is one token is known by its id, so that the same characters in other tokens are
// text, and skip_special_tokens changes nothing.
type speech struct {
	parser *dialect.Parser
	marks  map[int32]string

	written  int    // bytes of the text that went into the stop scanner
	released int    // bytes of it that came out
	at       []spot // markers in between
	part     string // of the marker at released, as far as it came out
}

// spot is where in the text a marker that came as a token is.
type spot struct {
	from   int
	marker string
}

// speech makes the parser of one reply, nil where text is all there is.
func (s *Service) speech(r *Request, run *Run, p *Prompted) (*speech, error) {
	a, set := &r.ask, r.settings
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
	return &speech{parser: parser, marks: s.marks}, nil
}

// marker is what a token marks, "" for most.
func (s *speech) marker(id int32) string {
	if s == nil {
		return ""
	}
	return s.marks[id]
}

// thinking says that what comes next is read as a thought.
func (s *speech) thinking() bool { return s != nil && s.parser.Thinking() }

// put says that a marker goes into the stop scanner next.
func (s *speech) put(marker string) { s.at = append(s.at, spot{s.written, marker}) }

// take parses text that came out of the stop scanner. Of a marker that a stop
// string has cut nothing is shown.
func (s *speech) take(d *Delta, text string, o *order) {
	for text != "" {
		if len(s.at) == 0 || s.at[0].from > s.released {
			n := len(text)
			if len(s.at) > 0 {
				n = min(n, s.at[0].from-s.released)
			}
			d.add(s.parser.Feed(text[:n]), o)
			s.released, text = s.released+n, text[n:]
			continue
		}
		m := s.at[0].marker
		n := min(len(text), len(m)-len(s.part))
		s.part, text = s.part+text[:n], text[n:]
		if len(s.part) == len(m) {
			d.add(s.parser.Mark(m), o)
			s.released += len(m)
			s.at, s.part = s.at[1:], ""
		}
	}
}

// end closes what the reply left open and returns the finish_reason.
func (s *speech) end(d *Delta, finish string, o *order) string {
	last, finish := s.parser.Finish(finish)
	d.add(last, o)
	return finish
}

// add joins what a parser said.
func (d *Delta) add(said []dialect.Delta, o *order) {
	for _, x := range said {
		run := Said{Kind: x.Kind, Text: x.Text}
		if x.Kind == dialect.ToolCall {
			run = Said{Kind: x.Kind, Call: CallDelta{Index: x.Index, ID: x.ID, Name: x.Name, Arguments: x.Text}}
		}
		o.say(d, run)
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

// addCall adds to the call that is told last, or begins another one.
func addCall(list []CallDelta, c CallDelta) []CallDelta {
	if n := len(list); n > 0 && list[n-1].Index == c.Index {
		list[n-1].Arguments += c.Arguments
		return list
	}
	return append(list, c)
}

// kwargs are the variables of a conversation beyond the messages: the server's,
// what reasoning_effort means, and the request's, the later ones over the earlier.
func (c *Conversation) kwargs(set *Settings) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for k, x := range set.TemplateKwargs {
		out[k] = x
	}
	if c.ReasoningEffort != "" {
		out["reasoning_effort"], _ = json.Marshal(c.ReasoningEffort)
	}
	if c.ReasoningEffort == "none" {
		out["enable_thinking"] = json.RawMessage("false")
	}
	for k, x := range c.TemplateKwargs {
		out[k] = x
	}
	return out
}

// markerIDs finds the markers of all dialects that the vocabulary has as one token.
func markerIDs(v Vocabulary) (ids map[int32]string, markers map[string]int32) {
	ids, markers = map[int32]string{}, map[string]int32{}
	for _, m := range dialect.Markers() {
		markers[m] = -1
	}
	for id := range int32(v.VocabSize()) {
		text := string(v.TokenBytes(id))
		if first, is := markers[text]; is && first < 0 {
			ids[id], markers[text] = text, id
		}
	}
	for m, id := range markers {
		if id < 0 {
			delete(markers, m)
		}
	}
	return ids, markers
}

// specials are the markers that are special tokens: grammars name them by their ids, since
// no text of a grammar has them.
func specials(v Vocabulary, markers map[string]int32) map[string]int32 {
	out := map[string]int32{}
	if s, is := v.(interface{ IsSpecial(id int32) bool }); is {
		for m, id := range markers {
			if s.IsSpecial(id) {
				out[m] = id
			}
		}
	}
	return out
}

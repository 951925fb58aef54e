package dialect

import (
	"slices"
	"strings"
)

// thinking describes the reasoning format of a dialect.
type thinking struct {
	open, close string
	inside      bool     // a reply begins inside reasoning unless the prompt has a marker
	ends        []string // starts of tool calls, which end open reasoning
	label       string   // text at the start of the reasoning that is not part of it
	reopens     bool     // reasoning may begin again in the content
	swallows    bool     // a close marker in the content is dropped
	trims       bool     // white space at the end of the reasoning is dropped
	framed      bool     // the content may be between <response> and </response>
}

// turns holds the texts that begin a message in the prompts of the model families.
// Reasoning does not extend over one of them.
var turns = []string{"<|im_start|>", "<｜Assistant｜>", "<｜User｜>", "<|turn>", "<start_of_turn>", "<|start_header_id|>", "[/INST]", "[INST]", "<|user|>", "<|assistant|>", "<|observation|>", "<seed:bos>"}

// begins reports whether a reply to prompt begins inside reasoning.
func (t *thinking) begins(prompt string) bool {
	from := 0
	for _, b := range turns {
		from = max(from, strings.LastIndex(prompt, b)+1)
	}
	open, shut := strings.LastIndex(prompt[from:], t.open), strings.LastIndex(prompt[from:], t.close)
	if open == shut { // neither marker
		return t.inside
	}
	return open > shut
}

// thinker is the machine for reasoning followed by a body.
type thinker struct {
	*thinking
	out  *sink
	body machine
	in   []string // markers in the reasoning
	list []string // markers in the body; a buffer of the method markers

	thought bool   // inside reasoning
	opened  bool   // the open marker was read
	start   bool   // the reasoning so far is only white space and open markers
	strict  bool   // the text after the reasoning is constrained
	begun   bool   // the reply has text or a marker
	lead    string // text at the start of the reasoning: white space, or part of the label
	space   string // white space at the end of the reasoning, if it is trimmed
	maybe   []byte // content that turns out to be reasoning if the close marker follows
	unsure  bool   // the content so far may be reasoning without its open marker
}

func newThinker(p *Parser, spec *thinking, body machine) *thinker {
	t := &thinker{thinking: spec, out: &p.out, body: body, thought: spec.begins(p.opts.Prompt), start: true}
	t.in, t.strict = []string{spec.open, spec.close}, p.opts.Constrained
	if !t.strict {
		t.in = append(t.in, spec.ends...)
	}
	// a prompt that has the open marker also has the label
	t.unsure = spec.label != "" && !t.thought && !t.strict
	if t.thought && spec.label != "" {
		t.start = false
	}
	return t
}

func (t *thinker) markers() []string {
	if t.thought {
		return t.in
	}
	t.list = append(t.list[:0], t.body.markers()...)
	if t.reopens && !(t.strict && t.begun) {
		t.list = append(t.list, t.open)
	}
	if t.swallows && !t.strict {
		t.list = append(t.list, t.close)
	}
	return t.list
}

func (t *thinker) text(s string) {
	t.begun = true
	switch {
	case !t.thought && t.unsure:
		t.guess(s)
	case !t.thought:
		t.body.text(s)
	case !t.start:
		t.think(s)
	case t.label != "":
		t.begin(s)
	default:
		t.lead += s
		if strings.TrimSpace(t.lead) != "" {
			t.settle()
		}
	}
}

// begin parses the start of the reasoning, which may be its label.
func (t *thinker) begin(s string) {
	t.lead += s
	if rest, is := strings.CutPrefix(t.lead, t.label); is {
		t.start, t.lead = false, ""
		t.think(rest)
	} else if !strings.HasPrefix(t.label, t.lead) {
		t.settle()
	}
}

// settle adds the text at the start to the reasoning.
func (t *thinker) settle() {
	lead := t.lead
	t.start, t.lead = false, ""
	t.think(lead)
}

// guess parses the start of content that may be reasoning without its open marker, because
// it begins with the label.
func (t *thinker) guess(s string) {
	t.maybe = append(t.maybe, s...)
	if n := min(len(t.maybe), len(t.label)); string(t.maybe[:n]) != t.label[:n] {
		t.sure()
	}
}

// sure adds the text that guess held back to the content.
func (t *thinker) sure() {
	t.unsure = false
	if text := string(t.maybe); text != "" {
		t.maybe = nil
		t.body.text(text)
	}
}

// think adds text to the reasoning.
func (t *thinker) think(s string) {
	if t.trims {
		s = t.space + s
		cut := strings.TrimRight(s, " \t\r\n")
		s, t.space = cut, s[len(cut):]
	}
	if s != "" {
		t.out.reasoning(s)
	}
}

func (t *thinker) mark(m string) {
	first := !t.begun
	t.begun = true
	if t.thought {
		t.inThought(m)
		return
	}
	if t.unsure && m == t.close && strings.HasPrefix(string(t.maybe), t.label) {
		t.think(string(t.maybe[len(t.label):]))
		t.maybe, t.unsure = nil, false
		return
	}
	if t.unsure {
		t.sure()
	}
	switch {
	case !t.out.inCall && m == t.close && t.swallows && !t.strict:
	case !t.out.inCall && m == t.open && t.reopens && (first || !t.strict):
		t.thought, t.opened, t.start = true, true, true
	case slices.Contains(t.body.markers(), m):
		t.body.mark(m)
	default:
		t.body.text(m)
	}
}

// inThought handles a marker inside reasoning.
func (t *thinker) inThought(m string) {
	switch {
	case m == t.open && t.start:
		t.opened, t.lead = true, ""
	case m == t.open && !t.opened:
		t.opened = true
	case m == t.open:
		t.think(m)
	default: // the end of the reasoning, by its own marker or by a call
		t.leave()
		if m == t.close {
			return
		}
		if slices.Contains(t.body.markers(), m) {
			t.body.mark(m)
		} else {
			t.body.text(m)
		}
	}
}

// leave ends the reasoning. An incomplete label at its start is dropped.
func (t *thinker) leave() {
	if t.start && (t.label == "" || !strings.HasPrefix(t.label, t.lead)) {
		t.think(t.lead)
	}
	t.thought, t.start, t.lead = false, false, ""
}

func (t *thinker) end(cut bool) {
	if t.thought {
		t.leave()
	} else if t.unsure {
		t.sure()
	}
	t.body.end(cut)
}

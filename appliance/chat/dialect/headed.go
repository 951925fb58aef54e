package dialect

import (
	"slices"
	"strings"
)

// headed describes a dialect whose calls are a name, a marker and JSON arguments between
// markers: deepseek_v31's <｜tool▁call▁begin｜>N<｜tool▁sep｜>{…}<｜tool▁call▁end｜>.
type headed struct {
	section, over string // around all calls
	open, close   string // around a call
	sep           string // between the name and the arguments
	prefix        string // of a name
	suffix        string // between a name and its number, in ids that the model writes; "": no ids
	fenced        bool   // sep begins a block of Markdown, which ends after the arguments
}

var (
	deepseekV3 = &headed{
		section: "<｜tool▁calls▁begin｜>", over: "<｜tool▁calls▁end｜>",
		open: "<｜tool▁call▁begin｜>", close: "<｜tool▁call▁end｜>", sep: "```json\n", prefix: "function<｜tool▁sep｜>", fenced: true,
	}
	deepseekV31 = &headed{
		section: "<｜tool▁calls▁begin｜>", over: "<｜tool▁calls▁end｜>",
		open: "<｜tool▁call▁begin｜>", close: "<｜tool▁call▁end｜>", sep: "<｜tool▁sep｜>",
	}
	kimiK2 = &headed{
		section: "<|tool_calls_section_begin|>", over: "<|tool_calls_section_end|>",
		open: "<|tool_call_begin|>", close: "<|tool_call_end|>", sep: "<|tool_call_argument_begin|>",
		prefix: "functions.", suffix: ":",
	}
)

// markers returns the markers of the dialect.
func (k *headed) markers() []string { return []string{k.section, k.over, k.open, k.close, k.sep} }

// newMachine returns a machine that parses the dialect's calls.
func (k *headed) newMachine(p *Parser) machine {
	return &headReader{headed: k, out: &p.out, marks: k.markers()}
}

// render writes the calls of a message as the models' templates do.
func (k *headed) render(m *Message) string {
	out := k.section
	for i, c := range m.Calls {
		name := k.prefix + c.Name
		if k.suffix != "" {
			name += k.suffix + string(rune('0'+i%10))
		}
		sep, end := k.sep, ""
		if k.fenced {
			sep, end = "\n"+k.sep, "\n```"
		}
		out += k.open + name + sep + orEmpty(c.Arguments) + end + k.close
	}
	return out + k.over
}

// headReader is the machine of headed.
type headReader struct {
	*headed
	out   *sink
	marks []string
	state headState
	head  string   // the text before the arguments so far
	args  follower // the arguments so far
	bad   bool     // the arguments are not valid JSON
	ids   []string // that the model wrote
	shown bool     // the call has no name and is shown with its markers
}

type headState uint8

const (
	headOutside headState = iota
	headName
	headArgs
	headOver // after the arguments
)

func (h *headReader) markers() []string { return h.marks }

func (h *headReader) text(s string) {
	switch h.state {
	case headOutside:
		h.out.content(s)
	case headName:
		if h.head += s; len(h.head) > maxName {
			h.unhead()
		}
	case headArgs:
		h.arguments(s)
	}
}

// arguments parses one JSON value; text behind it, up to the next marker, is dropped.
func (h *headReader) arguments(s string) {
	n := len(s)
	for i := 0; i < len(s) && !h.bad; i++ {
		if h.bad = !h.args.next(s[i]); !h.bad && h.args.over() {
			n, h.state = i+1, headOver
			break
		}
	}
	h.out.arguments(s[:n])
}

// name returns the function's name in the head.
func (h *headReader) name() string {
	name := strings.TrimPrefix(strings.TrimSpace(h.head), h.prefix)
	if i := strings.Index(name, h.suffix); h.suffix != "" && i >= 0 {
		name = name[:i]
	}
	return name
}

// unhead adds a head that is not followed by arguments to the content.
func (h *headReader) unhead() {
	h.state, h.shown = headOutside, true
	h.out.block(false)
	h.out.content(h.open + h.head)
}

func (h *headReader) mark(m string) {
	switch {
	case h.state == headArgs && h.args.quoted() && !h.bad:
		h.arguments(m) // part of an argument
		return
	case h.state == headName && m == h.sep && h.name() != "":
		h.state, h.args, h.bad = headArgs, follower{}, false
		if id := strings.TrimSpace(h.head); h.suffix != "" && strings.Contains(id, h.suffix) && !slices.Contains(h.ids, id) {
			h.ids, h.out.given = append(h.ids, id), id
		}
		h.out.begin(h.name())
		return
	case h.state == headName:
		h.unhead()
	case h.state == headArgs || h.state == headOver:
		h.done()
	}
	switch {
	case m == h.open:
		h.state, h.head, h.shown = headName, "", false
		h.out.block(true)
	case h.fenced && m == h.sep: // ordinary text
		h.out.content(m)
	case h.shown && m != h.section:
		h.out.content(m)
		h.shown = m == h.sep
	default:
		h.out.block(m != h.over)
	}
}

// end ends the text. A name that was cut off is dropped.
func (h *headReader) end(cut bool) {
	switch {
	case h.state == headName && !cut:
		h.unhead()
	case h.state == headArgs || h.state == headOver:
		h.done()
	}
}

// done ends a call; one without arguments has an empty object.
func (h *headReader) done() {
	if h.state == headArgs && h.args.at == wantValue && h.args.depth() == 0 && !h.bad {
		h.out.arguments("{}")
	}
	h.out.close()
	h.state = headOutside
}

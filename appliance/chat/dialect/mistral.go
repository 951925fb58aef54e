package dialect

import (
	"crypto/rand"
	"strings"
)

// mistralThinking is [THINK] R [/THINK] C, the format of Magistral.
var mistralThinking = &thinking{open: "[THINK]", close: "[/THINK]", reopens: true, swallows: true}

// mistral parses [TOOL_CALLS]name[ARGS]{…}, once per call, without [ARGS] if the tokenizer
// does not have it; with tokenizers before v11, [TOOL_CALLS] and an array of objects.
type mistral struct {
	out   *sink
	state mistralState
	head  string // the name after the marker so far
	id    string // the ID of the call so far
	seen  string // all text since the marker, until it is a call
	call  callReader
	args  follower // of the current call
	begun bool
	bad   bool // the arguments are not valid JSON
}

type mistralState uint8

const (
	mistralOutside mistralState = iota
	mistralHead                 // a name, or an array
	mistralID                   // after [CALL_ID]
	mistralArgs
	mistralArray   // between its elements
	mistralElement // of the array
)

const (
	mistralCalls  = "[TOOL_CALLS]"
	mistralArgsM  = "[ARGS]"
	mistralCallID = "[CALL_ID]"
)

var mistralMarkers = []string{mistralCalls, mistralArgsM, mistralCallID}

func newMistral(p *Parser) machine { return &mistral{out: &p.out} }

func (t *mistral) markers() []string { return mistralMarkers }

func (t *mistral) text(s string) {
	for s != "" {
		switch t.state {
		case mistralOutside:
			t.out.content(s)
			return
		case mistralHead:
			s = t.name(s)
		case mistralID:
			s = t.callID(s)
		case mistralArgs:
			s = t.arguments(s)
		case mistralArray:
			s = t.between(s)
		case mistralElement:
			n, st := t.call.read(s)
			s = s[n:]
			switch st {
			case complete:
				t.state, t.seen = mistralArray, ""
			case notCall:
				t.badElement()
			}
		}
	}
}

// badElement adds an element of the array that is not a call to the content, with its
// markers.
func (t *mistral) badElement() {
	t.state = mistralOutside
	if t.seen == "" { // there are calls before it
		t.seen = mistralCalls + "["
	}
	t.out.content(t.seen + string(t.call.raw))
}

// callID parses the ID of a call up to its arguments.
func (t *mistral) callID(s string) string {
	n := strings.IndexByte(s, '{')
	if n < 0 {
		n = len(s)
	}
	t.id, t.seen, s = t.id+s[:n], t.seen+s[:n], s[n:]
	switch id := strings.TrimSpace(t.id); {
	case len(t.id) > maxName || strings.ContainsAny(id, " \t\r\n"):
		t.unhead()
	case s != "":
		t.state = mistralArgs
	}
	return s
}

// name parses the text before a bracket: a name before "{", other text before "[".
func (t *mistral) name(s string) string {
	n := strings.IndexAny(s, "{[")
	if n < 0 {
		n = len(s)
	}
	t.head, t.seen, s = t.head+s[:n], t.seen+s[:n], s[n:]
	switch {
	case len(t.head) > maxName:
		t.unhead()
	case s == "":
	case s[0] == '[':
		if strings.TrimSpace(t.head) != "" {
			t.out.block(false)
			t.out.content(t.head)
			t.seen = mistralCalls
		}
		t.out.block(false)
		t.state, t.seen = mistralArray, t.seen+"["
		return s[1:]
	case !t.named():
		t.unhead()
	default:
		t.state = mistralArgs
	}
	return s
}

// named reports whether the head is a valid name.
func (t *mistral) named() bool {
	name := strings.TrimSpace(t.head)
	return name != "" && len(name) <= maxName && !strings.ContainsAny(name, " \t\r\n\"'(){}[]<>,:;=")
}

// unhead adds text that is not a call to the content unchanged.
func (t *mistral) unhead() {
	t.state = mistralOutside
	t.out.block(false)
	t.out.content(t.seen)
	t.seen = ""
}

// arguments parses one JSON value.
func (t *mistral) arguments(s string) string {
	if !t.begun {
		rest := strings.TrimLeft(s, " \t\r\n")
		t.seen += s[:len(s)-len(rest)]
		if s = rest; s == "" {
			return s
		}
		if s[0] != '{' {
			t.unhead()
			return s
		}
		t.begin()
	}
	n := len(s)
	for i := 0; i < len(s) && !t.bad; i++ {
		if t.bad = !t.args.next(s[i]); !t.bad && t.args.over() {
			n = i + 1
			t.state = mistralOutside
			break
		}
	}
	t.out.arguments(s[:n])
	if t.state == mistralOutside {
		t.out.close()
	}
	return s[n:]
}

func (t *mistral) begin() {
	t.begun, t.bad, t.args, t.seen = true, false, follower{}, ""
	t.out.block(false)
	t.out.begin(strings.TrimSpace(t.head))
}

// empty reports a call that has only a name.
func (t *mistral) empty() {
	t.begin()
	t.out.arguments("{}")
	t.out.close()
}

// between parses the text between the elements of an array.
func (t *mistral) between(s string) string {
	rest := strings.TrimLeft(s, " \t\r\n,")
	if t.seen != "" {
		t.seen += s[:len(s)-len(rest)]
	}
	switch s = rest; {
	case s == "":
	case s[0] == '{':
		t.state, t.call = mistralElement, callReader{out: t.out}
	case s[0] == ']':
		t.state = mistralOutside
		return s[1:]
	default:
		t.unhead()
	}
	return s
}

func (t *mistral) mark(m string) {
	switch {
	case t.state == mistralElement && t.call.f.quoted() && !t.call.broken,
		t.state == mistralArgs && t.begun && t.args.quoted() && !t.bad:
		t.text(m) // part of an argument
	case m == mistralCalls:
		t.stop()
		t.state, t.head, t.id, t.seen, t.begun = mistralHead, "", "", m, false
		t.out.block(true)
	case t.state == mistralHead || t.state == mistralID || t.state == mistralArgs && !t.begun:
		t.inHead(m)
	default:
		t.text(m)
	}
}

// inHead handles a marker between a name and its arguments.
func (t *mistral) inHead(m string) {
	t.seen += m
	switch {
	case t.state == mistralHead && !t.named(), t.state == mistralArgs:
		t.unhead()
	case m == mistralArgsM:
		t.state = mistralArgs
	case t.state == mistralHead:
		t.state = mistralID
	default:
		t.unhead()
	}
}

// stop ends the current call. A name alone is a call without arguments.
func (t *mistral) stop() {
	switch {
	case t.state == mistralElement:
		if t.call.cut() == notCall {
			t.badElement()
		}
	case t.state == mistralArgs && t.begun:
		t.out.close()
	case t.state == mistralArgs, t.state == mistralID, t.state == mistralHead && t.named():
		t.empty()
	case t.state == mistralHead && strings.TrimSpace(t.head) != "":
		t.unhead()
	}
	t.state = mistralOutside
}

// end ends the text. If the text was cut off, an incomplete name is dropped, and so is an
// incomplete element without a name.
func (t *mistral) end(cut bool) {
	switch {
	case cut && t.state == mistralHead && t.named():
	case cut && t.state == mistralElement:
		t.call.cut()
	default:
		t.stop()
	}
}

// renderMistral writes calls in the format of tokenizers from v11 on.
func renderMistral(m *Message) string {
	var b strings.Builder
	for _, c := range m.Calls {
		b.WriteString(mistralCalls + c.Name + mistralArgsM + orEmpty(c.Arguments))
	}
	return b.String()
}

// mistralCallName returns a call ID in the format of Mistral's templates: 9 letters and
// digits.
func mistralCallName() string {
	const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	b := make([]byte, 9)
	rand.Read(b)
	for i := range b {
		b[i] = letters[int(b[i])%len(letters)]
	}
	return string(b)
}

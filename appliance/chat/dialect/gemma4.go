package dialect

import (
	"encoding/json"
	"strings"
	"unicode"
)

// gemma4Thinking is <|channel>thought\n R <channel|> C. The model itself opens the channel;
// the text of several channels is joined.
var gemma4Thinking = &thinking{
	open: "<|channel>", close: "<channel|>", label: "thought\n",
	ends: []string{gemmaOpen}, reopens: true, swallows: true, trims: true,
}

// gemma4 parses <|tool_call>call:NAME{key:value,…}<tool_call|>, with <|"|> as quotes of strings.
type gemma4 struct {
	out   *sink
	opts  *Options
	state gemmaState
	head  string // call:NAME so far
	shown bool   // the current call has no name and is shown with its markers

	schema schema
	args   gemmaArgs
}

type gemmaState uint8

const (
	gemmaOutside gemmaState = iota
	gemmaHead
	gemmaIn
)

const (
	gemmaOpen  = "<|tool_call>"
	gemmaClose = "<tool_call|>"
	gemmaQuote = `<|"|>`
	gemmaReply = "<|tool_response>"
)

var gemmaMarkers = []string{gemmaOpen, gemmaClose, gemmaQuote, gemmaReply}

func newGemma4(p *Parser) machine { return &gemma4{out: &p.out, opts: &p.opts} }

func (g *gemma4) markers() []string { return gemmaMarkers }

func (g *gemma4) text(s string) {
	for s != "" {
		switch g.state {
		case gemmaOutside:
			g.out.content(s)
			return
		case gemmaHead:
			s = g.name(s)
		case gemmaIn:
			n, done := g.args.read(s)
			if s = s[n:]; done {
				g.close()
			}
		}
	}
}

// name parses call:NAME{ and returns the rest of s.
func (g *gemma4) name(s string) string {
	head, rest, found := strings.Cut(s, "{")
	g.head += head
	name, whole := g.called()
	if name == "" && whole || found && !whole || len(g.head) > maxName {
		g.unhead()
		return s[len(head):]
	}
	if found {
		if name == "" {
			g.unhead()
			return s[len(head):]
		}
		g.begin(name)
	}
	return rest
}

// called returns the name in the head. whole reports whether the head is long enough to
// have a name; the name is "" if it is invalid.
func (g *gemma4) called() (name string, whole bool) {
	const word = "call:"
	head := strings.TrimLeftFunc(g.head, unicode.IsSpace)
	if len(head) < len(word) {
		return "", !strings.HasPrefix(word, head)
	}
	name, is := strings.CutPrefix(head, word)
	name = strings.TrimSpace(name)
	if !is || strings.ContainsFunc(name, func(r rune) bool { return !nameRune(r) }) {
		return "", true
	}
	return name, name != ""
}

// nameRune reports whether r may be in a name: a letter, a digit, "_", "-" or ".".
func nameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.' || r >= 0x80
}

// unhead adds a head that is not a call to the content.
func (g *gemma4) unhead() {
	g.state = gemmaOutside
	if g.shown = strings.TrimSpace(g.head) == "call:"; g.shown {
		g.out.content(gemmaOpen)
	}
	g.out.content(g.head)
}

func (g *gemma4) begin(name string) {
	g.state = gemmaIn
	g.args = gemmaArgs{out: g.out, schema: g.opts.parametersOf(name)}
	g.out.begin(name)
	g.out.arguments("{")
}

// close ends a call.
func (g *gemma4) close() {
	g.out.arguments("}")
	g.out.close()
	g.state = gemmaOutside
}

func (g *gemma4) mark(m string) {
	switch g.state {
	case gemmaHead:
		g.inHead(m)
	case gemmaIn:
		switch {
		case m == gemmaQuote:
			g.args.quote()
		case g.args.quoted:
			g.args.read(m)
		default: // the object has no end
			g.args.end()
			g.close()
			g.mark(m)
		}
	default:
		switch m {
		case gemmaOpen:
			g.state, g.head, g.shown = gemmaHead, "", false
		case gemmaQuote:
			g.out.content(m)
		case gemmaClose:
			if g.shown {
				g.out.content(m)
			}
			g.shown = false
		}
	}
}

// inHead handles a marker before the object: the end of a call without arguments, or of text
// that is not a call.
func (g *gemma4) inHead(m string) {
	if name, _ := g.called(); m == gemmaClose && name != "" {
		g.begin(name)
		g.close()
		return
	}
	if strings.TrimSpace(g.head) == "" { // white space between two markers
		g.head = ""
	}
	g.unhead()
	g.mark(m)
}

// end ends the text. A call whose object has begun is kept.
func (g *gemma4) end(bool) {
	if g.state == gemmaIn {
		g.args.end()
		g.close()
	}
}

// renderGemma4 writes calls as the template of Gemma 4 does, keys in order.
func renderGemma4(m *Message) string {
	var b strings.Builder
	for _, c := range m.Calls {
		b.WriteString(gemmaOpen + "call:" + c.Name)
		args := json.RawMessage(orEmpty(c.Arguments))
		if members(string(args)) == nil {
			args = json.RawMessage("{}")
		}
		gemmaValue(&b, args)
		b.WriteString(gemmaClose)
	}
	return b.String()
}

func gemmaValue(b *strings.Builder, v json.RawMessage) {
	var list []json.RawMessage
	s, isText := unquote(v)
	switch {
	case isText:
		b.WriteString(gemmaQuote + s + gemmaQuote)
	case v[0] == '{':
		b.WriteByte('{')
		for i, m := range members(string(v)) {
			if i > 0 {
				b.WriteByte(',')
			}
			if strings.ContainsFunc(m.key, func(r rune) bool { return !nameRune(r) }) {
				m.key = gemmaQuote + m.key + gemmaQuote
			}
			b.WriteString(m.key + ":")
			gemmaValue(b, m.value)
		}
		b.WriteByte('}')
	case json.Unmarshal(v, &list) == nil && v[0] == '[':
		b.WriteByte('[')
		for i, x := range list {
			if i > 0 {
				b.WriteByte(',')
			}
			gemmaValue(b, x)
		}
		b.WriteByte(']')
	default:
		b.Write(v)
	}
}

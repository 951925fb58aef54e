package dialect

import "strings"

// harmony parses the format of gpt-oss, which has both reasoning and tools: messages whose
// header names the recipient, [role][ to=recipient]<|channel|>channel
// [<|constrain|>type]<|message|>body<|end|>.
type harmony struct {
	out     *sink
	in      bool   // inside a body; otherwise in a header
	head    string // the header so far, including markers
	to      harmonyKind
	hasText map[harmonyKind]bool // kinds of messages that have had text
	next    bool                 // the current message has had no text
	bare    bool                 // the current message is a call without a name, which is shown unchanged
	from    int                  // bytes of head that are in the prompt
}

// harmonyKind is the part of the reply to which a message belongs.
type harmonyKind uint8

const (
	ignored harmonyKind = iota
	toReasoning
	toContent
	toCall
)

const (
	harmonyStart     = "<|start|>"
	harmonyEnd       = "<|end|>"
	harmonyMessage   = "<|message|>"
	harmonyChannel   = "<|channel|>"
	harmonyConstrain = "<|constrain|>"
	harmonyReturn    = "<|return|>"
	harmonyCall      = "<|call|>"
)

var harmonyMarkers = []string{harmonyStart, harmonyEnd, harmonyMessage, harmonyChannel, harmonyConstrain, harmonyReturn, harmonyCall}

// newHarmony returns the machine in the state in which the prompt ends: in a header, or in
// the body of a message that the reply continues.
func newHarmony(p *Parser) machine {
	h := &harmony{out: &p.out, hasText: map[harmonyKind]bool{}}
	if p.opts.Tools == "" {
		p.opts.Choice = None
	}
	open := OpenHarmony(p.opts.Prompt)
	h.head, h.from = open.Header, len(open.Header)
	if open.InBody {
		h.enter()
		h.next = false
	}
	return h
}

func (h *harmony) markers() []string { return harmonyMarkers }

func (h *harmony) text(s string) {
	if !h.in {
		h.head += s
		return
	}
	h.say(s)
}

// say adds text to the current message. Messages of the same kind are joined by line ends.
func (h *harmony) say(s string) {
	lead := ""
	if h.next && h.hasText[h.to] {
		lead = "\n"
	}
	switch h.to {
	case toReasoning:
		h.out.reasoning(lead + s)
	case toContent:
		h.out.content(lead + s)
	case toCall:
		h.out.arguments(s)
	}
	h.next, h.hasText[h.to] = false, true
}

func (h *harmony) mark(m string) {
	switch m {
	case harmonyMessage:
		if !h.in {
			h.enter()
		}
	case harmonyStart:
		h.leave()
		h.head = m
	case harmonyChannel:
		if h.in { // the end of the message is missing
			h.leave()
		}
		h.head += m
	case harmonyConstrain:
		if !h.in {
			h.head += m
			return
		}
		h.say(m)
	default:
		if h.in && h.bare {
			h.say(m)
		}
		h.leave()
	}
}

// enter begins the body after a header.
func (h *harmony) enter() {
	written := h.head[h.from:] + harmonyMessage
	h.begin(parseHeader(h.head))
	if h.bare && written != harmonyMessage {
		h.say(written)
	}
}

// begin begins a message with this header.
func (h *harmony) begin(header header) {
	h.in, h.head, h.from, h.next = true, "", 0, true
	h.to, h.bare = header.kind(), header.unnamed()
	if h.to == toCall {
		h.out.begin(header.function())
	}
}

// leave ends a message. A header without <|message|> is recovered as a message.
func (h *harmony) leave() {
	if !h.in && h.head != "" {
		h.recover()
	}
	if h.in && h.to == toCall {
		h.out.close()
	}
	h.in, h.head, h.from, h.bare = false, "", 0, false
}

// recover handles a header without <|message|>: the text after the channel is its body, and
// a header without a channel is content.
func (h *harmony) recover() {
	header := parseHeader(h.head)
	if !header.channelled {
		if text := strings.TrimPrefix(h.head, harmonyStart); !strings.HasPrefix(h.head, harmonyStart) && strings.TrimSpace(text) != "" {
			h.to, h.next = toContent, true
			h.say(text)
		}
		return
	}
	if header.rest != "" {
		h.begin(header)
		h.say(header.rest)
	}
}

// end ends the reply. An incomplete header of a text that was cut off is dropped, unless it
// has no markers.
func (h *harmony) end(cut bool) {
	if cut && !h.in && strings.Contains(h.head, "<|") {
		return
	}
	h.leave()
}

// header is the parsed header of a message.
type header struct {
	role       string // "": the assistant
	recipient  string
	channel    string
	channelled bool
	rest       string // the text after the channel: the type, or a body without its marker
}

// parseHeader parses a header. The recipient may be before or after the channel.
func parseHeader(text string) header {
	var h header
	text, started := strings.CutPrefix(text, harmonyStart)
	before, after, channelled := strings.Cut(text, harmonyChannel)
	h.channelled = channelled
	if rest, is := strings.CutPrefix(before, "assistant"); started && is {
		h.role, before = "assistant", rest
	}
	before = h.takeRecipient(before)
	if fields := strings.Fields(before); started && h.role == "" && len(fields) > 0 {
		h.role = fields[0]
	}
	after = h.takeRecipient(after)
	n := strings.IndexAny(after, " \t\r\n")
	if i := strings.Index(after, harmonyConstrain); i >= 0 && (n < 0 || i < n) {
		n = i
	}
	if n < 0 {
		n = len(after)
	}
	h.channel = after[:n]
	h.rest = strings.TrimSpace(after[n:])
	if typed, is := strings.CutPrefix(h.rest, harmonyConstrain); is {
		// text after the type's name would be a body
		_, h.rest, _ = strings.Cut(strings.TrimLeft(typed, " "), " ")
	}
	return h
}

// takeRecipient removes " to=NAME" from a part of a header.
func (h *header) takeRecipient(part string) string {
	before, after, found := strings.Cut(part, "to=")
	if !found || before != "" && !strings.HasSuffix(before, " ") {
		return part
	}
	n := strings.IndexAny(after, " \t\r\n")
	if n < 0 {
		n = len(after)
	}
	if i := strings.Index(after[:n], "<|"); i >= 0 {
		n = i
	}
	if n > 0 {
		h.recipient = after[:n]
	}
	return before + after[n:]
}

// builtin reports whether the recipient is a built-in tool and not a function of the client.
func (h *header) builtin() bool {
	first, _, _ := strings.Cut(h.recipient, ".")
	return first == "assistant" || first == "python" || first == "browser" || first == "container"
}

// unnamed reports whether the message is a call whose function has no name.
func (h *header) unnamed() bool {
	return (h.role == "" || h.role == "assistant") && h.recipient == "functions."
}

// function returns the name of the called function.
func (h *header) function() string { return strings.TrimPrefix(h.recipient, "functions.") }

// kind returns the part of the reply to which the message belongs.
func (h *header) kind() harmonyKind {
	switch {
	case h.role != "" && h.role != "assistant": // a message of a tool
		return ignored
	case h.unnamed():
		return toContent
	case h.recipient != "" && !h.builtin():
		return toCall
	case h.channel == "analysis":
		return toReasoning
	case h.channel == "final", h.channel == "commentary" && h.recipient == "":
		return toContent
	}
	return ignored
}

// renderHarmony writes a message as gpt-oss does after <|start|>assistant.
func renderHarmony(m Message) string {
	var list []string
	if m.Reasoning != "" {
		list = append(list, harmonyChannel+"analysis"+harmonyMessage+m.Reasoning)
	}
	channel := "final"
	if len(m.Calls) > 0 {
		channel = "commentary"
	}
	if m.Content != "" {
		list = append(list, harmonyChannel+channel+harmonyMessage+m.Content)
	}
	const next = harmonyStart + "assistant"
	text := strings.Join(list, harmonyEnd+next)
	if len(m.Calls) == 0 {
		if text == "" {
			return ""
		}
		return text + harmonyReturn
	}
	for i, c := range m.Calls {
		if i > 0 {
			text += next
		} else if text != "" {
			text += harmonyEnd + next
		}
		text += harmonyChannel + "commentary to=functions." + c.Name + " " + harmonyConstrain + "json" + harmonyMessage + orEmpty(c.Arguments) + harmonyCall
	}
	return text
}

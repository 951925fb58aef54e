package dialect

import "strings"

// blocks describes a dialect whose calls are JSON objects, {"name": N, "arguments": {…}},
// in blocks between markers.
type blocks struct {
	open  string   // begins a block
	close string   // ends it; "": it ends with its object or its array
	also  []string // other texts that begin a block
	array bool     // the objects of a block are elements of an array
	plain bool     // open is ordinary text, shown with a block that has no call
	key   string   // of the arguments, as rendered; "": arguments
}

const (
	toolOpen  = "<tool_call>"
	toolClose = "</tool_call>"
)

// The dialects with JSON objects in blocks.
var (
	hermes     = &blocks{open: toolOpen, close: toolClose}
	granite    = &blocks{open: "<|tool_call|>", also: []string{toolOpen}, array: true}
	granite20b = &blocks{open: "<function_call>"}
	phi4Mini   = &blocks{open: "functools[", array: true, plain: true}
	toolCalls  = &blocks{open: "<tool_calls>", close: "</tool_calls>", array: true}
	internLM   = &blocks{open: "<|action_start|>", also: []string{"<|plugin|>"}, close: "<|action_end|>", key: "parameters"}
	longcat    = &blocks{open: "<longcat_tool_call>", close: "</longcat_tool_call>"}
)

// markers returns the markers of the dialect.
func (k *blocks) markers() []string {
	out := append([]string{k.open}, k.also...)
	if k.close != "" {
		out = append(out, k.close)
	}
	return out
}

// newMachine returns a machine that parses the dialect's calls.
func (k *blocks) newMachine(p *Parser) machine {
	return &blockReader{blocks: k, out: &p.out, marks: k.markers()}
}

// render writes the calls of a message as the models' templates do.
func (k *blocks) render(m *Message) string {
	var list []string
	for _, c := range m.Calls {
		list = append(list, `{"name": `+quote(c.Name)+`, "`+or(k.key, "arguments")+`": `+orEmpty(c.Arguments)+"}")
	}
	switch {
	case k.array && strings.HasSuffix(k.open, "["):
		return k.open + strings.Join(list, ", ") + "]" + k.close
	case k.array:
		return k.open + "[" + strings.Join(list, ", ") + "]" + k.close
	}
	var b strings.Builder
	for _, call := range list {
		b.WriteString("\n" + k.open + "\n" + call)
		if k.close != "" {
			b.WriteString("\n" + k.close)
		}
	}
	return b.String()
}

// or returns s, or otherwise instead of an empty s.
func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// orEmpty returns the arguments, or an empty object if there are none.
func orEmpty(arguments string) string { return or(arguments, "{}") }

// blockReader is the machine of blocks. A block with anything else is content.
type blockReader struct {
	*blocks
	out   *sink
	marks []string
	state blockState
	call  callReader
	mark0 string // the marker, or the two markers, of the current block
	lead  string // the current block up to its first object
	calls int    // in the current block
	shown bool   // the block is shown with its markers
}

type blockState uint8

const (
	outside   blockState = iota
	openBlock            // only white space so far, or after an object
	inObject
	badBlock // content up to the next marker
)

func (h *blockReader) markers() []string { return h.marks }

func (h *blockReader) text(s string) {
	for s != "" {
		switch h.state {
		case outside, badBlock:
			h.out.content(s)
			return
		case openBlock:
			s = h.between(s)
		case inObject:
			n, st := h.call.read(s)
			s = s[n:]
			switch st {
			case complete:
				h.state, h.lead = openBlock, ""
				h.calls++
				if h.blocks.close == "" && !h.array {
					h.state = outside
				}
			case notCall:
				h.bad(h.call.unnamed)
				h.out.content(string(h.call.raw))
			}
		}
	}
}

// between parses text up to the next object of a block and returns the rest. Models write
// white space or an extra bracket after an object.
func (h *blockReader) between(s string) string {
	skip := " \t\r\n}]"
	if h.array {
		skip += "[,"
	}
	n, over := 0, false
	for n < len(s) && !over && strings.IndexByte(skip, s[n]) >= 0 {
		n++
		over = s[n-1] == ']' && h.array && h.blocks.close == ""
	}
	if h.lead != "" {
		h.lead += s[:n]
	}
	s = s[n:]
	switch {
	case over && h.calls == 0:
		h.bad(false)
	case over:
		h.state = outside
	case s == "":
	case s[0] != '{':
		h.bad(false)
	default:
		h.call, h.state = callReader{out: h.out}, inObject
	}
	return s
}

// bad makes the rest of a block content, with the block's beginning where that is part of
// the text.
func (h *blockReader) bad(unnamed bool) {
	h.state = badBlock
	switch {
	case unnamed || h.plain:
		h.shown = h.blocks.close != ""
		h.out.content(h.lead)
	case h.array:
		h.out.content(strings.TrimPrefix(h.lead, h.mark0))
	}
	h.lead = ""
}

func (h *blockReader) mark(m string) {
	if h.state == inObject {
		if h.call.f.quoted() && !h.call.broken {
			h.text(m) // part of an argument
			return
		}
		h.stop()
	}
	if h.state == openBlock && h.plain && h.calls == 0 {
		h.bad(false)
	}
	if m == h.blocks.close {
		if h.shown {
			h.out.content(m)
		}
		h.state, h.shown = outside, false
		return
	}
	if two := h.state == openBlock && h.calls == 0 && strings.TrimSpace(h.lead) == h.mark0 && h.mark0 != m; !two {
		h.lead = ""
	}
	h.state, h.shown, h.calls, h.mark0 = openBlock, false, 0, h.lead+m
	h.lead = h.mark0
}

// stop ends an object that is not complete.
func (h *blockReader) stop() {
	if h.call.cut() == notCall && h.call.f.depth() > 0 {
		h.out.content(string(h.call.raw))
	}
}

// end ends the text. A block that was cut off before its name is dropped.
func (h *blockReader) end(cut bool) {
	switch {
	case h.state == inObject:
		h.call.cut()
	case h.state == openBlock && h.plain && h.calls == 0 && !cut:
		h.bad(false)
	}
}

package structured

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"vapp.dev/appliance/chat/dialect"
)

// HarmonyReply describes the replies in harmony that a grammar allows: messages to the
// model itself, then either one message to the user or calls.
type HarmonyReply struct {
	Final    *Constraint // of the message to the user; nil: any text
	NoFinal  bool        // the reply ends with calls, without a message to the user
	Preamble bool        // commentary to the user may come before the last message
	Calls    []Function
	MaxCalls int
}

// Source returns the Lark grammar of a reply. open is the message that the prompt leaves
// unfinished. tokens maps the markers that the vocabulary has as one special token to their
// ids.
func (h *HarmonyReply) Source(tokens map[string]int32, open dialect.HarmonyOpen) (string, error) {
	w := &tagWriter{tokens: tokens}
	start := h.write(w, open)
	if w.err != nil {
		return "", w.err
	}
	return "start: " + start + "\n" + w.rules.String(), nil
}

// Strictly returns the functions with Strict set: their calls must follow their schemas.
func Strictly(list []Function) []Function {
	out := slices.Clone(list)
	for i := range out {
		out[i].Strict = true
	}
	return out
}

// harmonyMessage is a kind of message: the spellings of its header, and the rule of its
// body, which includes the end of the message where more messages must follow.
type harmonyMessage struct {
	headers []dialect.HarmonyHeader
	body    string
}

// write returns the expression of a reply that continues a prompt.
func (h *HarmonyReply) write(w *tagWriter, open dialect.HarmonyOpen) string {
	turn := w.literal(dialect.HarmonyAssistant)
	ended := w.rule("r", w.upToOne(dialect.HarmonyMarkers(), dialect.HarmonyEnd)+" "+turn)
	earlier := []harmonyMessage{{[]dialect.HarmonyHeader{dialect.HarmonyHeaderOf("analysis")}, ended}}
	if h.Preamble {
		earlier = append(earlier, harmonyMessage{[]dialect.HarmonyHeader{dialect.HarmonyHeaderOf("commentary")}, ended})
	}
	final := ""
	var last, calls []harmonyMessage
	if !h.NoFinal {
		final = h.content(w)
		last = append(last, harmonyMessage{[]dialect.HarmonyHeader{dialect.HarmonyHeaderOf("final")}, final})
	}
	for _, f := range h.Calls {
		calls = append(calls, harmonyMessage{dialect.HarmonyCallHeaders(f.Name), w.schema(f.arguments())})
	}
	more := ""
	if len(calls) > 0 && h.MaxCalls > 1 {
		more = fmt.Sprintf(" (%s %s %s){0,%d}", w.literal(dialect.HarmonyEnd), turn, w.rule("r", w.messages(calls)), h.MaxCalls-1)
	}
	first, end := w.messages(earlier), w.endings(w.messages(last), w.messages(calls), more)
	rest := w.rule("r", "("+first+")* ("+end+")")
	switch {
	case !open.InBody && open.Header == "":
		return turn + "? " + rest
	case !open.InBody && open.Header == dialect.HarmonyAssistant:
		return rest
	case !open.InBody:
		end = w.endings(w.remaining(last, open.Header), w.remaining(calls, open.Header), more)
		if first = w.remaining(earlier, open.Header); first != "" {
			end = strings.TrimSuffix("("+first+") "+rest+" | "+end, " | ")
		}
		if end != "" {
			return "(" + end + ")"
		}
	case open.Thought():
		return ended + " " + rest
	case open.Shown() && h.NoFinal:
		return w.literal(dialect.HarmonyEnd) + " " + turn + " " + rest
	case open.Shown() && h.Preamble:
		return "(" + final + " | " + ended + " " + rest + ")"
	case open.Shown():
		return final
	}
	out, _ := w.fail("the prompt ends within a message that the reply must not contain: %q", open.Header)
	return out
}

// endings joins the alternatives that end a reply: a message to the user, or calls.
func (w *tagWriter) endings(final, calls, more string) string {
	switch {
	case calls == "":
		return final
	case final == "":
		return "(" + calls + ")" + more
	}
	return final + " | (" + calls + ")" + more
}

// content writes the body of the message to the user.
func (h *HarmonyReply) content(w *tagWriter) string {
	want := h.Final
	if want == nil {
		return w.rule("T", w.anything(dialect.HarmonyMarkers()))
	}
	switch want.Kind {
	case JSONSchema:
		return w.rule("j", "%json "+want.Source)
	case JSONObject:
		return w.rule("j", `%json {"type":"object"}`)
	case Regex:
		return w.regex(want.Source)
	case Choice:
		var list, ways []string
		if err := json.Unmarshal([]byte(want.Source), &list); err != nil || len(list) == 0 {
			w.fail("a choice must be a list of at least one string")
		}
		for _, c := range list {
			ways = append(ways, larkString(c))
		}
		return w.rule("r", strings.Join(ways, " | "))
	case StructuralTag:
		source, err := TagSource(json.RawMessage(want.Source), w.tokens)
		if err != nil {
			w.fail("%w", err)
		}
		return w.nested(source)
	}
	return w.nested(want.Source)
}

// messages writes the messages of list as alternatives.
func (w *tagWriter) messages(list []harmonyMessage) string {
	var out []string
	for _, m := range list {
		for _, header := range m.headers {
			var way []string
			for _, texts := range header {
				way = append(way, w.oneOf(texts))
			}
			out = append(out, strings.Join(way, " ")+" "+m.body)
		}
	}
	return strings.Join(out, " | ")
}

// oneOf writes alternative texts; an empty one makes the choice optional.
func (w *tagWriter) oneOf(list []string) string {
	some := slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == "" })
	out := w.texts(some)
	switch {
	case len(some) < len(list):
		return "(" + out + ")?"
	case len(list) > 1:
		return "(" + out + ")"
	}
	return out
}

// remaining writes the rest of the messages whose header begins with open.
func (w *tagWriter) remaining(list []harmonyMessage, open string) string {
	var out []string
	for _, m := range list {
		for _, header := range m.headers {
			for _, rest := range header.Rest(open) {
				out = append(out, w.literal(rest)+" "+m.body)
			}
		}
	}
	return strings.Join(out, " | ")
}

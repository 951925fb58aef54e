package chat

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"vapp.dev/appliance/chat/dialect"
)

// harmonyReply is what a reply in harmony may be: messages to the model itself, then one
// to the user, or calls.
type harmonyReply struct {
	final    *Structure // of the message to the user; nil: any text
	silent   bool       // there is no message to the user
	preamble bool       // commentary to the user may come before the last message
	calls    []function
	most     int // calls
}

// inHarmony reports that the reply to a request is an assistant's in harmony.
func inHarmony(r *Request, run *Run) bool {
	a := &r.ask
	return dialect.Harmony(r.settings.Reasoning, r.settings.Tools) && (a.Rendered || a.Chat != nil && run.Role == "assistant")
}

// harmonyStructure returns the grammar of a whole reply to p in harmony, nil where the
// request asks for nothing.
func (s *Service) harmonyStructure(r *Request, p *Prompted, list []function) (*Structure, error) {
	a := &r.ask
	h, param := &harmonyReply{most: maxCalls}, "tools"
	if a.OneCall {
		h.most = 1
	}
	switch {
	case len(list) > 0 && a.ToolChoice == dialect.Required:
		h.silent, h.calls = true, strictly(list)
	case len(list) > 0 && a.ToolChoice == dialect.Named:
		named := slices.DeleteFunc(list, func(f function) bool { return f.Name != a.ToolName })
		h.silent, h.calls, h.most = true, strictly(named), 1
	case a.Structure != nil:
		h.final, param = a.Structure, a.Structure.Param
		if a.ToolChoice == dialect.Auto {
			h.calls = list
		}
	case a.ToolChoice == dialect.Auto && slices.ContainsFunc(list, func(f function) bool { return f.Strict }):
		h.preamble, h.calls = true, list
	default:
		return nil, nil
	}
	w := &tagWriter{tokens: s.special}
	start := h.write(w, dialect.OpenHarmony(s.textOf(p)))
	if w.err != nil {
		return nil, invalid(param, "The grammar of `%s` cannot be used: %v.", param, w.err)
	}
	return &Structure{AsGrammar, "start: " + start + "\n" + w.rules.String(), param}, nil
}

// strictly returns the functions with arguments that must follow their schemas.
func strictly(list []function) []function {
	out := slices.Clone(list)
	for i := range out {
		out[i].Strict = true
	}
	return out
}

// harmonyMessage is a kind of message: the spellings of its header, and its body as a
// rule, which includes its end where more messages must follow.
type harmonyMessage struct {
	headers []dialect.HarmonyHeader
	body    string
}

// write returns the expression of a reply that continues open.
func (h *harmonyReply) write(w *tagWriter, open dialect.HarmonyOpen) string {
	turn := w.literal(dialect.HarmonyAssistant)
	ended := w.rule("r", w.upToOne(dialect.HarmonyMarkers(), dialect.HarmonyEnd)+" "+turn)
	leads := []harmonyMessage{{[]dialect.HarmonyHeader{dialect.HarmonyHeaderOf("analysis")}, ended}}
	if h.preamble {
		leads = append(leads, harmonyMessage{[]dialect.HarmonyHeader{dialect.HarmonyHeaderOf("commentary")}, ended})
	}
	final := ""
	var last, calls []harmonyMessage
	if !h.silent {
		final = h.content(w)
		last = append(last, harmonyMessage{[]dialect.HarmonyHeader{dialect.HarmonyHeaderOf("final")}, final})
	}
	for _, f := range h.calls {
		calls = append(calls, harmonyMessage{dialect.HarmonyCallHeaders(f.Name), w.schema(f.arguments())})
	}
	more := ""
	if len(calls) > 0 && h.most > 1 {
		more = fmt.Sprintf(" (%s %s %s){0,%d}", w.literal(dialect.HarmonyEnd), turn, w.rule("r", w.messages(calls)), h.most-1)
	}
	lead, end := w.messages(leads), w.lasts(w.messages(last), w.messages(calls), more)
	rest := w.rule("r", "("+lead+")* ("+end+")")
	switch {
	case !open.InBody && open.Header == "":
		return turn + "? " + rest
	case !open.InBody && open.Header == dialect.HarmonyAssistant:
		return rest
	case !open.InBody:
		end = w.lasts(w.remaining(last, open.Header), w.remaining(calls, open.Header), more)
		if lead = w.remaining(leads, open.Header); lead != "" {
			end = strings.TrimSuffix("("+lead+") "+rest+" | "+end, " | ")
		}
		if end != "" {
			return "(" + end + ")"
		}
	case open.Thought():
		return ended + " " + rest
	case open.Shown() && h.silent:
		return w.literal(dialect.HarmonyEnd) + " " + turn + " " + rest
	case open.Shown() && h.preamble:
		return "(" + final + " | " + ended + " " + rest + ")"
	case open.Shown():
		return final
	}
	out, _ := w.fail("the prompt ends within a message that is none of what the reply must be: %q", open.Header)
	return out
}

// lasts joins what ends a reply: a message to the user, or calls.
func (w *tagWriter) lasts(final, calls, more string) string {
	switch {
	case calls == "":
		return final
	case final == "":
		return "(" + calls + ")" + more
	}
	return final + " | (" + calls + ")" + more
}

// content writes the body of the message to the user.
func (h *harmonyReply) content(w *tagWriter) string {
	want := h.final
	if want == nil {
		return w.rule("T", w.anything(dialect.HarmonyMarkers()))
	}
	switch want.Kind {
	case AsSchema:
		return w.rule("j", "%json "+want.Source)
	case AsObject:
		return w.rule("j", `%json {"type":"object"}`)
	case AsRegex:
		return w.regex(want.Source)
	case AsChoice:
		var list, ways []string
		if err := json.Unmarshal([]byte(want.Source), &list); err != nil || len(list) == 0 {
			w.fail("a choice is a list of at least one text")
		}
		for _, c := range list {
			ways = append(ways, text(c))
		}
		return w.rule("r", strings.Join(ways, " | "))
	case AsTag:
		source, err := TagSource(json.RawMessage(want.Source), w.tokens)
		if err != nil {
			w.fail("%w", err)
		}
		return w.nested(source)
	}
	return w.nested(want.Source)
}

// messages writes alternatives.
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

// oneOf writes a choice of texts; an empty one makes it optional.
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

// remaining writes what remains of messages whose header begins with open.
func (w *tagWriter) remaining(list []harmonyMessage, open string) string {
	var out []string
	for _, m := range list {
		for _, header := range m.headers {
			for _, rest := range header.Behind(open) {
				out = append(out, w.literal(rest)+" "+m.body)
			}
		}
	}
	return strings.Join(out, " | ")
}

package structured

import (
	"fmt"
	"slices"
	"strings"
)

// tagWriter writes the Lark grammar of a tagFormat: methods return expressions and add the
// rules that those use.
type tagWriter struct {
	tokens map[string]int32 // markers that are one special token, with their ids
	rules  strings.Builder
	names  int   // rules named so far
	parts  int   // formats written so far
	err    error // the first one
}

// place describes what follows a format: nothing (last), or one of the texts next. Free
// text cannot be written where neither is set. open: what follows, if anything, begins
// with a special token, which free text never contains.
type place struct {
	last, open bool
	next       []string
}

// fail keeps the first error; its results are what the methods that write return.
func (w *tagWriter) fail(format string, args ...any) (string, bool) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
	return `""`, false
}

// rule adds a rule (or a terminal, where kind is upper case) and returns its name: kind
// and a number. kind may end with attributes, such as "t[lazy]".
func (w *tagWriter) rule(kind, body string) string {
	w.names++
	head := fmt.Sprintf("%s%d", kind, w.names)
	name, _, _ := strings.Cut(kind, "[")
	if attr := strings.TrimPrefix(kind, name); attr != "" {
		head = fmt.Sprintf("%s%d%s", name, w.names, attr)
	}
	fmt.Fprintf(&w.rules, "%s: %s\n", head, body)
	return fmt.Sprintf("%s%d", name, w.names)
}

// literal writes a text in which markers stand for their tokens.
func (w *tagWriter) literal(s string) string {
	var out []string
	for s != "" {
		at, marker := w.marker(s)
		if at > 0 {
			out = append(out, larkString(s[:at]))
		}
		if marker != "" {
			out = append(out, fmt.Sprintf("<[%d]>", w.tokens[marker]))
		}
		s = s[at+len(marker):]
	}
	if len(out) == 0 {
		return `""`
	}
	return strings.Join(out, " ")
}

// marker returns the first marker in s and its position, the longest of several at one
// position; without a marker at is len(s).
func (w *tagWriter) marker(s string) (at int, marker string) {
	at = len(s)
	for m := range w.tokens {
		if k := strings.Index(s, m); m != "" && k >= 0 && (k < at || k == at && len(m) > len(marker)) {
			at, marker = k, m
		}
	}
	return at, marker
}

// beginsWithToken reports whether f, if not empty, begins with a special token.
func (w *tagWriter) beginsWithToken(f *tagFormat) bool {
	if f == nil {
		return false
	}
	if f.Type == "tags_with_separator" {
		return len(f.Tags) > 0 && !slices.ContainsFunc(f.Tags, func(t *tagFormat) bool { return !w.beginsWithToken(t) })
	}
	at, marker := w.marker(f.prefix())
	return at == 0 && marker != ""
}

// expr writes f. The second result reports whether the expression includes the text that
// follows f (place.next), as that of free text does.
func (w *tagWriter) expr(f *tagFormat, p place) (string, bool) {
	if w.parts++; w.parts > maxTags {
		return w.fail("a structural tag has at most %d parts", maxTags)
	}
	if f == nil {
		return w.fail("a part of the structural tag is missing")
	}
	switch f.Type {
	case "const_string":
		return w.literal(f.Value), false
	case "json_schema":
		return w.schema(f.Schema), false
	case "regex":
		return w.regex(f.Pattern), false
	case "grammar":
		return w.nested(f.Grammar), false
	case "qwen_xml_parameter":
		return w.parameters(f.Schema), false
	case "any_text", "":
		return w.free(f.Excludes, p)
	case "sequence":
		return w.sequence(f.Elements, p)
	case "or":
		return w.either(f.Elements, p)
	case "tag":
		return w.tag(f, p)
	case "triggered_tags":
		return w.triggered(f, p)
	case "tags_with_separator":
		return w.separated(f, p)
	}
	return w.fail("a structural tag cannot have a format of type %q", f.Type)
}

func (w *tagWriter) schema(s []byte) string {
	source, err := SchemaSource(s, SchemaOptions{})
	if err != nil {
		w.fail("%w", err)
	}
	return w.rule("j", "%json "+source)
}

func (w *tagWriter) regex(pattern string) string {
	if pattern == "" {
		w.fail(`a part of type "regex" needs a "pattern"`)
	}
	return w.rule("X", regexLiteral(pattern))
}

// regexLiteral returns a regular expression as a Lark literal.
func regexLiteral(pattern string) string {
	var b strings.Builder
	b.WriteByte('/')
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\' && i+1 < len(pattern):
			b.WriteByte(c)
			i++
			b.WriteByte(pattern[i])
		case c == '/':
			b.WriteString(`\/`)
		case c == '\n':
			b.WriteString(`\n`)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('/')
	return b.String()
}

// nested writes a grammar in Lark or EBNF as a rule.
func (w *tagWriter) nested(g string) string {
	if !isEBNF(g) {
		return w.rule("g", "%lark {\n"+g+"\n}")
	}
	e, err := readEBNF(g)
	if err != nil {
		w.fail("%w", err)
		return `""`
	}
	w.names++
	prefix := fmt.Sprintf("e%d_", w.names)
	rules, err := e.lark(prefix+"start", prefix)
	if err != nil {
		w.fail("%w", err)
	}
	w.rules.WriteString(rules)
	return prefix + "start"
}

// anything returns the terminal of free text that does not contain the texts without.
func (w *tagWriter) anything(without []string) string {
	out := `/(?s:.*)/`
	if list := w.plain(without); len(list) > 0 {
		out += ` & ~/(?s:.*)(` + alternatives(list) + `)(?s:.*)/`
	}
	return out
}

// plain returns the texts of list that contain no marker. The others come as special
// tokens, which free text never contains.
func (w *tagWriter) plain(list []string) []string {
	var out []string
	for _, s := range list {
		if at, _ := w.marker(s); s != "" && at == len(s) {
			out = append(out, s)
		}
	}
	return out
}

// alternatives returns a regular expression that matches one of the texts.
func alternatives(list []string) string {
	var out []string
	for _, s := range list {
		var b strings.Builder
		for _, c := range s {
			fmt.Fprintf(&b, `\x{%x}`, c)
		}
		out = append(out, b.String())
	}
	return strings.Join(out, "|")
}

// free writes free text; unless p is last or open, it includes the text that follows.
func (w *tagWriter) free(without []string, p place) (string, bool) {
	if p.last || p.open {
		return w.rule("T", w.anything(without)), false
	}
	return w.upTo(without, p.next, nil), true
}

// upTo writes free text that ends with one of ends, followed by the element of rest at the
// same index, if any.
func (w *tagWriter) upTo(without, ends, rest []string) string {
	if len(ends) == 0 || slices.Contains(ends, "") {
		w.fail("free text must be at the end of a structural tag or before a fixed text")
		return `""`
	}
	var ways []string
	for i, end := range ends {
		way := w.upToOne(without, end)
		if i < len(rest) && rest[i] != "" {
			way += " (" + rest[i] + ")"
		}
		ways = append(ways, way)
	}
	return "(" + strings.Join(ways, " | ") + ")"
}

// upToOne writes free text that ends with end.
func (w *tagWriter) upToOne(without []string, end string) string {
	at, marker := w.marker(end)
	if marker == "" {
		return w.rule("t[lazy]", w.rule("T", w.anything(without))+" "+larkString(end))
	}
	if at > 0 {
		return w.rule("t[lazy]", w.rule("T", w.anything(without))+" "+larkString(end[:at])) + " " + w.literal(end[at:])
	}
	return w.rule("T", w.anything(without)) + " " + w.literal(end)
}

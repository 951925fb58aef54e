package importer

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode"

	"vapp.dev/foreign"
)

// draft is the profile under construction.
type draft struct {
	lex      *lexicon
	from     string // what is imported, for the comment
	name     string // of the profile; "": derived in finish
	fields   map[string]field
	notes    []note
	problems []Problem
}

// field is a value in CUE syntax, with the setting that it came from.
type field struct {
	cue     string
	by      setting
	remarks []string // comments written above it
}

// note is a comment about a setting that is not in the profile, with the reason.
type note struct{ what, why string }

// no begins the reason of a flag without counterpart in vapp.
const no = foreign.No

// carry converts a command to fields and notes.
func (d *draft) carry(c *command, stdin io.Reader) {
	for _, w := range c.words {
		if len(w.text) > maxWord {
			d.problem(TooLarge, w.at, "", "a word has more than %d bytes", maxWord)
			return
		}
	}
	list, model := d.settings(c.words)
	list = append(slices.Clone(c.file), list...)
	list = d.configFile(list, stdin)
	d.variables(c.vars)
	for _, s := range list {
		d.one(s)
	}
	if model != nil { // as in vLLM, it overrides --model
		d.one(setting{flag: d.lex.byName["--model"], given: "model", values: []word{*model}, at: model.at})
	}
	if len(c.front) > 0 {
		var words []string
		for _, w := range c.front {
			words = append(words, w.text)
		}
		d.note(short(strings.Join(words, " ")), no+"it stood before the command, put it before vapp up")
	}
	for _, n := range c.notes {
		d.note(n.what, n.why)
	}
	d.relocate(c.mounts)
}

// one converts a setting to fields or to a note.
func (d *draft) one(s setting) {
	if s.flag.to == nil {
		d.note(d.sourceText(s), s.flag.why)
		return
	}
	if s.missing() != "" && s.flag.name() != "--api-key" {
		d.unresolved(s.values[0], s.given)
		return
	}
	s.flag.to(d, s)
}

// set sets a field; a later setting overrides an earlier one.
func (d *draft) set(path, cue string, s setting, remarks ...string) {
	d.fields[path] = field{cue: cue, by: s, remarks: remarks}
}

// note adds a comment, unless it exists.
func (d *draft) note(what, why string) {
	if n := (note{what, why}); !slices.Contains(d.notes, n) {
		d.notes = append(d.notes, n)
	}
}

// notef adds a note about a setting.
func (d *draft) notef(s setting, format string, args ...any) {
	d.note(d.sourceText(s), fmt.Sprintf(format, args...))
}

// sourceText returns a setting as it was written, on one line and shortened.
func (d *draft) sourceText(s setting) string {
	out := s.given
	if s.flag.arity == boolean {
		if !s.on && !strings.HasPrefix(s.given, "--no") {
			out += "=false"
		}
		return out
	}
	if s.glued {
		return out
	}
	return strings.TrimSpace(out + " " + d.maskedValue(s))
}

// maskedValue returns the values of a setting; secrets are masked.
func (d *draft) maskedValue(s setting) string {
	if slices.Contains(secretFlags, s.flag.name()) {
		return "(hidden)"
	}
	var words []string
	for _, v := range s.values {
		words = append(words, v.text)
	}
	return short(strings.Join(words, " "))
}

// secretFlags are flags whose values are never shown.
var secretFlags = []string{"--api-key", "--hf-token"}

func (d *draft) problem(k Kind, at Place, remedy, format string, args ...any) {
	d.problems = append(d.problems, Problem{Kind: k, Place: at, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

// invalid reports a value that its flag does not accept.
func (d *draft) invalid(s setting, allowed string) {
	d.problem(Invalid, s.at, "allowed: "+allowed, "%s: invalid value %q", s.given, d.maskedValue(s))
}

// unresolved reports a value that only a shell can expand.
func (d *draft) unresolved(w word, flag string) {
	what := short(w.missing)
	if flag != "" {
		what = flag + ": " + what
	}
	d.problem(Unresolved, w.at, "put its value in its place, or NAME=value in front", "%s: the value is not known here", what)
}

// failed returns the problems as an error, ordered by place, without duplicates.
func (d *draft) failed() *Error {
	slices.SortStableFunc(d.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Place.Line, b.Place.Line), cmp.Compare(a.Place.Arg, b.Place.Arg))
	})
	var list []Problem
	for _, p := range d.problems {
		if !slices.Contains(list, p) && len(list) < maxProblems {
			list = append(list, p)
		}
	}
	return &Error{List: list}
}

// finish sets the fields that depend on several flags.
func (d *draft) finish() {
	if _, ok := d.fields["model.source"]; !ok && len(d.problems) == 0 {
		d.problem(Missing, Place{}, d.lex.program.missing, "the command names no model")
		return
	}
	if u, ok := d.fields["memory.utilization"]; ok && d.fields["memory.kvCache"].cue != "" {
		delete(d.fields, "memory.utilization")
		d.notef(u.by, "without effect beside %s, for vLLM and for vapp", d.fields["memory.kvCache"].by.given)
	}
	if d.lex.program.settle != nil {
		d.lex.program.settle(d)
	}
	d.settleGraphs()
	d.settleRope()
	d.settleAdapters()
	d.settleKVEvents()
	d.settleTraces()
	d.settleMedia()
	if d.finishSpeculative(); len(d.problems) > 0 {
		return
	}
	if d.name == "" {
		d.name = d.profileName()
	}
	d.set("name", quote(d.name), setting{given: "the profile's name"})
	source := d.fields["model.source"].by
	if _, named := d.fields["serve.servedModelName"]; !named && strings.ContainsFunc(source.value(), unicode.IsSpace) {
		d.set("serve.servedModelName", quotes([]string{d.name}), source, "vLLM's would be the path, which has a blank.")
	}
}

// profileName derives the name from the served model name, else from the last part of the model.
func (d *draft) profileName() string {
	from := d.fields["model.source"].by.value()
	if served := d.fields["serve.servedModelName"].by; len(served.values) > 0 {
		from = served.values[0].text
	}
	from = strings.TrimSuffix(strings.ToLower(path.Base(from)), ".gguf")
	name := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '.' || r == '_' {
			return r
		}
		return '-'
	}, from)
	if name = strings.Trim(name, "-._"); name == "" {
		return "imported"
	}
	return name[:min(len(name), 128)]
}

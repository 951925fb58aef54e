package importer

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode"
)

// draft is the profile while it is made.
type draft struct {
	lex      *lexicon
	name     string // of the profile; "": found in the end
	fields   map[string]field
	notes    []note
	problems []Problem
}

// field is a value in CUE's syntax, and the setting that it came from.
type field struct {
	cue     string
	by      setting
	remarks []string // comments above it
}

// note is a comment: what stood there, and why it is not in the profile.
type note struct{ what, why string }

// no begins the reason of a flag without counterpart.
const no = "no counterpart: "

// carry brings a command into the draft.
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
	if model != nil { // as vLLM does, it wins over --model
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

// one carries a setting over, or notes why not.
func (d *draft) one(s setting) {
	if s.flag.to == nil {
		d.note(d.written(s), s.flag.why)
		return
	}
	if s.missing() != "" && s.flag.name() != "--api-key" {
		d.unresolved(s.values[0], s.given)
		return
	}
	s.flag.to(d, s)
}

// set gives a field its value; a later setting wins.
func (d *draft) set(path, cue string, s setting, remarks ...string) {
	d.fields[path] = field{cue: cue, by: s, remarks: remarks}
}

// note adds a comment once.
func (d *draft) note(what, why string) {
	if n := (note{what, why}); !slices.Contains(d.notes, n) {
		d.notes = append(d.notes, n)
	}
}

// noted adds the comment of a setting.
func (d *draft) noted(s setting, format string, args ...any) {
	d.note(d.written(s), fmt.Sprintf(format, args...))
}

// written is a setting as people typed it, on one line and not too long.
func (d *draft) written(s setting) string {
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
	return strings.TrimSpace(out + " " + d.shown(s))
}

// shown is the values of a setting, but for secrets.
func (d *draft) shown(s setting) string {
	if slices.Contains(secretFlags, s.flag.name()) {
		return "(hidden)"
	}
	var words []string
	for _, v := range s.values {
		words = append(words, v.text)
	}
	return short(strings.Join(words, " "))
}

// secretFlags have values that are never shown.
var secretFlags = []string{"--api-key", "--hf-token"}

func (d *draft) problem(k Kind, at Place, remedy, format string, args ...any) {
	d.problems = append(d.problems, Problem{Kind: k, Place: at, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

// invalid reports a value that its flag does not take.
func (d *draft) invalid(s setting, allowed string) {
	d.problem(Invalid, s.at, "allowed: "+allowed, "%s: invalid value %q", s.given, d.shown(s))
}

// unresolved reports a value that only a shell knows.
func (d *draft) unresolved(w word, flag string) {
	what := short(w.missing)
	if flag != "" {
		what = flag + ": " + what
	}
	d.problem(Unresolved, w.at, "put its value in its place, or NAME=value in front", "%s: the value is not known here", what)
}

// failed is the draft's problems as an error, by place, each once.
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

// finish settles what several flags decide together.
func (d *draft) finish() {
	if _, ok := d.fields["model.source"]; !ok && len(d.problems) == 0 {
		d.problem(Missing, Place{}, "write it behind vllm serve, or as --model MODEL", "the command names no model, and vLLM's default differs from release to release")
		return
	}
	if u, ok := d.fields["memory.utilization"]; ok && d.fields["memory.kvCache"].cue != "" {
		delete(d.fields, "memory.utilization")
		d.noted(u.by, "without effect beside %s, for vLLM and for vapp", d.fields["memory.kvCache"].by.given)
	}
	d.settleGraphs()
	d.settleAdapters()
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

// profileName is made of the served name, else of the model's last part.
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

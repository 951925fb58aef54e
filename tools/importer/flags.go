package importer

import (
	"encoding/json"
	"slices"
	"strings"

	"vapp.dev/foreign"
	"vapp.dev/nearest"
)

// arity is the number and form of a flag's values.
type arity = foreign.Arity

const (
	boolean = foreign.Boolean // --x, --no-x, --x=false, --x false
	one     = foreign.One     // one value
	many    = foreign.Many    // values up to the next flag
	object  = foreign.Object  // JSON, or --x.key value
	toggle  = foreign.Switch  // --x, or --x on, off, auto
)

// converter converts a setting to fields or notes of the draft.
type converter func(d *draft, s setting)

// flag is a row of the table.
type flag struct {
	names string // the name, then aliases
	arity arity
	to    converter // nil: no counterpart in vapp
	why   string    // reason, where there is no counterpart
}

// name returns the first of the names.
func (f *flag) name() string {
	name, _, _ := strings.Cut(f.names, " ")
	return name
}

// setting is a flag of the command with its values.
type setting struct {
	flag   *flag
	given  string         // as written, such as --max_model_len
	glued  bool           // with its value attached, such as -O3
	values []word         // at least one where the arity needs one
	on     bool           // value of a boolean
	keys   map[string]any // of an object: decoded, numbers as json.Number
	at     Place
}

// value returns the text of the first value.
func (s setting) value() string {
	if len(s.values) == 0 {
		return ""
	}
	return s.values[0].text
}

// missing returns a reference in the values that cannot be expanded.
func (s setting) missing() string {
	for _, v := range s.values {
		if v.missing != "" {
			return v.missing
		}
	}
	return ""
}

// lexicon finds flags by name.
type lexicon struct {
	program *program
	byName  map[string]*flag
	names   []string // sorted
}

// newLexicon indexes the table of a program.
func newLexicon(p *program) *lexicon {
	l := &lexicon{program: p, byName: map[string]*flag{}}
	for _, f := range p.flags() {
		for _, n := range strings.Fields(f.names) {
			l.byName[n] = &f
			l.names = append(l.names, n)
		}
	}
	slices.Sort(l.names)
	return l
}

// match is the result of looking up the written name of a flag.
type match struct {
	flag    *flag
	off     bool   // --no-x
	sub     string // a.b of --x.a.b
	value   string // attached to the name, as in -O3
	glued   bool   // there is an attached value
	unclear []string
}

// find looks up a name as vLLM's parser does: _ is read as -, a dot begins a key, a unique prefix
// is enough, and --no- turns a boolean off.
func (l *lexicon) find(name string) match {
	stem, sub, _ := strings.Cut(name, ".")
	if !strings.HasPrefix(stem, "--") {
		if f := l.byName[stem]; f != nil {
			return match{flag: f, sub: sub}
		}
		if len(name) > 2 && l.program.Prefixes && l.byName[name[:2]] != nil { // -O3, -qfp8
			return match{flag: l.byName[name[:2]], value: name[2:], glued: true}
		}
		return match{}
	}
	stem = strings.ReplaceAll(stem, "_", "-")
	if f := l.byName[stem]; f != nil {
		return match{flag: f, sub: sub}
	}
	if rest, ok := strings.CutPrefix(stem, "--no-"); ok && l.byName["--"+rest] != nil && l.byName["--"+rest].arity == boolean {
		return match{flag: l.byName["--"+rest], off: true, sub: sub}
	}
	if len(stem) < 5 || !l.program.Prefixes {
		return match{}
	}
	at, _ := slices.BinarySearch(l.names, stem)
	var m match
	for ; at < len(l.names) && strings.HasPrefix(l.names[at], stem); at++ {
		m.unclear = append(m.unclear, l.names[at])
		m.flag, m.sub = l.byName[l.names[at]], sub
	}
	if len(m.unclear) > 1 {
		m.flag = nil
	}
	return m
}

// nearest returns the flag most similar to name, or "".
func (l *lexicon) nearest(name string) string {
	stem, _, _ := strings.Cut(name, ".")
	return nearest.Best(stem, l.names)
}

// decodeObject parses the value of an object flag; numbers stay as written.
func decodeObject(text string) (map[string]any, bool) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var m map[string]any
	if d.Decode(&m) != nil || d.More() || m == nil {
		return nil, false
	}
	return m, true
}

// put stores a value at a path of dotted keys; false where a key on the path is not an object.
func put(m map[string]any, path, text string) bool {
	keys := strings.Split(strings.ReplaceAll(path, "-", "_"), ".")
	if len(keys) > 8 {
		return false
	}
	for _, k := range keys[:len(keys)-1] {
		inner, ok := m[k].(map[string]any)
		if !ok && m[k] != nil {
			return false
		}
		if !ok {
			inner = map[string]any{}
			m[k] = inner
		}
		m = inner
	}
	last, appends := strings.CutSuffix(keys[len(keys)-1], "+")
	if last == "" {
		return false
	}
	value := looseValue(text)
	if appends {
		list, _ := m[last].([]any)
		value = append(list, value)
	}
	m[last] = value
	return true
}

// looseValue parses text as JSON, or returns it as a string.
func looseValue(text string) any {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil || d.More() {
		switch text {
		case "True":
			return true
		case "False":
			return false
		}
		return text
	}
	return v
}

package importer

import (
	"slices"
	"strings"

	"vapp.dev/foreign"
	"vapp.dev/schema"
)

// maxProblems is the number of problems after which reading stops.
const maxProblems = 20

// parser parses the arguments of vllm serve.
type parser struct {
	d     *draft
	words []word
	pos   int
	out   []setting
	model *word // the positional argument
}

// settings returns the flags and the model of a command. Problems are added to the draft.
func (d *draft) settings(words []word) (list []setting, model *word) {
	p := &parser{d: d, words: words}
	for p.pos < len(words) && len(d.problems) < maxProblems {
		p.next()
	}
	return p.out, p.model
}

func (p *parser) next() {
	w := p.words[p.pos]
	p.pos++
	if w.text == "--" {
		return
	}
	if !isFlag(w.text) {
		p.positional(w)
		return
	}
	name, value, attached := strings.Cut(w.text, "=")
	m := p.d.lex.find(name)
	if m.flag == nil {
		p.unknown(w, name, m.unclear)
		return
	}
	s := setting{flag: m.flag, given: name, at: w.at}
	if m.glued {
		s.given, s.glued = w.text, true
		value, attached = m.value+strings.TrimPrefix(w.text, name), true
	}
	if m.sub != "" && m.flag.arity != object {
		p.d.problem(Unknown, w.at, "give the value to "+m.flag.name()+" itself", "%s: %s takes no keys", name, m.flag.name())
		p.skip()
		return
	}
	if attached {
		given := w
		given.text = value
		s.values = []word{given}
	} else {
		p.values(&s)
	}
	p.keep(s, m)
}

// values consumes the values of a flag.
func (p *parser) values(s *setting) {
	for p.pos < len(p.words) && !isFlag(p.words[p.pos].text) {
		w := p.words[p.pos]
		if s.flag.arity == toggle && !slices.Contains([]string{"on", "off", "auto", "true", "false", "0", "1", "-1"}, w.text) {
			return
		}
		if s.flag.arity == boolean && !slices.Contains([]string{"true", "false"}, strings.ToLower(w.text)) {
			return
		}
		p.pos++
		s.values = append(s.values, w)
		if s.flag.arity != many {
			return
		}
	}
}

// keep checks the number of values of a setting by its arity.
func (p *parser) keep(s setting, m match) {
	switch s.flag.arity {
	case boolean:
		s.on = !m.off
		if len(s.values) > 0 {
			switch v := strings.ToLower(s.value()); {
			case m.off || v != "true" && v != "false" && v != "1" && v != "0":
				p.d.problem(Invalid, s.at, "allowed: true, false", "%s: %q is no value for it", s.given, p.d.maskedValue(s))
				return
			default:
				s.on = v == "true" || v == "1"
			}
		}
	case toggle:
		s.on = !m.off
	default:
		if len(s.values) == 0 {
			p.d.problem(Missing, s.at, "", "%s: a value must follow", s.given)
			return
		}
	}
	if s.flag.arity == object && !p.object(&s, m.sub) {
		return
	}
	p.out = append(p.out, s)
}

// object parses JSON, or adds a dotted key to the previous value of the flag.
func (p *parser) object(s *setting, sub string) bool {
	if s.flag.to == nil || s.missing() != "" { // no counterpart: the value is not used
		return true
	}
	if sub == "" {
		if keys, ok := decodeObject(s.value()); ok {
			s.keys = keys
		} // otherwise a number or a word, which some flags accept
		return true
	}
	at := slices.IndexFunc(p.out, func(o setting) bool { return o.flag == s.flag && o.keys != nil })
	if at < 0 {
		s.keys = map[string]any{}
	} else {
		s.keys = p.out[at].keys
	}
	if !put(s.keys, sub, s.value()) {
		p.d.problem(Invalid, s.at, "", "%s: cannot be combined with the value given before", s.given)
		return false
	}
	s.given = s.flag.name()
	return at < 0
}

func (p *parser) positional(w word) {
	switch {
	case !p.d.lex.program.Model:
		p.d.problem(Invalid, w.at, "quote it if it belongs to the flag before", "%q: %s takes no argument without a flag", short(w.text), p.d.lex.program.Command)
	case p.model == nil:
		p.model = &w
	case w.missing != "" || p.model.missing != "":
		p.d.unresolved(w, "")
	default:
		p.d.problem(Invalid, w.at, "quote it if it belongs to the flag before", "%q: %s takes one model, and %q was given before", short(w.text), p.d.lex.program.Command, short(p.model.text))
	}
}

// unknown reports an unknown flag, and skips its likely values.
func (p *parser) unknown(w word, name string, unclear []string) {
	p.skip()
	switch near := p.d.lex.nearest(name); {
	case name == "-h" || name == "--help" || name == "-v" || name == "--version":
		p.d.problem(Refused, w.at, "leave it out", "%s: %s prints something and ends", name, p.d.lex.program.Name)
	case w.missing != "":
		p.d.unresolved(w, "")
	case len(unclear) > 0:
		p.d.problem(Unknown, w.at, "write one of them out", "%s: may be %s", short(name), strings.Join(unclear[:min(len(unclear), 6)], ", "))
	case near != "":
		p.d.problem(Unknown, w.at, "did you mean "+near+"?", "%s: %s has no such flag", short(name), p.d.lex.program.Command)
	default:
		remedy := "leave it out if it is not " + p.d.lex.program.Name + "'s"
		if h, ok := foreign.Find(name); ok && h.Program != p.d.lex.program.Name {
			remedy = "it is " + h.Program + "'s; leave it out, and set " + h.Field + " in the profile"
			if h.Field == "" {
				remedy = "it is " + h.Program + "'s; leave it out"
			}
		}
		p.d.problem(Unknown, w.at, remedy, "%s: %s has no such flag", short(name), p.d.lex.program.Command)
	}
}

// skip skips the likely values of an unknown flag.
func (p *parser) skip() {
	for p.pos < len(p.words) && !isFlag(p.words[p.pos].text) {
		p.pos++
	}
}

// isFlag reports whether s is a flag: it begins with a dash and is not a number.
func isFlag(s string) bool {
	if len(s) < 2 || s[0] != '-' || s[1] == ' ' {
		return false
	}
	return strings.Trim(s[1:], "0123456789.eE") != "" || s == "--"
}

// short shortens a text for messages and comments.
func short(s string) string {
	s = schema.OneLine(s)
	if r := []rune(s); len(r) > 64 {
		return string(r[:60]) + "…"
	}
	return s
}

package importer

import (
	"encoding/json"
	"io"
	"strings"
)

// isConfig reports whether n is a vLLM config file: its keys are flags without dashes, and none is
// a key of a manifest.
func isConfig(n *node) bool {
	if n == nil || n.shape != mapping || n.get("command", "args", "services", "spec", "containers", "items", "kind", "image") != nil {
		return false
	}
	lex := newLexicon(vllm())
	for _, k := range n.keys {
		if k == "model_tag" || lex.find("--"+k).flag != nil {
			return true
		}
	}
	return false
}

// configSettings converts a config file to settings of flags. Its error is an *Error.
func configSettings(n *node, at source) ([]setting, error) {
	d := &draft{lex: newLexicon(vllm())}
	var out []setting
	for i, k := range n.keys {
		place := at.place(n.values[i].line)
		if len(d.problems) >= maxProblems {
			break
		}
		if k == "model_tag" {
			k = "model"
		}
		m := d.lex.find("--" + k)
		if m.flag == nil || m.sub != "" {
			p := &parser{d: d}
			p.unknown(word{text: "--" + k, at: place}, "--"+k, m.unclear)
			continue
		}
		if s, ok := d.configSetting(m, "--"+k, n.values[i], place); ok {
			out = append(out, s)
		}
	}
	if len(d.problems) > 0 {
		return nil, d.failed()
	}
	return out, nil
}

// configSetting converts one key of a config file to a setting; false where the key has no value.
func (d *draft) configSetting(m match, given string, n *node, at Place) (setting, bool) {
	s := setting{flag: m.flag, given: given, at: at, on: !m.off}
	add := func(text string) { s.values = append(s.values, variables(nil).unexpanded(word{text: text, at: at})) }
	switch {
	case n.shape == scalar && n.text == "" && !n.quoted: // null
		return s, false
	case n.shape == sequence && m.flag.arity == many:
		for _, x := range n.list {
			add(x.str())
		}
	case n.shape == scalar:
		add(n.text)
	default:
		b, err := json.Marshal(n.decode())
		if err != nil || m.flag.arity != object {
			d.problem(Invalid, at, "", "%s: takes no list and no mapping", given)
			return s, false
		}
		add(string(b))
	}
	p := &parser{d: d}
	p.keep(s, m)
	if len(p.out) == 0 {
		return s, false
	}
	return p.out[0], true
}

// decode returns the node as encoding/json would decode it.
func (n *node) decode() any {
	switch {
	case n.shape == mapping:
		m := map[string]any{}
		for i, k := range n.keys {
			m[k] = n.values[i].decode()
		}
		return m
	case n.shape == sequence:
		list := []any{}
		for _, x := range n.list {
			list = append(list, x.decode())
		}
		return list
	case n.quoted:
		return n.text
	}
	return looseValue(n.text)
}

// configFile puts the settings of the file of "--config -" before the others, so that the command
// line overrides them, as in vLLM.
func (d *draft) configFile(list []setting, stdin io.Reader) []setting {
	var out, file []setting
	for _, s := range list {
		if s.flag.name() != "--config" || stdin == nil || s.value() != "-" && s.value() != "/dev/stdin" {
			out = append(out, s)
			continue
		}
		data, err := io.ReadAll(io.LimitReader(stdin, maxBytes+1))
		if err != nil {
			d.problem(Syntax, s.at, "", "%s: standard input cannot be read: %s", s.given, oneLine(err.Error()))
			return out
		}
		got, err := readConfig(data)
		if e, ok := err.(*Error); ok {
			d.problems = append(d.problems, e.List...)
		}
		file = got
	}
	return append(file, out...)
}

// readConfig reads the config file on standard input. Its error is an *Error.
func readConfig(data []byte) ([]setting, error) {
	text, err := normalize("stdin", data)
	if err != nil {
		return nil, err
	}
	n, err := readYAML(text, source{name: "stdin"})
	if err != nil {
		return nil, err
	}
	if n.shape != mapping || strings.TrimSpace(text) == "" {
		return nil, failure(Syntax, Place{Name: "stdin"}, "write it as flag: value", "no vLLM config file: a mapping of flags without dashes")
	}
	return configSettings(n, source{name: "stdin"})
}

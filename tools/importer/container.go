package importer

import "strings"

// container reads a mapping with command and args (Kubernetes) or entrypoint and command (Compose).
func (m *manifest) container(n *node, name string) error {
	image := n.get("image").str()
	if image == "" {
		image = n.get("image").get("repository").str() // from the values of a Helm chart
	}
	vars := m.environment(n)
	if err := vars.within(m.at.place(n.line)); err != nil {
		return err
	}
	var words []word
	for _, key := range []string{"entrypoint", "command", "args"} {
		got, err := m.words(n.get(key), vars)
		if err != nil {
			return err
		}
		words = append(words, got...)
	}
	c, err := commandOfImage(image, words, 0)
	if err != nil {
		if servesModels(image) || mentions(words) {
			return err
		}
		c = nil // not the vLLM container, so its script need not parse
	}
	alien := len(words) > 0 && strings.HasPrefix(words[0].text, "-") && image != "" && !servesModels(image)
	if c == nil || alien && name != m.want {
		m.others = append(m.others, name)
		return nil
	}
	c.vars = append(vars, c.vars...)
	for _, p := range n.get("ports").scalars() {
		c.publish(p.text)
	}
	for _, v := range n.get("volumes").scalars() {
		c.mount(v.text)
	}
	for _, key := range []string{"envFrom", "env_file"} {
		if n.get(key) != nil {
			c.outside(key)
		}
	}
	m.found = append(m.found, container{name: name, where: n, got: c})
	return nil
}

func mentions(words []word) bool {
	for _, w := range words {
		if strings.Contains(w.text, "vllm") || strings.Contains(w.text, "sglang") || strings.Contains(w.text, "llama-server") {
			return true
		}
	}
	return false
}

func (n *node) scalars() []*node {
	if n == nil {
		return nil
	}
	var out []*node
	for _, x := range n.list {
		if x.shape == scalar {
			out = append(out, x)
		}
	}
	return out
}

// words returns the words of a list, or of a text split by the rules of a shell.
func (m *manifest) words(n *node, vars variables) ([]word, error) {
	if n == nil {
		return nil, nil
	}
	if list, ok := m.arguments(n); ok {
		for i, w := range list {
			switch {
			case m.compose:
				list[i] = vars.compose(w)
			case shellWord(list, i): // the shell expands the remaining variables
				list[i].text = vars.kubernetes(w).text
			default:
				list[i] = vars.unexpanded(vars.kubernetes(w))
			}
		}
		return list, nil
	}
	if n.shape != scalar || n.text == "" {
		return nil, nil
	}
	at := m.at
	at.line, at.fixed = n.line-1, true
	raw, err := parseScript(strings.ReplaceAll(n.text, "$$", `\$`), at)
	if err != nil {
		return nil, err
	}
	var out []word
	for _, r := range raw {
		got, err := vars.words(r, at, nil)
		if err != nil {
			return nil, err
		}
		out = append(out, got...)
	}
	return out, nil
}

// shellWord reports whether word i is the script of a shell (sh -c SCRIPT).
func shellWord(words []word, i int) bool {
	for j := 0; j < i && j < 8; j++ {
		if script := shellScript(words[j:]); script == &words[i] {
			return true
		}
	}
	return false
}

// environment reads env (a list of name and value) or environment (a mapping, or a list of
// NAME=value). Variables from secrets or other objects have no value here.
func (m *manifest) environment(n *node) variables {
	var out variables
	add := func(name, value, missing string, line int) {
		out = append(out, variable{name, word{text: value, missing: missing, at: m.at.place(line)}})
	}
	for _, e := range []*node{n.get("env"), n.get("environment")} {
		if e == nil {
			continue
		}
		for i, k := range e.keys[:min(len(e.keys), maxVars+1)] {
			add(k, e.values[i].str(), "", e.values[i].line)
		}
		for _, x := range e.list[:min(len(e.list), maxVars+1)] {
			name := x.get("name").str()
			switch {
			case x.shape == scalar:
				if v, ok := assignment(word{text: x.text, at: m.at.place(x.line)}); ok {
					out = append(out, v)
				} else {
					add(x.text, "$"+x.text, "$"+x.text, x.line)
				}
			case x.get("value") != nil:
				add(name, x.get("value").str(), "", x.line)
			case name != "":
				add(name, "$("+name+")", "$("+name+")", x.line)
			}
		}
	}
	for i := range out {
		w := out[i].value
		if w.missing == "" && m.compose {
			out[i].value = out[:i].compose(w)
		} else if w.missing == "" {
			out[i].value = out[:i].kubernetes(w)
		}
	}
	return out
}

package importer

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/token"
	"cuelang.org/go/encoding/yaml"
)

// node is a value of YAML or JSON.
type node struct {
	line   int
	text   string // of a scalar, as written without quotes
	quoted bool
	list   []*node
	keys   []string // of a mapping, in order
	values []*node  // values of the keys
	shape  shape
}

type shape int

const (
	scalar shape = iota
	sequence
	mapping
)

// get returns the value of the first of these keys that a mapping has, or nil.
func (n *node) get(keys ...string) *node {
	if n == nil {
		return nil
	}
	for i, k := range n.keys {
		if slices.Contains(keys, k) {
			return n.values[i]
		}
	}
	return nil
}

// str returns the text of a scalar, or "".
func (n *node) str() string {
	if n == nil || n.shape != scalar {
		return ""
	}
	return n.text
}

// readYAML parses a document; several documents become a list. Its error is an *Error.
func readYAML(text string, at source) (*node, error) {
	f, err := yaml.Extract(at.name, []byte(text))
	if err != nil {
		return nil, failure(Syntax, Place{Name: at.name}, "", "cannot be read as YAML: %s", oneLine(strings.TrimPrefix(err.Error(), at.name+":")))
	}
	r := &yamlReader{at: at}
	n := r.decls(f.Decls, 0)
	return n, r.err
}

// yamlReader converts CUE's syntax tree of YAML to nodes.
type yamlReader struct {
	at    source
	nodes int
	err   error
}

// decls converts fields, or a single value.
func (r *yamlReader) decls(list []ast.Decl, depth int) *node {
	n := &node{shape: mapping}
	for _, d := range list {
		switch d := d.(type) {
		case *ast.EmbedDecl:
			return r.value(d.Expr, depth)
		case *ast.Field:
			name, _, err := ast.LabelName(d.Label)
			if err != nil {
				continue
			}
			if n.line == 0 {
				n.line = d.Pos().Line()
			}
			n.keys = append(n.keys, name)
			n.values = append(n.values, r.value(d.Value, depth+1))
		}
	}
	return n
}

func (r *yamlReader) value(e ast.Expr, depth int) *node {
	n := &node{line: e.Pos().Line()}
	if r.nodes++; depth > maxNest || r.nodes > maxBytes {
		if r.err == nil {
			r.err = failure(TooLarge, r.at.place(n.line), "", "more than %d levels, or too many values", maxNest)
		}
		return n
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		n.text = e.Value
		if e.Kind == token.STRING {
			n.quoted = true
			if s, err := literal.Unquote(e.Value); err == nil {
				n.text = s
			}
		} else if e.Kind == token.NULL {
			n.text = ""
		}
	case *ast.UnaryExpr:
		inner := r.value(e.X, depth+1)
		n.text = e.Op.String() + inner.text
	case *ast.ListLit:
		n.shape = sequence
		for _, x := range e.Elts {
			n.list = append(n.list, r.value(x, depth+1))
		}
	case *ast.StructLit:
		line := n.line
		n = r.decls(e.Elts, depth)
		n.line = max(n.line, line)
	}
	return n
}

// container is a mapping that defines a process.
type container struct {
	name  string
	where *node
	got   *command
}

// manifest collects the containers of a manifest.
type manifest struct {
	at      source
	want    string // name of the wanted container, or ""
	compose bool
	found   []container
	others  []string // containers that run something else
}

// commandOfManifest finds the container that runs vLLM, by its command or its image. want is its
// name where there are several. A list alone is a list of arguments, a mapping of flags alone is a
// config file. Its error is an *Error.
func commandOfManifest(text string, at source, want string) (*command, error) {
	top, err := readYAML(text, at)
	if err != nil {
		return nil, err
	}
	m := &manifest{at: at, want: want, compose: top.get("services") != nil}
	if words, ok := m.arguments(top); ok {
		c, err := commandOfImage("vllm", words, 0)
		if err == nil && len(words) == 0 {
			return nil, notFound(Place{Name: at.name}, "the list is empty")
		}
		return c, err
	}
	if isConfig(top) {
		list, err := configSettings(top, at)
		return &command{file: list}, err
	}
	if err := m.walk(top, "", ""); err != nil {
		return nil, err
	}
	if want != "" {
		m.found = slices.DeleteFunc(m.found, func(c container) bool { return c.name != want })
	}
	switch len(m.found) {
	case 1:
		return m.found[0].got, nil
	case 0:
		return nil, m.none(want)
	}
	var names []string
	for _, c := range m.found {
		names = append(names, fmt.Sprintf("%s (line %d)", c.name, c.where.line))
	}
	return nil, failure(NotFound, Place{Name: at.name}, "name one with --container NAME, or give one manifest",
		"%d containers run vLLM: %s", len(names), strings.Join(names[:min(len(names), 8)], ", "))
}

func (m *manifest) none(want string) error {
	message := "no container here runs a model server"
	if want != "" {
		message = fmt.Sprintf("no container named %s runs vLLM", want)
	}
	if len(m.others) > 0 {
		message += "; there are " + strings.Join(m.others[:min(len(m.others), 8)], ", ")
	}
	return notFound(Place{Name: m.at.name}, "%s", message)
}

// arguments returns the words of a list of scalars.
func (m *manifest) arguments(n *node) ([]word, bool) {
	if n == nil || n.shape != sequence {
		return nil, false
	}
	words := make([]word, 0, len(n.list))
	for _, x := range n.list {
		if x.shape != scalar {
			return nil, false
		}
		words = append(words, word{text: x.text, at: m.at.place(x.line)})
	}
	return words, true
}

// walk visits every mapping. name is the name of the nearest enclosing mapping that has one, key
// the key of this mapping.
func (m *manifest) walk(n *node, name, key string) error {
	if n.shape == mapping {
		own := n.get("name").str()
		if own == "" && n.get("metadata") != nil {
			own = n.get("metadata").get("name").str()
		}
		if own == "" && m.compose {
			own = n.get("container_name").str()
		}
		if own == "" && m.compose {
			own = key
		}
		if own != "" {
			name = own
		}
		if n.get("command", "args", "entrypoint") != nil || (n.get("image") != nil && (m.compose || key == "containers")) {
			if err := m.container(n, name); err != nil {
				return err
			}
		}
	}
	for i, v := range n.values {
		if err := m.walk(v, name, n.keys[i]); err != nil {
			return err
		}
	}
	for _, v := range n.list {
		if err := m.walk(v, name, key); err != nil {
			return err
		}
	}
	return nil
}

package schema

import (
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/token"
)

// field describes one field of a profile. It is read from the syntax of the definitions,
// because CUE's values lose comments and the attributes of alternatives.
type field struct {
	label    string
	path     string
	expr     ast.Expr // the constraint; nil for the profile itself
	required bool     // "!"
	class    Class    // its own, else that of the field that contains it
	allowed  string   // @allowed of the field, or of the definition that it refers to
	secret   bool     // @secret: never printed
	fields   []*field // of a struct
	elem     *field   // of a list, or of a struct with a pattern for labels
}

// definitions maps #Names to their definitions.
type definitions map[string]*ast.Field

// fill adds the attributes and fields of the expression to f. It terminates because the
// definitions are not recursive.
func (defs definitions) fill(f *field, e ast.Expr) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		defs.fill(f, e.X)
	case *ast.Ident:
		if d := defs[e.Name]; d != nil {
			defs.attributes(f, d, false)
			defs.fill(f, d.Value)
		}
	case *ast.BinaryExpr:
		if e.Op == token.AND {
			defs.fill(f, e.X)
			defs.fill(f, e.Y)
		} else if e.Op == token.OR {
			defs.element(f, e.X)
			defs.element(f, e.Y)
		}
	case *ast.UnaryExpr:
		if e.Op == token.MUL {
			defs.element(f, e.X)
		}
	case *ast.ListLit:
		defs.element(f, e)
	case *ast.StructLit:
		defs.members(f, e)
	}
}

// element sets the type of a list's elements, also in a disjunction.
func (defs definitions) element(f *field, e ast.Expr) {
	switch e := e.(type) {
	case *ast.UnaryExpr, *ast.BinaryExpr:
		defs.fill(f, e)
	case *ast.ListLit:
		for _, x := range e.Elts {
			if more, ok := x.(*ast.Ellipsis); ok && more.Type != nil {
				f.elem = &field{path: f.path + "[]", class: f.class, secret: f.secret, expr: more.Type}
				defs.fill(f.elem, more.Type)
			}
		}
	}
}

// members adds the fields of a struct; a field replaces an earlier one of the same name.
func (defs definitions) members(f *field, s *ast.StructLit) {
	for _, d := range s.Elts {
		d, ok := d.(*ast.Field)
		if !ok {
			continue
		}
		if _, pattern := d.Label.(*ast.ListLit); pattern {
			f.elem = &field{path: f.path + "[]", class: f.class, secret: f.secret, expr: d.Value}
			defs.fill(f.elem, d.Value)
			continue
		}
		name, _, err := ast.LabelName(d.Label)
		if err != nil {
			continue
		}
		m := &field{label: name, path: join(f.path, name), class: f.class, secret: f.secret}
		m.expr, m.required = d.Value, d.Constraint == token.NOT
		defs.attributes(m, d, true)
		defs.fill(m, d.Value)
		f.put(m)
	}
}

// put adds m, or replaces the field of the same name.
func (f *field) put(m *field) {
	for i, old := range f.fields {
		if old.label == m.label {
			f.fields[i] = m
			return
		}
	}
	f.fields = append(f.fields, m)
}

// attributes applies the attributes of d to f. own: d is the field itself and not the
// definition that it refers to.
func (defs definitions) attributes(f *field, d *ast.Field, own bool) {
	for _, a := range d.Attrs {
		key, body := a.Split()
		switch {
		case key == "reload" && own:
			f.class = Class(body)
		case key == "secret":
			f.secret = true
		case key == "allowed" && f.allowed == "":
			if text, err := literal.Unquote(body); err == nil {
				f.allowed = text
			}
		}
	}
}

// member returns the field of that name, or nil. In a list or map it returns the element for
// any name.
func (f *field) member(label string) *field {
	for _, m := range f.fields {
		if m.label == label {
			return m
		}
	}
	return f.elem
}

// leaf reports whether f has no fields or elements, so that errors below it are errors of f.
func (f *field) leaf() bool { return len(f.fields) == 0 && f.elem == nil }

// refers reports whether the constraint refers to the definition.
func (f *field) refers(def string) bool {
	found := false
	if f.expr != nil {
		ast.Walk(f.expr, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			found = found || ok && id.Name == def
			return true
		}, nil)
	}
	return found
}

// names returns the labels of the fields in the order of the definition.
func (f *field) names() []string {
	var list []string
	for _, m := range f.fields {
		list = append(list, m.label)
	}
	return list
}

// labels splits a path at dots and brackets outside quotes.
func labels(path string) []string {
	var list []string
	start, quoted := 0, false
	for i := 0; i <= len(path); i++ {
		switch {
		case i == len(path) || !quoted && strings.IndexByte(".[]", path[i]) >= 0:
			if i > start {
				list = append(list, path[start:i])
			}
			start = i + 1
		case path[i] == '\\':
			i++
		case path[i] == '"':
			quoted = !quoted
		}
	}
	return list
}

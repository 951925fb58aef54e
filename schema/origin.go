package schema

import (
	"fmt"
	"path/filepath"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/token"
)

// origin holds the files of a profile and the positions of its fields.
type origin struct {
	name     string // as the caller passed it
	file     string // absolute; of a profile in memory the file that it would be
	memory   bool   // the profile is in no file
	folder   string // of file, as messages show it
	set      []Override
	root     string // the module root, or the file's folder
	schema   string // the folder of the schema's overlay
	assigned map[string][]assignment

	policies []string // absolute; see Profile.Policies
	imported []string // absolute: files of the imported packages, and the module file
	packages []string // absolute: folders of the imported packages
}

// assignment is one position that gives a field a value.
type assignment struct {
	label token.Pos
	value ast.Expr
	whole ast.Node // the field with its label, or the element of a list
}

// read indexes the assignments in the profile's own file. It does not follow references.
func (o *origin) read(inst *build.Instance) {
	o.assigned = map[string][]assignment{}
	for _, f := range inst.Files {
		o.declarations("", f.Decls)
	}
}

func (o *origin) declarations(path string, decls []ast.Decl) {
	for _, d := range decls {
		switch d := d.(type) {
		case *ast.EmbedDecl:
			o.expression(path, d.Expr)
		case *ast.Field:
			name, ident, err := ast.LabelName(d.Label)
			if err != nil || d.Constraint == token.OPTION || ident && strings.HasPrefix(strings.TrimPrefix(name, "_"), "#") || ident && name[0] == '_' {
				continue // a pattern, a definition or a hidden field: not a field of the profile
			}
			at := join(path, name)
			o.assigned[at] = append(o.assigned[at], assignment{d.Label.Pos(), d.Value, d})
			o.expression(at, d.Value)
		}
	}
}

func (o *origin) expression(path string, e ast.Expr) {
	switch e := e.(type) {
	case *ast.StructLit:
		o.declarations(path, e.Elts)
	case *ast.ParenExpr:
		o.expression(path, e.X)
	case *ast.BinaryExpr:
		if e.Op == token.AND {
			o.expression(path, e.X)
			o.expression(path, e.Y)
		}
	case *ast.ListLit:
		for i, x := range e.Elts {
			at := fmt.Sprintf("%s[%d]", path, i)
			o.assigned[at] = append(o.assigned[at], assignment{x.Pos(), x, x})
			o.expression(at, x)
		}
	}
}

// join appends a label to a path, quoted if it is not an identifier.
func join(path, label string) string {
	if !ast.IsValidIdent(label) {
		label = literal.String.Quote(label)
	}
	if path == "" {
		return label
	}
	return path + "." + label
}

// position returns the position of the field, which is that of its override, else of the nearest field that contains it,
// else the start of the file.
func (o *origin) position(path string) Position {
	for _, s := range o.set {
		if path == s.Path || inside(path, s.Path) {
			return Position{File: s.From}
		}
	}
	for path != "" {
		if s := o.assigned[path]; len(s) > 0 {
			return o.place(s[0].label)
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	if o.memory {
		return Position{File: o.name}
	}
	return Position{File: shown(o.name), Line: 1, Column: 1}
}

// place converts a position of CUE.
func (o *origin) place(at token.Pos) Position {
	p := at.Position()
	if p.Filename == o.file || p.Filename == "" {
		p.Filename = o.name
		if o.memory {
			return Position{File: o.name} // a line of a text that the user did not write
		}
	}
	return Position{File: shown(p.Filename), Line: p.Line, Column: p.Column}
}

// own reports whether the position is in a file of the user and not in the schema.
func (o *origin) own(at token.Pos) bool {
	name := at.Position().Filename
	return filepath.IsAbs(name) && filepath.Dir(name) != o.schema
}

// Join returns the path of a member of the struct at path, such as lora.adapters."a/b".
func Join(path, label string) string { return join(path, label) }

// Pos returns the position of a field, such as "memory.swapSpace", in the profile's file:
// that of the field itself, else of the nearest field that contains it, else the start of
// the file. It is for errors that only planning can find.
func (p *Profile) Pos(path string) Position { return p.origin.position(path) }

// Says reports whether the profile's own file sets the field, as opposed to a default.
func (p *Profile) Says(path string) bool { return len(p.origin.assigned[path]) > 0 }

// Reject returns the error of a valid field that cannot be implemented, with the field's
// position and the kind Unsupported.
func (p *Profile) Reject(path, format string, args ...any) *Error {
	return p.origin.reject(path, format, args...)
}

func (o *origin) reject(path, format string, args ...any) *Error {
	return &Error{List: []Problem{{Kind: Unsupported, Pos: o.position(path), Path: path, Message: fmt.Sprintf(format, args...)}}}
}

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

// origin is where a profile was written.
type origin struct {
	name   string // as the caller gave it
	file   string // absolute
	root   string // the module root, or the file's folder
	schema string // the folder that the schema was laid over
	said   map[string][]saying

	policies []string // absolute; see Profile.Policies
	imported []string // absolute: files of the packages that it imports, and the module's
	packages []string // absolute: folders of those packages
}

// saying is one place that gives a field a value.
type saying struct {
	label token.Pos
	value ast.Expr
	whole ast.Node // the field with its label, or the element of a list
}

// read indexes what the profile's own file says. References are not followed.
func (o *origin) read(inst *build.Instance) {
	o.said = map[string][]saying{}
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
				continue // a pattern, a definition, a hidden field: none of the profile's
			}
			at := join(path, name)
			o.said[at] = append(o.said[at], saying{d.Label.Pos(), d.Value, d})
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
			o.said[at] = append(o.said[at], saying{x.Pos(), x, x})
			o.expression(at, x)
		}
	}
}

// join extends a path by a label, quoted where it is no identifier.
func join(path, label string) string {
	if !ast.IsValidIdent(label) {
		label = literal.String.Quote(label)
	}
	if path == "" {
		return label
	}
	return path + "." + label
}

// position is the place of the field, else of the nearest field around it, else
// the start of the file.
func (o *origin) position(path string) Position {
	for path != "" {
		if s := o.said[path]; len(s) > 0 {
			return o.place(s[0].label)
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return Position{File: shown(o.name), Line: 1, Column: 1}
}

// place shows a position of CUE's.
func (o *origin) place(at token.Pos) Position {
	p := at.Position()
	if p.Filename == o.file || p.Filename == "" {
		p.Filename = o.name
	}
	return Position{File: shown(p.Filename), Line: p.Line, Column: p.Column}
}

// own says whether the position is in a file of the user's, not in the schema.
func (o *origin) own(at token.Pos) bool {
	name := at.Position().Filename
	return filepath.IsAbs(name) && filepath.Dir(name) != o.schema
}

// Pos is where the profile's file says the field, such as "memory.swapSpace":
// the field itself, else the nearest one around it, else the file's start. For
// errors that are found only when the profile is planned.
func (p *Profile) Pos(path string) Position { return p.origin.position(path) }

// Says tells whether the profile's own file gives the field a value, so that a
// default is told from a wish.
func (p *Profile) Says(path string) bool { return len(p.origin.said[path]) > 0 }

// Reject is the error of a field that is well formed and cannot be honoured, at
// its place. Kind is Unsupported.
func (p *Profile) Reject(path, format string, args ...any) *Error {
	return p.origin.reject(path, format, args...)
}

func (o *origin) reject(path, format string, args ...any) *Error {
	return &Error{List: []Problem{{Kind: Unsupported, Pos: o.position(path), Path: path, Message: fmt.Sprintf(format, args...)}}}
}

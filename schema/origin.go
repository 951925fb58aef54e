package schema

import (
	"path/filepath"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/token"
)

// origin is where a profile was written.
type origin struct {
	name string               // as the caller gave it
	file string               // absolute
	root string               // the module root, or the file's folder
	at   map[string]token.Pos // path of a field → its place in the profile's file
}

// sources indexes the places of the fields in the profile's own file.
func sources(name string, inst *build.Instance) origin {
	o := origin{name: name, root: inst.Root, at: map[string]token.Pos{}}
	o.file, _ = filepath.Abs(name) // instance has found it absolute before
	for _, f := range inst.Files {
		o.declarations("", f.Decls)
	}
	return o
}

func (o *origin) declarations(path string, decls []ast.Decl) {
	for _, d := range decls {
		switch d := d.(type) {
		case *ast.EmbedDecl:
			o.expression(path, d.Expr)
		case *ast.Field:
			name, _, err := ast.LabelName(d.Label)
			if err != nil {
				continue
			}
			at := join(path, name)
			if _, seen := o.at[at]; !seen {
				o.at[at] = d.Label.Pos()
			}
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
		o.expression(path, e.X)
		o.expression(path, e.Y)
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
	for {
		if at, ok := o.at[path]; ok {
			return o.place(at)
		}
		i := strings.LastIndexByte(path, '.')
		if i < 0 {
			return Position{File: shown(o.name), Line: 1, Column: 1}
		}
		path = path[:i]
	}
}

// place shows a position of CUE's.
func (o *origin) place(at token.Pos) Position {
	p := at.Position()
	if p.Filename == o.file {
		p.Filename = o.name
	}
	return Position{File: shown(p.Filename), Line: p.Line, Column: p.Column}
}

// Pos is where the profile's file says the field, such as "memory.swapSpace":
// the field itself, else the nearest one around it, else the file's start. For
// errors that are found only when the profile is planned.
func (p *Profile) Pos(path string) Position { return p.origin.position(path) }

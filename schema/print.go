package schema

import (
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/token"
)

// Format returns the text of the profile's own file with the overrides written into it. The text
// means the same profile. It fails where a package that the file imports gives an overridden field
// its value, because a change of the file alone would not replace it.
func (in Input) Format() ([]byte, error) {
	doc := document{name: in.Path, data: in.Text, memory: true, set: in.Set}
	r := in.Read()
	if r.Err != nil {
		return nil, r.Err
	}
	if in.Text == nil {
		file, err := profileFile(in.Path)
		if err != nil {
			return nil, err
		}
		if doc.data, err = readFile(file); err != nil {
			return nil, err
		}
		doc.name, doc.memory = file, false
	}
	if len(in.Set) == 0 {
		return doc.data, nil
	}
	text, err := within(doc.name, doc.print)
	if err != nil {
		return nil, err
	}
	doc.data, doc.set = text, nil
	if same := doc.read(); same.Err != nil || same.Profile.Hash() != r.Profile.Hash() {
		return nil, problem(Invalid, doc.name, "its text cannot show %s: the value comes from elsewhere, such as a package that the file imports; change it there", in.Set[0].From)
	}
	return text, nil
}

// print returns the document with its overrides.
func (doc document) print() ([]byte, error) {
	src, inst, err := instance(doc)
	if err != nil {
		return nil, err
	}
	var own *ast.File
	for _, f := range inst.Files {
		if f.Filename == src.file {
			own = f
		}
	}
	if own == nil {
		return nil, problem(Invalid, doc.name, "not one file of CUE")
	}
	done, err := src.override(inst, doc.set)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	ast.Walk(own, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok {
			if o, ok := done[innermost(f)]; ok {
				there[o.Path] = true
				if doc.memory { // its comment is about the value that was replaced
					ast.SetComments(f, []*ast.CommentGroup{remark(o.From)})
				}
				return false
			}
		}
		return true
	}, nil)
	into := fieldsOf(own)
	for _, f := range added(inst, own) {
		for _, d := range f.Decls {
			if o, ok := setBy(doc.set, d); ok && !there[o.Path] {
				ast.SetComments(d, []*ast.CommentGroup{remark(o.From)})
				*into = append(*into, d)
			}
		}
	}
	return format.Node(own)
}

// added returns the files that override added to the instance.
func added(inst *build.Instance, own *ast.File) []*ast.File {
	var list []*ast.File
	for _, f := range inst.Files {
		if f != own && f.Filename == "" {
			list = append(list, f)
		}
	}
	return list
}

// setBy returns the override whose field d is.
func setBy(set []Override, d ast.Decl) (Override, bool) {
	path := ""
	for f, ok := d.(*ast.Field); ok; {
		name, _, err := ast.LabelName(f.Label)
		if err != nil {
			return Override{}, false
		}
		path = join(path, name)
		for _, o := range set {
			if o.Path == path {
				return o, true
			}
		}
		s, is := f.Value.(*ast.StructLit)
		if !is || len(s.Elts) != 1 {
			return Override{}, false
		}
		f, ok = s.Elts[0].(*ast.Field)
	}
	return Override{}, false
}

// fieldsOf returns where the file's fields are: in the struct that it unifies with #Profile, else in
// the file.
func fieldsOf(f *ast.File) *[]ast.Decl {
	for _, d := range f.Decls {
		e, ok := d.(*ast.EmbedDecl)
		if !ok {
			continue
		}
		if b, ok := e.Expr.(*ast.BinaryExpr); ok && b.Op == token.AND {
			if s, ok := b.Y.(*ast.StructLit); ok {
				return &s.Elts
			}
		}
	}
	return &f.Decls
}

// remark returns a comment above a field.
func remark(text string) *ast.CommentGroup {
	return &ast.CommentGroup{Doc: true, List: []*ast.Comment{{Text: "// " + OneLine(text)}}}
}

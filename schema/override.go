package schema

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"vapp.dev/nearest"
)

// Override replaces the value of one field of a profile, wherever the profile has it from: its own
// file, a package that it imports, or the default. Schema and policies bound it as they bound the
// value that it replaces.
type Override struct {
	Path  string // such as scheduler.maxNumSeqs
	Value string // a CUE value, or text where the field wants one
	From  string // what messages show as its position, such as --port=99999
}

// OverrideError is the error of an override that cannot be read.
type OverrideError struct{ Path, Reason string }

func (e *OverrideError) Error() string { return OneLine(fmt.Sprintf("%.200q: %s", e.Path, e.Reason)) }

// maxOverride is the longest text of an override in bytes.
const maxOverride = 64 << 10

// ParseOverride reads path=value, the argument of --set. A label that is no identifier is quoted:
// require.concurrency.">=8"=32K. A struct or a list is replaced as a whole. The error is an
// *OverrideError.
func ParseOverride(text string) (Override, error) {
	path, value, ok := cutPath(text)
	refuse := func(reason string) (Override, error) { return Override{}, &OverrideError{path, reason} }
	switch {
	case len(text) > maxOverride:
		return refuse(fmt.Sprintf("longer than %d bytes; write it into the profile", maxOverride))
	case !ok:
		return refuse("no = behind the path; write path=value, such as scheduler.maxNumSeqs=8")
	case strings.ContainsRune(path, '[') && !strings.ContainsRune(path, '"'):
		return refuse("an element of a list; a list is replaced as a whole, such as serve.servedModelName=[\"a\", \"b\"]")
	}
	list, ok := pathLabels(path)
	if !ok {
		return refuse("no path of a field; write path=value, such as scheduler.maxNumSeqs=8")
	}
	at := ""
	for _, l := range list {
		at = join(at, l)
	}
	if err := withinLimits("--set", []byte(value)); err != nil {
		return refuse("a value that is too large: " + err.(*Error).List[0].Message)
	}
	o := Override{Path: at, Value: value, From: "--set " + at + "=" + value}
	if Secret(at) || slices.ContainsFunc(list, likeSecret) {
		o.From = "--set " + at + "=" + hidden
	}
	return o, nil
}

// likeSecret reports whether a label, which need not be one of the schema, is probably that of a
// secret: a mistyped apiKeys must not show the key in its error.
func likeSecret(label string) bool {
	f := nearest.Folded(label)
	return slices.ContainsFunc([]string{"key", "token", "secret", "password", "tls"}, func(w string) bool { return strings.Contains(f, w) }) &&
		!strings.Contains(f, "tokens") // maxTokens is a number of tokens
}

// cutPath divides text at the first = outside of quotes.
func cutPath(text string) (path, value string, ok bool) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == '=' && !quoted:
			return strings.TrimSpace(text[:i]), strings.TrimSpace(text[i+1:]), true
		}
	}
	return text, "", false
}

// maxLabels is the deepest path of an override.
const maxLabels = 16

// pathLabels returns the labels of a path, without quotes.
func pathLabels(path string) (list []string, ok bool) {
	for path != "" && len(list) < maxLabels {
		label, rest := path, ""
		if path[0] == '"' {
			end := 1
			for end < len(path) && path[end] != '"' {
				if path[end] == '\\' {
					end++
				}
				end++
			}
			if end >= len(path) {
				return nil, false
			}
			text, err := literal.Unquote(path[:end+1])
			if err != nil {
				return nil, false
			}
			label, rest = text, path[end+1:]
		} else if i := strings.IndexByte(path, '.'); i >= 0 {
			label, rest = path[:i], path[i:]
		}
		if label == "" || rest != "" && (rest[0] != '.' || rest == ".") {
			return nil, false
		}
		list = append(list, label)
		path = strings.TrimPrefix(rest, ".")
	}
	return list, path == "" && len(list) > 0
}

// excludes are fields of which a profile has one: an override of one removes the other.
var excludes = map[string]string{
	"memory.kvCache": "memory.utilization", "memory.utilization": "memory.kvCache",
}

// override replaces the values of the overrides, and returns the fields that have them, in the syntax of the instance and of the packages
// that it imports, at the places that give the fields their values.
func (src *origin) override(inst *build.Instance, set []Override) (_ replaced, err error) {
	ctx := cuecontext.New()
	v := ctx.BuildInstance(inst)
	lang, err := languageOf(ctx, inst)
	if err != nil {
		return nil, problem(Unreadable, src.name, "embedded schema: %v", err)
	}
	done := replaced{}
	for _, o := range set {
		list, ok := pathLabels(o.Path)
		if !ok {
			return nil, problem(Invalid, src.name, "%q is no path of a field", o.Path)
		}
		value := o.expr(ctx, lang, list)
		for f := range src.sources(lookup(v, o.Path)) {
			if name, _, err := ast.LabelName(f.Label); err == nil && name == list[len(list)-1] {
				f.Value = value()
				done[f] = o
			}
		}
		if other := excludes[o.Path]; other != "" && !slices.ContainsFunc(set, func(x Override) bool { return x.Path == other }) {
			src.remove(inst, src.sources(lookup(v, other)))
		}
		if err := inst.AddSyntax(nested(list, value())); err != nil {
			return nil, problem(Invalid, src.name, "%s: %v", o.From, err)
		}
	}
	return done, nil
}

// replaced are the fields whose values are those of overrides.
type replaced map[*ast.Field]Override

// sources returns the fields in the user's files that give v its value.
func (src *origin) sources(v cue.Value) map[*ast.Field]bool {
	out := map[*ast.Field]bool{}
	var walk func(v cue.Value, depth int)
	walk = func(v cue.Value, depth int) {
		if f, ok := v.Source().(*ast.Field); ok && src.own(f.Pos()) {
			out[f] = true
			return
		}
		if op, args := v.Expr(); op == cue.AndOp && depth < maxNesting {
			for _, a := range args {
				walk(a, depth+1)
			}
		}
	}
	if v.Exists() {
		walk(v, 0)
	}
	return out
}

// remove deletes fields from the files of the instance and of the packages that it imports.
func (src *origin) remove(inst *build.Instance, gone map[*ast.Field]bool) {
	if len(gone) == 0 {
		return
	}
	keep := func(list []ast.Decl) []ast.Decl {
		return slices.DeleteFunc(list, func(d ast.Decl) bool { f, ok := d.(*ast.Field); return ok && gone[innermost(f)] })
	}
	seen := map[*build.Instance]bool{}
	var walk func(i *build.Instance)
	walk = func(i *build.Instance) {
		if seen[i] || i.ImportPath == ImportPath {
			return
		}
		seen[i] = true
		for _, f := range i.Files {
			f.Decls = keep(f.Decls)
			ast.Walk(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.StructLit); ok {
					s.Elts = keep(s.Elts)
				}
				return true
			}, nil)
		}
		for _, next := range i.Imports {
			walk(next)
		}
	}
	walk(inst)
}

// innermost returns the last field of a: b: c: value.
func innermost(f *ast.Field) *ast.Field {
	for {
		s, ok := f.Value.(*ast.StructLit)
		if !ok || s.Lbrace.IsValid() || len(s.Elts) != 1 {
			return f
		}
		next, ok := s.Elts[0].(*ast.Field)
		if !ok {
			return f
		}
		f = next
	}
}

// nested returns a file with one field.
func nested(list []string, value ast.Expr) *ast.File {
	var decl ast.Decl
	for i, l := range slices.Backward(list) {
		var label ast.Label = ast.NewString(l)
		at := token.Blank
		if i == 0 {
			at = token.Newline
		}
		if ast.IsValidIdent(l) && !strings.HasPrefix(l, "_") && !strings.HasPrefix(l, "#") {
			label = ast.NewIdent(l)
		}
		ast.SetPos(label, at.Pos()) // so that it is printed as a: b: value
		f := &ast.Field{Label: label, Value: value}
		if i < len(list)-1 {
			f.Value = &ast.StructLit{Elts: []ast.Decl{decl}}
		}
		decl = f
	}
	return &ast.File{Decls: []ast.Decl{decl}}
}

// expr returns the value as syntax, a new tree for each call: the CUE value that it is, or the
// text, whichever the field allows. A number with a suffix is text where the field allows that,
// because profiles write 8K tokens as "8K".
func (o Override) expr(ctx *cue.Context, lang *language, path []string) func() ast.Expr {
	text := func() ast.Expr { return ast.NewString(o.Value) }
	value := func() ast.Expr {
		e, err := parser.ParseExpr("", o.Value)
		if err != nil || !concrete(e) {
			return nil
		}
		ast.Walk(e, nil, func(n ast.Node) { ast.SetPos(n, token.NoPos) })
		return e
	}
	if value() == nil {
		return text
	}
	field, known := fieldValue(lang.profile, path)
	allowed := func(e ast.Expr) bool {
		return known && field.Unify(ctx.BuildExpr(e)).Validate() == nil
	}
	if suffixed(o.Value) && allowed(text()) || !allowed(value()) && allowed(text()) {
		return text
	}
	return value
}

// fieldValue returns the schema's constraint of a field.
func fieldValue(v cue.Value, path []string) (cue.Value, bool) {
	for _, l := range path {
		next := cue.Value{}
		for _, s := range []cue.Selector{cue.Str(l), cue.Str(l).Optional(), cue.Str(l).Required()} {
			if next = v.LookupPath(cue.MakePath(s)); next.Exists() {
				break
			}
		}
		if !next.Exists() {
			next = v.LookupPath(cue.MakePath(cue.AnyString))
		}
		if !next.Exists() {
			return v, false
		}
		v = next
	}
	return v, true
}

// suffixed reports whether the text is a number with a unit of CUE, such as 8K, whose factor may
// differ from the profile's.
func suffixed(text string) bool {
	return text != "" && text[0] >= '0' && text[0] <= '9' && strings.ContainsAny(text[len(text)-1:], "KMGTPi") && !strings.HasPrefix(text, "0x")
}

// concrete reports whether the expression consists of literals, lists and structs, without
// references and operators.
func concrete(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return true
	case *ast.UnaryExpr:
		lit, ok := e.X.(*ast.BasicLit)
		return ok && (e.Op == token.SUB || e.Op == token.ADD) && (lit.Kind == token.INT || lit.Kind == token.FLOAT)
	case *ast.ListLit:
		return !slices.ContainsFunc(e.Elts, func(x ast.Expr) bool { return !concrete(x) })
	case *ast.StructLit:
		return !slices.ContainsFunc(e.Elts, func(d ast.Decl) bool {
			f, ok := d.(*ast.Field)
			if !ok || f.Constraint != token.ILLEGAL || len(f.Attrs) > 0 {
				return true
			}
			name, _, err := ast.LabelName(f.Label)
			return err != nil || name == "" || name[0] == '_' || name[0] == '#' || !concrete(f.Value)
		})
	}
	return false
}

// caused reports whether the problem is one of the override: it is about its field or one inside it,
// or about a field that has no fields, which the override's path continues.
func (o Override) caused(p Problem) bool {
	if p.Path == o.Path || inside(p.Path, o.Path) {
		return true
	}
	if p.Path == "" || !inside(o.Path, p.Path) {
		return false
	}
	f := fieldsOfProfile()
	for _, l := range labels(p.Path) {
		if f = f.member(l); f == nil {
			return true
		}
	}
	return f.leaf()
}

// placed moves the problems of overridden fields to their overrides.
func placed(err error, set []Override) error {
	e, ok := err.(*Error)
	if !ok || len(set) == 0 {
		return err
	}
	list := slices.Clone(e.List)
	for i, p := range list {
		for _, o := range set {
			if o.caused(p) {
				list[i].Pos = Position{File: o.From}
			}
		}
	}
	return newError(list)
}

// Overrides returns the overrides that the profile was read with.
func (p *Profile) Overrides() []Override { return slices.Clone(p.origin.set) }

// Overlap reports whether two overrides of these paths exclude each other: one field is the other,
// contains it, or takes its place.
func Overlap(a, b string) bool {
	return a == b || inside(a, b) || inside(b, a) || excludes[a] == b
}

// Quote returns text as a CUE string.
func Quote(text string) string { return literal.String.Quote(text) }

// Secret reports whether the values of a field, or of one in it, are never printed.
func Secret(path string) bool {
	list, _ := pathLabels(path)
	f := fieldsOfProfile()
	for _, l := range list {
		if f = f.member(l); f == nil {
			return false
		}
		if f.secret {
			return true
		}
	}
	return f.holdsSecret()
}

func (f *field) holdsSecret() bool {
	return f.secret || slices.ContainsFunc(f.fields, (*field).holdsSecret) || f.elem != nil && f.elem.holdsSecret()
}

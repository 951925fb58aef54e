package schema

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	cueerrors "cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"

	"vapp.dev/nearest"
)

// explainer turns CUE's errors into Problems: one for each field, at the place
// where the profile says it, in the schema's words.
type explainer struct {
	lang *language
	src  origin
	gone erased // see search

	caused []string // paths of what the erased fields took with them
}

// group is what CUE says about one field.
type group struct {
	path string
	f    *field // what the schema says; nil: it lacks the field
	in   *field // the struct that would hold it, where f is nil
	errs []cueerrors.Error
}

// explain never returns an empty list in the first round: err is not nil.
func (x *explainer) explain(err error) []Problem {
	var list []Problem
	groups := x.group(cueerrors.Errors(err))
	for _, g := range groups {
		switch {
		case x.gone.caused(g, x.src.said[g.path]):
			x.caused = append(x.caused, g.path)
		case !g.consequence(groups, x):
			list = append(list, x.problems(g)...)
		}
	}
	if len(list) == 0 && len(x.gone) == 0 {
		return problem(Invalid, x.src.name, "%s", oneLine(err.Error())).List
	}
	return list
}

// group collects errors by field. Errors below a field that the schema lacks,
// or whose inside is one alternative of many, belong to that field.
func (x *explainer) group(errs []cueerrors.Error) []*group {
	var list []*group
	byPath := map[string]*group{}
	for _, e := range errs {
		g := x.locate(e.Path())
		if known := byPath[g.path]; known != nil {
			g = known
		} else {
			byPath[g.path] = g
			list = append(list, g)
		}
		g.errs = append(g.errs, e)
	}
	return list
}

// locate follows the labels as far as the schema goes.
func (x *explainer) locate(labels []string) *group {
	g := &group{f: x.lang.root}
	for _, label := range labels {
		g.in, g.f = g.f, g.f.member(label)
		if label[0] >= '0' && label[0] <= '9' {
			g.path += "[" + label + "]"
		} else if g.path != "" {
			g.path += "." + label
		} else {
			g.path = label
		}
		if g.f == nil || g.f.leaf() {
			return g
		}
	}
	return g
}

// consequence says whether another group explains this one: a field below it is
// wrong, or it has no value because something else has none.
func (g *group) consequence(all []*group, x *explainer) bool {
	for _, other := range all {
		if other != g && g.path != "" && (strings.HasPrefix(other.path, g.path+".") || strings.HasPrefix(other.path, g.path+"[")) {
			return true
		}
	}
	return len(all) > 1 && len(x.src.said[g.path]) == 0 && strings.HasPrefix(message(g.errs[0]), "incomplete")
}

// problems of one field; more than one where a struct with required fields is
// missing.
func (x *explainer) problems(g *group) []Problem {
	p := Problem{Kind: Invalid, Path: g.path, Pos: x.src.position(g.path)}
	if s := x.src.said[g.path]; len(s) > 0 {
		p.Pos = x.src.place(s[0].value.Pos())
	} else {
		x.userPosition(g, &p)
	}
	for _, e := range g.errs {
		if text := message(e); text == "field is required but not present" {
			return x.missing(p, g)
		} else if text == "field not allowed" && g.path != "" && len(e.Path()) == len(labels(g.path)) {
			g.f = nil
		} else if format, _ := e.Msg(); format == "%s" && g.f != nil {
			p.Kind, p.Message = Conflict, text
			return []Problem{p}
		}
	}
	switch {
	case x.expression(g, &p):
	case g.path == "":
		p.Message, p.Allowed = "not a profile", "a struct of "+strings.Join(x.lang.root.names(), ", ")
	case g.f == nil:
		x.unknown(g, &p)
	case x.twice(g, &p):
	default:
		x.value(g, &p)
	}
	return []Problem{p}
}

// userPosition takes the first place of the user's that CUE names.
func (x *explainer) userPosition(g *group, p *Problem) {
	for _, e := range g.errs {
		for _, at := range append([]token.Pos{e.Position()}, e.InputPositions()...) {
			if x.src.own(at) {
				p.Pos = x.src.place(at)
				return
			}
		}
	}
}

// missing names the required fields of a struct that is absent.
func (x *explainer) missing(p Problem, g *group) []Problem {
	p.Kind, p.Message = Missing, "required, and not given"
	p.Pos = x.src.position(g.path)
	var list []Problem
	if g.f != nil {
		for _, m := range g.f.fields {
			if m.required {
				p.Path, p.Allowed = m.path, m.allows(x.lang.defs)
				list = append(list, p)
			}
		}
		p.Allowed = g.f.allows(x.lang.defs)
	}
	if len(list) == 0 {
		list = []Problem{p}
	}
	return list
}

// expression tells what CUE could not evaluate: an unresolved reference, wrong
// operands. Those have a place of their own in the user's file.
func (x *explainer) expression(g *group, p *Problem) bool {
	for _, e := range g.errs {
		text := message(e)
		if !x.src.own(e.Position()) || strings.HasPrefix(text, "conflicting") || strings.HasPrefix(text, "invalid value") {
			continue
		}
		p.Pos, p.Message = x.src.place(e.Position()), text
		_, args := e.Msg()
		if g.f != nil {
			p.Allowed = g.f.allows(x.lang.defs)
		}
		if len(args) == 1 {
			x.nearestReference(fmt.Sprint(args[0]), g, p)
		}
		return true
	}
	return false
}

// nearestReference finds what an unresolved name was probably meant to be: a
// definition, or a word that lacks its quotes.
func (x *explainer) nearestReference(name string, g *group, p *Problem) {
	if strings.HasPrefix(name, "#") {
		var defs []string
		for d := range x.lang.defs {
			defs = append(defs, d)
		}
		p.Allowed, p.Nearest = "", nearest.Best(name, defs)
	} else if g.f != nil {
		p.Nearest = nearest.Best(name, x.lang.defs.words(g.f))
	}
}

// unknown names the fields there are and the nearest one, here or elsewhere.
func (x *explainer) unknown(g *group, p *Problem) {
	label := g.path[strings.LastIndexByte(g.path, '.')+1:]
	p.Kind, p.Message = Unknown, "unknown field"
	if s := x.src.said[g.path]; len(s) > 0 {
		p.Pos = x.src.place(s[0].label)
	}
	if g.in == nil {
		return
	}
	p.Allowed = strings.Join(g.in.names(), ", ")
	if g.in.allowed != "" {
		p.Allowed = g.in.allowed
	}
	p.Nearest = nearest.Best(label, g.in.names())
	if nearest.Folded(p.Nearest) != nearest.Folded(label) {
		p.Nearest = cmp.Or(x.lang.root.elsewhere(label), p.Nearest)
	}
}

// elsewhere is the path of a field with that very name (but for case and
// separators) below f, or "".
func (f *field) elsewhere(label string) string {
	for _, m := range f.fields {
		if nearest.Folded(m.label) == nearest.Folded(label) {
			return m.path
		}
		if path := m.elsewhere(label); path != "" {
			return path
		}
	}
	return ""
}

// twice tells two different plain values for one field.
func (x *explainer) twice(g *group, p *Problem) bool {
	for _, s := range x.src.said[g.path] {
		first, ok := x.src.said[g.path][0].value.(*ast.BasicLit)
		lit, also := s.value.(*ast.BasicLit)
		if ok && also && lit.Value != first.Value {
			p.Kind, p.Pos = Conflict, x.src.place(lit.Pos())
			p.Message = fmt.Sprintf("two values, %s and %s (at %s)", lit.Value, first.Value, x.src.place(first.Pos()))
			if g.f.secret {
				p.Message = fmt.Sprintf("two values, the other at %s", x.src.place(first.Pos()))
			}
			return true
		}
	}
	return false
}

// value tells a value that the constraint does not take.
func (x *explainer) value(g *group, p *Problem) {
	p.Message, p.Allowed = "invalid value", g.f.allows(x.lang.defs)
	last := message(g.errs[len(g.errs)-1])
	said := x.src.said[g.path]
	switch {
	case g.f.secret:
	case strings.HasPrefix(last, "incomplete"):
		p.Kind, p.Message = Missing, "no concrete value"
	case len(said) > 0 && short(source(said[0].value)):
		p.Message += " " + source(said[0].value)
	case len(said) == 0 && short(last):
		p.Message = last
	}
	if len(said) > 0 {
		if lit, ok := said[0].value.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			p.Nearest = nearest.Best(lit.Value, x.lang.defs.words(g.f))
		}
	}
}

// short says whether a value is worth repeating.
func short(s string) bool { return len(s) <= 48 && !strings.Contains(s, "\n") }

// message is CUE's, without path and positions.
func message(e cueerrors.Error) string {
	format, args := e.Msg()
	return oneLine(fmt.Sprintf(format, args...))
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// explainLoad turns errors of reading and parsing into Problems.
func explainLoad(err error, src *origin) *Error {
	if own := (*Error)(nil); errors.As(err, &own) {
		return own
	}
	var list []Problem
	for _, e := range cueerrors.Errors(err) {
		p := Problem{Kind: Syntax, Pos: Position{File: shown(src.name)}, Message: cmp.Or(message(e), oneLine(e.Error()), "not CUE")}
		if at := e.Position(); at.IsValid() {
			p.Pos = src.place(at)
		}
		if p.Message == "import failed" { // the cause is but in the whole text
			text := oneLine(e.Error())
			p.Kind, p.Message = Import, "import failed: "+text[strings.LastIndex(text, "import failed")+len("import failed"):]
			p.Message = strings.Replace(p.Message, ": : ", ": ", 1)
		}
		if i := strings.Index(e.Error(), "cannot find package"); i >= 0 {
			text, _, _ := strings.Cut(e.Error()[i:], ": ")
			p.Kind, p.Message = Import, oneLine(text)
			p.Allowed = `"` + ImportPath + `", a package of CUE's own library, or one in this folder's module`
			p.Nearest = nearestImport(p.Message)
		}
		list = append(list, p)
	}
	return newError(list)
}

// nearestImport is the schema's path where the message names one like it.
func nearestImport(text string) string {
	if _, after, ok := strings.Cut(text, `"`); ok {
		name, _, _ := strings.Cut(after, `"`)
		return nearest.Best(name, []string{ImportPath})
	}
	return ""
}

// quantities checks sizes, numbers of tokens and times that are written as
// strings: what the expressions of the schema cannot say of a string, their
// bounds say of its value.
func (x *explainer) quantities(f *field, v cue.Value) []Problem {
	var list []Problem
	x.walk(f, v, "", &list)
	return list
}

func (x *explainer) walk(f *field, v cue.Value, path string, list *[]Problem) {
	if text, err := v.String(); err == nil {
		if reason := x.quantity(f, v, text); reason != "" {
			pos := x.src.position(path)
			if s := x.src.said[path]; len(s) > 0 {
				pos = x.src.place(s[0].value.Pos())
			}
			*list = append(*list, Problem{Kind: Invalid, Pos: pos, Path: path,
				Message: fmt.Sprintf("invalid value %q: %s", text, reason), Allowed: f.allows(x.lang.defs)})
		}
		return
	}
	fields, err := v.Fields()
	if err != nil || f.leaf() {
		return
	}
	for fields.Next() {
		if fields.Selector().LabelType() != cue.StringLabel {
			continue // an element of a list that holds an error
		}
		label := fields.Selector().Unquoted()
		if m := f.member(label); m != nil {
			x.walk(m, fields.Value(), join(path, label), list)
		}
	}
}

// quantity is why the text is none of the field's, or "".
func (x *explainer) quantity(f *field, v cue.Value, text string) string {
	var n int64
	var err error
	bound := x.lang.size
	switch {
	case f.refers("#Duration"):
		_, err = ParseDuration(text)
		bound = cue.Value{}
	case f.refers("#Size"):
		var b Bytes
		b, err = ParseBytes(text)
		n = int64(b)
	case f.refers("#Tokens") && text != "auto":
		var c Count
		c, err = ParseCount(text)
		n, bound = int64(c), x.lang.tokens
	default:
		return ""
	}
	if size := (*SizeError)(nil); errors.As(err, &size) {
		return size.Reason
	}
	if bound.Exists() && bound.Unify(v.Context().Encode(n)).Err() != nil {
		return "out of bounds"
	}
	return ""
}

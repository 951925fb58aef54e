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

	"vapp.dev/foreign"
	"vapp.dev/nearest"
)

// explainer converts CUE's errors into Problems: one per field, at the position where
// the profile sets it, with the schema's description of allowed values.
type explainer struct {
	lang *language
	src  origin
	gone erased // see search

	caused []string // paths of fields whose errors the erased fields caused
}

// group holds CUE's errors about one field.
type group struct {
	path string
	f    *field // in the schema; nil: it has no such field
	in   *field // the struct that contains the field
	errs []cueerrors.Error
}

// explain returns the problems of CUE's error. In the first round the list is not empty.
func (x *explainer) explain(err error) []Problem {
	var list []Problem
	groups := x.group(cueerrors.Errors(err))
	for _, g := range groups {
		switch {
		case x.gone.caused(g, x.src.assigned[g.path]):
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

// group collects errors by field. Errors below a field that the schema does not have, or
// whose struct is one of several alternatives, belong to that field.
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

// locate returns an empty group for the deepest field on the path that the schema knows, or
// for the first one that it does not.
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

// consequence reports whether another group explains this one: a field below it is wrong,
// or it has no value because a field that it refers to has none.
func (g *group) consequence(all []*group, x *explainer) bool {
	for _, other := range all {
		if other != g && g.path != "" && (strings.HasPrefix(other.path, g.path+".") || strings.HasPrefix(other.path, g.path+"[")) {
			return true
		}
	}
	return len(all) > 1 && len(x.src.assigned[g.path]) == 0 && strings.HasPrefix(message(g.errs[0]), "incomplete")
}

// problems returns the problems of one field; several if a struct with required fields is
// missing.
func (x *explainer) problems(g *group) []Problem {
	p := Problem{Kind: Invalid, Path: g.path, Pos: x.src.position(g.path)}
	if s := x.src.assigned[g.path]; len(s) > 0 {
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

// userPosition sets the first position in the user's files that CUE's errors have.
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

// missing returns a problem for each required field of an absent struct.
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

// expression handles an expression that CUE could not evaluate, such as an unresolved
// reference or wrong operands. Its position is in the user's file. It returns false if
// there is none.
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
			if write := x.reference(fmt.Sprint(args[0]), g); write != "" {
				p.Message, p.Allowed = p.Message+": "+write, ""
			} else {
				x.nearestReference(fmt.Sprint(args[0]), g, p)
			}
		}
		return true
	}
	return false
}

// nearestReference suggests a name for an unresolved one: a definition, or an allowed word,
// whose quotes are missing.
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

// unknown fills in the problem of an unknown field: the fields of the struct and the nearest
// name, in this struct or elsewhere.
func (x *explainer) unknown(g *group, p *Problem) {
	label := g.path[strings.LastIndexByte(g.path, '.')+1:]
	p.Kind, p.Message = Unknown, "unknown field"
	if s := x.src.assigned[g.path]; len(s) > 0 {
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
	if nearest.Folded(p.Nearest) == nearest.Folded(label) {
		return
	}
	if path := x.lang.root.elsewhere(label); path != "" {
		p.Nearest = path
		return
	}
	if h, ok := foreign.Find(label); ok {
		p.Allowed, p.Nearest = "", ""
		p.Message += ": " + h.Says()
	}
}

// elsewhere returns the path of a field below f with the same name, ignoring case and
// separators; "" if there is none.
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

// twice handles two different literal values for one field. It returns false if there is no
// such conflict.
func (x *explainer) twice(g *group, p *Problem) bool {
	for _, s := range x.src.assigned[g.path] {
		first, ok := x.src.assigned[g.path][0].value.(*ast.BasicLit)
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

// value fills in the problem of a value that the constraint does not allow.
func (x *explainer) value(g *group, p *Problem) {
	p.Message, p.Allowed = "invalid value", g.f.allows(x.lang.defs)
	last := message(g.errs[len(g.errs)-1])
	assigned := x.src.assigned[g.path]
	switch {
	case g.f.secret:
	case strings.HasPrefix(last, "incomplete"):
		p.Kind, p.Message = Missing, "no concrete value"
	case len(assigned) > 0 && short(source(assigned[0].value)):
		p.Message += " " + source(assigned[0].value)
	case len(assigned) == 0 && short(last):
		p.Message = last
	}
	if len(assigned) > 0 && !g.f.secret && p.Kind != Missing {
		if write := x.instead(g.f, assigned[0].value, x.lang.defs); write != "" {
			p.Message += ": " + write
			return
		}
	}
	if len(assigned) > 0 {
		if lit, ok := assigned[0].value.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			p.Nearest = nearest.Best(lit.Value, x.lang.defs.words(g.f))
		}
	}
}

// short reports whether a value is short enough to be quoted.
func short(s string) bool { return len(s) <= 48 && !strings.Contains(s, "\n") }

// message returns the text of CUE's error without path and positions.
func message(e cueerrors.Error) string {
	format, args := e.Msg()
	return oneLine(fmt.Sprintf(format, args...))
}

// oneLine returns s with every run of white space replaced by one space.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// explainLoad converts errors of loading and parsing into Problems.
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
		if p.Message == "import failed" { // the cause is only in the whole text
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

// nearestImport returns the import path of the schema if the message names a similar one.
func nearestImport(text string) string {
	if _, after, ok := strings.Cut(text, `"`); ok {
		name, _, _ := strings.Cut(after, `"`)
		return nearest.Best(name, []string{ImportPath})
	}
	return ""
}

// quantities checks sizes, numbers of tokens and times that are written as strings. The
// schema's bounds apply to their numeric values, which CUE cannot compute from a string.
func (x *explainer) quantities(f *field, v cue.Value) []Problem {
	var list []Problem
	x.walk(f, v, "", &list)
	return list
}

// walk appends the problems of v, which is the field f, and of the fields below it.
func (x *explainer) walk(f *field, v cue.Value, path string, list *[]Problem) {
	if text, err := v.String(); err == nil {
		if reason := x.quantity(f, v, text); reason != "" {
			pos := x.src.position(path)
			if s := x.src.assigned[path]; len(s) > 0 {
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
			continue // an element of a list with an error
		}
		label := fields.Selector().Unquoted()
		if m := f.member(label); m != nil {
			x.walk(m, fields.Value(), join(path, label), list)
		}
	}
}

// quantity returns why the text is not valid for the field, "" if it is.
func (x *explainer) quantity(f *field, v cue.Value, text string) string {
	var n int64
	var err error
	bound := x.lang.size
	switch {
	case f.refers("#Duration"):
		_, err = ParseDuration(text)
		bound = cue.Value{}
	case f.refers("#Latency"):
		_, err = ParseLatency(text)
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

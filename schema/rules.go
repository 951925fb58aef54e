package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/token"
)

// rule is one constraint of a policy as it was written.
type rule struct {
	path    string
	at      token.Pos // of the constraint
	value   ast.Expr
	message string // of @message on the field, or on one around it
}

// holds says whether the place is inside the rule.
func (r rule) holds(at token.Pos) bool {
	from, to := r.value.Pos(), r.value.End()
	return at.IsValid() && at.Filename() == from.Filename() && at.Offset() >= from.Offset() && at.Offset() <= to.Offset()
}

// declarations indexes rules: as origin.declarations does for a profile, but
// with optional and required fields, and with what stands under if and for.
func (p *policy) declarations(path string, decls []ast.Decl) { p.under(path, "", decls) }

func (p *policy) under(path, message string, decls []ast.Decl) {
	for _, d := range decls {
		switch d := d.(type) {
		case *ast.EmbedDecl:
			p.constraint(path, message, d.Expr)
		case *ast.Comprehension:
			p.constraint(path, message, d.Value)
		case *ast.Field:
			name, ident, err := ast.LabelName(d.Label)
			if err != nil || ident && strings.HasPrefix(strings.TrimPrefix(name, "_"), "#") || ident && name[0] == '_' {
				continue // a pattern, a definition, a hidden field
			}
			at, text := join(path, name), messageOf(d, message)
			p.src.said[at] = append(p.src.said[at], saying{d.Label.Pos(), d.Value, d})
			p.rules = append(p.rules, rule{at, d.Value.Pos(), d.Value, text})
			p.constraint(at, text, d.Value)
		}
	}
}

func (p *policy) constraint(path, message string, e ast.Expr) {
	switch e := e.(type) {
	case *ast.StructLit:
		p.under(path, message, e.Elts)
	case *ast.ParenExpr:
		p.constraint(path, message, e.X)
	case *ast.BinaryExpr:
		if e.Op == token.AND {
			p.constraint(path, message, e.X)
			p.constraint(path, message, e.Y)
		}
	case *ast.ListLit:
		for i, x := range e.Elts {
			if _, open := x.(*ast.Ellipsis); !open {
				p.constraint(fmt.Sprintf("%s[%d]", path, i), message, x)
			}
		}
	}
}

// messageOf is the text of the field's @message, else the one around it.
func messageOf(f *ast.Field, around string) string {
	for _, a := range f.Attrs {
		if key, body := a.Split(); key == "message" {
			if text, err := literal.Unquote(strings.TrimSpace(body)); err == nil {
				return oneLine(text)
			}
			return oneLine(body)
		}
	}
	return around
}

// lookup follows a path into what is given, optional or stands for any element.
func lookup(v cue.Value, path string) cue.Value {
	for _, label := range labels(path) {
		var next cue.Value
		if n, err := strconv.Atoi(label); err == nil && v.IncompleteKind() == cue.ListKind {
			if next = v.LookupPath(cue.MakePath(cue.Index(n))); !next.Exists() {
				next = v.LookupPath(cue.MakePath(cue.AnyIndex))
			}
		} else {
			if text, err := literal.Unquote(label); err == nil {
				label = text
			}
			next = v.LookupPath(cue.MakePath(cue.Str(label).Optional()))
		}
		v = next
	}
	return v
}

// met says whether the profile meets one alternative of a constraint where CUE
// sees several that are still open: {file!: _} | {env!: _} of {env: "KEY"}.
func (q *policy) met(g *group, data cue.Value) bool {
	rule, given := lookup(q.value, g.path), lookup(data, g.path)
	if !rule.Exists() || !given.Exists() {
		return false
	}
	op, _ := rule.Expr()
	return (op == cue.OrOp || op == cue.AndOp) && meets(rule, given, maxChoices)
}

// meets says whether what is given meets a rule by its parts: one alternative of
// each disjunction. n bounds how deep they are taken apart.
func meets(rule, given cue.Value, n int) bool {
	op, args := rule.Expr()
	one := func(v cue.Value) bool { return meets(v, given, n-1) }
	switch {
	case op == cue.OrOp && n > 0:
		return slices.ContainsFunc(args, one)
	case op == cue.AndOp && n > 0:
		return !slices.ContainsFunc(args, func(v cue.Value) bool { return !one(v) })
	}
	return rule.Unify(given).Validate(cue.Concrete(true), cue.Final()) == nil
}

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

// rule is one constraint in the source of a policy.
type rule struct {
	path    string
	at      token.Pos // of the constraint
	value   ast.Expr
	message string // @message of the field, or of a field that contains it
}

// contains reports whether the position is inside the rule.
func (r rule) contains(at token.Pos) bool {
	from, to := r.value.Pos(), r.value.End()
	return at.IsValid() && at.Filename() == from.Filename() && at.Offset() >= from.Offset() && at.Offset() <= to.Offset()
}

// declarations indexes the rules of a policy, as origin.declarations does for a profile.
// It includes optional and required fields, and those under if and for.
func (p *policy) declarations(path string, decls []ast.Decl) { p.under(path, "", decls) }

// under indexes the rules of a struct at path; message is the @message around it.
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
			p.src.assigned[at] = append(p.src.assigned[at], assignment{d.Label.Pos(), d.Value, d})
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

// messageOf returns the text of the field's @message, else that of the field around it.
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

// lookup returns the value at a path, which may lead through optional fields and list
// elements.
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

// met reports whether the profile meets one alternative of a constraint for which CUE
// considers several still possible: {file!: _} | {env!: _} with {env: "KEY"}.
func (q *policy) met(g *group, data cue.Value) bool {
	rule, given := lookup(q.value, g.path), lookup(data, g.path)
	if !rule.Exists() || !given.Exists() {
		return false
	}
	op, _ := rule.Expr()
	return (op == cue.OrOp || op == cue.AndOp) && meets(rule, given, maxChoices)
}

// meets reports whether a value meets a rule: all operands of a conjunction and one of a
// disjunction. n bounds the depth of the recursion.
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

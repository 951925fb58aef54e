package schema

import (
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/token"
)

// allows returns a description of the allowed values of the field.
func (f *field) allows(defs definitions) string {
	switch {
	case f.allowed != "":
		return f.allowed
	case len(f.fields) > 0:
		return "a struct of " + strings.Join(f.names(), ", ")
	case f.expr == nil:
		return ""
	}
	return strings.Join(defs.alternatives(f.expr), ", ")
}

// alternatives returns a description of each operand of a disjunction. A default that
// another alternative includes is left out.
func (defs definitions) alternatives(e ast.Expr) []string {
	var list []string
	words := true
	for _, x := range operands(e, token.OR) {
		x = plain(x)
		_, word := x.(*ast.BasicLit)
		words = words && word
		list = append(list, defs.inWords(x))
	}
	if lit, ok := plain(operands(e, token.OR)[0]).(*ast.BasicLit); ok && !words && lit.Kind != token.STRING {
		list = list[1:] // the default number or bool of a range
	}
	return list
}

// operands returns the operands of a chain of op.
func operands(e ast.Expr, op token.Token) []ast.Expr {
	if p, ok := e.(*ast.ParenExpr); ok {
		return operands(p.X, op)
	}
	if b, ok := e.(*ast.BinaryExpr); ok && b.Op == op {
		return append(operands(b.X, op), operands(b.Y, op)...)
	}
	return []ast.Expr{e}
}

// plain returns e without default mark and parentheses.
func plain(e ast.Expr) ast.Expr {
	switch x := e.(type) {
	case *ast.UnaryExpr:
		if x.Op == token.MUL {
			return plain(x.X)
		}
	case *ast.ParenExpr:
		return plain(x.X)
	}
	return e
}

// words returns the string literals that f allows.
func (defs definitions) words(f *field) []string {
	var list []string
	if f.expr == nil {
		return nil
	}
	for _, x := range operands(f.expr, token.OR) {
		if lit, ok := plain(x).(*ast.BasicLit); ok && lit.Kind == token.STRING {
			list = append(list, lit.Value)
		}
	}
	return list
}

// typeNames maps CUE's types to English.
var typeNames = map[string]string{
	"int": "an integer", "number": "a number", "string": "a string", "bool": "true or false",
}

// inWords returns a description of one alternative.
func (defs definitions) inWords(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		if name, ok := typeNames[e.Name]; ok {
			return name
		}
		if d := defs[e.Name]; d != nil {
			f := &field{expr: d.Value}
			defs.attributes(f, d, false)
			return f.allows(defs)
		}
	case *ast.ListLit:
		for _, x := range e.Elts {
			if more, ok := x.(*ast.Ellipsis); ok && more.Type != nil {
				return "a list of " + strings.Join(defs.alternatives(more.Type), " or ")
			}
		}
		return "a list"
	case *ast.UnaryExpr:
		if e.Op != token.SUB {
			return e.Op.String() + " " + source(e.X)
		}
	case *ast.BinaryExpr:
		if e.Op == token.AND {
			return defs.bounds(operands(e, token.AND))
		}
	}
	return source(e)
}

// source returns the expression in CUE syntax.
func source(e ast.Expr) string {
	text, err := format.Node(e)
	if err != nil {
		return ""
	}
	return string(text)
}

// bounds describes a type with its limits: "an integer >= 1 and <= 65536".
func (defs definitions) bounds(list []ast.Expr) string {
	words := make([]string, len(list))
	for i, x := range list {
		words[i] = defs.inWords(plain(x))
	}
	if len(words) > 2 {
		words = append([]string{words[0] + " " + words[1]}, words[2:]...)
		return strings.Join(words, " and ")
	}
	return strings.Join(words, " ")
}

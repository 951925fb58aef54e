package schema

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/token"
)

// Limits of the values that references and comprehensions may expand to.
const (
	maxValues  = 4 << 20 // values and characters
	maxDepth   = 200     // length of a chain of references
	maxChoices = 8       // alternatives of structs or references; n of them make 2^n combinations
)

// The functions that a profile may call. The result of none of them is larger than the
// product of its arguments, which is the complexity of a call. growing lists the exceptions
// in the packages.
var (
	calledBuiltins = []string{"len", "close", "and", "div", "mod", "quo", "rem", "error"}
	calledPackages = []string{"strings", "list", "path", "regexp"}
	growing        = []string{"Repeat", "Range", "Permutations", "Combinations"}
)

// guard refuses a profile whose evaluation could explode: values that multiply by chains of
// references, by comprehensions or by calls, and products of alternatives.
func guard(inst *build.Instance, src *origin) error {
	s := &estimator{decls: map[string][]ast.Expr{}, memo: map[string]complexity{}, src: src, imported: map[string]bool{}, texts: map[string]bool{}}
	s.collect(inst)
	for _, f := range s.files {
		for _, d := range f.Decls {
			if c := s.decl(d); c.values > maxValues || c.depth > maxDepth {
				s.refuse(d, "unfolds to more than %d values or %d references deep", maxValues, maxDepth)
			}
		}
	}
	if s.choices > maxChoices {
		s.refuse(inst.Files[0], "more than %d alternatives (|) of structs or references", maxChoices)
	}
	if s.err != nil {
		return s.err
	}
	return nil
}

// complexity is an upper bound of what an expression expands to.
type complexity struct {
	values float64 // values and characters
	depth  int     // chained references
}

// plus returns the complexity of two expressions next to each other.
func (c complexity) plus(other complexity) complexity {
	return complexity{c.values + other.values, max(c.depth, other.depth)}
}

// estimator computes the complexity of expressions. It distinguishes names by their text
// only: if two fields have the same name, a reference counts both.
type estimator struct {
	src      *origin
	files    []*ast.File
	decls    map[string][]ast.Expr // the values of all fields and aliases, by name
	memo     map[string]complexity // of names
	imported map[string]bool       // import paths that were collected
	choices  int
	texts    map[string]bool // memo of textualName
	err      *Error
}

// refuse records the first problem.
func (s *estimator) refuse(at ast.Node, format string, args ...any) {
	if s.err == nil {
		s.err = &Error{List: []Problem{{Kind: TooLarge, Pos: s.src.place(at.Pos()), Message: fmt.Sprintf(format, args...)}}}
	}
}

// collect adds the files of the instance and of its imports, except the schema, and indexes
// their names.
func (s *estimator) collect(inst *build.Instance) {
	if inst.ImportPath == ImportPath || inst.ImportPath != "" && s.imported[inst.ImportPath] {
		return
	}
	s.imported[inst.ImportPath] = true
	for _, f := range inst.Files {
		s.files = append(s.files, f)
		ast.Walk(f, func(n ast.Node) bool {
			s.index(n)
			return true
		}, nil)
	}
	for _, i := range inst.Imports {
		s.collect(i)
	}
}

// index adds the names that a node declares to decls, and counts alternatives.
func (s *estimator) index(n ast.Node) {
	name := func(id *ast.Ident, e ast.Expr) {
		if id != nil && e != nil {
			s.decls[id.Name] = append(s.decls[id.Name], e)
		}
	}
	switch n := n.(type) {
	case *ast.Field:
		if label, _, err := ast.LabelName(n.Label); err == nil {
			s.decls[label] = append(s.decls[label], n.Value)
		}
		if a, ok := n.Label.(*ast.Alias); ok {
			name(a.Ident, n.Value)
			if label, ok := a.Expr.(ast.Label); ok {
				if text, _, err := ast.LabelName(label); err == nil {
					s.decls[text] = append(s.decls[text], n.Value)
				}
			}
		}
	case *ast.Alias:
		name(n.Ident, n.Expr)
	case *ast.LetClause:
		name(n.Ident, n.Expr)
	case *ast.ForClause:
		name(n.Key, n.Source)
		name(n.Value, n.Source)
	case *ast.BinaryExpr:
		if n.Op == token.OR && !(scalar(n.X) && scalar(n.Y)) {
			s.choices++
		}
	}
}

// scalar reports whether an alternative is a plain value or type.
func scalar(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return true
	case *ast.UnaryExpr:
		return scalar(e.X)
	case *ast.ParenExpr:
		return scalar(e.X)
	case *ast.BinaryExpr:
		return scalar(e.X) && scalar(e.Y)
	case *ast.Ident:
		return typeNames[e.Name] != ""
	}
	return false
}

func (s *estimator) decl(d ast.Decl) complexity {
	switch d := d.(type) {
	case *ast.Field:
		return s.expr(d.Value).plus(complexity{values: 1})
	case *ast.EmbedDecl:
		return s.expr(d.Expr)
	case *ast.LetClause:
		return s.expr(d.Expr)
	case *ast.Comprehension:
		return s.comprehension(d)
	case *ast.Alias:
		return s.expr(d.Expr)
	}
	return complexity{}
}

// comprehension returns the complexity of the body, once per element of each source.
func (s *estimator) comprehension(c *ast.Comprehension) complexity {
	total := s.expr(c.Value).plus(complexity{values: 1})
	for _, clause := range c.Clauses {
		switch clause := clause.(type) {
		case *ast.ForClause:
			total = total.times(s.expr(clause.Source))
		case *ast.IfClause:
			total = total.plus(s.expr(clause.Condition))
		case *ast.LetClause:
			total = total.plus(s.expr(clause.Expr))
		}
	}
	return total
}

// times returns the complexity of c repeated for each value of other.
func (c complexity) times(other complexity) complexity {
	return complexity{c.values * (1 + other.values), max(c.depth, other.depth)}
}

// expr returns the complexity of an expression.
func (s *estimator) expr(e ast.Expr) complexity {
	one := complexity{values: 1}
	switch e := e.(type) {
	case *ast.BasicLit:
		return complexity{values: 1 + float64(len(e.Value))/16}
	case *ast.Ident:
		return s.name(e)
	case *ast.SelectorExpr:
		return s.selector(e)
	case *ast.IndexExpr:
		return s.expr(e.X).plus(s.expr(e.Index))
	case *ast.SliceExpr:
		return s.expr(e.X)
	case *ast.ParenExpr:
		return s.expr(e.X)
	case *ast.UnaryExpr:
		return s.expr(e.X)
	case *ast.BinaryExpr:
		return s.binary(e)
	case *ast.Alias:
		return s.expr(e.Expr)
	case *ast.Comprehension:
		return s.comprehension(e)
	case *ast.CallExpr:
		return s.call(e)
	case *ast.Ellipsis, *ast.BottomLit:
		return one
	case *ast.Interpolation:
		return s.sum(e.Elts)
	case *ast.ListLit:
		return s.sum(e.Elts)
	case *ast.StructLit:
		for _, d := range e.Elts {
			one = one.plus(s.decl(d))
		}
		return one
	}
	s.refuse(e, "this kind of expression is not read in a profile")
	return one
}

func (s *estimator) sum(list []ast.Expr) complexity {
	total := complexity{values: 1}
	for _, x := range list {
		total = total.plus(s.expr(x))
	}
	return total
}

// name returns the complexity of what an identifier refers to. A reference within a cycle,
// which CUE refuses or resolves itself, counts as one value.
func (s *estimator) name(id *ast.Ident) complexity {
	_, imported := id.Node.(*ast.ImportSpec)
	if id.Node != nil && !imported && len(s.decls[id.Name]) == 0 {
		s.refuse(id, "%s: this kind of name is not read in a profile", id.Name)
	}
	return s.named(id.Name)
}

func (s *estimator) named(name string) complexity {
	known, ok := s.memo[name]
	if ok {
		return known
	}
	total := complexity{values: 1}
	s.memo[name] = total // for references within a cycle
	for _, e := range s.decls[name] {
		total = total.plus(s.expr(e))
	}
	total.depth++
	s.memo[name] = total
	return total
}

// selector returns the complexity of the whole operand, and, if the operand is a package,
// also that of the selected name.
func (s *estimator) selector(e *ast.SelectorExpr) complexity {
	total := s.expr(e.X)
	if id, ok := e.X.(*ast.Ident); ok && len(s.decls[id.Name]) == 0 {
		if name, _, err := ast.LabelName(e.Sel); err == nil {
			total = total.plus(s.named(name))
		}
	}
	return total
}

func (s *estimator) binary(e *ast.BinaryExpr) complexity {
	total := s.expr(e.X).plus(s.expr(e.Y))
	if e.Op != token.MUL {
		return total
	}
	for _, side := range [][2]ast.Expr{{e.X, e.Y}, {e.Y, e.X}} {
		if !s.textual(side[0]) {
			continue
		}
		n := math.Inf(1)
		if lit, ok := side[1].(*ast.BasicLit); ok && lit.Kind == token.INT {
			n, _ = strconv.ParseFloat(lit.Value, 64)
		}
		total.values *= 1 + n
	}
	return total
}

// textual reports whether the expression may be a string, because "x" * 3 repeats a string.
func (s *estimator) textual(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.ParenExpr:
		return s.textual(e.X)
	case *ast.UnaryExpr:
		return s.textual(e.X)
	case *ast.BinaryExpr:
		return s.textual(e.X) || s.textual(e.Y)
	case *ast.SelectorExpr:
		name, _, err := ast.LabelName(e.Sel)
		return err != nil || s.textualName(name)
	case *ast.Ident:
		return typeNames[e.Name] == "" && s.textualName(e.Name)
	}
	return true
}

func (s *estimator) textualName(name string) bool {
	if known, ok := s.texts[name]; ok {
		return known
	}
	s.texts[name] = false // for references within a cycle
	found := len(s.decls[name]) == 0
	for _, x := range s.decls[name] {
		found = found || s.textual(x)
	}
	s.texts[name] = found
	return found
}

// call returns the product of the arguments' complexities.
func (s *estimator) call(e *ast.CallExpr) complexity {
	allowed := false
	switch f := e.Fun.(type) {
	case *ast.Ident:
		allowed = slices.Contains(calledBuiltins, f.Name)
	case *ast.SelectorExpr:
		pkg, ok := f.X.(*ast.Ident)
		name, _, err := ast.LabelName(f.Sel)
		allowed = ok && err == nil && slices.Contains(calledPackages, pkg.Name) && !slices.Contains(growing, name)
	}
	if !allowed {
		s.refuse(e, "%s is not called in a profile (%v and most of the packages %v are)", source(e.Fun), calledBuiltins, calledPackages)
	}
	total := complexity{values: 1}
	for _, x := range e.Args {
		total = total.times(s.expr(x))
	}
	return total
}

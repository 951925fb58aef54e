package schema

import (
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/token"

	"vapp.dev/nearest"
)

// Forms of lines that are not CUE, and that writers of YAML, TOML and Python write.
var (
	bareValue = regexp.MustCompile(`:\s*([0-9][0-9A-Za-z_./%]*(?: [kKMGT]i?B)?)`)
	address   = regexp.MustCompile(`^\d+\.\d+\.\d+\.\d+$`)
	withUnit  = regexp.MustCompile(`^\d+(\.\d+)? ?([kmgKMGT]i?B?|B|h|ms|m|s)([0-9hms.]*)$`)
	percent   = regexp.MustCompile(`^(\d{1,3}(\.\d+)?)%$`)
	equals    = regexp.MustCompile(`^\s*([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(\S[^,]*)`)
	grouped   = regexp.MustCompile(`:\s*(\d{1,3}(?:,\d{3})+)\s*}*\s*(?://.*)?$`)
	dashItem  = regexp.MustCompile(`^\s*-\s+\S`)

	decimalSuffix = regexp.MustCompile(`[KMGTP]$`) // a number that CUE multiplies by a power of 1,000
)

// advise replaces syntax errors on lines of a known form by what to write. It keeps the others.
func advise(e *Error, data []byte, file string) *Error {
	lines := strings.Split(string(data), "\n")
	var list []Problem
	known := map[int]bool{}
	for _, p := range e.List {
		if p.Kind == Syntax && p.Pos.File == file && p.Pos.Line > 0 && p.Pos.Line <= len(lines) {
			at, text := mistake(lines[p.Pos.Line-1])
			if p.Pos.Line > 1 && text == "" && equals.MatchString(lines[p.Pos.Line-2]) { // a = b is an alias, which needs a field behind it
				p.Pos.Line--
				at, text = mistake(lines[p.Pos.Line-1])
			}
			if text != "" {
				p.Pos.Column, p.Message = at, text
				known[p.Pos.Line] = true
			}
		}
		list = append(list, p)
	}
	if len(known) == 0 {
		return e
	}
	var kept []Problem
	for _, p := range list { // what the parser says behind such a line is its consequence
		if known[p.Pos.Line] || p.Kind != Syntax {
			kept = append(kept, p)
		}
	}
	return newError(kept)
}

// mistake returns the column and the correction of a line that is not CUE; "" for other lines.
func mistake(line string) (column int, text string) {
	if m := equals.FindStringSubmatchIndex(line); m != nil {
		name, value := line[m[2]:m[3]], shortened(strings.TrimSpace(line[m[4]:m[5]]))
		if strings.Contains(nearest.Folded(name), "key") { // the text is no profile yet: nothing else says what is secret
			value = "VALUE"
		}
		return m[2] + 1, fmt.Sprintf("a field is written with a colon: write %s: %s", name, value)
	}
	if dashItem.MatchString(line) {
		return strings.IndexByte(line, '-') + 1, `a list is written in brackets: write ["a", "b"]`
	}
	for _, m := range bareValue.FindAllStringSubmatchIndex(line, -1) {
		value := line[m[2]:m[3]]
		switch {
		case address.MatchString(value):
			return m[2] + 1, fmt.Sprintf("%s is text: write %q, with quotes", value, value)
		case percent.MatchString(value):
			return m[2] + 1, fmt.Sprintf("%s is no number: write %s", value, share(strings.TrimSuffix(value, "%")))
		case withUnit.MatchString(value):
			return m[2] + 1, fmt.Sprintf("%s is text: write %q, with quotes", value, strings.ReplaceAll(value, " ", ""))
		}
	}
	return 0, ""
}

// commas returns the problem of a number with commas, which is the cause of an error about the whole
// profile; false if there is none.
func commas(data []byte, file string) (Problem, bool) {
	for i, line := range strings.Split(string(data), "\n") {
		if m := grouped.FindStringSubmatchIndex(line); m != nil {
			value := line[m[2]:m[3]]
			return Problem{Kind: Invalid, Pos: Position{File: file, Line: i + 1, Column: m[2] + 1},
				Message: fmt.Sprintf("a comma ends the value: write %s or %s", strings.ReplaceAll(value, ",", ""), strings.ReplaceAll(value, ",", "_"))}, true
		}
	}
	return Problem{}, false
}

// decimalSuffixes returns a problem for each number with a decimal suffix, such as 8K: CUE reads
// 8,000, but the text "8K" is 8,192 tokens.
func decimalSuffixes(f *ast.File, src *origin) (list []Problem) {
	ast.Walk(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.INT && decimalSuffix.MatchString(lit.Value) {
			list = append(list, Problem{Kind: Invalid, Pos: src.place(lit.Pos()),
				Message: fmt.Sprintf("%s is a decimal number of CUE (K is 1,000): write %q, with quotes", lit.Value, lit.Value)})
		}
		return true
	}, nil)
	return list
}

// shortened returns s, or its beginning if it is long.
func shortened(s string) string {
	if short(s) {
		return s
	}
	return "VALUE"
}

// share returns a percentage as a fraction: "90" is 0.9.
func share(percentage string) string {
	r, ok := new(big.Rat).SetString(percentage)
	if !ok {
		return "0.9"
	}
	r.Quo(r, big.NewRat(100, 1))
	return strings.TrimSuffix(strings.TrimRight(r.FloatString(6), "0"), ".")
}

// foreignBools are the words of YAML and Python for CUE's.
var foreignBools = map[string]string{
	"True": "true", "False": "false", "yes": "true", "no": "false", "on": "true", "off": "false", "Yes": "true", "No": "false", "TRUE": "true", "FALSE": "false",
}

// reference returns what to write for a name that refers to nothing; "" where that is unclear.
func (x *explainer) reference(name string, g *group) string {
	to, isBool := foreignBools[name]
	if s := x.src.assigned[g.path]; len(s) > 0 {
		if e, ok := s[0].value.(*ast.UnaryExpr); ok && e.Op == token.SUB {
			return fmt.Sprintf("a list is written in brackets: write [%q]", name)
		}
	}
	switch {
	case name == "schema":
		return `write import "` + ImportPath + `" at the top of the file`
	case isBool && g.f != nil && g.f.refers("bool"):
		return "write " + to
	case name == "None" || name == "nil":
		return "leave the field out"
	case g.f != nil && len(x.lang.defs.words(g.f)) > 0 && nearest.Folded(nearest.Best(name, x.lang.defs.words(g.f))) == nearest.Folded(name):
		return "write " + nearest.Best(name, x.lang.defs.words(g.f)) + ", with quotes"
	}
	return ""
}

// instead returns what to write for a value that the constraint of f refuses; "" where that is
// unclear.
func (x *explainer) instead(f *field, e ast.Expr, defs definitions) string {
	if id, ok := e.(*ast.Ident); ok { // a type of CUE, such as float32
		for _, w := range defs.words(f) {
			if w == strconv.Quote(id.Name) {
				return "write " + w + ", with quotes"
			}
		}
		return ""
	}
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return ""
	}
	text := lit.Value
	if lit.Kind == token.STRING {
		value, err := literal.Unquote(text)
		if err != nil {
			return ""
		}
		if strings.HasPrefix(text, "'") {
			return fmt.Sprintf("write %q: single quotes are bytes", value)
		}
		words := defs.words(f)
		switch {
		case slices.Contains(words, `"cuda"`) && slices.Contains([]string{"gpu", "nvidia"}, strings.ToLower(value)):
			return `write "cuda"`
		case strings.HasPrefix(f.allows(defs), "a list") && !strings.ContainsAny(value, " ,") && !f.secret:
			return fmt.Sprintf("a list is written in brackets: write [%q]", value)
		case percent.MatchString(value) && f.isShare():
			return "write " + share(strings.TrimSuffix(value, "%"))
		case (f.refers("#Size") || f.refers("#Tokens")) && strings.ContainsAny(value, " ,_"):
			return fmt.Sprintf("write %q", strings.NewReplacer(" ", "", ",", "", "_", "").Replace(value))
		case f.refers("bool") && (value == "true" || value == "false"):
			return "write " + value + ", without quotes"
		case (f.refers("int") || f.refers("number")) && !f.refers("#Tokens"):
			if _, err := strconv.ParseFloat(value, 64); err == nil {
				return "write " + value + ", without quotes"
			}
		}
		return ""
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
	switch {
	case err != nil:
	case f.isShare() && n >= 5 && n <= 100:
		return "write " + share(text)
	case f.refers("#Duration") && lit.Kind == token.INT:
		return fmt.Sprintf("write %q for seconds", text+"s")
	}
	return ""
}

// isShare reports whether the field is a fraction of a whole.
func (f *field) isShare() bool {
	if f.expr == nil || !f.refers("number") {
		return false
	}
	text := source(f.expr)
	return strings.Contains(text, "<=1") && !strings.Contains(text, "<=10") || strings.Contains(text, "<=0.9")
}

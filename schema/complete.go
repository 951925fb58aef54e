package schema

import (
	"slices"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/token"
)

// Completion is a field of a profile for the completion of a command line.
type Completion struct {
	Path    string   // "serve.port"
	Struct  bool     // it has fields
	Values  []string // literals among the values that it allows, in CUE: strings have quotes
	Allowed string   // what it allows, in words
}

// Completions lists every field of a profile that is not in a list or a map, in the order of the
// definitions.
func Completions() []Completion {
	lang, err := readLanguage(cuecontext.New())
	if err != nil {
		panic("schema: " + err.Error()) // the embedded files are invalid; no input causes this
	}
	var out []Completion
	var add func(*field)
	add = func(f *field) {
		for _, m := range f.fields {
			out = append(out, Completion{m.path, len(m.fields) > 0, lang.defs.values(m), m.allows(lang.defs)})
			add(m)
		}
	}
	add(lang.root)
	return out
}

// values returns the literals that f allows, and true and false for a bool.
func (defs definitions) values(f *field) []string {
	var out []string
	var each func(e ast.Expr)
	each = func(e ast.Expr) {
		for _, x := range operands(e, token.OR) {
			switch x := plain(x).(type) {
			case *ast.BasicLit:
				out = append(out, x.Value)
			case *ast.Ident:
				if d := defs[x.Name]; d != nil {
					each(d.Value)
				} else if x.Name == "bool" {
					out = append(out, "true", "false")
				}
			}
		}
	}
	if len(f.fields) == 0 && f.elem == nil && f.expr != nil {
		each(f.expr)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

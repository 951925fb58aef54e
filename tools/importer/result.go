package importer

import (
	"slices"
	"strings"
)

// Result is an imported profile.
type Result struct {
	Text    []byte
	Program string   // whose command line it was
	Fields  []string // paths of the fields that were set, except name
	Dropped []string // flags, parameters and variables that became comments
}

// newDraft returns an empty draft for a command.
func newDraft(c *command) *draft {
	p := vllm()
	if c != nil && c.program != nil {
		p = c.program
	}
	return &draft{lex: newLexicon(p), from: p.from, fields: map[string]field{}}
}

// result returns the profile with its summary.
func (d *draft) result(text []byte) *Result {
	r := &Result{Text: text, Program: d.lex.program.Name}
	for path := range d.fields {
		if path != "name" {
			r.Fields = append(r.Fields, path)
		}
	}
	slices.Sort(r.Fields)
	for _, n := range d.notes {
		what, _, _ := strings.Cut(n.what, " ")
		if what == "PARAMETER" {
			what = strings.Join(strings.Fields(n.what)[:2], " ")
		}
		if !slices.Contains(r.Dropped, what) {
			r.Dropped = append(r.Dropped, what)
		}
	}
	return r
}

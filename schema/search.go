package schema

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
)

// maxRounds bounds how often a profile with errors is evaluated again.
const maxRounds = 24

// search finds the errors that CUE does not report while there are others. It blanks the
// wrong parts of the text, without changing the positions of the rest, and evaluates it
// again until no new errors appear.
type search struct {
	doc      document
	text     []byte
	gone     erased
	list     []Problem
	reported map[string]bool // paths
}

// erased holds the blanked fields by path. The value is the label of a field that was
// blanked with its label, else "".
type erased map[string]string

// run returns the problems of the first round and all that later rounds find.
func (s *search) run(x *explainer, first []Problem) []Problem {
	s.gone, s.reported = erased{}, map[string]bool{}
	found := append(first, x.typos()...)
	for range maxRounds {
		if !s.blank(x, s.report(found)) {
			return s.list
		}
		doc := s.doc
		doc.data = s.text
		next, v, err := evaluate(doc)
		if err != nil {
			return s.list // the blanked text means something else; report the problems found so far
		}
		next.gone = s.gone
		x, found = next, next.check(v)
	}
	return append(s.list, Problem{Kind: TooLarge, Pos: Position{File: shown(s.doc.name)},
		Message: "there may be more errors behind these; mend these first"})
}

// report adds and returns the problems of fields that had none so far.
func (s *search) report(found []Problem) []Problem {
	var fresh []Problem
	for _, p := range found {
		if !s.reported[p.Path] {
			fresh = append(fresh, p)
		}
	}
	for _, p := range fresh {
		s.reported[p.Path] = true
	}
	s.list = append(s.list, fresh...)
	return fresh
}

// blank removes the wrong fields from the text and reports whether it changed anything. It
// removes a field that is unknown or in conflict with its label; of any other field only
// the value, so that references to it stay valid.
func (s *search) blank(x *explainer, wrong []Problem) bool {
	changed := false
	for _, path := range x.caused {
		wrong = append(wrong, Problem{Kind: Invalid, Path: path})
	}
	for _, p := range wrong {
		kept := len(s.doc.set)
		s.doc.set = slices.DeleteFunc(slices.Clone(s.doc.set), func(o Override) bool { return o.caused(p) })
		changed = changed || len(s.doc.set) < kept
		assigned := x.src.assigned[p.Path]
		if _, twice := s.gone[p.Path]; twice || p.Path == "" || len(assigned) == 0 {
			continue
		}
		assigned = slices.DeleteFunc(slices.Clone(assigned), func(a assignment) bool {
			return a.whole.Pos().Filename() != x.src.file || a.value.Pos().Filename() != x.src.file
		})
		if len(assigned) == 0 {
			continue // an override
		}
		s.gone[p.Path] = ""
		for _, at := range assigned {
			if p.Kind == Unknown || p.Kind == Conflict {
				s.gone[p.Path] = lastLabel(p.Path)
				s.over(at.whole, "{}")
			} else {
				s.over(at.value, "_")
			}
			changed = true
		}
	}
	return changed
}

// over replaces a node by short and spaces, keeping its line ends.
func (s *search) over(n ast.Node, short string) {
	from, to := n.Pos().Offset(), n.End().Offset()
	if from < 0 || to > len(s.text) || to-from < len(short) {
		return
	}
	for i := from; i < to; i++ {
		if c := s.text[i]; c != '\n' && c != '\r' {
			s.text[i] = ' '
		}
	}
	copy(s.text[from:], short)
}

// caused reports whether the blanked fields explain the group: it is about such a field or
// one inside it, about a reference to a removed label, or about a value that is incomplete
// now.
func (e erased) caused(g *group, assigned []assignment) bool {
	text := message(g.errs[0])
	for path, label := range e {
		if g.path == path || inside(g.path, path) {
			return true
		}
		if label != "" && strings.HasPrefix(text, "reference") && strings.Contains(text, `"`+label+`"`) {
			return true
		}
	}
	return len(e) > 0 && strings.HasPrefix(text, "incomplete") && (len(assigned) == 0 || refers(assigned[0].value))
}

// refers reports whether the expression has a name other than a type, such as the "_" of a
// blanked part.
func refers(e ast.Expr) bool {
	found := false
	ast.Walk(e, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && typeNames[id.Name] == ""
		return true
	}, nil)
	return found
}

// inside reports whether path is below the struct or list outer.
func inside(path, outer string) bool {
	return strings.HasPrefix(path, outer+".") || strings.HasPrefix(path, outer+"[")
}

// lastLabel returns the last label of a path.
func lastLabel(path string) string {
	list := labels(path)
	return list[len(list)-1]
}

// typos returns the problems of fields in the profile's own text that are not in the
// schema. CUE reports these only if there are no other errors.
func (x *explainer) typos() []Problem {
	var list []Problem
	seen := map[string]bool{}
	for _, path := range slices.SortedFunc(maps.Keys(x.src.assigned), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(labels(a)), len(labels(b))), cmp.Compare(a, b))
	}) {
		g := x.locate(labels(path))
		if g.f == nil && !seen[g.path] {
			seen[g.path] = true
			p := Problem{Path: g.path, Pos: x.src.position(g.path)}
			x.unknown(g, &p)
			list = append(list, p)
		}
	}
	return list
}

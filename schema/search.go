package schema

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
)

// maxRounds bounds how often a profile with errors is read again.
const maxRounds = 24

// search finds the errors that CUE keeps to itself while others stand: it
// blanks what is wrong in the text, in place so that every position stays, and
// asks again until nothing new comes.
type search struct {
	name string
	text []byte
	gone erased
	list []Problem
	told map[string]bool // paths
}

// erased are the fields that were blanked, by path; the value is the label of
// one that went whole, else "".
type erased map[string]string

// run returns the first round's problems and all that follow.
func (s *search) run(x *explainer, first []Problem) []Problem {
	s.gone, s.told = erased{}, map[string]bool{}
	news := append(first, x.typos()...)
	for range maxRounds {
		if !s.blank(x, s.tell(news)) {
			return s.list
		}
		next, v, err := evaluate(s.name, s.text)
		if err != nil {
			return s.list // blanked into something else; what is known is told
		}
		next.gone = s.gone
		x, news = next, next.check(v)
	}
	return append(s.list, Problem{Kind: TooLarge, Pos: Position{File: shown(s.name)},
		Message: "there may be more errors behind these; mend these first"})
}

// tell takes over the problems of fields that had none so far.
func (s *search) tell(news []Problem) []Problem {
	var fresh []Problem
	for _, p := range news {
		if !s.told[p.Path] {
			fresh = append(fresh, p)
		}
	}
	for _, p := range fresh {
		s.told[p.Path] = true
	}
	s.list = append(s.list, fresh...)
	return fresh
}

// blank takes the wrong fields out of the text; false if it changed nothing. A
// field that the schema lacks, or that another excludes, goes whole; of any
// other the value goes, so that what refers to it still can.
func (s *search) blank(x *explainer, wrong []Problem) bool {
	changed := false
	for _, path := range x.caused {
		wrong = append(wrong, Problem{Kind: Invalid, Path: path})
	}
	for _, p := range wrong {
		said := x.src.said[p.Path]
		if _, twice := s.gone[p.Path]; twice || p.Path == "" || len(said) == 0 {
			continue
		}
		s.gone[p.Path] = ""
		for _, at := range said {
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

// over writes short over a node and spaces over what is left of it.
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

// caused says whether what was blanked explains the group: it is about such a
// field or what is in it, about a struct that lacks its value now, or about a
// name that went with it.
func (e erased) caused(g *group, said []saying) bool {
	text := message(g.errs[0])
	for path, label := range e {
		if g.path == path || inside(g.path, path) {
			return true
		}
		if label != "" && strings.HasPrefix(text, "reference") && strings.Contains(text, `"`+label+`"`) {
			return true
		}
	}
	return len(e) > 0 && strings.HasPrefix(text, "incomplete") && (len(said) == 0 || refers(said[0].value))
}

// refers says whether the expression names anything but a type, or was blanked
// in part.
func refers(e ast.Expr) bool {
	found := false
	ast.Walk(e, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && typeNames[id.Name] == ""
		return true
	}, nil)
	return found
}

// inside says whether path is that of something in the struct or list outer.
func inside(path, outer string) bool {
	return strings.HasPrefix(path, outer+".") || strings.HasPrefix(path, outer+"[")
}

// lastLabel is the name at the end of a path.
func lastLabel(path string) string {
	list := labels(path)
	return list[len(list)-1]
}

// typos are the fields of the profile's own text that the schema lacks. CUE
// tells them only where nothing else is wrong.
func (x *explainer) typos() []Problem {
	var list []Problem
	seen := map[string]bool{}
	for _, path := range slices.SortedFunc(maps.Keys(x.src.said), func(a, b string) int {
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

package plan

import (
	"io"
	"slices"
	"strings"
)

// WhyNot answers for each model, in the order of Members, whether what the goal asks for fits. With each change the model
// still fits beside the models that are loaded at start; a change to several ranks is none, since these models are served alone.
func (j *Joint) WhyNot(g Goal) []*Answer {
	var out []*Answer
	for i, m := range j.Members {
		w, loaded := m.w, j.atStart()
		if !slices.Contains(loaded, i) {
			loaded = append(loaded, i)
		}
		at := 0
		if w.onGPU() {
			at = 1
		}
		if p := j.places[at]; p.total > 0 {
			w.within = m.Plan.Ledger.Total() + p.total - j.ledger(at, loaded).Total()
		}
		a := w.answer(g)
		a.Changes = slices.DeleteFunc(a.Changes, ofRanks)
		a.Pairs = slices.DeleteFunc(a.Pairs, func(p [2]Change) bool { return ofRanks(p[0]) || ofRanks(p[1]) })
		out = append(out, a)
	}
	return out
}

func ofRanks(c Change) bool { return strings.HasPrefix(c.Path, "parallel.") }

// atStart returns the members that are loaded at start.
func (j *Joint) atStart() (out []int) {
	for i, m := range j.Members {
		if !m.OnRequest {
			out = append(out, i)
		}
	}
	return out
}

// AnswersText writes the answers of several models as text, each below the name of its profile.
func AnswersText(w io.Writer, list []*Answer) error {
	var b strings.Builder
	for i, a := range list {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(a.Profile + ", beside the others:\n" + a.String())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// AnswersJSON writes the answers of several models as an indented JSON list.
func AnswersJSON(w io.Writer, list []*Answer) error { return writeIndented(w, list) }

package plan

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"vapp.dev/schema"
)

// TextAs writes the joint plan as text: the verdict, the models, what can be in memory at once, what
// a request waits whose model is not; verbose also the ledger.
func (j *Joint) TextAs(w io.Writer, f Form) error {
	t := &text{width: TextWidth}
	if f.Width > 0 {
		t.width = min(TextWidth, max(narrowest, f.Width))
	}
	t.hang("vapp plan: ", j.list(j.everything(), ", "))
	t.line("")
	for k := range j.places {
		j.writePlace(t, k)
	}
	j.writeMembers(t)
	j.writeSets(t)
	t.line("")
	t.hang("note: ", "the models of one device take turns on it, step by step, with equal shares of its time while all have requests; each of them uses all the threads of its profile during its turn")
	if f.Verbose {
		for k, p := range j.places {
			if l := j.ledger(k, j.largest(k)); l.Total() > 0 {
				t.line("")
				t.hang("", fmt.Sprintf("%s, in bytes, with %s in memory", p.name, j.list(j.largest(k), ", ")))
				l.table(t, Basis.counts)
				j.sum(t, k, l)
			}
		}
	}
	_, err := io.WriteString(w, t.b.String())
	return err
}

// String returns the verbose text.
func (j *Joint) String() string {
	var b strings.Builder
	_ = j.TextAs(&b, Form{Verbose: true}) // a Builder returns no error
	return b.String()
}

func (j *Joint) sum(t *text, k int, l Ledger) {
	total := l.Total()
	t.row("total", Group(total), Size(total), "", "")
	if have := j.places[k].total; have > 0 {
		t.row("left over", Group(have-total), Size(have-total), "", "of "+Size(have))
	}
}

// largest returns the members that are in memory at once and take the most of a place.
func (j *Joint) largest(k int) []int {
	var base, best []int
	for i, m := range j.Members {
		if !m.OnRequest {
			base = append(base, i)
		}
	}
	best = base
	for _, set := range j.resident() {
		all := slices.Sorted(slices.Values(append(slices.Clone(base), set...)))
		if j.ledger(k, all).Total() > j.ledger(k, best).Total() {
			best = all
		}
	}
	return best
}

// resident returns the sets, or every model loaded on request alone where they are not listed.
func (j *Joint) resident() [][]int {
	if len(j.Sets) > 0 {
		return j.Sets
	}
	var out [][]int
	for i, m := range j.Members {
		if m.OnRequest {
			out = append(out, []int{i})
		}
	}
	return out
}

// writePlace writes what is taken of a place at most.
func (j *Joint) writePlace(t *text, k int) {
	p := j.places[k]
	total := j.ledger(k, j.largest(k)).Total()
	switch {
	case total == 0 || p.name == "":
	case p.total == 0:
		t.pair("takes", fmt.Sprintf("at most %s of %s", Size(total), p.name))
	default:
		t.pair("fits", fmt.Sprintf("at most %s of %s on %s; %s left", Size(total), Size(p.total), p.name, Size(p.total-total)))
	}
}

// writeMembers writes a line for each model, and what it carries.
func (j *Joint) writeMembers(t *text) {
	t.line("")
	t.line("models")
	for _, m := range j.Members {
		when := "loaded at start"
		if m.OnRequest {
			when = "loaded on request"
		}
		if idle := m.profile.Serve.Idle; idle != nil && idle.Unload > 0 {
			when += ", unloaded after " + schema.Duration(idle.Unload).String() + " without one"
		}
		path, value := m.describe()
		t.wide(12, m.Profile, fmt.Sprintf("%s of %s · %s · %s (%s)", Size(m.Plan.Ledger.Total()), m.Plan.Facts.Device, m.Plan.Backend, when, m.File))
		t.wide(12, "", fmt.Sprintf("%s: %s; carries %s", path, value, m.Plan.Verdict().Carries))
		for _, why := range m.Plan.PlanOnly {
			t.wide(12, "", "plan-only: vapp up refuses it: "+why)
		}
		if !m.OnRequest && m.profile.Serve.Idle == nil {
			continue
		}
		t.wide(12, "", "a request that finds it unloaded waits: "+m.Load.String())
	}
}

// String returns what a load takes: "269 MB, at least 0.05 s (…)".
func (l Load) String() string {
	if l.AtLeast == 0 {
		return fmt.Sprintf("%s to load; how long is %s", Size(l.Bytes), l.Rule)
	}
	return fmt.Sprintf("%s to load, at least %s (%s)", Size(l.Bytes), timeOf(l.AtLeast), l.Rule)
}

// writeSets writes which models can be in memory at once.
func (j *Joint) writeSets(t *text) {
	var base, onRequest []int
	for i, m := range j.Members {
		if m.OnRequest {
			onRequest = append(onRequest, i)
		} else {
			base = append(base, i)
		}
	}
	if len(onRequest) == 0 {
		return
	}
	t.line("")
	t.line("in memory at once")
	if len(base) > 0 {
		t.pair("always", j.list(base, ", ")+", or the memory is kept free for them")
	}
	if len(j.Sets) == 0 {
		t.pair("on request", fmt.Sprintf("each of %s; the sets of more than %d are not listed", j.list(onRequest, ", "), MostListed))
		return
	}
	for i, set := range j.Sets {
		name := "or"
		if i == 0 {
			name = "on request"
		}
		t.pair(name, j.list(set, " + "))
	}
}

// jointDocument is the JSON form of a Joint.
type jointDocument struct {
	Version int               `json:"version"`
	Fits    bool              `json:"fits"`
	Places  []jointPlace      `json:"places"`
	Members []jointMemberForm `json:"members"`
	Sets    [][]string        `json:"sets"` // of models loaded on request, by profile
}

type jointPlace struct {
	Name   string `json:"name"`
	Total  int64  `json:"total_bytes"` // 0: unknown
	Most   int64  `json:"most_bytes"`  // taken at once
	Ledger Ledger `json:"ledger"`
}

type jointMemberForm struct {
	Profile   string  `json:"profile"`
	File      string  `json:"file"`
	OnRequest bool    `json:"on_request"`
	Bytes     int64   `json:"total_bytes"`
	Load      Load    `json:"load"`
	Verdict   Verdict `json:"verdict"`
}

// JSON writes the joint plan as indented JSON.
func (j *Joint) JSON(w io.Writer) error {
	d := jointDocument{Version: Version, Fits: true, Sets: [][]string{}}
	for k, p := range j.places {
		if l := j.ledger(k, j.largest(k)); l.Total() > 0 {
			d.Places = append(d.Places, jointPlace{p.name, p.total, l.Total(), l})
		}
	}
	for _, m := range j.Members {
		d.Members = append(d.Members, jointMemberForm{m.Profile, m.File, m.OnRequest, m.Plan.Ledger.Total(), m.Load, m.Plan.Verdict()})
	}
	for _, set := range j.Sets {
		var names []string
		for _, i := range set {
			names = append(names, j.Members[i].Profile)
		}
		d.Sets = append(d.Sets, names)
	}
	return writeIndented(w, d)
}

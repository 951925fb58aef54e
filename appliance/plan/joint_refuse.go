package plan

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"vapp.dev/schema"
)

// JointChange is a change of one profile of several.
type JointChange struct {
	Profile string `json:"profile"`
	At      string `json:"at"` // file:line:column of the field
	Change
}

// String returns for example "b.cue:7:3: memory.utilization: 0.4 (now 0.9)".
func (c JointChange) String() string { return c.At + ": " + c.Change.String() }

// JointError reports that models do not fit in memory together. %v gives one line with the
// smallest change that fits; %+v adds what each model takes and every change.
type JointError struct {
	Place   string // the device, or the machine
	Members []JointMember
	Loads   string // the member that is loaded on request beside the others; "": all are loaded at start
	Need    int64  // bytes, what the process has once included
	Have    int64
	Once    int64 // of Need, what the process has once and what unloaded models take
	Ledger  Ledger
	// Each of Changes makes them fit alone, the smallest first.
	Changes []JointChange
	// All changes of one of Groups make them fit together.
	Groups [][]JointChange
}

// JointMember is what a model takes of the place.
type JointMember struct {
	Profile string `json:"profile"`
	At      string `json:"at"` // of the field that sets its memory
	Set     string `json:"set"`
	Bytes   int64  `json:"bytes"`
}

// refuse returns the error of members that do not fit a place.
func (j *Joint) refuse(k int, loaded []int, l Ledger) *JointError {
	p := j.places[k]
	e := &JointError{Place: p.name, Need: l.Total(), Have: p.total, Ledger: l, Once: l.Total()}
	for _, i := range loaded {
		m := &j.Members[i]
		n := m.takes[k].loaded.Total()
		if n == 0 {
			continue
		}
		path, value := m.describe()
		e.Members = append(e.Members, JointMember{m.Profile, m.profile.Pos(path).String(), path + ": " + value, n})
		e.Once -= n
		if m.OnRequest {
			e.Loads = m.Profile
		}
	}
	for _, i := range loaded {
		e.Changes = append(e.Changes, j.Members[i].smaller(k, e.Need-e.Have)...)
	}
	for _, g := range append(j.equalShares(k, loaded), j.allOnRequest(loaded)...) {
		if len(g) == 1 {
			e.Changes = append(e.Changes, g[0])
		} else {
			e.Groups = append(e.Groups, g)
		}
	}
	slices.SortStableFunc(e.Changes, func(a, b JointChange) int { return cmp.Compare(a.far, b.far) })
	return e
}

// smaller returns the changes of the member with which it takes less bytes less of the place.
func (m *Member) smaller(k int, less int64) []JointChange {
	if m.w.onGPU() != (k == 1) || ranks(m.w.in.Model.Source.Build) > 1 {
		return nil // its options do not change what it takes there
	}
	w := m.w
	w.within = m.Plan.Ledger.Total() - less
	if w.within <= 0 {
		return nil
	}
	w.goal = goal{}
	return m.locate(w.tryKnobs(jointKnobs, &shortError{}))
}

// jointKnobs search one field each for a value with which a profile takes less.
var jointKnobs = []func(resolved, *shortError) []Change{byLessUtilization, byModelLen, bySeqs, byBatch, byLessKVCache, byVariant}

// byLessUtilization lowers memory.utilization, in hundredths.
func byLessUtilization(w resolved, _ *shortError) []Change {
	old := w.utilization
	if old == 0 {
		return nil
	}
	n, ok := most(1, int64(math.Ceil(old*100))-1, func(n int64) bool {
		w.utilization = float64(n) / 100
		return w.budgetWithin() // a smaller share may hold no sequence: that is tried last
	})
	if w.utilization = float64(n) / 100; !ok || !w.fits() {
		return nil
	}
	return []Change{{"memory.utilization", fmt.Sprint(old), fmt.Sprint(w.utilization), "a smaller KV cache", distance(old, w.utilization)}}
}

// byLessKVCache lowers memory.kvCache.
func byLessKVCache(w resolved, s *shortError) []Change {
	if w.kvCache == 0 {
		return nil
	}
	return byKVCache(w, s)
}

// budgetWithin reports whether the budget is within w.within.
func (w resolved) budgetWithin() bool { return w.budget().Bytes <= w.within }

// locate gives changes the positions of their fields.
func (m *Member) locate(changes []Change) (out []JointChange) {
	for _, c := range changes {
		out = append(out, JointChange{m.Profile, m.profile.Pos(c.Path).String(), c})
	}
	return out
}

// equalShares returns the change of every member of loaded to the same largest memory.utilization
// with which they fit, if all set that field.
func (j *Joint) equalShares(k int, loaded []int) [][]JointChange {
	total := j.places[k].total
	for _, i := range loaded {
		if m := &j.Members[i]; m.Plan.utilization == 0 || m.w.onGPU() != (k == 1) {
			return nil
		}
	}
	if len(loaded) < 2 {
		return nil
	}
	rest := total - j.ledger(k, loaded).Total()
	for _, i := range loaded {
		rest = add(rest, j.Members[i].Plan.Ledger.Total())
	}
	// A share counts what the process has once for each member, as its own plan does.
	share := float64(rest) / float64(len(loaded)) / float64(total)
	share = math.Floor(share*100) / 100
	var out []JointChange
	for _, i := range loaded {
		m := &j.Members[i]
		w := m.w
		w.utilization = share
		if !w.fits() {
			return nil
		}
		out = append(out, m.locate([]Change{{"memory.utilization", fmt.Sprint(m.Plan.utilization), fmt.Sprint(share), "equal shares of the memory", 1}})...)
	}
	return [][]JointChange{out}
}

// allOnRequest returns the change of every member of loaded to serve.idle.load "onRequest", if each
// then fits beside the members that stay.
func (j *Joint) allOnRequest(loaded []int) [][]JointChange {
	var base []int
	for i, m := range j.Members {
		if !m.OnRequest && !slices.Contains(loaded, i) {
			base = append(base, i)
		}
	}
	var out []JointChange
	for _, i := range loaded {
		m := &j.Members[i]
		if !j.Fits(append(slices.Clone(base), i)) {
			return nil
		}
		if !m.OnRequest {
			old := "absent"
			if m.profile.Serve.Idle != nil {
				old = quote(schema.OnStart)
			}
			out = append(out, m.locate([]Change{{"serve.idle.load", old, quote(schema.OnRequest), "its first request waits until it is loaded, and one model's requests wait for another's", 1}})...)
		}
	}
	return [][]JointChange{out}
}

// Error returns one line.
func (e *JointError) Error() string {
	var who []string
	for _, m := range e.Members {
		who = append(who, fmt.Sprintf("%s (%s, %s)", m.Profile, m.At, m.Set))
	}
	return fmt.Sprintf("%s do not fit together on %s: %s missing: they take %s, there is %s; %s",
		strings.Join(who, " and "), e.Place, Size(e.Need-e.Have), Size(e.Need), Size(e.Have), e.remedy())
}

func (e *JointError) remedy() string {
	switch {
	case len(e.Changes) > 0:
		c := e.Changes[0]
		for _, other := range e.Changes {
			if !other.refused() {
				c = other
				break
			}
		}
		return "the smallest change that fits is " + c.String()
	case len(e.Groups) > 0:
		return "no change of one profile makes them fit; these together do: " + listGroup(e.Groups[0])
	}
	return "no change of one profile makes them fit: take smaller models, or a machine with more memory"
}

func listGroup(g []JointChange) string {
	var out []string
	for _, c := range g {
		out = append(out, c.String())
	}
	return strings.Join(out, " and ")
}

// Format prints, for %+v, what each member takes and the changes.
func (e *JointError) Format(f fmt.State, verb rune) {
	if verb != 'v' || !f.Flag('+') {
		io.WriteString(f, e.Error())
		return
	}
	t := &text{width: TextWidth}
	t.hang("", fmt.Sprintf("these models do not fit together on %s: %s missing", e.Place, Size(e.Need-e.Have)))
	if e.Loads != "" {
		t.hang("", fmt.Sprintf("%s is loaded on request, beside those that stay in memory", e.Loads))
	}
	for _, m := range e.Members {
		t.row(m.Profile, Group(m.Bytes), Size(m.Bytes), "", m.Set+", at "+m.At)
	}
	t.row("once", Group(e.Once), Size(e.Once), "", "the process, its listener, and models that are not loaded")
	t.row("needs", Group(e.Need), Size(e.Need), "", "")
	t.row("there is", Group(e.Have), Size(e.Have), "", "")
	e.writeChanges(t)
	io.WriteString(f, t.b.String())
}

func (e *JointError) writeChanges(t *text) {
	t.line("")
	switch {
	case len(e.Changes) > 0:
		t.line("any one of these changes makes them fit:")
	case len(e.Groups) == 0:
		t.hang("", e.remedy())
	}
	for _, c := range e.Changes {
		t.hang("  "+c.String()+"  ", c.Cost)
	}
	for _, g := range e.Groups {
		t.line("these do together:")
		for _, c := range g {
			t.hang("  "+c.String()+"  ", c.Cost)
		}
	}
}

// jointRefusal is the JSON form of a JointError.
type jointRefusal struct {
	Version int             `json:"version"`
	Fits    bool            `json:"fits"`
	Place   string          `json:"place"`
	Error   string          `json:"error"`
	Missing int64           `json:"missing_bytes"`
	Members []JointMember   `json:"members"`
	Changes []JointChange   `json:"changes"`
	Groups  [][]JointChange `json:"groups"`
	Ledger  Ledger          `json:"ledger"`
}

// JSON writes the refusal as indented JSON.
func (e *JointError) JSON(w io.Writer) error {
	return writeIndented(w, jointRefusal{Version, false, e.Place, e.Error(), e.Need - e.Have, e.Members,
		append([]JointChange{}, e.Changes...), append([][]JointChange{}, e.Groups...), e.Ledger})
}

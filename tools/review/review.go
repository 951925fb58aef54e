// Package review compares two sets of profiles for a reviewer: the profiles and fields that change,
// with their reload class, the memory and capacity before and after, and what gets worse. A Review
// is written as text, as Markdown for a pull request and as JSON. It must not read files or make
// plans; the caller passes them. Start reading at Of.
package review

import (
	"cmp"
	"slices"

	"vapp.dev/appliance/plan"
	"vapp.dev/schema"
)

// State is a profile on one side of the comparison.
type State struct {
	Profile *schema.Profile // nil where the profile cannot be read
	Figures *Figures        // nil where the profile cannot be planned
	Err     string          // why it cannot be read or planned, one problem per line
}

// File is one profile of the two sets. Old or New is nil where that side lacks it.
type File struct {
	Path     string // the same on both sides, slash-separated
	Old, New *State
	// Transition is how a running server makes the change, or Refused why it cannot; neither: it was not planned.
	Transition *plan.Transition
	Refused    string
}

// Status classifies the change of a profile.
type Status string

// The statuses.
const (
	Added   Status = "added"
	Removed Status = "removed"
	Changed Status = "changed"
	Broken  Status = "broken" // the new side cannot be planned
)

// Change is a profile that differs between the sides, or is broken.
type Change struct {
	Path     string
	Status   Status
	Class    schema.Class // how a running server applies it; "" unless Changed
	Fields   schema.Changes
	Old, New *State
	// Transition is how a running server makes structural changes, or Refused why it cannot.
	Transition *plan.Transition
	Refused    string
	// What gets worse and better for clients and operators, one figure each.
	Worse, Better []string
}

// Review is the result of a comparison.
type Review struct {
	Old, New string // names of the two sides
	Changes  []Change
	Same     int // number of unchanged profiles
}

// Of compares files, which the caller has matched, and sorts the changes by path.
func Of(old, new string, files []File) *Review {
	r := &Review{Old: old, New: new}
	for _, f := range files {
		if c := changeOf(f); c.Status != "" {
			r.Changes = append(r.Changes, c)
		} else if f.New != nil {
			r.Same++
		}
	}
	slices.SortStableFunc(r.Changes, func(a, b Change) int { return cmp.Compare(a.Path, b.Path) })
	return r
}

// changeOf returns a change without status where nothing changes.
func changeOf(f File) Change {
	c := Change{Path: f.Path, Old: f.Old, New: f.New}
	switch {
	case f.Old == nil && f.New == nil:
		return c
	case f.New == nil:
		c.Status = Removed
		return c
	}
	if f.Old != nil && f.Old.Profile != nil && f.New.Profile != nil {
		c.Fields = schema.Diff(f.Old.Profile, f.New.Profile)
		c.Class = c.Fields.Class()
	}
	switch {
	case f.New.Err != "":
		c.Status, c.Class = Broken, ""
	case f.Old == nil:
		c.Status = Added
	case f.Old.Err != "":
		c.Status = Changed
		c.Class = cmp.Or(c.Class, schema.Structural)
	case len(c.Fields) > 0:
		c.Status = Changed
		c.Worse, c.Better = verdict(f.Old.Figures, f.New.Figures)
	case !f.Old.Figures.same(f.New.Figures): // the model's files changed
		c.Status, c.Class = Changed, schema.Structural
		c.Worse, c.Better = verdict(f.Old.Figures, f.New.Figures)
	}
	if c.Status == Changed && c.structural() {
		c.Transition, c.Refused = f.Transition, f.Refused
	}
	return c
}

// structural reports whether the change needs a new engine.
func (c *Change) structural() bool {
	return c.Class == schema.Structural || slices.ContainsFunc(c.Fields, func(f schema.Change) bool { return f.Class == schema.Structural })
}

// Count returns the number of changes with this status.
func (r *Review) Count(s Status) int {
	n := 0
	for _, c := range r.Changes {
		if c.Status == s {
			n++
		}
	}
	return n
}

// Class returns the most severe reload class of all changes, "" where none affects a running
// server.
func (r *Review) Class() schema.Class {
	order := []schema.Class{"", schema.Live, schema.Drain, schema.Structural, schema.Restart}
	worst := 0
	for _, c := range r.Changes {
		worst = max(worst, slices.Index(order, c.Class))
	}
	return order[worst]
}

// ExitCode returns 0 where nothing changes, 1 where something does and 2 where a profile of the new
// side cannot be planned.
func (r *Review) ExitCode() int {
	switch {
	case r.Count(Broken) > 0:
		return 2
	case len(r.Changes) > 0:
		return 1
	}
	return 0
}

// meaning describes each class for operators.
var meaning = map[schema.Class]string{
	schema.Live:       "applied to a running server at once",
	schema.Drain:      "applied when the running requests have ended",
	schema.Structural: "it needs a new engine",
	schema.Restart:    "the server must be started again",
}

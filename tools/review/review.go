// Package review is what changes from one set of profiles to another, as a
// reviewer wants to see it: which profiles, which fields with their reload
// class, what the plan held and carried before and after, and what gets worse.
// A Review is a value; it renders as text, as Markdown for a pull request and as
// JSON.
package review

import (
	"cmp"
	"slices"

	"vapp.dev/schema"
)

// State is a profile on one side.
type State struct {
	Profile *schema.Profile // nil where it cannot be read
	Figures *Figures        // nil where it cannot be planned
	Err     string          // why not, a problem a line; "" where it can
}

// File is one profile of the two sets; Old or New is nil where it is not there.
type File struct {
	Path     string // the same on both sides, with slashes
	Old, New *State
}

// Status is what becomes of a profile.
type Status string

// The statuses.
const (
	Added   Status = "added"
	Removed Status = "removed"
	Changed Status = "changed"
	Broken  Status = "broken" // it cannot be planned any more, or still not
)

// Change is a profile that is not the same on both sides, or is broken.
type Change struct {
	Path     string
	Status   Status
	Class    schema.Class // what a running server makes of it; "" unless Changed
	Fields   schema.Changes
	Old, New *State
	// What a client or an operator loses and gains, one figure each.
	Worse, Better []string
}

// Review is what changes.
type Review struct {
	Old, New string // names of the two sides
	Changes  []Change
	Same     int // profiles that do not change
}

// Of compares. Files are matched by the caller; the order is by path.
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

// changeOf has no status where nothing changes.
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
	return c
}

// Count is how many changes have the status.
func (r *Review) Count(s Status) int {
	n := 0
	for _, c := range r.Changes {
		if c.Status == s {
			n++
		}
	}
	return n
}

// Class is the worst of all changes, "" where none touches a running server.
func (r *Review) Class() schema.Class {
	order := []schema.Class{"", schema.Live, schema.Drain, schema.Structural}
	worst := 0
	for _, c := range r.Changes {
		worst = max(worst, slices.Index(order, c.Class))
	}
	return order[worst]
}

// ExitCode is 0 where nothing changes, 1 where something does and 2 where the
// new side has a profile that cannot be planned.
func (r *Review) ExitCode() int {
	switch {
	case r.Count(Broken) > 0:
		return 2
	case len(r.Changes) > 0:
		return 1
	}
	return 0
}

// meaning says what a class means to who runs the server.
var meaning = map[schema.Class]string{
	schema.Live:       "applied to a running server at once",
	schema.Drain:      "applied when the running requests have ended",
	schema.Structural: "a running server must be restarted",
}

package review

import (
	"encoding/json"
	"io"

	"vapp.dev/appliance/plan"
	"vapp.dev/schema"
)

// Version is the version of the JSON form. It changes when the meaning of a field does.
const Version = 1

// document is the JSON form, described in docs/guide/gitops.md. Lists are never null.
type document struct {
	Version   int          `json:"version"`
	Old       string       `json:"old"`
	New       string       `json:"new"`
	ExitCode  int          `json:"exit_code"`
	Headline  string       `json:"headline"`
	Class     schema.Class `json:"class"` // "", live, drain, structural, restart
	Unchanged int          `json:"unchanged"`
	Profiles  []profile    `json:"profiles"`
}

type profile struct {
	Path   string       `json:"path"`
	Status Status       `json:"status"`
	Class  schema.Class `json:"class"`
	Fields []field      `json:"fields"`
	Worse  []string     `json:"worse"`
	Better []string     `json:"better"`
	Old    *side        `json:"old"` // null: missing on this side
	New    *side        `json:"new"`
	// Transition is how a running server makes structural changes; null: there are none.
	Transition *transition `json:"transition"`
}

// transition is a plan.Transition without its ledger. Error is why there is none; other fields are then zero.
type transition struct {
	Way          plan.Way        `json:"way"`
	Mode         string          `json:"mode"` // reload.structural
	KeepsWeights bool            `json:"keeps_weights"`
	Overlaps     bool            `json:"overlaps"`
	Why          string          `json:"why"`
	Gap          string          `json:"gap"`
	DrainSeconds float64         `json:"drain_seconds"` // at most
	LoadSeconds  float64         `json:"load_seconds"`  // 0: none, or unknown
	Memory       plan.Footprint  `json:"memory"`
	Host         *plan.Footprint `json:"host,omitempty"`
	PrefixCache  string          `json:"prefix_cache"`
	Error        string          `json:"error,omitempty"`
}

// transition returns the change's transition; nil if nothing is structural.
func (c *Change) transition() *transition {
	t := c.Transition
	switch {
	case c.Refused != "":
		return &transition{Error: c.Refused}
	case t == nil:
		return nil
	}
	return &transition{
		Way: t.Way, Mode: t.Mode, KeepsWeights: t.KeepsWeights, Overlaps: t.Overlaps, Why: t.Why, Gap: t.Gap.String(),
		DrainSeconds: t.Gap.Drain.Time().Seconds(), LoadSeconds: t.Gap.Load.Time().Seconds(), Memory: t.Footprint, Host: t.Host, PrefixCache: t.PrefixCache,
	}
}

// field is a change of the profile; values are JSON texts, "" where absent.
type field struct {
	Path  string       `json:"path"`
	Old   string       `json:"old"`
	New   string       `json:"new"`
	Class schema.Class `json:"class"`
}

type side struct {
	Name  string   `json:"name,omitempty"`
	Hash  string   `json:"hash,omitempty"` // of the resolved profile
	Error string   `json:"error,omitempty"`
	Plan  *Figures `json:"plan,omitempty"`
}

// JSON writes the review as indented JSON.
func (r *Review) JSON(w io.Writer) error {
	d := document{
		Version: Version, Old: r.Old, New: r.New, ExitCode: r.ExitCode(), Headline: r.Headline(), Class: r.Class(),
		Unchanged: r.Same, Profiles: []profile{},
	}
	for _, c := range r.Changes {
		p := profile{
			Path: c.Path, Status: c.Status, Class: c.Class, Fields: []field{}, Worse: append([]string{}, c.Worse...),
			Better: append([]string{}, c.Better...), Old: sideOf(c.Old), New: sideOf(c.New), Transition: c.transition(),
		}
		for _, f := range c.Fields {
			p.Fields = append(p.Fields, field(f))
		}
		d.Profiles = append(d.Profiles, p)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(d)
}

func sideOf(s *State) *side {
	if s == nil {
		return nil
	}
	out := &side{Error: s.Err, Plan: s.Figures}
	if s.Profile != nil {
		out.Name, out.Hash = s.Profile.Name, s.Profile.Hash()
	}
	return out
}

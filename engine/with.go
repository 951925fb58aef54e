package engine

import (
	"vapp.dev/engine/backend"
	"vapp.dev/engine/models"
)

// With returns the model built with b over the same headers. A plan uses it to try changes
// that would fit. Only m must be closed. It fails like models.New if the family does not
// support b.
func (m *Model) With(b models.Build) (*Model, error) {
	fam, err := m.build(b)
	if err != nil {
		return nil, err
	}
	out := *m
	out.Source.Build, out.Family = b, fam
	return &out, nil
}

// DependsOnLength reports whether rotary embeddings of m, or of its draft model, depend on the
// planned maximum length of a sequence (ropes of the types dynamic and longrope).
func (m *Model) DependsOnLength() bool {
	return m.Config.DependsOnLength() || m.Draft != nil && m.Draft.Config.DependsOnLength()
}

// atLength returns m with its rotary embeddings for sequences of at most length tokens.
func (m *Model) atLength(length int) (*Model, error) {
	b := m.Source.Build
	if !m.DependsOnLength() || length == b.Length {
		return m, nil
	}
	b.Length = length
	return m.With(b)
}

// AtLength returns the account of m for another MaxModelLen and otherwise equal options. It
// is valid for layouts whose workspace does not depend on the length, those of GPUs: only page
// tables grow with it. The programs keep the page tables they were recorded with, so an engine
// must be opened with an account of its own from NewAccount.
func (a *Account) AtLength(o Options, m *Model) (*Account, error) {
	whole := m
	if m.Source.Build.Pipe.World > 1 {
		whole = a.allStages
	}
	at, err := layoutKV(o, m, whole)
	if err != nil {
		return nil, err
	}
	out := *a
	out.set(at, a.WholeStep)
	out.Reservation.Classes, out.Reservation.Step = at.classes, withTables(a.Reservation.Step, at.classes)
	out.Reservation.Arenas[backend.StepIO] = a.Layout.Round(out.Reservation.Step.Bytes())
	return &out, nil
}

package engine

import (
	"vapp.dev/engine/backend"
	"vapp.dev/engine/models"
)

// With is the model built another way over the same headers: what a plan tries
// when it looks for a change that fits. Only m is closed. The error is that of
// models.New: the family cannot be built so.
func (m *Model) With(b models.Build) (*Model, error) {
	fam, err := m.build(b)
	if err != nil {
		return nil, err
	}
	out := *m
	out.Source.Build, out.Family = b, fam
	return &out, nil
}

// AtLength is the account of m for another MaxModelLen, everything else alike, where
// the layout's workspace does not depend on it (that of GPUs): page tables are all
// that grows with it. The programs keep the tables they were recorded with, so that an
// engine is opened with a NewAccount of its own.
func (a *Account) AtLength(o Options, m *Model) (*Account, error) {
	classes, layout, err := layoutKV(o, m)
	if err != nil {
		return nil, err
	}
	out := *a
	out.KV, out.Reservation.Classes = layout, classes
	out.Reservation.Step.MaxPages = nil
	for _, c := range classes {
		out.Reservation.Step.MaxPages = append(out.Reservation.Step.MaxPages, c.MaxPages)
	}
	out.Reservation.Arenas[backend.StepIO] = a.Layout.Round(out.Reservation.Step.Bytes())
	return &out, nil
}

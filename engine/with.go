package engine

import "vapp.dev/engine/models"

// With is the model built another way over the same headers: what a plan tries
// when it looks for a change that fits. Only m is closed. The error is that of
// models.New: the family cannot be built so.
func (m *Model) With(b models.Build) (*Model, error) {
	fam, err := models.New(m.Checkpoint, b)
	if err != nil {
		return nil, err
	}
	out := *m
	out.Source.Build, out.Family = b, fam
	return &out, nil
}

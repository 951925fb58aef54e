// Package dry is the backend that does no arithmetic and owns no memory: it
// runs a model's load and its programs on another backend's Layout and accounts
// for every byte. The planner sees backends through it alone.
package dry

import (
	"vapp.dev/engine/backend"
)

// Run loads weights and programs on layout l and returns the reservation a
// Device of that layout will be opened with. kvBytes is the size of the KV arena.
// It fails with backend.ErrUnsupported where the layout lacks a kernel.
func Run(l backend.Layout, weights []backend.WeightSpec, programs []*backend.Program, step backend.StepShape, kvBytes int64) (backend.Reservation, error) {
	r := backend.Reservation{Weights: weights, Step: step, Programs: programs}
	for _, w := range weights {
		p, err := l.Weight(w)
		if err != nil {
			return r, err
		}
		r.Packed = append(r.Packed, p)
		r.Arenas[backend.Weights] += p.Bytes
	}
	for _, p := range programs {
		n, err := l.Workspace(p)
		if err != nil {
			return r, err
		}
		if len(p.Classes) > 0 {
			r.Classes = p.Classes
		}
		r.Arenas[backend.Workspace] = max(r.Arenas[backend.Workspace], n)
		r.Arenas[backend.Scratch] = max(r.Arenas[backend.Scratch], p.Scratch)
	}
	r.Arenas[backend.StepIO] = step.Bytes()
	r.Arenas[backend.KV] = kvBytes
	for a, n := range r.Arenas {
		r.Arenas[a] = l.Round(n)
	}
	return r, nil
}

// Package dry computes the memory of a model on a backend without the device. It runs the
// model's weights and programs through the backend's Layout and sums every byte. The planner
// uses backends only through it.
//
// It must not compute values, own memory or import a backend. Start reading at Run.
package dry

import (
	"vapp.dev/engine/backend"
)

// Run returns the Reservation with which a Device of layout l will be opened for these
// weights and programs, whose activations it stores in the formats that l takes. kvBytes is the
// size of the KV arena. Run fails with backend.ErrUnsupported if the layout lacks a kernel.
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
		backend.StoreActivations(l, p)
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
	var err error
	if r.Step.Work, err = backend.WorkLists(l, programs); err != nil {
		return r, err
	}
	r.Arenas[backend.StepIO] = r.Step.Bytes()
	r.Arenas[backend.KV] = kvBytes
	for a, n := range r.Arenas {
		r.Arenas[a] = l.Round(n)
	}
	return r, nil
}

package engine

import (
	"errors"
	"fmt"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// PlannedWeights describes the weights of an engine as they are in memory. It is computed from a plan; no device is opened.
type PlannedWeights struct {
	backend.WeightsOf
	Model, Draft string // names of the models; "": there is no draft model
	Build        models.Build
}

// PlannedWeights returns the weights that Open(c) packs, from files with that fingerprint: Model.Fingerprint or, of an engine that
// runs, WeightsInfo.Source, since its files may have changed.
func (c Config) PlannedWeights(files [32]byte) PlannedWeights {
	a := c.Account
	w := PlannedWeights{Model: c.Model.Source.Name, Build: c.Model.Source.Build}
	if d := c.Model.Draft; d != nil {
		w.Draft = d.Source.Name
	}
	w.WeightsOf = a.Reservation.OfWeights(c.Opener.Name(), c.Facts.Device, backend.PackingOf(a.Layout), files)
	return w
}

// OneAtATime reports whether only one engine at a time can use the weights, because they have slots of LoRA adapters: another one
// can when the first is closed, and finds the slots empty.
func (w *PlannedWeights) OneAtATime() bool { return w.Adapters() }

// DifferentWeightsError is why an engine cannot use the weights of another one.
type DifferentWeightsError struct {
	What       string // "the weights", "the model"
	Have, Want string // of the weights in memory, and of the engine that would use them; "": What says all
	Err        error  // the backend's reason, a *backend.WeightsError
}

// Error returns a few words: "the weights: f8_e4m3 in place of bf16".
func (e *DifferentWeightsError) Error() string {
	if e.Want == "" && e.Have == "" {
		return e.What
	}
	return fmt.Sprintf("%s: %s in place of %s", e.What, e.Want, e.Have)
}

// Unwrap returns Err.
func (e *DifferentWeightsError) Unwrap() error { return e.Err }

// SameWeights returns nil if an engine of next can use the weights of an engine of old as they are in memory (Config.Weights), at
// the same time unless they are OneAtATime. Otherwise it returns a *DifferentWeightsError. Devices decide by the same comparison,
// backend.WeightsOf.Serves.
func SameWeights(old, next PlannedWeights) error {
	err := old.Serves(&next.WeightsOf)
	if err == nil {
		return nil
	}
	e := &DifferentWeightsError{Err: err}
	for _, d := range []struct{ what, have, want string }{
		{"the backend", old.Backend, next.Backend},
		{"the device", old.Device, next.Device},
		{"the model", old.Model, next.Model},
		{"the draft model", orNone(old.Draft), orNone(next.Draft)},
		{"LoRA slots", slotsOf(old.Build.LoRA), slotsOf(next.Build.LoRA)},
		{"the weights", formatsOf(old), formatsOf(next)},
		{"kernels", old.Layout, next.Layout},
		{"draft layers", numberOf(old.Build.Draft), numberOf(next.Build.Draft)},
		{"the vision tower", fmt.Sprint(old.Build.Vision), fmt.Sprint(next.Build.Vision)},
		{"the number of weights", fmt.Sprint(len(old.Weights)), fmt.Sprint(len(next.Weights))},
	} {
		if d.have != d.want {
			e.What, e.Have, e.Want = d.what, d.have, d.want
			return e
		}
	}
	var w *backend.WeightsError
	switch errors.As(err, &w); {
	case old.Source != next.Source && (w == nil || w.Kind == backend.WeightsSource):
		e.What = "the model's files have changed"
	case kernelsOf(old) != kernelsOf(next):
		e.What, e.Have, e.Want = "kernels", kernelsOf(old), kernelsOf(next)
	default:
		e.What = fmt.Sprintf("the weights: %s, now %s", w.Have, w.Want)
	}
	return e
}

// formatsOf lists the formats of the matrices in the order of their first use: "bf16", "q4_k+q6_k".
func formatsOf(w PlannedWeights) string {
	return list(w, func(s backend.WeightSpec, p backend.Packed) string {
		if p.Format == kernels.Invalid {
			return s.Formats()
		}
		return p.Format.String()
	})
}

// kernelsOf lists the kernels that read the matrices.
func kernelsOf(w PlannedWeights) string {
	return list(w, func(_ backend.WeightSpec, p backend.Packed) string { return p.Kernel })
}

// list joins what of each matrix, without repetitions.
func list(w PlannedWeights, what func(backend.WeightSpec, backend.Packed) string) string {
	var out []string
	seen := map[string]bool{}
	for i, s := range w.Weights {
		if s.Use&backend.Vector != 0 || s.Unloaded {
			continue
		}
		if f := what(s, w.Packed[i]); !seen[f] {
			seen[f] = true
			out = append(out, f)
		}
	}
	return strings.Join(out, "+")
}

func slotsOf(l models.LoRA) string {
	if l.Slots == 0 {
		return "none"
	}
	return fmt.Sprintf("%d of rank %d", l.Slots, l.Rank)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// numberOf formats a number of proposed tokens: a model's own draft layers are packed if it is not 0.
func numberOf(drafts int) string {
	if drafts == 0 {
		return "none"
	}
	return "those of the model"
}

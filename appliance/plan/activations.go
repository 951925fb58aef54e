package plan

import (
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
	"vapp.dev/schema"
)

// activations returns the format that the profile sets for activations on backends cuda and ref; "":
// they stay as they are, or auto.
func activations(p *schema.Profile) string {
	if p.CUDA == nil || p.CUDA.Activations != backend.FP8Activations {
		return ""
	}
	return p.CUDA.Activations
}

// chooseActivations decides cuda.activations "auto" on backend cuda: they are rounded to fp8 where the
// checkpoint says so and the GPU multiplies fp8.
func (w *resolved) chooseActivations() {
	p := w.in.Profile
	if w.in.Opener.Name() != "cuda" || p.CUDA != nil && p.CUDA.Activations != "auto" {
		return
	}
	w.options.Backend.Activations, w.fp8Inputs = "", ""
	if !models.DynamicFP8(w.in.Model.Config) {
		return
	}
	met, err := w.meetFP8()
	if err != nil {
		w.fp8Inputs = "auto: " + err.Error()
	}
	if !met {
		return
	}
	s := w.options.Backend
	s.Activations, s.Linear = backend.FP8Activations, ""
	if _, err := w.in.Opener.Layout(w.in.Facts, s); err != nil {
		w.fp8Inputs = "auto: the matrix units of " + w.in.Facts.Device + " have no 8-bit floats"
		return
	}
	w.options.Backend.Activations, w.fp8Inputs = backend.FP8Activations, "auto: the checkpoint says dynamic"
}

// layoutChoices returns the choices of a layout. What "auto" decided is in place of "as set".
func (w resolved) layoutChoices(l backend.Layout) []backend.Choice {
	out := l.Choices()
	for i, c := range out {
		switch {
		case c.Name != "activations" || w.fp8Inputs == "":
		case c.Value == backend.FP8Activations:
			out[i].Why = w.fp8Inputs + strings.TrimPrefix(c.Why, "as set")
		default:
			out[i].Why = w.fp8Inputs
		}
	}
	return out
}

// meetFP8 reports whether a weight of the model would be multiplied by activations in fp8. It fails for one that the backend
// cannot multiply by them.
func (w resolved) meetFP8() (met bool, err error) {
	for _, s := range w.in.Model.Family.Weights() {
		r, err := backend.FP8Inputs(w.in.Opener.Name(), s)
		if err != nil {
			return false, err
		}
		met = met || r.RoundInputs && r.Stored() == kernels.F8E4M3
	}
	return met, nil
}

// checkActivations refuses rounded activations if no weight would be multiplied by them.
func (w resolved) checkActivations() error {
	p := w.in.Profile
	if activations(p) == "" {
		return nil
	}
	if w.in.Opener.Name() == "cpu" {
		return p.Reject("cuda.activations", "backend cpu has no products with %s activations; leave the field out, or take backend cuda", activations(p))
	}
	met, err := w.meetFP8()
	if err != nil {
		return p.Reject("cuda.activations", "%v; leave the field out", err)
	}
	if !met {
		return p.Reject("cuda.activations", "%s has no weights in fp8 that %s activations would meet; leave the field out, or set quantization to \"fp8\"", w.in.Model.Source.Name, activations(p))
	}
	return nil
}

package appliance

import (
	"errors"
	"fmt"
	"strings"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/schema"
)

// Prepared is a profile with all that can be known before a device is opened.
type Prepared struct {
	Profile *schema.Profile
	Model   *engine.Model
	Opener  backend.Opener
	Plan    *plan.Plan
}

// Machine is what Prepare plans for.
type Machine struct {
	// Backends that this binary has, the preferred first.
	Backends []backend.Opener
	// Facts replaces what the machine says of itself; nil asks it.
	Facts func(backend.Facts) backend.Facts
}

// Prepare loads the profile at path, inspects its model and plans it for the
// machine. It reads headers only and opens no device. The caller closes it.
func Prepare(path string, m Machine) (*Prepared, error) {
	p, err := schema.Load(path)
	if err != nil {
		return nil, err
	}
	return PrepareProfile(p, m)
}

// PrepareProfile is Prepare for a profile at hand.
func PrepareProfile(p *schema.Profile, m Machine) (*Prepared, error) {
	if err := plan.Refuse(p); err != nil {
		return nil, err
	}
	op, err := choose(p, m.Backends)
	if err != nil {
		return nil, err
	}
	facts, err := op.Probe()
	if err != nil {
		return nil, fmt.Errorf("backend %s: read the facts of this machine: %w", op.Name(), err)
	}
	if m.Facts != nil {
		facts = m.Facts(facts)
	}
	model, err := engine.Inspect(engine.Source{
		Path: p.Path(p.Model.Source), Name: p.Model.Source, Format: p.Model.LoadFormat,
	})
	if err != nil {
		return nil, placed(p, err)
	}
	pl, err := plan.Make(plan.Inputs{Profile: p, Model: model, Opener: op, Facts: facts})
	if err != nil {
		return nil, errors.Join(err, model.Close())
	}
	return &Prepared{Profile: p, Model: model, Opener: op, Plan: pl}, nil
}

// Close gives the model's files back.
func (p *Prepared) Close() error { return p.Model.Close() }

// placed gives an error about the model the place in the profile that named it.
func placed(p *schema.Profile, err error) error {
	var missing *engine.MissingError
	if errors.As(err, &missing) {
		return p.Reject("model.source", "%v", err)
	}
	return err
}

// choose finds the backend that a profile asks for; auto takes the first.
func choose(p *schema.Profile, list []backend.Opener) (backend.Opener, error) {
	var names []string
	for _, op := range list {
		if op.Name() == p.Backend || p.Backend == "auto" {
			return op, nil
		}
		names = append(names, op.Name())
	}
	return nil, p.Reject("backend", "this binary has no backend %s; it has %s", p.Backend, strings.Join(names, ", "))
}

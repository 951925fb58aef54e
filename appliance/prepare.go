package appliance

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"vapp.dev/appliance/hub"
	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/devices"
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
	// Backend replaces the one that a profile asks for; "": it does not.
	Backend string
	// Device is the one of the catalogue to plan for; nil: this machine.
	Device *devices.Device
	// Memory replaces the bytes that the machine or the Device has; 0: it does not.
	Memory int64
	// Config is a config.json, or a directory with one, that is planned in place
	// of the model that the profile names; "": none.
	Config string
	// Hub is where models of the Hugging Face hub lie that were fetched; the zero
	// Settings have none.
	Hub hub.Settings
}

// Load reads the profile at path as it is in force on the machine.
func (m Machine) Load(path string) (*schema.Profile, error) {
	p, err := schema.Load(path)
	if err == nil && m.Backend != "" {
		p.Backend = m.Backend
	}
	return p, err
}

// Read is Load with what can be known of a profile that is refused.
func (m Machine) Read(path string) *schema.Reading {
	r := schema.Read(path)
	if r.Profile != nil && m.Backend != "" {
		r.Profile.Backend = m.Backend
	}
	return r
}

// Prepare loads the profile at path, inspects its model and plans it for the
// machine. It reads headers only and opens no device. The caller closes it.
func Prepare(path string, m Machine) (*Prepared, error) {
	p, err := m.Load(path)
	if err != nil {
		return nil, err
	}
	return PrepareProfile(p, m)
}

// PrepareProfile is Prepare for a profile at hand.
func PrepareProfile(p *schema.Profile, m Machine) (*Prepared, error) {
	if err := CheckParsers(p); err != nil {
		return nil, err
	}
	in, err := m.inputs(p)
	if err != nil {
		return nil, err
	}
	pl, err := plan.Make(in)
	if err != nil {
		return nil, errors.Join(err, in.Model.Close())
	}
	return &Prepared{Profile: p, Model: in.Model, Opener: in.Opener, Plan: pl}, nil
}

// inputs are everything that a plan of p for the machine depends on. The caller
// closes the Model.
func (m Machine) inputs(p *schema.Profile) (plan.Inputs, error) {
	op, err := m.choose(p)
	if err != nil {
		return plan.Inputs{}, err
	}
	facts, err := m.facts(op)
	if err != nil {
		return plan.Inputs{}, err
	}
	if err := plan.CheckLimits(facts.Limits); err != nil {
		return plan.Inputs{}, err
	}
	model, err := m.inspect(p)
	if err != nil {
		return plan.Inputs{}, err
	}
	return plan.Inputs{Profile: p, Model: model, Opener: op, Facts: facts}, nil
}

// Close gives the model's files back.
func (p *Prepared) Close() error { return p.Model.Close() }

// Refuse says why the plan cannot be run, with the word "plan-only"; nil where it
// can.
func (p *Prepared) Refuse() error {
	if err := plan.Refuse(p.Profile); err != nil {
		return err
	}
	if err := p.Plan.Runs(); err != nil {
		return p.Profile.Reject("model.source", "%v", err)
	}
	return nil
}

// startable says why the planned engine cannot be opened here and now; nil where
// it can.
func (p *Prepared) startable() error {
	if err := p.Refuse(); err != nil {
		return err
	}
	if err := p.Model.Loadable(); err != nil {
		return p.Profile.Reject("model.source", "%v", err)
	}
	return p.fits()
}

// fits compares the plan with what this machine and process have now.
func (p *Prepared) fits() error {
	if err := p.Plan.CheckLimits(); err != nil {
		return err
	}
	return p.Plan.CheckFree(p.Plan.Facts.FreeBytes)
}

// runnable is startable but for the weights, which need not be here yet.
func (p *Prepared) runnable() error {
	return errors.Join(p.Refuse(), p.fits())
}

// missingError is an engine.MissingError with its place.
type missingError struct {
	placed  *schema.Error
	missing *engine.MissingError
}

func (e *missingError) Error() string   { return e.placed.Error() }
func (e *missingError) Unwrap() []error { return []error{e.placed, e.missing} }

// inspect reads the model's headers. What is wrong with it, or with what the
// profile wants of it, gets the place in the profile that asks for it.
func (m Machine) inspect(p *schema.Profile) (*engine.Model, error) {
	s, err := m.source(p)
	if err != nil {
		return nil, err
	}
	model, err := engine.Inspect(s)
	var missing *engine.MissingError
	switch {
	case err == nil:
		return model, nil
	case errors.As(err, &missing):
		return nil, &missingError{p.Reject("model.source", "%v", err), missing}
	}
	return nil, plan.LocateBuildError(p, s, err, func(s engine.Source) error {
		m, err := engine.Inspect(s)
		if err != nil {
			return err
		}
		return m.Close()
	})
}

// servers are the backends that can plan for a kind of device, the one that auto
// takes first.
var servers = map[string][]string{devices.GPU: {"cuda"}, devices.CPU: {"cpu", "ref"}}

// choose finds the backend that a profile asks for. With auto it is the one for the
// kind of the Device, or the first that serves this machine: one for GPUs where there
// is one with kernels.
func (m Machine) choose(p *schema.Profile) (backend.Opener, error) {
	asked := p.Backend
	if d := m.Device; d != nil {
		able := servers[d.Kind]
		switch {
		case asked == "auto":
			asked = able[0]
		case !slices.Contains(able, asked):
			return nil, p.Reject("backend", "%s does not serve %s, a %s; allowed for it: auto, %s", asked, d.Name, strings.ToUpper(d.Kind), strings.Join(able, ", "))
		}
	}
	var names []string
	for _, op := range m.Backends {
		if op.Name() == asked || asked == "auto" && serves(op) {
			return op, nil
		}
		names = append(names, op.Name())
	}
	return nil, p.Reject("backend", "this binary has no backend %s; it has %s", asked, strings.Join(names, ", "))
}

// serves says whether auto may take op on this machine.
func serves(op backend.Opener) bool {
	if !slices.Contains(servers[devices.GPU], op.Name()) {
		return true
	}
	f, err := op.Probe()
	return err == nil && f.PlanOnly == ""
}

// facts are the Device's, or those that op reads of this machine, with the
// Memory that replaces theirs.
func (m Machine) facts(op backend.Opener) (backend.Facts, error) {
	var f backend.Facts
	if m.Device != nil {
		f = m.Device.Facts(op.Name())
	} else {
		var err error
		if f, err = op.Probe(); err != nil {
			return f, fmt.Errorf("backend %s: read the facts of this machine: %w", op.Name(), err)
		}
	}
	if m.Memory > 0 {
		f.TotalBytes, f.FreeBytes, f.Measured, f.MemoryLimit = m.Memory, 0, false, "flag"
	}
	return f, nil
}

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
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/speed"
	"vapp.dev/schema"
)

// Prepared is a profile with its inspected model and its plan, made without opening a
// device.
type Prepared struct {
	Profile *schema.Profile
	Model   *engine.Model
	Opener  backend.Opener
	Plan    *plan.Plan

	hub   hub.Settings // where adapters are looked for by name
	setup RankSetup
	turns func(backend string) engine.Turns // of Machine
	rank  *plan.RankPlan                    // of rank 0; nil: this process is not one of several ranks

	planDigest string     // set by summarize
	outline    planStatus // of the plan, for the page; set by summarize
}

// summarize sets what a server shows of the plan.
func (p *Prepared) summarize() (err error) {
	p.outline = planStatusOf(p.Plan)
	if p.Plan.Ranks == 1 {
		p.planDigest = p.Plan.Digest()
		return nil
	}
	p.planDigest, err = p.digest(0)
	return err
}

// Ledger returns the ledger of this process's engine: rank 0's, if the model has several.
func (p *Prepared) Ledger() plan.Ledger {
	if p.rank != nil {
		return p.rank.Ledger
	}
	return p.Plan.Ledger
}

// Machine describes the machine that Prepare plans for.
type Machine struct {
	// Backends are the backends of this binary, the preferred first.
	Backends []backend.Opener
	// Backend replaces the profile's backend; "": no replacement.
	Backend string
	// Device is the device of the catalogue to plan for; nil: this machine.
	Device *devices.Device
	// Memory replaces the memory of the machine or the Device, in bytes; 0: no
	// replacement.
	Memory int64
	// UseTarget plans for the profile's target where neither Device nor Memory is set. What
	// serves on this machine leaves it off.
	UseTarget bool
	// Config is a config.json, or a directory with one, to plan instead of the
	// profile's model; "": none.
	Config string
	// Text is the profile, in place of a file; its path is then what messages call it. nil: the
	// profile is read from its path.
	Text []byte
	// Set replaces values of the profile.
	Set []schema.Override
	// Rates returns the measured rates of a machine with these facts, or why there are none; nil: it is
	// not looked for.
	Rates func(backend.Facts) (*speed.Rates, string)
	// Hub is the cache of the Hugging Face hub; the zero Settings have none.
	Hub hub.Settings
	// Ranks says which rank this process is.
	Ranks RankSetup
	// Turns returns a place at what the engines of a backend share with others of this process; nil: an
	// engine has its device alone.
	Turns func(backend string) engine.Turns
}

// Load reads the profile at path, or the machine's Text, with the machine's Set and Backend.
func (m Machine) Load(path string) (*schema.Profile, error) {
	r := m.Read(path)
	return r.Profile, r.Err
}

// draft is Load for a profile without its figures: policies bound the finished one.
func (m Machine) draft(path string) (*schema.Profile, error) {
	r := m.read(schema.Input{Path: path, Draft: true})
	return r.Profile, r.Err
}

// Read is Load for reloads: the Reading also has the valid parts of a rejected profile.
func (m Machine) Read(path string) *schema.Reading { return m.read(schema.Input{Path: path}) }

// read reads the input with the machine's Text, Set and Backend.
func (m Machine) read(in schema.Input) *schema.Reading {
	in.Text, in.Set = m.Text, m.Set
	r := in.Read()
	if r.Profile != nil && m.Backend != "" {
		r.Profile.Backend = m.Backend
	}
	return r
}

// PrintProfile returns the text of the profile at path, or of the machine's Text, with the machine's
// Set in it.
func (m Machine) PrintProfile(path string) ([]byte, error) {
	return schema.Input{Path: path, Text: m.Text, Set: m.Set}.Format()
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

// PrepareProfile is Prepare for a loaded profile.
func PrepareProfile(p *schema.Profile, m Machine) (*Prepared, error) {
	if err := errors.Join(CheckParsers(p), CheckAdapters(p), checkResting(p)); err != nil {
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
	made := &Prepared{Profile: p, Model: in.Model, Opener: in.Opener, Plan: pl, hub: m.Hub, setup: m.Ranks, turns: m.Turns}
	if m.Ranks.Place.World > 1 {
		if made.rank, err = pl.RankPlan(0); err != nil {
			return nil, errors.Join(err, in.Model.Close())
		}
	}
	return made, nil
}

// inputs returns the inputs of a plan of p for the machine. The caller closes the Model.
func (m Machine) inputs(p *schema.Profile) (plan.Inputs, error) {
	m, err := m.atTarget(p)
	if err != nil {
		return plan.Inputs{}, err
	}
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
	in := plan.Inputs{Profile: p, Model: model, Opener: op, Facts: facts}
	if op.Name() == "cuda" && facts.Measured {
		in.Host = m.hostMemory()
	}
	if m.Rates != nil && op.Name() == "cpu" && facts.Measured {
		in.Rates, in.NoRates = m.Rates(facts)
	}
	return in, nil
}

// Close closes the model's files.
func (p *Prepared) Close() error { return p.Model.Close() }

// Refuse returns why the plan can be made but not run ("plan-only"); nil if it can run.
func (p *Prepared) Refuse() error {
	if err := p.Plan.Runs(); err != nil {
		return p.Profile.Reject("model.source", "%v", err)
	}
	return nil
}

// startable returns why the planned engine cannot be opened on this machine now; nil if
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

// fits returns an error if this machine and process have too little memory for the plan.
func (p *Prepared) fits() error {
	if err := p.Plan.CheckLimits(); err != nil {
		return err
	}
	return p.Plan.CheckFree(p.Plan.Facts.FreeBytes)
}

// runnable is startable without the check that the weights are present.
func (p *Prepared) runnable() error {
	return errors.Join(p.Refuse(), p.fits())
}

// missingError is an engine.MissingError with the profile's field.
type missingError struct {
	placed  *schema.Error
	missing *engine.MissingError
}

func (e *missingError) Error() string   { return e.placed.Error() }
func (e *missingError) Unwrap() []error { return []error{e.placed, e.missing} }

// inspect reads the model's headers. Its errors name the field of the profile that they
// concern.
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
		if missing.Source.Absent != "" && m.Hub.Cache != "" {
			missing.Source.Absent += " " + m.Hub.Cache
		}
		return nil, &missingError{p.Reject("model.source", "%v", err), missing}
	}
	err = plan.LocateBuildError(p, s, err, func(s engine.Source) error {
		m, err := engine.Inspect(s)
		if err != nil {
			return err
		}
		return m.Close()
	})
	if file := (*checkpoint.Error)(nil); s.Config == "" && errors.As(err, &file) {
		return nil, &sourceError{p.Reject("model.source", "%v", err), err}
	}
	return nil, err
}

// sourceError is an error about a model's files with the profile's field.
type sourceError struct {
	placed *schema.Error
	cause  error
}

func (e *sourceError) Error() string   { return e.placed.Error() }
func (e *sourceError) Unwrap() []error { return []error{e.placed, e.cause} }

// servers lists the backends for each kind of device. auto takes the first.
var servers = map[string][]string{devices.GPU: {"cuda"}, devices.CPU: {"cpu", "ref"}}

// choose returns the profile's backend. With auto it is the first backend for the kind of
// the Device; without a Device the first that can serve on this machine.
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
		if op.Name() == asked || asked == "auto" && canServe(op) {
			return op, nil
		}
		names = append(names, op.Name())
	}
	return nil, p.Reject("backend", "this binary has no backend %s; it has %s", asked, strings.Join(names, ", "))
}

// BackendOf returns the name of the backend that serves p on this machine.
func (m Machine) BackendOf(p *schema.Profile) (string, error) {
	op, err := m.choose(p)
	if err != nil {
		return "", err
	}
	return op.Name(), nil
}

// canServe reports whether auto may choose op on this machine: a GPU backend needs a GPU
// for which it has kernels.
func canServe(op backend.Opener) bool {
	if !slices.Contains(servers[devices.GPU], op.Name()) {
		return true
	}
	f, err := op.Probe()
	return err == nil && f.PlanOnly == ""
}

// hostMemory returns the memory of this machine; zeros if no backend of this program knows it.
func (m Machine) hostMemory() plan.HostMemory {
	for _, op := range m.Backends {
		if op.Name() == "cuda" {
			continue
		}
		if f, err := op.Probe(); err == nil {
			return plan.HostMemory{Total: f.TotalBytes, Free: f.FreeBytes}
		}
	}
	return plan.HostMemory{}
}

// facts returns the facts of the Device or, without one, of this machine, with the
// replaced Memory.
func (m Machine) facts(op backend.Opener) (backend.Facts, error) {
	var f backend.Facts
	if m.Device != nil {
		f = m.Device.Facts(op.Name())
	} else {
		var err error
		if f, err = op.Probe(); errors.Is(err, backend.ErrUnsupported) {
			return f, err // names the backend and the machine
		} else if err != nil {
			return f, fmt.Errorf("backend %s: read the facts of this machine: %w", op.Name(), err)
		}
	}
	if m.Memory > 0 {
		f.TotalBytes, f.FreeBytes, f.Measured, f.MemoryLimit = m.Memory, 0, false, "flag"
	}
	return f, nil
}

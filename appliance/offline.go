package appliance

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/media/load"
	"vapp.dev/engine"
	"vapp.dev/engine/tokenizer"
)

// Offline is a loaded model that answers requests in this process, without a server. Its
// plan, engine and requests are the same as a server's.
type Offline struct {
	*chat.Service
	// Settings are the profile's sampling, template and served names, without deadlines.
	Settings chat.Settings
	// Slots is the number of sequences that run at once (scheduler.maxNumSeqs).
	Slots int
	// Warnings has what the device says about its start, and an entry for each arena whose allocated
	// bytes differ from the plan.
	Warnings []string

	engine *engine.Engine
}

// OfflineConfig holds the options of OpenOffline.
type OfflineConfig struct {
	// Progress is called with the progress of loading; nil: not called.
	Progress func(engine.Progress)
	// Step is called after every step; nil: not called.
	Step func(engine.StepStats)
	// Sandbox renders the templates of requests.
	Sandbox tokenizer.Sandbox
}

// OpenOffline loads a prepared model. It returns the errors with which a server would not
// start. The caller closes the Offline, then the Prepared.
func OpenOffline(ctx context.Context, p *Prepared, c OfflineConfig) (*Offline, error) {
	if err := p.startable(); err != nil {
		return nil, err
	}
	l := &live{profile: p.Profile, api: settings(p.Profile)}
	memory := new(load.Memory)
	if _, err := l.readTemplates(p.Profile, p.Model, memory); err != nil {
		return nil, err
	}
	memory.Use(l.loader)
	l.api.Chat.RequestTimeout, l.api.Chat.MaxSequences = 0, 0 // SetMaxQueue(0) below: no limit
	debug.SetMemoryLimit(p.Plan.GoMemoryLimit)
	eng, t, err := p.open(ctx, engine.Hooks{Step: c.Step}, nil, c.Progress)
	if err != nil {
		return nil, err
	}
	eng.SetMaxQueue(0)
	loras := p.adapters(eng, nil)
	if loras != nil {
		if err := loras.change(ctx, nil, p.Profile); err != nil {
			return nil, errors.Join(err, eng.Close())
		}
	}
	o := &Offline{Service: p.service(eng, loras, t, c.Sandbox), Settings: l.api.Chat, Slots: p.Plan.Options.MaxNumSeqs, engine: eng}
	o.Settings.Adapter = o.HasAdapter
	for _, n := range eng.Notes() {
		o.Warnings = append(o.Warnings, "device: "+n)
	}
	for _, d := range p.Ledger().Compare(eng.Usage()) {
		if d.Difference() != 0 {
			o.Warnings = append(o.Warnings, fmt.Sprintf("ledger: %s took %d bytes and was planned with %d", d.Item, d.Actual, d.Planned))
		}
	}
	return o, nil
}

// Close aborts the running requests and frees all memory. The Prepared stays open.
func (o *Offline) Close() error { return o.engine.Close() }

// Renderer returns a service with tokenizer and templates but no engine, which renders
// conversations to prompts and cannot generate.
func (p *Prepared) Renderer(box tokenizer.Sandbox) (*chat.Service, chat.Settings, error) {
	l := &live{profile: p.Profile, api: settings(p.Profile)}
	memory := new(load.Memory)
	if _, err := l.readTemplates(p.Profile, p.Model, memory); err != nil {
		return nil, chat.Settings{}, err
	}
	memory.Use(l.loader)
	t, err := loadTokenizer(p.Model)
	if err != nil {
		return nil, chat.Settings{}, err
	}
	return p.service(nil, nil, t, box), l.api.Chat, nil
}

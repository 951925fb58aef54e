package appliance

import (
	"context"
	"fmt"
	"runtime/debug"

	"vapp.dev/appliance/chat"
	"vapp.dev/engine"
	"vapp.dev/engine/tokenizer"
)

// Offline is a loaded model that answers in this process, without a server. It
// is planned, opened and asked exactly as a server's is.
type Offline struct {
	*chat.Service
	// Settings are the profile's: sampling, template, served names. There are no
	// deadlines.
	Settings chat.Settings
	// Slots is how many sequences run at once (scheduler.maxNumSeqs).
	Slots int
	// Warnings name each arena that took other bytes than planned.
	Warnings []string

	engine *engine.Engine
}

// OfflineConfig is what a command gives an Offline.
type OfflineConfig struct {
	// Progress is told how far loading has come; nil: nobody is.
	Progress func(engine.Progress)
	// Step is told every step; nil: nobody is.
	Step func(engine.StepStats)
	// Sandbox renders templates that come with requests.
	Sandbox tokenizer.Sandbox
}

// OpenOffline loads what was prepared, and refuses what a server would refuse
// before it loads. The caller closes the Offline, then the Prepared.
func OpenOffline(ctx context.Context, p *Prepared, c OfflineConfig) (*Offline, error) {
	if err := p.startable(); err != nil {
		return nil, err
	}
	l := &live{profile: p.Profile, api: settings(p.Profile)}
	if _, err := l.readTemplates(p.Profile, p.Model); err != nil {
		return nil, err
	}
	l.api.Chat.RequestTimeout, l.api.Chat.MaxSequences = 0, 0 // the queue has no bound below
	debug.SetMemoryLimit(p.Plan.GoMemoryLimit)
	eng, t, err := p.open(ctx, engine.Hooks{Step: c.Step}, c.Progress)
	if err != nil {
		return nil, err
	}
	eng.SetMaxQueue(0)
	o := &Offline{Service: p.service(eng, t, c.Sandbox), Settings: l.api.Chat, Slots: p.Plan.Options.MaxNumSeqs, engine: eng}
	for _, d := range p.Plan.Ledger.Compare(eng.Usage()) {
		if d.Difference() != 0 {
			o.Warnings = append(o.Warnings, fmt.Sprintf("ledger: %s took %d bytes and was planned with %d", d.Item, d.Actual, d.Planned))
		}
	}
	return o, nil
}

// Close aborts what is left and gives all memory back; the Prepared stays open.
func (o *Offline) Close() error { return o.engine.Close() }

// Renderer opens what makes prompts of conversations: the tokenizer and the
// templates, no weights. The Service answers no requests.
func (p *Prepared) Renderer(box tokenizer.Sandbox) (*chat.Service, chat.Settings, error) {
	l := &live{profile: p.Profile, api: settings(p.Profile)}
	if _, err := l.readTemplates(p.Profile, p.Model); err != nil {
		return nil, chat.Settings{}, err
	}
	t, err := loadTokenizer(p.Model)
	if err != nil {
		return nil, chat.Settings{}, err
	}
	return p.service(nil, t, box), l.api.Chat, nil
}

package appliance

import (
	"errors"
	"log/slog"

	"vapp.dev/appliance/kvevents"
	"vapp.dev/appliance/metrics"
	"vapp.dev/engine"
)

// openEvents opens the publisher of KV events; nil if the profile has none.
func (p *Prepared) openEvents(log *slog.Logger) (*kvevents.Publisher, error) {
	k := p.Profile.Serve.KVEvents
	if k == nil {
		return nil, nil
	}
	if !p.Plan.Options.PrefixCaching {
		return nil, p.Profile.Reject("serve.kvEvents", "there is no prefix cache whose blocks could be published; set scheduler.prefixCaching: true, or leave serve.kvEvents out")
	}
	events, err := kvevents.Open(kvevents.Config{
		Endpoint: k.Endpoint, ReplayEndpoint: k.ReplayEndpoint, Topic: k.Topic, BufferSteps: k.BufferSteps, HWM: k.HWM, Log: log,
	})
	var at *kvevents.EndpointError
	if errors.As(err, &at) {
		return nil, p.Profile.Reject("serve.kvEvents."+at.Field, "%v", err)
	}
	return events, err
}

// logEvents logs where KV events are.
func (a *Appliance) logEvents() {
	if a.events == nil {
		return
	}
	k := a.prepared().Profile.Serve.KVEvents
	args := []any{"endpoint", k.Endpoint, "topic", k.Topic}
	for key, at := range map[string]string{"address": a.events.Addr(), "replay": a.events.ReplayAddr()} {
		if at != "" {
			args = append(args, key, at)
		}
	}
	a.log.Info("KV events", args...)
}

// blockHook returns the hook that publishes the KV events of s; nil without them.
func (a *Appliance) blockHook(s *served) *engine.BlockHook {
	if a.events == nil {
		return nil
	}
	s.blocks = a.events.NewSource()
	return &engine.BlockHook{Seed: s.prepared.Profile.Serve.KVEvents.HashSeed, Changed: s.blocks.Changed}
}

// eventFigures returns the figures of KV events as metrics name them.
func (a *Appliance) eventFigures() metrics.KVEvents {
	c := a.events.Counts()
	return metrics.KVEvents{
		Batches: c.Published, Events: c.Events, Lost: c.Lost, Dropped: c.Dropped, Replays: c.Replays, Refused: c.Refused,
		ConnectFailures: c.ConnectFailures, Subscribers: c.Subscribers,
	}
}

// closeEvents closes the publisher of KV events.
func (a *Appliance) closeEvents() {
	if a.events != nil {
		a.events.Close()
	}
}

package appliance

import (
	"context"
	"runtime/debug"
	"slices"
	"time"

	"vapp.dev/appliance/front"
	"vapp.dev/schema"
)

// member is what a server of a Fleet shares with the others.
type member struct {
	fleet *Fleet
	index int
	ready chan struct{} // closed when the model is loaded, or waits for a request
}

// handlers is what serves a server's requests: an http.Server, or the listener of a Fleet.
type handlers interface {
	// Shutdown waits until no request is in progress.
	Shutdown(context.Context) error
	Close() error
}

// beginServing serves the socket. failed receives its error.
func (a *Appliance) beginServing() (server handlers, failed <-chan error) {
	if a.cfg.member != nil { // the fleet serves the socket
		return sharedHandlers{a}, nil
	}
	s := a.newHTTP()
	return s, a.socket.serve(s)
}

// sharedHandlers are the requests of one server at the listener of several.
type sharedHandlers struct{ a *Appliance }

// Shutdown implements handlers.
func (h sharedHandlers) Shutdown(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for h.a.handling.Load() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Close implements handlers.
func (h sharedHandlers) Close() error { return nil }

// joinFleet makes a server of a fleet log with its profile's name as server.
func (a *Appliance) joinFleet(p *Prepared) {
	if a.cfg.member != nil {
		a.log = a.log.With("server", p.Profile.Name)
	}
}

// makeWay unloads idle models of a fleet until the engine of next fits beside the others. Until keepWay, or until the
// engine serves, none is loaded that does not fit beside it.
func (a *Appliance) makeWay(next *Prepared) error {
	if m := a.cfg.member; m != nil {
		return m.fleet.places.makeWay(a.hard, m.index, next.Plan)
	}
	return nil
}

// keepWay ends makeWay: the server keeps its engine.
func (a *Appliance) keepWay() {
	if m := a.cfg.member; m != nil {
		m.fleet.places.expect(m.index, nil)
	}
}

// limitHeap sets the limit of the Go heap of this server.
func (a *Appliance) limitHeap(bytes int64) {
	if m := a.cfg.member; m != nil {
		m.fleet.heap.set(m.index, bytes)
		return
	}
	debug.SetMemoryLimit(bytes)
}

// frontMember returns the server as the front of a fleet uses it.
func (a *Appliance) frontMember() front.Member {
	return front.Member{
		Profile: a.first.Profile.Name, Handler: a.countRequests(a.server.Handler()), Allows: a.server.Allows,
		Names: a.names, Loaded: a.loaded, InFlight: a.server.InFlight,
		Ready: a.Ready, Healthy: a.Healthy,
		BodyTimeout: func() time.Duration { return time.Duration(a.live.Load().profile.Serve.Timeouts.Body) },
		MaxBody:     int64(a.first.Profile.Serve.Limits.MaxBodyBytes), Metrics: a.metrics.Gatherer(),
	}
}

// names returns the names that requests may have as their model: served names, and adapters, which are those of the
// profile while the model is not loaded.
func (a *Appliance) names() []string {
	l := a.live.Load()
	out := slices.Clone(l.api.Chat.Models)
	if s := a.serving(); s != nil && a.loaded() {
		for _, d := range s.service.Adapters() {
			out = append(out, d.Name)
		}
		return out
	}
	return append(out, profileAdapters(l.profile)...)
}

// profileAdapters returns the names of the adapters that a profile lists.
func profileAdapters(p *schema.Profile) (names []string) {
	if p.LoRA != nil {
		for name := range p.LoRA.Adapters {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// discard closes a server that was not run.
func (a *Appliance) discard() error {
	a.abort(nil)
	a.closeResponses()
	a.closeEvents()
	a.closeTraces()
	return a.first.Close()
}

package appliance

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"vapp.dev/appliance/api"
	"vapp.dev/appliance/chat"
	"vapp.dev/engine"
)

// Phase is a phase in the life of a server.
type Phase int32

// The phases.
const (
	Loading Phase = iota
	Ready
	Reloading // no engine serves, since one is replaced
	Sleeping  // POST /sleep has freed the model's memory
	Unloaded  // the next request loads the model
	Draining
	Failed
)

// String returns the phase in the form of /readyz and 503 replies.
func (p Phase) String() string {
	return [...]string{"loading", "ready", "reloading", "sleeping", "unloaded", "draining", "failed"}[p]
}

// phase holds the Phase.
type phase struct{ now atomic.Int32 }

func (p *phase) set(to Phase) { p.now.Store(int32(to)) }
func (p *phase) get() Phase   { return Phase(p.now.Load()) }

// reload sets Reloading unless the server drains.
func (p *phase) reload() { p.now.CompareAndSwap(int32(Ready), int32(Reloading)) }

// pause sets Sleeping or Unloaded unless the server drains.
func (p *phase) pause(to Phase) { p.unlessDraining(to) }

// becomeReady sets Ready unless the server drains.
func (p *phase) becomeReady() { p.unlessDraining(Ready) }

func (p *phase) unlessDraining(to Phase) {
	for {
		was := p.now.Load()
		if Phase(was) == Draining || p.now.CompareAndSwap(was, int32(to)) {
			return
		}
	}
}

// now returns the phase. After a fatal error of the engine it is Failed, and why is the
// error.
func (a *Appliance) now() (p Phase, why error) {
	e := a.engine()
	if p = a.phase.get(); p == Loading || e == nil {
		return p, nil
	}
	if err := e.Err(); errors.Is(err, engine.ErrDead) {
		return Failed, err
	}
	return p, nil
}

// Phase returns the phase for /readyz and for the errors of refused requests.
func (a *Appliance) Phase() string {
	p, _ := a.now()
	return p.String()
}

// why returns the first line of the error that caused the phase Failed, else "".
func (a *Appliance) why() string {
	_, err := a.now()
	if err == nil {
		return ""
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// Ready implements api.State.
func (a *Appliance) Ready() bool {
	p, _ := a.now()
	return p == Ready || p == Unloaded
}

// Healthy implements api.State. A server that sleeps is as healthy as vLLM's.
func (a *Appliance) Healthy() bool {
	p, _ := a.now()
	return p == Ready || p == Unloaded || p == Reloading || p == Sleeping
}

// Enter implements api.State.
func (a *Appliance) Enter(ctx context.Context) (*chat.Service, func(), error) {
	if p, _ := a.now(); p == Failed || p == Draining {
		return nil, nil, a.notReady()
	}
	if limit := a.live.Load().api.Chat.RequestTimeout; limit > 0 {
		bounded, stop := context.WithTimeoutCause(ctx, limit, chat.Errorf(chat.Unavailable, "", "The model was not ready within %v (serve.limits.requestTimeout). Please try again later.", limit))
		defer stop()
		ctx = bounded
	}
	s, err := a.door.enter(ctx)
	if err != nil {
		return nil, nil, chat.AsError(err)
	}
	return s.service, func() { a.door.leave(s) }, nil
}

// About implements api.Describer: it describes a model that the next request loads.
func (a *Appliance) About() (api.About, bool) {
	r := a.resting.Load()
	if r == nil || r.asked {
		return api.About{}, false
	}
	p, l := r.prepared, a.live.Load().profile
	about := api.About{Root: p.Model.Source.Name, Length: p.Plan.Options.MaxModelLen, Now: time.Now()}
	for _, name := range profileAdapters(l) {
		about.Adapters = append(about.Adapters, chat.Adapter{Name: name, Path: l.LoRA.Adapters[name]})
	}
	return about, true
}

// notReady returns the error of a request that comes while no engine serves.
func (a *Appliance) notReady() error {
	return chat.Errorf(chat.Unavailable, "", "The server is not ready: %s.", a.Phase())
}

// serveReloads handles GET /admin/reloads.
func (a *Appliance) serveReloads(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	profile, pending, list := a.cfg.Profile, a.audit.waiting(), a.Reloads()
	if !api.HasKey(r) {
		profile, pending, list = api.PublicPath(profile), pending.public(), publicReloads(list)
	}
	// An error means that the client has disconnected.
	_ = json.NewEncoder(w).Encode(map[string]any{
		"profile": profile, "hash": a.live.Load().profile.Hash(), "pending": pending, "reloads": list,
	})
}

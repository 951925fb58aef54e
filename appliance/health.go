package appliance

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"

	"vapp.dev/appliance/api"
	"vapp.dev/appliance/chat"
	"vapp.dev/engine"
)

// Phase is where a server is in its life.
type Phase int32

// The phases.
const (
	Loading Phase = iota
	Ready
	Draining
	Failed
)

// String is the phase as /readyz and 503 answers say it.
func (p Phase) String() string {
	return [...]string{"loading", "ready", "draining", "failed"}[p]
}

// phase holds the Phase.
type phase struct{ now atomic.Int32 }

func (p *phase) set(to Phase) { p.now.Store(int32(to)) }
func (p *phase) get() Phase   { return Phase(p.now.Load()) }

// now is the phase; it is Failed, and why, from the error of the engine on.
func (a *Appliance) now() (p Phase, why error) {
	if p = a.phase.get(); p == Loading { // there is no engine yet
		return p, nil
	}
	if err := a.engine.Err(); errors.Is(err, engine.ErrDead) {
		return Failed, err
	}
	return p, nil
}

// Phase is the word for /readyz and for what is refused meanwhile.
func (a *Appliance) Phase() string {
	p, _ := a.now()
	return p.String()
}

// why is the reason of a phase that nobody asked for, its first line.
func (a *Appliance) why() string {
	_, err := a.now()
	if err == nil {
		return ""
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// Service answers requests; nil unless the server is ready.
func (a *Appliance) Service() *chat.Service {
	if p, _ := a.now(); p != Ready {
		return nil
	}
	return a.service.Load()
}

// serveReloads is GET /admin/reloads.
func (a *Appliance) serveReloads(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	profile, pending, list := a.cfg.Profile, a.audit.waiting(), a.Reloads()
	if !api.HasKey(r) {
		profile, pending, list = public(profile), pending.public(), publicReloads(list)
	}
	// An error here is a client that has gone.
	_ = json.NewEncoder(w).Encode(map[string]any{
		"profile": profile, "hash": a.live.Load().profile.Hash(), "pending": pending, "reloads": list,
	})
}

package appliance

import (
	"context"
	"fmt"
	"time"

	"vapp.dev/appliance/api"
	"vapp.dev/appliance/auditlog"
	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend"
	"vapp.dev/schema"
)

// Residency decides when the model of one of several servers on a machine may be in memory.
type Residency interface {
	// Enter waits until the model may be loaded, and reserves its memory. Its error goes to the requests that wait.
	Enter(context.Context) error
	// Leave gives the memory back.
	Leave()
}

// rest is how a server waits without an engine.
type rest struct {
	prepared *Prepared // of the engine that is opened next
	level    int       // 1: the weights are kept; 2: nothing is
	weights  backend.PackedWeights
	adapters adapterSet // that the engine had
	host     int64      // bytes of host memory to which the weights were copied; 0: they are where they were
	since    time.Time
	asked    bool // by POST /sleep, so that requests are refused; else by serve.idle, and a request loads the model
}

// Limits of Sleep.
const (
	keepWeights = 1
	keepNothing = 2
)

// Sleep implements api.Sleeper: it lets running requests end within serve.drainTimeout, aborts the others, and frees
// the memory of the engine. Level 1 keeps the weights, in the host's memory where the device is a GPU.
func (a *Appliance) Sleep(ctx context.Context, level int) (api.SleepReply, error) {
	if r := a.resting.Load(); r != nil && r.asked && r.level >= level {
		return a.sleepReply(r, 0), nil
	}
	return a.sleep(ctx, level, true)
}

// sleep closes the engine. asked is as in rest.
func (a *Appliance) sleep(ctx context.Context, level int, asked bool) (reply api.SleepReply, err error) {
	replies := make(chan api.SleepReply, 1)
	err = a.alone(ctx, func(_, lasting context.Context, opened func()) error {
		opened()
		reply, err := a.closeEngine(lasting, level, asked)
		replies <- reply
		return err
	})
	select {
	case reply = <-replies:
	default:
	}
	return reply, err
}

// alone does what must not happen during a swap, and waits for it until ctx is done; it then goes on.
func (a *Appliance) alone(ctx context.Context, do func(opening, lasting context.Context, opened func()) error) error {
	var err error
	ended := a.swaps.run(func(opening, lasting context.Context, opened func()) { err = do(opening, lasting, opened) })
	if ended == nil {
		return chat.Errorf(chat.Unavailable, "", "The engine is being replaced. Please try again later.")
	}
	select {
	case <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (a *Appliance) closeEngine(ctx context.Context, level int, asked bool) (api.SleepReply, error) {
	was, s := a.resting.Load(), a.serving()
	next := &rest{prepared: a.prepared(), level: level, since: a.reloader.now(), asked: asked}
	if asked {
		a.door.close(func() error { return a.asleep(next) })
	} else if !a.door.holdIfEmpty(s, a.queueLimit(), a.loadOnRequest) {
		return api.SleepReply{}, nil // a request came
	}
	a.phase.pause(next.phase())
	var freed int64
	var err error
	if was != nil { // the engine is closed already; level 2 frees the weights too
		next.weights, next.host, next.adapters = was.weights, was.host, was.adapters
	} else {
		a.retire(ctx, s)
		next.adapters = a.adapterSet(s)
		if level == keepWeights {
			if next.weights, err = s.engine.Weights(); err != nil {
				a.log.Warn("the weights cannot be kept", "error", err)
				next.level = keepNothing
			}
		}
		for _, n := range s.engine.Usage() {
			freed += n
		}
		if err := a.closeServed(s); err != nil {
			a.log.Error("the engine did not close", "error", err)
		}
	}
	a.resting.Store(next)
	freed -= a.settleWeights(next)
	a.metrics.SetSleep(next.level)
	a.showRest(next)
	if a.cfg.Residency != nil && !asked {
		a.cfg.Residency.Leave()
	}
	reply := a.sleepReply(next, freed)
	a.note(auditlog.Entry{Event: auditlog.Sleep, Outcome: fmt.Sprintf("level %d", next.level), After: a.state(), Note: reply.Note})
	a.log.Info("the model's memory is freed", "level", next.level, "freed", plan.Size(freed), "note", reply.Note)
	return reply, nil
}

// settleWeights frees or offloads the weights of a resting server. It returns the bytes that they still take of the device.
func (a *Appliance) settleWeights(r *rest) (taken int64) {
	if r.weights == nil {
		return 0
	}
	if r.level == keepNothing {
		if err := r.weights.Close(); err != nil {
			a.log.Error("the weights were not freed", "error", err)
		}
		r.weights = nil
		return 0
	}
	if o, ok := r.weights.(backend.Offloader); ok && r.host == 0 {
		if use, err := o.Offload(); err == nil {
			r.host = use.Bytes
		} else {
			a.log.Warn("the weights stay on the device: they cannot be copied to the host", "error", err)
		}
	}
	if r.host > 0 {
		return 0
	}
	return r.weights.Bytes()
}

// sleepReply describes what is freed and what is kept.
func (a *Appliance) sleepReply(r *rest, freed int64) api.SleepReply {
	out := api.SleepReply{Level: r.level, Freed: freed}
	switch {
	case r.weights == nil:
		out.Note = "nothing is kept; waking up loads the model again"
	case r.host > 0:
		out.Kept, out.Note = r.host, "the weights are in the host's memory"
	default:
		out.Kept, out.Note = r.weights.Bytes(), "the weights stay where they are; the KV cache and all else is freed"
	}
	return out
}

// Wake implements api.Sleeper: it opens the engine again, with the weights that were kept.
func (a *Appliance) Wake(ctx context.Context) error {
	if a.resting.Load() == nil {
		return nil
	}
	return a.alone(ctx, func(opening, _ context.Context, _ func()) error { return a.openResting(opening) })
}

// Sleeping implements api.Sleeper.
func (a *Appliance) Sleeping() bool {
	r := a.resting.Load()
	return r != nil && r.asked
}

// openResting opens the engine of a resting server.
func (a *Appliance) openResting(ctx context.Context) error {
	r := a.resting.Load()
	if r == nil {
		return nil
	}
	start := a.reloader.now()
	if a.cfg.Residency != nil && !r.asked {
		if err := a.cfg.Residency.Enter(ctx); err != nil {
			a.door.fail(err)
			return err
		}
	}
	fresh, err := a.openTried(ctx, r.prepared, a.live.Load().profile, predecessor{r.weights, r.adapters})
	if err != nil {
		if a.cfg.Residency != nil && !r.asked {
			a.cfg.Residency.Leave()
		}
		a.door.fail(&chat.Error{Kind: chat.Unavailable, Message: "The model could not be loaded. Please try again later.", Cause: err})
		a.note(auditlog.Entry{Event: auditlog.Wake, Outcome: "failed", After: a.state(), Error: err.Error()})
		a.log.Error("the model cannot be loaded again", "error", err)
		return &chat.Error{Kind: chat.Internal, Message: "The model could not be loaded.", Cause: err}
	}
	if r.weights != nil {
		err = r.weights.Close()
	}
	a.resting.Store(nil)
	a.metrics.SetSleep(0)
	a.reloader.woken(fresh)
	took := a.reloader.now().Sub(start)
	a.note(auditlog.Entry{Event: auditlog.Wake, Outcome: "ready", After: a.state(), Lost: fresh.lost})
	a.log.Info("the model is loaded", "after", took.Round(time.Millisecond).String())
	a.report("STATUS=ready: " + a.url())
	return err
}

// loadOnRequest loads a resting model, as soon as no swap runs.
func (a *Appliance) loadOnRequest() {
	a.loading.run(func() {
		for a.swaps.await() {
			if ended := a.swaps.run(func(opening, _ context.Context, opened func()) {
				defer opened()
				_ = a.openResting(opening) // which has logged the error
			}); ended != nil {
				<-ended
				return
			}
		}
	}, a.door.knocked)
}

// asleep returns the error of requests to a sleeping server.
func (a *Appliance) asleep(r *rest) error {
	return chat.Errorf(chat.Unavailable, "", "The model sleeps (level %d). POST /wake_up loads it again.", r.level)
}

func (r *rest) phase() Phase {
	if r.asked {
		return Sleeping
	}
	return Unloaded
}

// queueLimit returns how many requests may wait for an engine.
func (a *Appliance) queueLimit() int { return a.live.Load().profile.Reload.Queue }

// watchIdle unloads the model after serve.idle.unload without a request.
func (a *Appliance) watchIdle(ctx context.Context) {
	for {
		c, pause := a.live.Load().profile.Serve.Idle, time.Second
		if s := a.serving(); c != nil && c.Unload > 0 && s != nil && a.resting.Load() == nil {
			limit := time.Duration(c.Unload)
			since, idle := a.door.idle(s)
			left := limit - a.reloader.now().Sub(since)
			if idle && left <= 0 {
				a.Unload(ctx)
			}
			pause = min(pause, max(left, 10*time.Millisecond))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// Unload frees the model's memory until the next request, unless it has requests. It reports whether it did.
func (a *Appliance) Unload(ctx context.Context) bool {
	_, err := a.sleep(ctx, keepNothing, false)
	r := a.resting.Load()
	return err == nil && r != nil && !r.asked
}

// Idle returns since when the model is loaded and has no request; ok is false if it has one, or is not loaded.
func (a *Appliance) Idle() (since time.Time, ok bool) {
	s := a.serving()
	if s == nil || a.resting.Load() != nil {
		return time.Time{}, false
	}
	return a.door.idle(s)
}

// restFirst makes a server ready that loads its model with the first request.
func (a *Appliance) restFirst() {
	a.resting.Store(&rest{prepared: a.first, level: keepNothing, since: a.reloader.now()})
	a.metrics.SetSleep(keepNothing)
	a.phase.pause(Unloaded)
	a.door.hold(a.queueLimit(), time.Time{}, a.loadOnRequest)
}

// woken makes the engine of a resting server serve.
func (r *reloader) woken(fresh *served) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.a.admit(fresh, r.a.live.Load())
}

// whileResting makes next the profile of the engine that a resting server opens.
func (r *reloader) whileResting(was *rest, next *Prepared, l *live, changes []string) error {
	now := *was
	now.prepared = next
	if now.weights != nil {
		if err := now.weights.Close(); err != nil {
			r.a.log.Error("the weights were not freed", "error", err)
		}
		now.weights, now.level = nil, keepNothing
	}
	r.a.resting.Store(&now)
	r.a.apply(l.with(r.access))
	r.waiting = nil
	r.setStale("profile of the engine", true)
	r.record(Reload{Class: string(schema.Structural), Outcome: Applied, Changes: changes, Plan: plan.Diff(was.prepared.Plan, next.Plan).String(), Note: "the model is not loaded; it will be with these changes"})
	if s := r.a.serving(); s != nil && s.prepared == was.prepared {
		r.a.closeModel(s)
		return nil
	}
	return was.prepared.Close()
}

// checkResting refuses a model of several ranks that is to be unloaded: its engines end together with their processes.
func checkResting(p *schema.Profile) error {
	if p.Parallel.Ranks() == 1 {
		return nil
	}
	for field, set := range map[string]bool{"serve.sleep": p.Serve.Sleep, "serve.idle": p.Serve.Idle != nil} {
		if set {
			return p.Reject(field, "a model of several ranks cannot be unloaded and loaded again while its server runs; leave the field out")
		}
	}
	return nil
}

// loaded reports whether an engine serves.
func (a *Appliance) loaded() bool { return a.serving() != nil && a.resting.Load() == nil }

// closeResting frees the weights that a resting server has kept.
func (a *Appliance) closeResting() {
	if r := a.resting.Load(); r != nil && r.weights != nil {
		if err := r.weights.Close(); err != nil {
			a.log.Error("the weights were not freed", "error", err)
		}
	}
}

// showRest shows in the metrics what a resting server has of its ledger.
func (a *Appliance) showRest(r *rest) {
	for _, l := range r.prepared.Ledger() {
		a.metrics.SetActual(l.Name, 0)
	}
	if r.weights != nil {
		a.metrics.SetActual(backend.Weights.String(), r.weights.Bytes())
	}
}

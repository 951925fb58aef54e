package appliance

import (
	"errors"
	"slices"
	"strings"
	"time"

	"vapp.dev/appliance/metrics"
	"vapp.dev/engine/sched"
	"vapp.dev/schema"
)

// apply applies the live fields of the newest profile, and reports the changes that need
// a restart. A rejected profile changes only keys and certificate.
func (r *reloader) apply() {
	r.fresh = false
	if err := r.reading.Err; err != nil {
		r.reject("none", err)
		return
	}
	newest, old := r.reading.Profile, r.a.live.Load()
	if err := r.admit(old.profile, newest); err != nil {
		r.reject(classOf(schema.Diff(old.profile, newest)), err)
		return
	}
	r.recordFailure("profile", Reload{})
	r.setStale("profile of the text", true)
	next := inForce(old.profile, newest)
	waits := schema.Diff(next, newest)
	known := r.expect(waits)
	r.applyLive(old, next, newest)
	r.structural(newest, known)
}

func classOf(cs schema.Changes) string {
	if c := cs.Class(); c != "" {
		return string(c)
	}
	return "none"
}

// reject records that the newest profile is rejected.
func (r *reloader) reject(class string, err error) {
	r.setStale("profile of the text", false)
	r.recordFailure("profile", Reload{Class: class, Error: err.Error(), Note: r.note})
}

// inForce returns the running profile with the live fields of the newest one. If the
// newest names another model, its parsers, its adapters and its default served name belong to that
// model and are not taken. With other slots its adapters may need them, and are not taken either.
func inForce(running, newest *schema.Profile) *schema.Profile {
	next := running.Take(newest, schema.Live, schema.Drain)
	if running.Model.Source != newest.Model.Source || running.Model.Revision != newest.Model.Revision {
		next.Parsers = running.Parsers
		if slices.Equal(newest.Serve.ServedModelName, []string{newest.Model.Source}) {
			next.Serve.ServedModelName = running.Serve.ServedModelName
		}
		next.LoRA = running.LoRA
	} else if a, b := running.LoRA, newest.LoRA; a != nil && b != nil && (a.MaxLoras != b.MaxLoras || a.MaxRank != b.MaxRank) {
		next.LoRA.Adapters = a.Adapters
	}
	return next
}

// admit calls Config.Admit for a changed profile.
func (r *reloader) admit(running, newest *schema.Profile) error {
	if r.a.cfg.Admit == nil || running.Hash() == newest.Hash() {
		return nil
	}
	next, err := PrepareProfile(newest, r.a.cfg.Machine)
	if err != nil {
		return err
	}
	return errors.Join(r.a.cfg.Admit(next), next.Close())
}

// applyLive applies next completely or, if a field is rejected, not at all.
func (r *reloader) applyLive(old *live, next, newest *schema.Profile) {
	l, err := r.a.newLive(next, r.a.prepared().Model)
	serving := r.a.serving()
	changesAdapters := r.a.loaded() && serving.adapters != nil
	if err == nil && changesAdapters {
		err = serving.adapters.change(r.a.hard, old.profile, next)
	}
	moved := false
	if err == nil {
		if moved, err = r.a.socket.move(old.profile, next); err != nil && changesAdapters {
			err = errors.Join(err, serving.adapters.change(r.a.hard, next, old.profile))
		}
	}
	changes := schema.Diff(old.profile, next)
	r.setStale("profile of live fields", err == nil)
	if err != nil {
		r.recordFailure("live", Reload{Class: classOf(changes), Error: err.Error(), Note: r.note})
		return
	}
	r.recordFailure("live", Reload{})
	if r.note != "" {
		r.note = r.access.take(newest.Access(), granted)
		r.setStale(metrics.PartKeys+" of the text", true)
		r.refreshAccess()
	}
	l = l.with(r.access).of(serving)
	var lines []string
	var policy *schema.Change
	for _, c := range changes {
		if c.Class == schema.Drain {
			policy = &c
			continue
		}
		lines = append(lines, c.String())
		r.lines = slices.DeleteFunc(r.lines, func(s string) bool { return strings.HasPrefix(s, c.Path+":") })
	}
	if len(lines) == 0 && l.source != old.source {
		lines = []string{"parsers.chatTemplate: the content of its file (live)"}
	}
	if moved {
		r.a.log.Info("listening", "address", r.a.Addr().String())
		r.a.report("STATUS=" + r.a.Phase() + ": " + r.a.url())
	}
	if len(changes) > 0 || len(lines) > 0 {
		r.a.apply(l)
	}
	r.lines = append(lines, r.lines...)
	r.flush()
	if policy != nil {
		r.setPolicy(*policy, next.Scheduler.Policy)
	}
}

// expect stores the changes that need a restart. It reports whether they were already
// recorded.
func (r *reloader) expect(waits schema.Changes) (known bool) {
	r.setStale("profile of the engine", len(waits) == 0)
	if len(waits) == 0 {
		if w := r.waiting; w != nil {
			r.waiting, r.withdrawn = nil, w.Changes
		}
		return true
	}
	w := &Waiting{Since: r.now(), Restart: true}
	for _, c := range waits {
		w.Changes = append(w.Changes, c.String())
	}
	if r.waiting != nil {
		if slices.Equal(r.waiting.Changes, w.Changes) && !r.forced() {
			return true
		}
		w.Since = r.waiting.Since
	}
	r.waiting = w
	return false
}

// show updates the pending changes of GET /admin/reloads and the page.
func (r *reloader) show() {
	w := r.waiting
	if r.drain != nil {
		both := Waiting{Since: r.drain.since, Changes: []string{r.drain.change}}
		if w != nil {
			both = *w
			both.Changes = append(slices.Clone(w.Changes), r.drain.change)
		}
		w = &both
	}
	r.a.audit.setWaiting(w)
}

// drain is a change that takes effect when the running requests have completed.
type drain struct {
	change  string
	trigger string
	since   time.Time
}

// setPolicy changes the scheduling policy. The outcome is recorded when the engine
// reports it; an idle engine does so at once.
func (r *reloader) setPolicy(c schema.Change, to string) {
	policy, err := sched.ParsePolicy(to)
	if err != nil {
		r.recordFailure("live", Reload{Class: string(schema.Drain), Error: err.Error()})
		return
	}
	d := &drain{change: c.String(), trigger: r.trigger, since: r.now()}
	r.drain, r.recorded = d, true
	if rest := r.a.resting.Load(); rest != nil {
		rest.prepared.Plan.Options.Policy = policy
		r.record(Reload{Class: string(schema.Drain), Outcome: Applied, Changes: []string{c.String()}})
		return
	}
	engine := r.a.engine()
	states := engine.SetPolicy(policy)
	go func() {
		for {
			select {
			case now, open := <-states:
				if !open {
					return
				}
				r.policyChanged(d, now)
			case <-engine.Done():
				return
			}
		}
	}()
}

// policyChanged records the outcome of a change of policy, unless a newer one replaced it.
func (r *reloader) policyChanged(d *drain, inForce bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.drain != d {
		return
	}
	o := Reload{Class: string(schema.Drain), Outcome: Pending, Changes: []string{d.change}, Trigger: d.trigger}
	if inForce {
		o.Outcome, r.drain = Applied, nil
	}
	r.setStale("profile of the policy", inForce)
	r.record(o)
	r.show()
}

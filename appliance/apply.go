package appliance

import (
	"errors"
	"slices"
	"strings"
	"time"

	"vapp.dev/appliance/metrics"
	"vapp.dev/appliance/plan"
	"vapp.dev/engine/sched"
	"vapp.dev/schema"
)

// apply puts the live fields of the newest profile in force and reports what a running engine
// cannot take. With a profile that is refused everything but keys and certificate stays.
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
	r.failed("profile", Reload{})
	r.setStale("profile of the text", true)
	next := inForce(old.profile, newest)
	waits := schema.Diff(next, newest)
	known := r.expect(waits)
	r.applyLive(old, next, newest)
	r.report(newest, known)
}

func classOf(cs schema.Changes) string {
	if c := cs.Class(); c != "" {
		return string(c)
	}
	return "none"
}

// reject records that the newest profile is refused.
func (r *reloader) reject(class string, err error) {
	r.setStale("profile of the text", false)
	r.failed("profile", Reload{Class: class, Error: err.Error(), Note: r.note})
}

// inForce is what runs with the live fields of the newest profile. A profile that names another
// model describes that one by its parsers and its default served name: they wait with it.
func inForce(running, newest *schema.Profile) *schema.Profile {
	next := running.Take(newest, schema.Live, schema.Drain)
	if running.Model.Source != newest.Model.Source || running.Model.Revision != newest.Model.Revision {
		next.Parsers = running.Parsers
		if slices.Equal(newest.Serve.ServedModelName, []string{newest.Model.Source}) {
			next.Serve.ServedModelName = running.Serve.ServedModelName
		}
	}
	return next
}

// admit asks Config.Admit for a changed profile.
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

// applyLive puts next in force, all of it or, where a field is refused, none.
func (r *reloader) applyLive(old *live, next, newest *schema.Profile) {
	l, err := r.a.newLive(next, r.a.prepared.Model)
	if err == nil {
		err = plan.Refuse(next)
	}
	changes := schema.Diff(old.profile, next)
	r.setStale("profile of live fields", err == nil)
	if err != nil {
		r.failed("live", Reload{Class: classOf(changes), Error: err.Error(), Note: r.note})
		return
	}
	r.failed("live", Reload{})
	if r.note != "" {
		r.note = r.access.take(newest.Access(), granted)
		r.setStale(metrics.PartKeys+" of the text", true)
		r.refreshAccess()
	}
	l = l.with(r.access)
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
	if len(changes) > 0 || len(lines) > 0 {
		r.a.apply(l)
	}
	r.lines = append(lines, r.lines...)
	r.flush()
	if policy != nil {
		r.setPolicy(*policy, next.Scheduler.Policy)
	}
}

// expect makes these the changes that wait for a restart, and returns whether they were
// reported already.
func (r *reloader) expect(waits schema.Changes) (known bool) {
	r.setStale("profile of the engine", len(waits) == 0)
	if len(waits) == 0 {
		if w := r.waiting; w != nil {
			r.waiting, r.gone = nil, w.Changes
		}
		return true
	}
	w := &Waiting{Since: r.now()}
	for _, c := range waits {
		w.Changes = append(w.Changes, c.String())
	}
	if r.waiting != nil {
		if slices.Equal(r.waiting.Changes, w.Changes) && !r.loud() {
			return true
		}
		w.Since = r.waiting.Since
	}
	r.waiting = w
	return false
}

// report plans the newest profile and records what a restart with it would change.
func (r *reloader) report(newest *schema.Profile, known bool) {
	defer r.show()
	if r.gone != nil { // after what is live, so that it is in force when it is reported
		r.record(Reload{Class: string(schema.Structural), Outcome: Withdrawn, Changes: r.gone})
		r.gone = nil
	}
	if known {
		return
	}
	w := r.waiting
	o := Reload{Class: string(schema.Structural), Outcome: Reported, Changes: w.Changes}
	next, err := PrepareProfile(newest, r.a.cfg.Machine)
	if err == nil {
		w.Plan = plan.Diff(r.a.prepared.Plan, next.Plan).String()
		err = errors.Join(next.Refuse(), next.Close())
	}
	if o.Plan = w.Plan; err != nil {
		o.Outcome, o.Error = Rejected, err.Error()
		w.Error = o.Error
	}
	r.record(o)
}

// show is what GET /admin/reloads and the page have as not in force.
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

// drain is a change that comes into force when the running requests have ended.
type drain struct {
	change  string
	trigger string
	since   time.Time
}

// setPolicy changes the order of requests. What becomes of it is recorded when the engine
// says so: on an idle one at once.
func (r *reloader) setPolicy(c schema.Change, to string) {
	policy, err := sched.ParsePolicy(to)
	if err != nil {
		r.failed("live", Reload{Class: string(schema.Drain), Error: err.Error()})
		return
	}
	d := &drain{change: c.String(), trigger: r.trigger, since: r.now()}
	r.drain, r.told = d, true
	states, engine := r.a.engine.SetPolicy(policy), r.a.engine
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

// policyChanged records what became of a change of policy, unless another has replaced it.
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

package appliance

import (
	"context"
	"errors"
	"strings"
	"time"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/sched"
	"vapp.dev/schema"
)

// What makes the profile be read again.
const (
	TriggerFile   = "file"
	TriggerSignal = "SIGHUP"
)

// Reload asks for the profile to be read again; it returns at once. Several
// requests before the reading starts are one, a signal's if any of them is: what
// comes of a signal is always told.
func (a *Appliance) Reload(trigger string) {
	for {
		select {
		case a.kick <- trigger:
			return
		default:
		}
		if trigger != TriggerSignal {
			return
		}
		select {
		case <-a.kick: // ours takes its place
		default:
		}
	}
}

// Reloads are the last outcomes, the newest first.
func (a *Appliance) Reloads() []Reload { return a.audit.reloads() }

// watch reads the profile again whenever its files change or somebody asks.
func (a *Appliance) watch(ctx context.Context) {
	follow := func() {}
	if a.live.Load().profile.Reload.Watch {
		w, err := newWatcher()
		if err != nil {
			a.log.Error("the profile is not watched; SIGHUP reloads it", "error", err)
		} else {
			defer w.close()
			follow = func() {
				added, err := w.follow(a.live.Load().files)
				if err != nil {
					a.log.Warn("a folder of the profile is not watched", "error", err)
				}
				if added {
					a.Reload(TriggerFile)
				}
			}
			follow()
			go a.notice(ctx, w)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case trigger := <-a.kick:
			a.reload(trigger)
			follow() // the files that the profile names now, and where links lead now
		}
	}
}

// notice turns bursts of file events into reloads.
func (a *Appliance) notice(ctx context.Context, w *watcher) {
	for w.wait(ctx, time.Duration(a.live.Load().profile.Reload.Debounce)) {
		a.Reload(TriggerFile)
	}
}

// reload reads the profile, decides, applies, and tells. Whatever is wrong, the
// last good profile stays in force.
func (a *Appliance) reload(trigger string) {
	r := a.reread()
	r.Trigger, r.At = trigger, time.Now()
	if trigger == TriggerFile && (r.Outcome == Unchanged || a.audit.reported(r)) {
		return // an editor's backup, a file beside it
	}
	a.metrics.Reloaded(r.Class, string(r.Outcome), r.At)
	a.audit.add(r)
	args := []any{"trigger", trigger, "class", r.Class, "outcome", r.Outcome}
	switch {
	case r.Error != "":
		a.log.Error("profile reload", append(args, "error", r.Error)...)
	case r.Outcome == Reported:
		a.log.Warn("profile reload: a structural change needs a restart; nothing was applied",
			append(args, "changes", strings.Join(r.Changes, "; "), "plan", r.Plan)...)
	default:
		a.log.Info("profile reload", append(args, "changes", strings.Join(r.Changes, "; "))...)
	}
}

// reread is reload without the telling.
func (a *Appliance) reread() Reload {
	old := a.live.Load()
	r := Reload{Class: "none"}
	fail := func(err error) Reload {
		r.Outcome, r.Error = Rejected, err.Error()
		return r
	}
	p, err := a.cfg.Machine.Load(a.cfg.Profile)
	if err != nil {
		return fail(err)
	}
	if err := plan.Refuse(p); err != nil {
		return fail(err)
	}
	r.Hash = p.Hash()
	changes := schema.Diff(old.profile, p)
	for _, c := range changes {
		r.Changes = append(r.Changes, c.String())
	}
	if c := changes.Class(); c != "" {
		r.Class = string(c)
	}
	if changes.Class() == schema.Structural {
		return a.structural(p, r)
	}
	next, err := a.newLive(p, a.prepared.Model)
	switch {
	case err != nil:
		return fail(err)
	case next.hash == old.hash:
		r.Outcome = Unchanged
		return r
	case len(changes) == 0: // a key file or a template changed
		r.Class, r.Changes = string(schema.Live), []string{"a file that the profile names"}
	}
	if err := a.readmit(p); err != nil {
		return fail(err)
	}
	r.Outcome = Applied
	if changes.Class() == schema.Drain {
		policy, err := sched.ParsePolicy(p.Scheduler.Policy)
		if err != nil {
			return fail(err)
		}
		a.engine.SetPolicy(policy)
		r.Outcome = Pending
	}
	a.apply(next)
	return r
}

// readmit asks Config.Admit for a changed profile.
func (a *Appliance) readmit(p *schema.Profile) error {
	if a.cfg.Admit == nil {
		return nil
	}
	next, err := PrepareProfile(p, a.cfg.Machine)
	if err != nil {
		return err
	}
	return errors.Join(a.cfg.Admit(next), next.Close())
}

// structural plans the changed profile and reports what would differ.
func (a *Appliance) structural(p *schema.Profile, r Reload) Reload {
	next, err := PrepareProfile(p, a.cfg.Machine)
	if err != nil {
		r.Outcome, r.Error = Rejected, err.Error()
		return r
	}
	r.Outcome, r.Plan = Reported, plan.Diff(a.prepared.Plan, next.Plan).String()
	if err := next.Close(); err != nil {
		r.Error = err.Error()
	}
	return r
}

package appliance

import (
	"context"
	"errors"
	"time"

	"vapp.dev/appliance/plan"
	"vapp.dev/schema"
)

// structural plans the newest profile. By reload.structural it reports what a restart would change, or starts to
// replace the engine. known: the changes were already recorded.
func (r *reloader) structural(newest *schema.Profile, known bool) {
	defer r.show()
	if r.withdrawn != nil { // after applyLive, so that live fields are in effect at this record
		r.record(Reload{Class: string(schema.Structural), Outcome: Withdrawn, Changes: r.withdrawn})
		r.withdrawn = nil
	}
	if known && !(r.waiting != nil && r.waiting.Follows) {
		return
	}
	w := r.waiting
	mode := r.a.live.Load().profile.Reload.Structural
	if mode != schema.Report && r.a.swaps.running() {
		if !w.Follows {
			w.Follows = true
			r.a.log.Info("profile reload: the engine is being replaced; the newest changes follow", "changes", w.Changes)
		}
		return
	}
	w.Follows = false
	o := Reload{Class: string(schema.Structural), Outcome: Reported, Changes: w.Changes}
	next, err := r.prepareNext(newest, mode)
	if err == nil {
		w.Plan = plan.Diff(r.a.prepared().Plan, next.Plan).String()
		err = next.Refuse()
	}
	if err == nil && mode != schema.Report {
		if err = r.beginSwap(newest, next); err == nil {
			return
		}
	}
	if err == errRestart {
		o.Note, err = err.Error(), nil
	}
	if next != nil {
		err = errors.Join(err, next.Close())
	}
	if o.Plan = w.Plan; err != nil {
		o.Outcome, o.Error = Rejected, err.Error()
		w.Error = o.Error
	}
	r.record(o)
}

// prepareNext plans the newest profile as a restart would start it or, if the engine is to be replaced, without the
// changes that only a restart can make.
func (r *reloader) prepareNext(newest *schema.Profile, mode string) (*Prepared, error) {
	if mode != schema.Report {
		newest = r.a.live.Load().profile.Take(newest, schema.Live, schema.Drain, schema.Structural)
	}
	next, err := PrepareProfile(newest, r.a.cfg.Machine)
	if err != nil {
		return nil, err
	}
	return next, next.summarize()
}

// beginSwap starts to replace the engine by that of next. Changes that need a restart stay pending.
func (r *reloader) beginSwap(newest *schema.Profile, next *Prepared) error {
	old := r.a.serving()
	changes := schema.Diff(r.a.prepared().Profile, next.Profile)
	if changes.Class() != schema.Structural {
		return errRestart
	}
	if err := next.Model.Loadable(); err != nil {
		return next.Profile.Reject("model.source", "%v", err)
	}
	settings, err := r.a.newLive(next.Profile, next.Model)
	if err != nil {
		return err
	}
	if rest := r.a.resting.Load(); rest != nil {
		return r.whileResting(rest, next, settings, structuralLines(changes))
	}
	way, err := r.a.decide(r.a, old, next)
	if err != nil {
		return err
	}
	s := &swap{a: r.a, old: old, next: next, way: way, newest: newest, live: settings, trigger: r.trigger, diff: r.waiting.Plan, changes: structuralLines(changes)}
	if r.a.swaps.run(s.run) == nil {
		r.a.keepWay()
		return errors.New("the server is ending")
	}
	r.recorded = true
	r.waiting.Restart, r.waiting.Way = false, string(way.Way)
	r.a.log.Info("profile reload: the engine is replaced", "way", way.Way, "why", way.Why, "changes", s.changes, "plan", s.diff)
	return nil
}

// structuralLines returns the lines of the structural changes.
func structuralLines(changes schema.Changes) (out []string) {
	for _, c := range changes {
		if c.Class == schema.Structural {
			out = append(out, c.String())
		}
	}
	return out
}

// errRestart is why changes cannot be made by replacing the engine.
var errRestart = errors.New("these fields belong to the process, not to the engine: they take effect with a restart")

// transition decides how the engine of next takes the place of old.
func (a *Appliance) transition(old *served, next *Prepared) (plan.Transition, error) {
	running := a.live.Load().profile
	in := plan.ChangeInputs{
		Old: old.prepared.Plan, New: next.Plan, Mode: running.Reload.Structural, Several: a.cfg.member != nil,
		DrainTimeout: running.Serve.DrainTimeout, Loaded: schema.Duration(a.loadTook.Load()), Running: true,
	}
	if i, ok := old.engine.WeightsInfo(); ok {
		in.OldFiles = i.Source
	}
	u, measured := processUse()
	if next.Opener.Name() == "cuda" {
		in.Resident = old.deviceOwn
		in.Host = a.cfg.Machine.hostMemory()
		in.Host.Resident = u.rss
	} else if measured {
		in.Resident = u.rss
	}
	var err error
	if in.NewFiles, err = next.Model.Fingerprint(); err != nil {
		return plan.Transition{}, err
	}
	return plan.NewTransition(in)
}

// swapped makes a new engine serve, and records the outcome.
func (r *reloader) swapped(s *swap, fresh *served) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.newestLive(s, fresh)
	limited, stop := context.WithTimeout(r.a.hard, leastChange)
	fresh.lost = fresh.adapters.inherit(limited, func() adapterSet { return s.leave(fresh) }, l.profile)
	stop()
	r.a.server.SetBodyBytes(s.next.Plan.BodyBytes)
	r.a.admit(fresh, l.with(r.access))
	r.done(s, fresh)
}

// notSwapped records that the new engine could not be opened, while the old one serves.
func (r *reloader) notSwapped(s *swap, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed(s, nil, err)
}

// newestLive returns the settings of a new engine: those of its profile, with the newest live fields that suit it.
func (r *reloader) newestLive(s *swap, fresh *served) *live {
	p := fresh.prepared.Profile
	if newest := r.reading; newest != nil && newest.Err == nil && newest.Profile != s.newest {
		same := inForce(p, newest.Profile).Take(p, schema.Drain)
		if l, err := r.a.newLive(same, fresh.prepared.Model); err == nil {
			return l
		}
	}
	return s.live
}

// restored makes the last good engine serve again after err kept the new one from being opened.
func (r *reloader) restored(s *swap, again *served, err error) {
	r.mu.Lock()
	r.a.admit(again, r.a.live.Load())
	r.failed(s, again, err)
	r.mu.Unlock()
}

// done records a swap.
func (r *reloader) done(s *swap, fresh *served) {
	r.trigger, r.recorded = s.trigger, true
	r.waiting = nil
	r.setStale("profile of the engine", true)
	r.record(s.outcome(Applied, fresh))
	r.a.metrics.CountSwap(string(s.way.Way), true, r.now().Sub(s.begun), s.gap)
	r.show()
	r.a.report("STATUS=ready: " + r.a.url())
}

// failed records a swap that failed, while the last good engine serves; again is not nil if that was opened again. It closes the new model.
func (r *reloader) failed(s *swap, again *served, err error) {
	r.a.keepWay()
	r.trigger, r.recorded = s.trigger, true
	o := s.outcome(Rejected, again)
	o.Error = err.Error()
	if w := r.waiting; w != nil && !w.Follows {
		w.Restart, w.Error, w.Way = true, o.Error, ""
	}
	r.record(o)
	r.a.metrics.CountSwap(string(s.way.Way), false, r.now().Sub(s.begun), s.gap)
	r.show()
	if err := s.next.Close(); err != nil {
		r.a.log.Error("the files of the model that is not used did not close", "error", err)
	}
	r.compareAgain()
}

// outcome describes the swap for the audit; opened is the engine that was opened and serves, nil: none.
func (s *swap) outcome(o Outcome, opened *served) Reload {
	var lost []string
	if opened != nil {
		lost = opened.lost
	}
	return Reload{
		Lost:    lost,
		Trigger: s.trigger, Class: string(schema.Structural), Outcome: o, Changes: s.changes, Plan: s.diff,
		Way: string(s.way.Way), Note: s.way.Why, Gap: s.gap.Round(time.Millisecond).String(),
	}
}

// swapEnded reads the profile again, since changes may have waited for the end of the swap.
func (r *reloader) swapEnded() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.compareAgain()
}

// compareAgain lets the newest profile be compared once more with what is in force.
func (r *reloader) compareAgain() {
	if r.reading != nil {
		r.fresh = true
		r.a.Reload(TriggerSwap)
	}
}

package engine

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"vapp.dev/engine/kv"
	"vapp.dev/engine/runner"
	"vapp.dev/engine/sched"
	"vapp.dev/engine/steptime"
)

// loop owns the device, the KV pages and the scheduler. Only its goroutine uses them, so they
// need no locks. One iteration is Next → Launch → Commit. Without overlap a step is committed
// before the next one is scheduled. With overlap step n+1 is scheduled and launched while step
// n runs: it reads n's tokens from device memory, and n is committed afterwards. Both forms
// emit the same tokens. With Turns the loop launches steps during its turns only (loop_turns.go).
type loop struct {
	e       *Engine
	hooks   Hooks
	pool    *kv.Pool
	swap    *kv.Pool // nil without swap space
	sched   *sched.Scheduler
	runner  *runner.Runner
	limiter *steptime.PrefillLimiter // nil: only maxNumBatchedTokens limits prefill
	now     func() time.Time
	turns   turn

	lag     int      // launched steps that may be uncommitted while the next one is scheduled
	flights []flight // launched and not committed, oldest first
	set     int      // set of step buffers that the next launch uses
	sets    int      // how many there are

	choices       map[*sched.Seq]*choice
	messages      []message
	deferred      []*choice     // arrived while a policy change is pending
	policy        *policyChange // nil: none waits
	nextDeadline  time.Time     // earliest deadline of any choice; zero: none
	closing       bool
	broken        error     // why the group of ranks has failed
	last          time.Time // time of the previous commit; zero: the device has been idle since
	steps         int64
	preemptions   int64 // preemptions so far
	reportedEager uint  // bit set of the NoGraph reasons already reported

	first, between     []time.Duration // reused storage of StepStats.FirstTokens and BetweenTokens
	ofFirst, ofBetween []Observer      // and of their observers
}

// flight is a launched step that is not committed.
type flight struct {
	set    int
	step   *sched.Step
	at     time.Time
	replay runner.Replay
}

func newLoop(e *Engine, r *runner.Runner, pool *kv.Pool, o sched.Options, h Hooks) *loop {
	l := &loop{
		e: e, hooks: h, pool: pool, runner: r, lag: o.Lag, sets: max(2, 1+o.Lag), now: time.Now,
		sched:   sched.New(o, pool),
		choices: map[*sched.Seq]*choice{},
	}
	l.setITLTarget(e.opts.ITLTarget)
	return l
}

// run is the loop's goroutine. It locks its thread, since a device may be bound to it.
func (l *loop) run() {
	runtime.LockOSThread()
	defer close(l.e.done)
	err := l.runSteps()
	why := ErrClosed
	if err != nil {
		why = fmt.Errorf("%w: %w", ErrDead, err)
		if l.e.leader != nil {
			l.e.leader.Fail(err)
		}
	}
	l.e.in.shut(why)
	l.end(why, err)
}

// runSteps runs steps until the engine closes or the device fails.
func (l *loop) runSteps() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		l.leaveTurn()
	}()
	for {
		l.receive()
		if l.broken != nil {
			return l.broken
		}
		if l.closing {
			return l.settle()
		}
		if l.takeTurn() {
			continue
		}
		ends := l.endsTurn()
		var step *sched.Step
		if !ends {
			step = l.sched.Next()
		}
		if step != nil {
			if err := l.launch(step); err != nil {
				return err
			}
		}
		switch {
		case len(l.flights) > l.lag, len(l.flights) > 0 && step == nil:
			if err := l.commit(); err != nil {
				return err
			}
		case ends:
			l.yieldTurn()
		case step == nil:
			l.leaveTurn()
			l.publish()
			l.last = time.Time{}
			l.e.in.wait(l.nextDeadline)
		}
	}
}

// launch starts a step on the device.
func (l *loop) launch(s *sched.Step) error {
	f := flight{set: l.set, step: s, at: l.now()}
	var err error
	if f.replay, err = l.runner.Launch(f.set, s); err != nil {
		return err
	}
	for _, r := range s.Rows {
		if c := l.choices[r.Seq]; c != nil && c.stats.Scheduled.IsZero() {
			c.stats.Scheduled = f.at
			c.adapter.start()
		}
	}
	l.notePreempted(s, f.at)
	l.flights = append(l.flights, f)
	l.turns.steps++
	l.set = (l.set + 1) % l.sets
	return nil
}

// commit waits for the oldest launched step, commits it and delivers its tokens.
func (l *loop) commit() error {
	f := l.flights[0]
	l.flights = append(l.flights[:0], l.flights[1:]...)
	res, err := l.runner.Wait(f.set, f.step)
	if err != nil {
		return err
	}
	now := l.now()
	report := StepStats{
		Duration: now.Sub(f.at), FirstTokens: l.first[:0], BetweenTokens: l.between[:0],
		FirstObservers: l.ofFirst[:0], BetweenObservers: l.ofBetween[:0],
	}
	l.learnStepTime(f, now, &report)
	l.reportSchedule(f.step, &report)
	l.reportGraph(f, &report)
	for _, o := range l.sched.Commit(f.step, res) {
		l.deliver(f.set, o, now, &report)
	}
	reportSpeculation(f.step.Speculation, &report)
	l.steps++
	if err := l.check(); err != nil {
		return err
	}
	l.publish()
	if l.hooks.Step != nil {
		l.hooks.Step(report)
	}
	l.first, l.between = report.FirstTokens, report.BetweenTokens
	l.ofFirst, l.ofBetween = report.FirstObservers, report.BetweenObservers
	clear(l.ofFirst) // so that the garbage collector can free them
	clear(l.ofBetween)
	return nil
}

// check verifies the scheduler and the page pools in builds with the tag invariants.
func (l *loop) check() error {
	if !invariants {
		return nil
	}
	if err := l.sched.Check(); err != nil {
		return fmt.Errorf("after step %d: %w", l.steps, err)
	}
	return nil
}

// settle waits for all launched steps and drops their results.
func (l *loop) settle() error {
	var errs []error
	for _, f := range l.flights {
		_, err := l.runner.Wait(f.set, f.step)
		errs = append(errs, err)
	}
	l.flights = nil
	return errors.Join(errs...)
}

// end pushes the last event of every remaining choice: an abort if the engine was closed, an
// error if it failed.
func (l *loop) end(why, failed error) {
	finish := FinishAbort
	if failed != nil {
		finish = FinishError
	} else {
		why = nil
	}
	l.messages = l.e.in.take(l.messages)
	for _, m := range l.messages {
		l.deferred = append(l.deferred, m.add...)
		if m.do != nil {
			m.do(l)
		}
	}
	for _, c := range l.deferred {
		l.finish(c, finish, why, time.Now())
	}
	for _, c := range l.choices {
		l.finish(c, finish, why, time.Now())
	}
}

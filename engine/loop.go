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

// loop owns device, KV pages and scheduler: nothing else touches them, and
// nothing in them locks. Its schedule are Next → Run → Commit. In the plain form a
// step is committed before the next is chosen. In the overlapped form step n+1 is
// chosen and launched while step n runs: it refers to n's tokens where they lie on
// the device, and n is committed afterwards. Both forms emit the same tokens.
type loop struct {
	e       *Engine
	hooks   Hooks
	pool    *kv.Pool
	swap    *kv.Pool // nil without swap space
	sched   *sched.Scheduler
	runner  *runner.Runner
	limiter *steptime.PrefillLimiter // nil: prompts take what a step has room for
	now     func() time.Time

	lag     int      // launched steps that may wait for their commit while the next is chosen
	flights []flight // launched and not committed, the oldest first
	set     int      // step buffers of the next launch

	choices       map[*sched.Seq]*choice
	messages      []message
	deferred      []*choice     // arrived while a policy change waits
	policy        *policyChange // nil: none waits
	nextDeadline  time.Time     // the next deadline; zero: none
	closing       bool
	last          time.Time // commit before; zero: the device was idle since
	steps         int64
	preemptions   int64 // preemptions so far
	reportedEager uint  // reasons of steps without a graph that were told, a bit each

	first, between []time.Duration // room for those of a step's report
}

// flight is a step on the device.
type flight struct {
	set    int
	step   *sched.Step
	at     time.Time
	replay runner.Replay
}

func newLoop(e *Engine, r *runner.Runner, pool *kv.Pool, o sched.Options, h Hooks) *loop {
	l := &loop{
		e: e, hooks: h, pool: pool, runner: r, lag: o.Lag, now: time.Now,
		sched:   sched.New(o, pool),
		choices: map[*sched.Seq]*choice{},
	}
	l.setITLTarget(e.opts.ITLTarget)
	return l
}

// run is the loop's goroutine, on a thread of its own: the device may be bound
// to it.
func (l *loop) run() {
	runtime.LockOSThread()
	defer close(l.e.done)
	err := l.runSteps()
	why := ErrClosed
	if err != nil {
		why = fmt.Errorf("%w: %w", ErrDead, err)
	}
	l.e.in.shut(why)
	l.end(why, err)
}

// schedule runs steps until the engine closes or the device fails.
func (l *loop) runSteps() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	for {
		l.receive()
		if l.closing {
			return l.settle()
		}
		step := l.sched.Next()
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
		case step == nil:
			l.publish()
			l.last = time.Time{}
			l.e.in.wait(l.nextDeadline)
		}
	}
}

// launch hands a step to the device.
func (l *loop) launch(s *sched.Step) error {
	f := flight{set: l.set, step: s, at: l.now()}
	var err error
	if f.replay, err = l.runner.Launch(f.set, s); err != nil {
		return err
	}
	for _, r := range s.Rows {
		if c := l.choices[r.Seq]; c != nil && c.stats.Scheduled.IsZero() {
			c.stats.Scheduled = f.at
		}
	}
	l.flights = append(l.flights, f)
	l.set = 1 - l.set
	return nil
}

// commit waits for the oldest step and delivers what it gave.
func (l *loop) commit() error {
	f := l.flights[0]
	l.flights = append(l.flights[:0], l.flights[1:]...)
	res, err := l.runner.Wait(f.set, f.step)
	if err != nil {
		return err
	}
	now := l.now()
	report := StepStats{Duration: now.Sub(f.at), FirstTokens: l.first[:0], BetweenTokens: l.between[:0]}
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
	return nil
}

// check verifies the books in builds with the tag invariants.
func (l *loop) check() error {
	if !invariants {
		return nil
	}
	if err := l.sched.Check(); err != nil {
		return fmt.Errorf("after step %d: %w", l.steps, err)
	}
	return nil
}

// settle waits for what is still on the device.
func (l *loop) settle() error {
	var errs []error
	for _, f := range l.flights {
		_, err := l.runner.Wait(f.set, f.step)
		errs = append(errs, err)
	}
	l.flights = nil
	return errors.Join(errs...)
}

// end gives every choice that is left its last event: an abort when the engine
// was closed, an error when it failed.
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

package engine

import (
	"time"

	"vapp.dev/engine/steptime"
)

// MinPrefillChunk is the fewest prompt tokens that a step computes while a prompt waits,
// whatever the target.
const MinPrefillChunk = steptime.Grain

// SetITLTarget changes Options.ITLTarget from the next step on: while streams decode, prefill
// is cut so that a step is predicted to take at most d. 0 removes the limit. It has no effect
// without ChunkedPrefill.
func (e *Engine) SetITLTarget(d time.Duration) {
	_ = e.in.put(message{do: func(l *loop) { l.setITLTarget(d) }})
}

// setITLTarget sets the target of the prefill limiter, which keeps what it has learned.
func (l *loop) setITLTarget(d time.Duration) {
	switch {
	case d <= 0:
		l.limiter = nil
		l.sched.SetPrefillLimiter(nil)
	case l.limiter != nil:
		l.limiter.Retarget(d.Seconds())
	default:
		l.limiter = steptime.New(d.Seconds())
		l.sched.SetPrefillLimiter(l.limiter)
	}
}

// learnStepTime reports the time of a committed step and passes it to the prefill limiter. That is the time
// since the previous commit, as streams see it, or since the launch if the device was idle. A
// step that moved pages is not learned from, since its time is not that of its work alone.
func (l *loop) learnStepTime(f flight, now time.Time, report *StepStats) {
	took := now.Sub(f.at)
	if !l.last.IsZero() {
		took = now.Sub(l.last)
	}
	l.last = now
	report.Took, report.Work = took, f.step.Work
	if l.limiter == nil {
		return
	}
	target := time.Duration(l.limiter.Target() * float64(time.Second))
	report.BeyondTarget = f.step.Work.StepsPerToken > 0 && took > target
	if len(f.step.Moves) == 0 {
		l.limiter.Learn(f.step.Work, took.Seconds())
	}
	if s := l.limiter.Missed(f.step.Work); s > 0 && l.hooks.ITLMissed != nil {
		l.hooks.ITLMissed(time.Duration(s*float64(time.Second)), target)
	}
}

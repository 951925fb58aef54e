package engine

import (
	"time"

	"vapp.dev/engine/steptime"
)

// MinPrefillChunk is how many tokens of a waiting prompt a step computes at least, whatever the
// target.
const MinPrefillChunk = steptime.Grain

// SetITLTarget bounds, from the next step on, how long a stream waits from one token to
// the next while prompts are computed beside it: these are cut to what keeps a step within
// d. 0: prompts take what a step has room for. It has no meaning without ChunkedPrefill.
func (e *Engine) SetITLTarget(d time.Duration) {
	_ = e.in.put(message{do: func(l *loop) { l.setITLTarget(d) }})
}

// aim has prompts cut for a target. What an earlier one taught of the device stays.
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

// learn tells the pace of a step that has run: of the time since the commit before it, as
// streams see it, or since its launch if nothing ran then. Pages that moved would be
// taken for its work's time.
func (l *loop) learnStepTime(f flight, now time.Time, report *StepStats) {
	took := now.Sub(f.at)
	if !l.last.IsZero() {
		took = now.Sub(l.last)
	}
	l.last = now
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

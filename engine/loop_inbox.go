package engine

import (
	"errors"
	"slices"
	"time"

	"vapp.dev/engine/sched"
)

// receive handles the inbox's messages, expired deadlines and a pending policy change.
func (l *loop) receive() {
	l.messages = l.e.in.take(l.messages)
	for _, m := range l.messages {
		switch {
		case m.do != nil:
			m.do(l)
		case m.cancel != nil:
			l.cancel(m.cancel, m.finish)
		case l.policy != nil:
			l.deferred = append(l.deferred, m.add...)
			for _, c := range m.add {
				l.trackDeadline(c)
			}
		default:
			l.add(m.add)
		}
	}
	clear(l.messages)
	// Before changePolicy, which waits for the last running choice to end.
	if now := time.Now(); !l.nextDeadline.IsZero() && !now.Before(l.nextDeadline) {
		l.expire(now)
	}
	l.changePolicy()
}

func (l *loop) add(cs []*choice) {
	for _, c := range cs {
		if err := l.sched.Add(c.seq); err != nil {
			l.finish(c, FinishError, lengthError(err), time.Now())
			continue
		}
		l.choices[c.seq] = c
		l.trackDeadline(c)
	}
}

// trackDeadline lowers nextDeadline to c's deadline.
func (l *loop) trackDeadline(c *choice) {
	if !c.deadline.IsZero() && (l.nextDeadline.IsZero() || c.deadline.Before(l.nextDeadline)) {
		l.nextDeadline = c.deadline
	}
}

// cancel ends a choice, whether it runs, waits or is deferred. Its pages are free at once.
func (l *loop) cancel(c *choice, f Finish) {
	if c.stats.Finish != NotFinished {
		return
	}
	for i, h := range l.deferred {
		if h == c {
			l.deferred = append(l.deferred[:i], l.deferred[i+1:]...)
			break
		}
	}
	l.sched.Cancel(c.seq)
	l.finish(c, f, nil, time.Now())
}

// expire aborts the choices whose deadline has passed and updates nextDeadline.
func (l *loop) expire(now time.Time) {
	l.nextDeadline = time.Time{}
	expired := func(c *choice) {
		if !c.deadline.IsZero() && !now.Before(c.deadline) {
			l.cancel(c, FinishAbort)
			return
		}
		l.trackDeadline(c)
	}
	for _, c := range l.choices {
		expired(c)
	}
	for _, c := range slices.Clone(l.deferred) {
		expired(c)
	}
}

// changePolicy applies the pending policy change if nothing runs or the policy is already in
// force, and then adds the deferred choices.
func (l *loop) changePolicy() {
	c := l.policy
	switch {
	case c == nil:
	case l.sched.Idle() || c.to == l.sched.Policy():
		l.sched.SetPolicy(c.to)
		c.inForce <- true
		close(c.inForce)
		l.policy = nil
		l.add(l.deferred)
		l.deferred = nil
	case !c.waits:
		c.waits = true
		c.inForce <- false
	}
}

// lengthError converts a *sched.NeverFitsError into a *TooLongError.
func lengthError(err error) error {
	var e *sched.NeverFitsError
	if !errors.As(err, &e) {
		return err
	}
	what := "the model's maximum context length"
	if e.Arena {
		what = "what the KV cache holds"
	}
	return &TooLongError{Prompt: e.Prompt, Output: e.Output, Limit: e.Limit, What: what}
}

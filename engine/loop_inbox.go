package engine

import (
	"errors"
	"slices"
	"time"

	"vapp.dev/engine/sched"
)

// receive takes what others asked for.
func (l *loop) receive() {
	l.mail = l.e.in.take(l.mail)
	for _, m := range l.mail {
		switch {
		case m.do != nil:
			m.do(l)
		case m.cancel != nil:
			l.cancel(m.cancel, m.finish)
		case l.policy != nil:
			l.held = append(l.held, m.add...)
			for _, c := range m.add {
				l.due(c)
			}
		default:
			l.add(m.add)
		}
	}
	clear(l.mail)
	// Before the policy, which waits for the last choice to end.
	if now := time.Now(); !l.soonest.IsZero() && !now.Before(l.soonest) {
		l.expire(now)
	}
	l.changePolicy()
}

func (l *loop) add(cs []*choice) {
	for _, c := range cs {
		if err := l.sched.Add(c.seq); err != nil {
			l.finish(c, FinishError, tooLong(err), time.Now())
			continue
		}
		l.choices[c.seq] = c
		l.due(c)
	}
}

// due keeps the soonest deadline.
func (l *loop) due(c *choice) {
	if !c.deadline.IsZero() && (l.soonest.IsZero() || c.deadline.Before(l.soonest)) {
		l.soonest = c.deadline
	}
}

// cancel ends a choice wherever it is; its pages are free at once.
func (l *loop) cancel(c *choice, f Finish) {
	if c.stats.Finish != NotFinished {
		return
	}
	for i, h := range l.held {
		if h == c {
			l.held = append(l.held[:i], l.held[i+1:]...)
			break
		}
	}
	l.sched.Cancel(c.seq)
	l.finish(c, f, nil, time.Now())
}

// expire aborts the choices whose deadline has passed, and finds the next one.
func (l *loop) expire(now time.Time) {
	l.soonest = time.Time{}
	expired := func(c *choice) {
		if !c.deadline.IsZero() && !now.Before(c.deadline) {
			l.cancel(c, FinishAbort)
			return
		}
		l.due(c)
	}
	for _, c := range l.choices {
		expired(c)
	}
	for _, c := range slices.Clone(l.held) {
		expired(c)
	}
}

// changePolicy makes the policy that waits the scheduler's, if nothing runs or it is that
// already, and adds the requests that were held for it.
func (l *loop) changePolicy() {
	c := l.policy
	switch {
	case c == nil:
	case l.sched.Idle() || c.to == l.sched.Policy():
		l.sched.SetPolicy(c.to)
		c.inForce <- true
		close(c.inForce)
		l.policy = nil
		l.add(l.held)
		l.held = nil
	case !c.waits:
		c.waits = true
		c.inForce <- false
	}
}

// tooLong is the scheduler's refusal in the engine's words.
func tooLong(err error) error {
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

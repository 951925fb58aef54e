//go:build linux && cgo && cuda

package cuda

import (
	"errors"
	"time"

	"vapp.dev/engine/backend/cuda/driver"
)

// patience is how long a device may be without an answer: nothing that it is given takes as
// long, by far. Tests change it.
var patience = time.Minute

// patienceToken is what each token of a step adds.
const patienceToken = 10 * time.Millisecond

// queue is a stream that takes launches. A driver takes about a thousand that are not done, and
// has the caller of the next one wait, without a limit. So an event follows every so many of
// them, and the launches behind it wait here for the event before.
type queue struct {
	*driver.Stream
	ticks [2]*driver.Event
	next  int // which event comes next
	since int // launches since the last
}

const tickLaunches = 448

func newQueue(ctx *driver.Context) (q queue, err error) {
	if q.Stream, err = ctx.Stream(); err != nil {
		return queue{}, err
	}
	for i := range q.ticks {
		if q.ticks[i], err = ctx.Event(); err != nil {
			return q, err
		}
	}
	return q, nil
}

// run launches a range of a list; a device that has hung makes it fail with *driver.HungError.
func (q *queue) run(l *driver.List, from, to int, bound [driver.NumBound]int32, limit time.Duration) error {
	for from < to {
		n := min(to-from, tickLaunches-q.since)
		if err := l.Run(q.Stream, from, from+n, bound); err != nil {
			return err
		}
		from, q.since = from+n, q.since+n
		if q.since < tickLaunches {
			continue
		}
		if err := q.Record(q.ticks[q.next]); err != nil {
			return err
		}
		q.next, q.since = 1-q.next, 0
		if err := q.ticks[q.next].Wait(limit); err != nil {
			return err
		}
	}
	return nil
}

// close gives back what there is of it; the stream has nothing to do.
func (q *queue) close() error {
	var errs []error
	for _, e := range q.ticks {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	if q.Stream != nil {
		errs = append(errs, q.Stream.Close())
	}
	return errors.Join(errs...)
}

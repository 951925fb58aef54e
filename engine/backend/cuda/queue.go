//go:build linux && cgo && cuda

package cuda

import (
	"errors"
	"time"

	"vapp.dev/engine/backend/cuda/driver"
)

// hangTimeout is how long a device may not respond: far longer than any of its work takes. Tests
// change it.
var hangTimeout = time.Minute

// hangTimeoutPerToken is added to hangTimeout for each token of a step.
const hangTimeoutPerToken = 10 * time.Millisecond

// queue is a stream for launches. A driver accepts about a thousand unfinished launches and
// then blocks the caller without a time limit. So the queue records an event after every
// tickLaunches launches, and waits for the previous event before it launches more.
type queue struct {
	*driver.Stream
	wait  waiter
	ticks [2]*driver.Event
	next  int // index of the next event
	since int // launches since the last event
}

const tickLaunches = 448

func newQueue(ctx *driver.Context, wait waiter) (q queue, err error) {
	q.wait = wait
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

// run launches a range of a list. It fails with *driver.HungError if the device hangs.
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
		if err := q.wait.until(q.ticks[q.next], limit); err != nil {
			return err
		}
	}
	return nil
}

// close frees the events and the stream, which must be idle.
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

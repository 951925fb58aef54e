package turns_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"vapp.dev/engine/turns"
)

const ms = time.Millisecond

// clock is a clock that only the holder of a turn moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// work is an engine under load: steps of the same length until the clock passes end.
type work struct {
	seat *turns.Seat
	step time.Duration
	used time.Duration
}

func (w *work) run(c *clock, end time.Time) {
	w.seat.Enter()
	defer w.seat.Leave()
	for c.Now().Before(end) {
		for first := true; c.Now().Before(end) && (first || !w.seat.Wanted()); first = false {
			c.add(w.step)
			w.used += w.step
		}
		w.seat.Yield()
	}
}

// TestShares: engines under load have the same share of the time, whatever their steps take.
func TestShares(t *testing.T) {
	for _, steps := range [][]time.Duration{{ms, ms}, {ms, 50 * ms}, {7 * ms, 100 * ms, 3 * ms}} {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			c := &clock{}
			d := turns.New(c.Now)
			// The first seat is held until all others wait, so that all are under load at once.
			hold := d.Seat()
			hold.Enter()
			all := make([]*work, len(steps))
			end := c.Now().Add(100 * time.Second)
			var running sync.WaitGroup
			for i, step := range steps {
				all[i] = &work{seat: d.Seat(), step: step}
				running.Go(func() { all[i].run(c, end) })
			}
			for turns.Waiting(d) < len(steps) {
				time.Sleep(50 * time.Microsecond)
			}
			hold.Leave()
			running.Wait()
			fair := 100 * time.Second / time.Duration(len(steps))
			for i, w := range all {
				if off := w.used - fair; off.Abs() > 200*ms {
					t.Errorf("steps of %v: used %v, the fair share is %v", steps[i], w.used, fair)
				}
			}
		})
	}
}

// TestRestGivesNoClaim: an engine that comes back after a rest does not make up for it.
func TestRestGivesNoClaim(t *testing.T) {
	c := &clock{}
	d := turns.New(c.Now)
	a, b := d.Seat(), d.Seat()
	a.Enter() // one turn of 100 s, alone
	for range 1000 {
		c.add(100 * ms)
		if a.Wanted() {
			t.Fatal("nobody else is there, and the turn is to end")
		}
	}
	entered := make(chan struct{})
	go func() {
		b.Enter()
		close(entered)
	}()
	for turns.Waiting(d) == 0 {
		time.Sleep(50 * time.Microsecond)
	}
	c.add(100 * ms) // a's step ends
	if !a.Wanted() {
		t.Fatal("b waits and has had less, and a goes on")
	}
	a.Leave()
	<-entered
	left := make(chan struct{})
	go func() {
		a.Enter()
		close(left)
	}()
	for turns.Waiting(d) == 0 {
		time.Sleep(50 * time.Microsecond)
	}
	for n := 1; ; n++ {
		c.add(10 * ms)
		if b.Wanted() {
			if n < 10 || n > 12 {
				t.Errorf("b had %d steps of 10 ms against one of 100 ms", n)
			}
			break
		}
		if n > 100 {
			t.Fatal("b makes up for its rest")
		}
	}
	b.Leave()
	<-left
	a.Leave()
}

// TestAlone: a seat does not wait while the others rest.
func TestAlone(t *testing.T) {
	d := turns.New(nil)
	a, b := d.Seat(), d.Seat()
	for range 3 {
		a.Enter()
		a.Leave()
		b.Enter()
		if b.Wanted() {
			t.Error("nobody waits, and the turn is to end")
		}
		b.Leave()
	}
}

package fairqueue

import (
	"context"
	"errors"
	"sync"
	"testing"
)

// enter starts Enter for a client and returns after the job waits.
func enter(t *testing.T, g *Gate, ctx context.Context, cost int, entered chan<- func()) (result chan error) {
	t.Helper()
	before := waiting(g)
	result = make(chan error, 1)
	go func() {
		leave, err := g.Enter(ctx, cost)
		if err == nil {
			entered <- leave
		}
		result <- err
	}()
	for waiting(g) == before {
		select {
		case err := <-result: // refused at once
			result <- err
			return result
		default:
		}
	}
	return result
}

func waiting(g *Gate) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting.Len()
}

func TestGate(t *testing.T) {
	g, ctx := NewGate(1, 2), t.Context()
	first, err := g.Enter(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	entered := make(chan func(), 1)
	gone, cancel := context.WithCancelCause(ctx)
	a := enter(t, g, WithClient(gone, "a"), 9, entered)
	b := enter(t, g, WithClient(ctx, "b"), 9, entered)
	if _, err := g.Enter(WithClient(ctx, "c"), 1); !errors.Is(err, ErrFull) {
		t.Errorf("a full queue: %v", err)
	}
	why := errors.New("the client left")
	cancel(why)
	if err := <-a; !errors.Is(err, why) {
		t.Errorf("cancelled: %v", err)
	}
	first()
	first()
	leave := <-entered
	if err := <-b; err != nil {
		t.Error(err)
	}
	if g.Idle(1) {
		t.Error("a job has the place, and the gate is idle")
	}
	leave()
	if !g.Idle(1) {
		t.Error("the place is lost")
	}
	if _, err := g.Enter(gone, 1); !errors.Is(err, why) {
		t.Errorf("ended before: %v", err)
	}
}

// Jobs that are cancelled at the moment they get their place lose no place.
func TestGateCancelledAtOnce(t *testing.T) {
	g := NewGate(2, 100)
	var all sync.WaitGroup
	for range 500 {
		ctx, cancel := context.WithCancel(t.Context())
		all.Go(cancel)
		all.Go(func() {
			if leave, err := g.Enter(ctx, 1); err == nil {
				leave()
			}
		})
	}
	all.Wait()
	if !g.Idle(2) {
		t.Error("a place is lost")
	}
}

package api

import (
	"io"
	"sync"
	"testing"
	"time"
)

// stuckBody is a body whose first read blocks until pass is closed.
type stuckBody struct {
	entered chan<- struct{}
	pass    <-chan struct{}
	rest    int
}

func (g *stuckBody) Read(b []byte) (int, error) {
	g.entered <- struct{}{}
	<-g.pass
	if g.rest == 0 {
		return 0, io.EOF
	}
	n := min(g.rest, len(b))
	g.rest -= n
	return n, nil
}

// TestDrainsTakeTurns checks that at most two bodies are drained at a time, and that all
// are drained in the end.
func TestDrainsTakeTurns(t *testing.T) {
	const many = 8
	d := newDrains()
	entered, pass := make(chan struct{}, 10*many), make(chan struct{})
	bodies := make([]*stuckBody, many)
	var wg sync.WaitGroup
	for i := range bodies {
		bodies[i] = &stuckBody{entered, pass, 2 * drainStep}
		wg.Go(func() { d.run(bodies[i], 10*drainStep, time.Hour, func() error { return nil }) })
	}
	for range drainAtOnce {
		<-entered
	}
	d.run(bodies[0], 1, 0, func() error { t.Error("a third body has its turn"); return io.EOF })
	if n := len(entered); n != 0 {
		t.Errorf("%d bodies are read at the same time, want %d", drainAtOnce+n, drainAtOnce)
	}
	close(pass)
	wg.Wait()
	for i, b := range bodies {
		if b.rest != 0 {
			t.Errorf("body %d: %d bytes are left", i, b.rest)
		}
	}
}

// TestDrainBounds checks that a drain ends at its limit of bytes.
func TestDrainBounds(t *testing.T) {
	pass := make(chan struct{})
	close(pass)
	b := &stuckBody{make(chan struct{}, 10), pass, 5 * drainStep}
	newDrains().run(b, 2*drainStep+1, time.Hour, func() error { return nil })
	if want := 3*drainStep - 1; b.rest != want {
		t.Errorf("%d bytes are left, want %d", b.rest, want)
	}
}

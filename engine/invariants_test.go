//go:build invariants

package engine

import (
	"context"
	"errors"
	"strings"
	"testing"

	"vapp.dev/engine/sample"
)

// TestInvariantsStopTheLoop gives pages to a table that belongs to no sequence. The next step ends the
// engine with an error that names the fault, and every choice gets it.
func TestInvariantsStopTheLoop(t *testing.T) {
	e := openSmall(t, Hooks{})
	defer e.Close()
	if err := e.in.put(message{do: func(l *loop) { l.pool.Extend(l.pool.NewTable(""), 0, 16, 16) }}); err != nil {
		t.Fatal(err)
	}
	p := sample.Default()
	p.MaxTokens = 8
	streams, err := e.Submit(context.Background(), Request{Prompt: []int32{1, 2, 3}, Params: p, N: 1})
	if err != nil {
		t.Fatal(err)
	}
	for last := (Event{}); last.Finish == NotFinished; {
		evs, err := streams[0].Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if last = evs[len(evs)-1]; last.Finish != NotFinished && !errors.Is(last.Err, ErrDead) {
			t.Errorf("ended with %v: %v", last.Finish, last.Err)
		}
	}
	<-e.Done()
	if err := e.Err(); !errors.Is(err, ErrDead) || !strings.Contains(err.Error(), "1 sequences run and 2 own pages") {
		t.Errorf("the engine's reason: %v", err)
	}
}

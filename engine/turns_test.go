package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"vapp.dev/engine/sample"
	"vapp.dev/engine/turns"
)

// counted is a seat that counts its turns and who holds one.
type counted struct {
	*turns.Seat
	now   *holders
	turns int
}

// holders counts the seats in a turn.
type holders struct {
	mu   sync.Mutex
	n    int
	most int
}

func (h *holders) add(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n += n
	h.most = max(h.most, h.n)
}

func (c *counted) Enter() {
	c.Seat.Enter()
	c.now.add(1)
	c.turns++
}

func (c *counted) Yield() {
	c.now.add(-1)
	c.Seat.Yield()
	c.now.add(1)
	c.turns++
}

func (c *counted) Leave() {
	c.now.add(-1)
	c.Seat.Leave()
}

// submitGreedy submits a request whose tokens do not depend on chance.
func submitGreedy(t *testing.T, e *Engine, id string, tokens int) *Stream {
	t.Helper()
	p := sample.Default()
	p.MaxTokens, p.Temperature = tokens, 0
	s, err := e.Submit(t.Context(), Request{ID: id, Prompt: []int32{1, 2, 3}, Params: p, N: 1})
	if err != nil {
		t.Error(err)
		return nil
	}
	return s[0]
}

// read returns a stream's tokens.
func read(t *testing.T, s *Stream) (tokens []int32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		ev, err := s.Next(ctx)
		if err != nil {
			t.Error(err)
			return nil
		}
		for _, e := range ev {
			if e.Token >= 0 {
				tokens = append(tokens, e.Token)
			}
			if e.Finish != NotFinished {
				return tokens
			}
		}
	}
}

// TestTurns: two engines take turns, both with requests, with and without overlap. Their tokens
// are those of an engine alone, no two hold a turn at once, and none keeps one while it is idle.
func TestTurns(t *testing.T) {
	for _, overlap := range []bool{false, true} {
		alone := openSmallWith(t, func(c *Config) { c.Options.Overlap = overlap })
		want := read(t, submitGreedy(t, alone, "alone", 40))
		if err := alone.Close(); err != nil {
			t.Fatal(err)
		}
		d, now := turns.New(nil), &holders{}
		seats := []*counted{{Seat: d.Seat(), now: now}, {Seat: d.Seat(), now: now}}
		var all sync.WaitGroup
		for _, seat := range seats {
			e := openSmallWith(t, func(c *Config) { c.Options.Overlap, c.Turns = overlap, seat })
			all.Go(func() {
				for range 3 {
					a, b := submitGreedy(t, e, "a", 40), submitGreedy(t, e, "b", 40)
					if got := read(t, a); !slices.Equal(got, want) {
						t.Errorf("overlap %v: tokens %v, alone %v", overlap, got, want)
					}
					read(t, b)
				}
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if now.most != 1 || now.n != 0 {
			t.Errorf("overlap %v: %d engines held a turn at once, %d still do", overlap, now.most, now.n)
		}
		if seats[0].turns < 2 || seats[1].turns < 2 {
			t.Errorf("overlap %v: %d and %d turns", overlap, seats[0].turns, seats[1].turns)
		}
	}
}

// TestTurnsOfEngineThatFails: an engine that fails or is closed during its turn leaves it.
func TestTurnsOfEngineThatFails(t *testing.T) {
	d := turns.New(nil)
	bad := openSmallWith(t, func(c *Config) {
		c.Turns = d.Seat()
		c.Hooks = Hooks{Step: func(StepStats) { panic("a step fails") }}
	})
	submitSmall(t, bad, "bad", 40, time.Time{})
	<-bad.Done()
	if err := bad.Err(); !errors.Is(err, ErrDead) {
		t.Fatalf("the engine goes on: %v", err)
	}
	steps := make(chan struct{}, 1000)
	closed := openSmallWith(t, func(c *Config) {
		c.Turns = d.Seat()
		c.Hooks = Hooks{Step: func(StepStats) { steps <- struct{}{} }}
	})
	submitSmall(t, closed, "closed", 40, time.Time{})
	<-steps
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	good := openSmallWith(t, func(c *Config) { c.Turns = d.Seat() })
	toEnd(t, submitSmall(t, good, "good", 4, time.Time{}))
	if err := good.Close(); err != nil {
		t.Fatal(err)
	}
}

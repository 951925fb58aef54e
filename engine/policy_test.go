package engine

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/sample"
	"vapp.dev/engine/sched"
	"vapp.dev/kernels"
)

// TestRequestsDuringPolicyChange: a request arrives while a policy change waits for the running one
// to end. The deferred request starts when the running one reaches its deadline between two steps,
// and is aborted at its own deadline.
func TestRequestsDuringPolicyChange(t *testing.T) {
	past := time.Now().Add(-time.Second)
	for name, c := range map[string]struct {
		deadline time.Time // of the held one
		expire   bool      // the running one, with no step on the device
		want     []string  // ends, in order
	}{
		"the running one expires": {expire: true, want: []string{"running abort", "held length"}},
		"the held one expires":    {deadline: past, want: []string{"held abort", "running length"}},
	} {
		t.Run(name, func(t *testing.T) {
			var e *Engine
			var ends []string
			opened, held := make(chan struct{}), make(chan *Stream, 1)
			first := true
			e = openSmall(t, Hooks{
				Step: func(StepStats) {
					if <-opened; !first {
						return
					}
					first = false
					e.SetPolicy(sched.Priority)
					held <- submitSmall(t, e, "held", 2, c.deadline)
					if c.expire {
						_ = e.in.put(message{do: func(l *loop) {
							for _, c := range l.choices {
								c.deadline, l.nextDeadline = past, past
							}
						}})
					}
				},
				Finished: func(s RequestStats) { ends = append(ends, s.ID+" "+s.Finish.String()) },
			})
			close(opened)
			toEnd(t, submitSmall(t, e, "running", 24, time.Time{}))
			toEnd(t, <-held)
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(ends, c.want) {
				t.Errorf("ends %v, want %v", ends, c.want)
			}
		})
	}
}

// TestDeferredStats: Stats count a request that arrives while a policy change is pending as deferred, and no
// longer when the change is in force.
func TestDeferredStats(t *testing.T) {
	var e *Engine
	var got []Stats
	opened, held := make(chan struct{}), make(chan *Stream, 1)
	steps := 0
	e = openSmall(t, Hooks{Step: func(StepStats) {
		<-opened
		switch steps++; steps {
		case 1:
			e.SetPolicy(sched.Priority)
			held <- submitSmall(t, e, "held", 2, time.Time{})
		case 2:
			got = append(got, e.Stats())
		}
	}})
	close(opened)
	toEnd(t, submitSmall(t, e, "running", 4, time.Time{}))
	toEnd(t, <-held)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	got = append(got, e.Stats())
	if len(got) != 2 || got[0].Running != 1 || got[0].Waiting != 1 || got[0].Deferred != 1 || got[1].Waiting != 0 || got[1].Deferred != 0 {
		t.Errorf("running and waiting %+v", got)
	}
}

// openSmall opens a small Llama without overlap.
func openSmall(t *testing.T, h Hooks) *Engine {
	t.Helper()
	return openSmallWith(t, func(c *Config) { c.Hooks = h })
}

// openSmallWith opens a small Llama with a changed Config.
func openSmallWith(t *testing.T, change func(*Config)) *Engine {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "toy")
	if err := enginetest.WriteLlama(dir, enginetest.Llama{}); err != nil {
		t.Fatal(err)
	}
	m, err := Inspect(Source{Path: dir, Name: "toy", Format: "auto"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	facts, err := ref.Opener{}.Probe()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{MaxModelLen: 64, MaxNumSeqs: 2, MaxNumBatchedTokens: 64, BlockSize: 16, KVFormat: kernels.F32, KVBytes: 4 << 20, ChunkedPrefill: true}
	c := Config{Options: o, Model: m, Opener: ref.Opener{}, Facts: facts}
	change(&c)
	if c.Account, err = NewAccount(c.Options, m, ref.Opener{}, facts); err != nil {
		t.Fatal(err)
	}
	e, err := Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func submitSmall(t *testing.T, e *Engine, id string, tokens int, deadline time.Time) *Stream {
	p := sample.Default()
	p.MaxTokens = tokens
	s, err := e.Submit(context.Background(), Request{ID: id, Prompt: []int32{1, 2, 3}, Params: p, N: 1, Deadline: deadline})
	if err != nil {
		t.Error(err)
		return nil
	}
	return s[0]
}

// toEnd reads a stream to its end; a choice that never ends fails the test.
func toEnd(t *testing.T, s *Stream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		evs, err := s.Next(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%s does not end", s.ID)
		}
		if len(evs) == 0 {
			return
		}
	}
}

// TestSetPolicyReports: a change is in force at once on an idle engine, or if the policy is the same.
// Under load it reports that it waits. A change that is replaced has no effect.
func TestSetPolicyReports(t *testing.T) {
	var e *Engine
	var states []<-chan bool
	opened := make(chan struct{})
	steps := [][]sched.Policy{{sched.FCFS, sched.Priority}, {sched.FCFS}, {sched.Priority}, {sched.FCFS}}
	e = openSmall(t, Hooks{Step: func(StepStats) {
		if <-opened; len(steps) == 0 {
			return
		}
		for _, p := range steps[0] {
			states = append(states, e.SetPolicy(p))
		}
		steps = steps[1:]
	}})
	read := func(c <-chan bool) (all []bool) {
		for v := range c {
			all = append(all, v)
		}
		return all
	}
	if got := read(e.SetPolicy(sched.Priority)); !slices.Equal(got, []bool{true}) {
		t.Errorf("idle: %v", got)
	}
	close(opened)
	running := submitSmall(t, e, "running", 24, time.Time{})
	toEnd(t, running)
	for i, want := range [][]bool{{}, {true}, {false}, {true}, {false, true}} {
		if got := read(states[i]); !slices.Equal(got, want) {
			t.Errorf("change %d under load: %v, want %v", i, got, want)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

package engine_test

import (
	"testing"
	"time"

	"vapp.dev/engine"
)

// TestITLMissed: if decoding alone exceeds the target, the hook is called once with its time, and
// steps count as beyond the target. A higher target ends that.
func TestITLMissed(t *testing.T) {
	y := newToy(t)
	y.opts.Overlap, y.opts.ITLTarget = false, 50*time.Millisecond
	at := time.Unix(1e9, 0)
	y.clock = func() time.Time { // at launch and commit of each step
		at = at.Add(63 * time.Millisecond / 2)
		return at
	}
	type missed struct{ alone, target time.Duration }
	var said []missed
	beyond := 0
	y.hooks.ITLMissed = func(alone, target time.Duration) { said = append(said, missed{alone, target}) }
	y.hooks.Step = func(s engine.StepStats) {
		if s.BeyondTarget {
			beyond++
		}
	}
	e := y.open(t)
	ask := func() {
		q := request(0)
		q.N, q.Params.MaxTokens = 1, 60
		s, err := e.Submit(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		collect(t, s[0])
	}
	ask()
	e.SetITLTarget(80 * time.Millisecond)
	ask()
	if err := e.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil { // the loop has ended, so its writes can be read
		t.Fatal(err)
	}
	if len(said) != 1 || said[0].target != 50*time.Millisecond || (said[0].alone-63*time.Millisecond).Abs() > time.Millisecond {
		t.Errorf("said %v, want once that 63 ms are more than 50", said)
	}
	if beyond < 55 || beyond > 59 {
		t.Errorf("%d steps beyond the target, want those of the first request but its first", beyond)
	}
}

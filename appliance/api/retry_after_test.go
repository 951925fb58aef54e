package api

import (
	"testing"
	"time"
)

// TestWaitFor checks that Retry-After is the number of requests ahead divided by the
// rate, within bounds.
func TestWaitFor(t *testing.T) {
	for _, c := range []struct {
		ahead int
		rate  float64
		want  time.Duration
	}{
		{0, 0, time.Second}, {500, 0, time.Second}, // no rate is known
		{0, 0.25, 4 * time.Second}, {1, 0.25, 4 * time.Second},
		{1, 100, time.Second},
		{64, 2, 32 * time.Second},
		{1024, 0.5, maxWait},
	} {
		if got := waitFor(c.ahead, c.rate); got != c.want {
			t.Errorf("%d ahead at %v a second: %s, want %s", c.ahead, c.rate, got, c.want)
		}
	}
}

// TestCompletionRate checks that the rate follows the completions of the last half
// minute.
func TestCompletionRate(t *testing.T) {
	var p completionRate
	now := time.Unix(1, 0)
	near := func(what string, want float64) {
		t.Helper()
		if got := p.rate(now); got < 0.9*want || got > 1.1*want {
			t.Errorf("%s: %v a second, want %v", what, got, want)
		}
	}
	near("before the first end", 0)
	for range 20 {
		now = now.Add(time.Second / 4)
		p.add(now)
	}
	near("five seconds of four a second", 4)
	for range 300 {
		now = now.Add(2 * time.Second)
		p.add(now)
	}
	near("ten minutes of one in two seconds", 0.5)
	now = now.Add(10 * time.Minute)
	near("after ten idle minutes", 0)
}

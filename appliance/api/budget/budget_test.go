package budget

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestEndSlow checks that the slowest bodies are ended first, no more than the waiting
// claims need, and none that is young or nearly complete.
func TestEndSlow(t *testing.T) {
	began := time.Unix(100, 0)
	now := began.Add(4 * time.Second)
	for _, c := range []struct {
		waits int64
		want  string
	}{{0, ""}, {10, "a"}, {30, "a"}, {31, "ab"}, {1000, "ab"}} {
		b := New(120)
		b.used = 120
		var ended []string
		for _, r := range []struct {
			name  string
			began time.Time
			got   int64
		}{{"b", began, 2}, {"a", began, 1}, {"fast", began, 20}, {"young", now.Add(-slowAfter / 2), 0}} {
			b.Follow(&Reading{began: r.began, held: 30, rest: 30, got: r.got, stop: func() { ended = append(ended, r.name) }})
		}
		if c.waits > 0 {
			b.claim(c.waits)
		}
		b.EndSlow(now)
		b.EndSlow(now) // bodies that were ended count, but are not ended again
		if got := strings.Join(ended, ""); got != c.want {
			t.Errorf("%d bytes wait: ended %q, want %q", c.waits, got, c.want)
		}
	}
}

// TestBudget checks that claims are granted in order and within the limit.
func TestBudget(t *testing.T) {
	b := New(10)
	if b.claim(6) != nil {
		t.Fatal("6 of 10 wait")
	}
	large, small := b.claim(8), b.claim(1)
	if large == nil || small == nil {
		t.Fatal("a claim overtakes one that waits")
	}
	b.Give(2)
	select {
	case <-large.granted:
		t.Error("4 + 8 of 10 are granted")
	case <-small.granted:
		t.Error("a claim overtakes one that waits")
	default:
	}
	if !b.withdraw(large) {
		t.Error("a claim that waits cannot be withdrawn")
	}
	<-small.granted
	if b.withdraw(small) || b.used != 5 {
		t.Errorf("%d are used, want 5", b.used)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.Take(ctx, 6); err != ErrShort || b.used != 5 || len(b.queue) != 0 {
		t.Errorf("%v: %d are used, %d wait", err, b.used, len(b.queue))
	}
}

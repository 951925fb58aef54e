package main

import (
	"slices"
	"testing"
	"time"

	"vapp.dev/engine"
)

// TestSparsely checks that progress is shown at once, then not sooner than betweenLines, and at its
// end.
func TestSparsely(t *testing.T) {
	now := time.Unix(1, 0)
	var shown []int64
	show := sparsely(func() time.Time { return now }, func(_ engine.Progress, percent int64) { shown = append(shown, percent) })
	for _, step := range []struct {
		after time.Duration
		done  int64
	}{{0, 1}, {time.Second, 15}, {time.Second, 19}, {time.Millisecond, 25}, {2 * time.Second, 26}, {2 * time.Second, 29}, {0, 99}, {0, 100}, {9 * time.Second, 100}} {
		now = now.Add(step.after)
		show(engine.Progress{Done: step.done, Total: 100})
	}
	if want := []int64{0, 10, 20, 90, 100}; !slices.Equal(shown, want) {
		t.Errorf("shown %v, want %v", shown, want)
	}
}

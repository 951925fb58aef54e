//go:build cgo && linux

package cpu_test

import (
	"testing"

	"vapp.dev/engine/backend"
)

// TestOpTimes counts the ops of decode steps and of other steps. Without TimeOps there are
// none.
func TestOpTimes(t *testing.T) {
	for _, on := range []bool{true, false} {
		d := small.open(t, backend.Settings{Threads: 2, TimeOps: on})
		at := 0
		for _, n := range []int{2, 2, 1, 1, 1} {
			d.run(t, d.fill(at%2, 4, n, at))
			at += n
		}
		decode, prompts := d.Device.(backend.OpTimer).OpTimes()
		if !on {
			if len(decode)+len(prompts) > 0 {
				t.Errorf("without TimeOps: %v, %v", decode, prompts)
			}
			continue
		}
		for i, times := range [][]backend.OpTime{decode, prompts} {
			steps, found := int64(3-i), 0
			for _, o := range times {
				if o.Op == backend.BetweenSteps {
					continue
				}
				found++
				if o.Runs%steps != 0 || o.Runs < steps || o.Op == "sample" && o.Runs != steps || o.Busy <= 0 || o.Wall <= 0 || o.Busy > 2*o.Wall {
					t.Errorf("kind %d: %+v in %d steps", i, o, steps)
				}
			}
			if found != 10 {
				t.Errorf("kind %d: %d ops of 10: %+v", i, found, times)
			}
		}
	}
}

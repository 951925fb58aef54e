package enginebench

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vapp.dev/engine/backend"
)

// TestOpShares prints the op times of two decode steps.
func TestOpShares(t *testing.T) {
	at := func(op string, runs int64, wall, busy time.Duration) backend.OpTime {
		return backend.OpTime{Op: op, Runs: runs, Wall: wall * time.Microsecond, Busy: busy * time.Microsecond}
	}
	before := spent{ops: [2][]backend.OpTime{{}, {at("linear", 10, 100, 150), at("tokens", 1, 1, 1)}}}
	after := spent{ops: [2][]backend.OpTime{
		{at("tokens", 0, 0, 0)},
		{at("linear", 30, 280, 480), at(backend.BetweenSteps, 0, 10, 0), at("tokens", 3, 11, 3), at("join", 2, 0, 0)},
	}}
	const want = `  op, decode, one stream  calls  µs a step  of the step  threads at work
                  linear     10       90.0       90.0 %             1.83
               (no step)      0        5.0        5.0 %                 
                  tokens      1        5.0        5.0 %             0.20
                     all     12      100.0      100.0 %             1.66
  of the threads' time: 83.0 % at work, 12.0 % waiting within steps, 5.0 % between steps
`
	steps := stepTimes(2, before, after)
	got := opTable("one stream", steps)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if len(steps) != 1 || steps[0].Kind != "decode" || steps[0].Steps != 2 || steps[0].Ops[0] != (OpTime{"linear", 10, 90, 0.9, 330.0 / 180}) {
		t.Errorf("%+v", steps)
	}
}

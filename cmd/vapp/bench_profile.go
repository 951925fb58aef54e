package main

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"vapp.dev/engine/backend"
)

// opTimes is what ops took so far: in steps that decode alone, and in others.
func (b engineBench) opTimes() [2][]backend.OpTime {
	decode, prompts := b.eng.OpTimes()
	return [2][]backend.OpTime{prompts, decode}
}

// opShares is a table of what ops took between two looks, of each kind of step.
func opShares(work string, before, after [2][]backend.OpTime) string {
	var out strings.Builder
	for kind, name := range []string{"prefill", "decode"} {
		spent, steps, all := spentOn(before[kind], after[kind])
		if steps == 0 {
			continue
		}
		t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(t, "op, %s, %s\tcalls\tµs a step\tof the step\tthreads at work\t\n", name, work)
		line := func(op, calls string, wall, busy time.Duration) {
			threads := ""
			if busy > 0 {
				threads = fmt.Sprintf("%.2f", busy.Seconds()/wall.Seconds())
			}
			fmt.Fprintf(t, "%s\t%s\t%.1f\t%.1f %%\t%s\t\n", op, calls, wall.Seconds()*1e6/float64(steps), 100*wall.Seconds()/all.Wall.Seconds(), threads)
		}
		for _, s := range spent {
			if s.Wall > 0 {
				line(s.Op, strconv.FormatInt(s.Runs/steps, 10), s.Wall, s.Busy)
			}
		}
		line("all", strconv.FormatInt(all.Runs/steps, 10), all.Wall, all.Busy)
		t.Flush() // to a strings.Builder: it does not fail
	}
	return out.String()
}

// spentOn is the difference of two looks, how many steps there were between them, and
// the sum of all ops. Every step begins with its tokens, once.
func spentOn(before, after []backend.OpTime) (spent []backend.OpTime, steps int64, all backend.OpTime) {
	old := map[string]backend.OpTime{}
	for _, t := range before {
		old[t.Op] = t
	}
	first := backend.OpName(backend.Tokens{})
	for _, t := range after {
		o := old[t.Op]
		t.Runs, t.Wall, t.Busy = t.Runs-o.Runs, t.Wall-o.Wall, t.Busy-o.Busy
		if t.Op == first {
			steps = t.Runs
		}
		all.Runs, all.Wall, all.Busy = all.Runs+t.Runs, all.Wall+t.Wall, all.Busy+t.Busy
		spent = append(spent, t)
	}
	return spent, steps, all
}

package main

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"vapp.dev/engine/backend"
)

// opTimes is what ops took so far: in steps that decode alone, and in others.
func (b engineBench) opTimes() [2][]backend.OpTime {
	decode, prompts := b.eng.OpTimes()
	return [2][]backend.OpTime{prompts, decode}
}

// benchStep is where the steps of a kind spend their time. Op "all" is the sum, and the
// last of the list.
type benchStep struct {
	Kind    string        `json:"kind"` // prefill: steps that read prompts; decode: those that only generate
	Steps   int64         `json:"steps"`
	Ops     []benchOpTime `json:"ops"`
	Threads int           `json:"threads"`
	// Of the threads' time, what was no work: within steps, where a thread waits for others
	// or one alone has enough to do, and between them, where the loop and whoever else
	// wants a processor has its turn.
	Waiting float64 `json:"waiting"`
	Between float64 `json:"between_steps"`
}

// benchOpTime is what an op takes of a step.
type benchOpTime struct {
	Op      string  `json:"op"`
	Calls   int64   `json:"calls"`
	Micros  float64 `json:"us"`
	Share   float64 `json:"share"`             // of the step
	Threads float64 `json:"threads,omitempty"` // at work in the mean; 0 between steps
}

// threads is how many compute; 0 where the backend names none.
func (b engineBench) threads() int {
	for _, c := range b.p.Plan.Choices {
		if c.Name == "threads" {
			n, _ := strconv.Atoi(c.Value)
			return n
		}
	}
	return 0
}

// opSteps is what ops took of so many threads between two looks, for each kind of step.
func opSteps(threads int, before, after [2][]backend.OpTime) []benchStep {
	var out []benchStep
	for kind, name := range []string{"prefill", "decode"} {
		spent, steps, all := spentOn(before[kind], after[kind])
		if steps == 0 {
			continue
		}
		all.Op = "all"
		step := benchStep{Kind: name, Steps: steps, Threads: threads}
		for _, s := range append(spent, all) {
			if s.Wall <= 0 {
				continue
			}
			o := benchOpTime{Op: s.Op, Calls: s.Runs / steps, Micros: s.Wall.Seconds() * 1e6 / float64(steps), Share: s.Wall.Seconds() / all.Wall.Seconds()}
			if s.Busy > 0 {
				o.Threads = s.Busy.Seconds() / s.Wall.Seconds()
			}
			if s.Op == backend.BetweenSteps {
				step.Between = o.Share
			}
			step.Ops = append(step.Ops, o)
		}
		if whole := float64(threads) * all.Wall.Seconds(); whole > 0 {
			step.Waiting = max(0, 1-all.Busy.Seconds()/whole-step.Between)
		}
		out = append(out, step)
	}
	return out
}

// opTable is how a person reads them.
func opTable(work string, steps []benchStep) string {
	var out strings.Builder
	for _, s := range steps {
		t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(t, "op, %s, %s\tcalls\tµs a step\tof the step\tthreads at work\t\n", s.Kind, work)
		for _, o := range s.Ops {
			threads := ""
			if o.Threads > 0 {
				threads = fmt.Sprintf("%.2f", o.Threads)
			}
			fmt.Fprintf(t, "%s\t%d\t%.1f\t%.1f %%\t%s\t\n", o.Op, o.Calls, o.Micros, 100*o.Share, threads)
		}
		t.Flush() // to a strings.Builder: it does not fail
		if s.Threads == 0 {
			continue // a device's are not known
		}
		fmt.Fprintf(&out, "  of the threads' time: %.1f %% at work, %.1f %% waiting within steps, %.1f %% between steps\n",
			100*(1-s.Waiting-s.Between), 100*s.Waiting, 100*s.Between)
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

package enginebench

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"vapp.dev/engine/backend"
)

// spent are accumulated times: first of steps that prefill, then of steps that only decode.
type spent struct{ ops, kernels [2][]backend.OpTime }

func (s session) opTimes() spent {
	decode, prompts := s.eng.OpTimes()
	decode2, prompts2 := s.eng.KernelTimes()
	return spent{[2][]backend.OpTime{prompts, decode}, [2][]backend.OpTime{prompts2, decode2}}
}

// StepTimes holds the time of each op in the steps of one kind. The last op, "all", is the
// sum.
type StepTimes struct {
	Kind    string   `json:"kind"` // prefill: steps with prompt tokens; decode: steps without
	Steps   int64    `json:"steps"`
	Ops     []OpTime `json:"ops"`
	Kernels []OpTime `json:"kernels,omitempty"` // the same times, of steps without graphs: Calls are launches
	Threads int      `json:"threads"`
	// Idle shares of the threads' time. Waiting is inside steps: a thread waits for others, or
	// an op is too small for all threads. Between is outside steps: the engine's loop runs, or
	// other processes do.
	Waiting float64 `json:"waiting"`
	Between float64 `json:"between_steps"`
}

// OpTime is the time of an op in a step.
type OpTime struct {
	Op      string  `json:"op"`
	Calls   int64   `json:"calls"`
	Micros  float64 `json:"us"`
	Share   float64 `json:"share"`             // of the step's time
	Threads float64 `json:"threads,omitempty"` // busy on average; 0 between steps
}

// threads returns the number of compute threads; 0 where the backend reports none.
func (s session) threads() int {
	for _, c := range s.p.Plan.Choices {
		if c.Name == "threads" {
			n, _ := strconv.Atoi(c.Value)
			return n
		}
	}
	return 0
}

// stepTimes returns the op times between two readings of opTimes, for each kind of step.
func stepTimes(threads int, before, after spent) []StepTimes {
	var out []StepTimes
	for kind, name := range []string{"prefill", "decode"} {
		spent, steps, all := opDelta(before.ops[kind], after.ops[kind])
		if steps == 0 {
			continue
		}
		all.Op = "all"
		step := StepTimes{Kind: name, Steps: steps, Threads: threads}
		for _, s := range append(spent, all) {
			if s.Wall <= 0 {
				continue
			}
			o := OpTime{Op: s.Op, Calls: s.Runs / steps, Micros: s.Wall.Seconds() * 1e6 / float64(steps), Share: s.Wall.Seconds() / all.Wall.Seconds()}
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
		kernels, _, _ := opDelta(before.kernels[kind], after.kernels[kind])
		for _, k := range kernels {
			if k.Runs > 0 {
				step.Kernels = append(step.Kernels, OpTime{Op: k.Op, Calls: (k.Runs + steps - 1) / steps, Micros: k.Wall.Seconds() * 1e6 / float64(steps), Share: k.Wall.Seconds() / all.Wall.Seconds()})
			}
		}
		out = append(out, step)
	}
	return out
}

// opTable prints steps as tables.
func opTable(work string, steps []StepTimes) string {
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
		t.Flush() // writing to a strings.Builder does not fail
		if s.Threads == 0 {
			continue // a GPU
		}
		fmt.Fprintf(&out, "  of the threads' time: %.1f %% at work, %.1f %% waiting within steps, %.1f %% between steps\n",
			100*(1-s.Waiting-s.Between), 100*s.Waiting, 100*s.Between)
	}
	return out.String()
}

// between is the difference of two looks, how many steps there were between them, and
// the sum of all ops. It counts steps by op Tokens, which runs once in every step.
func opDelta(before, after []backend.OpTime) (spent []backend.OpTime, steps int64, all backend.OpTime) {
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

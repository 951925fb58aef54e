package figures

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Step holds the times of the ops in vapp's steps of a kind during a work.
type Step struct {
	Work Work   `json:"work"`
	Kind string `json:"kind"` // prefill or decode
	// Limit is the minimum time of a step in microseconds: for prefill that of multiplying,
	// for decoding the longer of reading and multiplying.
	Limit float64 `json:"limit_us"`
	Ops   []Op    `json:"ops"` // the last one, all, is the sum
}

// Work describes concurrent equal requests.
type Work struct {
	Streams int `json:"streams"`
	Prompt  int `json:"prompt"`
	Output  int `json:"output"`
}

func (w Work) String() string {
	if w.Streams == 1 {
		return fmt.Sprintf("%d+%d, one stream", w.Prompt, w.Output)
	}
	return fmt.Sprintf("%d+%d, %d streams", w.Prompt, w.Output, w.Streams)
}

// Op is the time of an op in a step.
type Op struct {
	Op      string  `json:"op"`
	Calls   int64   `json:"calls"`
	Micros  float64 `json:"us"`
	Share   float64 `json:"share"`
	Threads float64 `json:"threads,omitempty"`
}

// linear is the op that multiplies by weights. The limits are based on its work, apart from
// that of attention.
const linear = "linear"

// all returns the sum of the ops.
func (s Step) all() Op {
	if len(s.Ops) == 0 {
		return Op{}
	}
	return s.Ops[len(s.Ops)-1]
}

// why returns the ops with the largest times of a step, and the distance of the largest
// multiplying op from the limit.
func (s Step) why() string {
	var parts []string
	for _, o := range s.Ops[:len(s.Ops)-1] {
		switch {
		case o.Op == linear || o.Op == "experts":
			parts = append(parts, fmt.Sprintf("%s %.0f %% (%s ms where the limit is %s)", o.Op, 100*o.Share, number(o.Micros/1e3), number(s.Limit/1e3)))
		case o.Share >= 0.02:
			parts = append(parts, fmt.Sprintf("%s %.0f %%", o.Op, 100*o.Share))
		}
	}
	return fmt.Sprintf("a %s step of %s (%v): %s", s.Kind, millis(s.all().Micros), s.Work, strings.Join(parts, ", "))
}

func millis(us float64) string { return number(us/1e3) + " ms" }

// steps returns the steps of a side in works that fit; kind "" returns both kinds.
func (p Part) steps(side, kind string, fits func(Work) bool) []Step {
	var out []Step
	for _, r := range p.Runs {
		for _, s := range r.Steps {
			if r.Side == side && len(s.Ops) > 1 && (kind == "" || s.Kind == kind) && fits(s.Work) {
				out = append(out, s)
			}
		}
	}
	return out
}

// writeOps writes the times of the ops in vapp's steps.
func writeOps(b *strings.Builder, parts Parts) {
	b.WriteString("## Where a step's time goes\n\nFrom `vapp bench engine --profile`, in separate runs from those above.\n")
	for _, name := range Names() {
		for _, r := range parts[name].Runs {
			if len(r.Steps) == 0 {
				continue
			}
			fmt.Fprintf(b, "\n%s, %s:\n\n```text\n", name, r.Side)
			for _, s := range r.Steps {
				s.write(b)
			}
			b.WriteString("```\n")
		}
	}
}

func (s Step) write(b *strings.Builder) {
	fmt.Fprintf(b, "%s, %v:\n", s.Kind, s.Work)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight|tabwriter.TabIndent)
	fmt.Fprint(t, "op\tcalls\tµs a step\tof the step\tthreads at work\t\n")
	for _, o := range s.Ops {
		threads := "–"
		if o.Threads > 0 {
			threads = fmt.Sprintf("%.2f", o.Threads)
		}
		fmt.Fprintf(t, "%s\t%d\t%.1f\t%.1f %%\t%s\t\n", o.Op, o.Calls, o.Micros, 100*o.Share, threads)
	}
	t.Flush() // writing to a strings.Builder does not fail
	fmt.Fprintf(b, "at the machine's limit: %.1f µs a step\n", s.Limit)
}

package agenda

import (
	"encoding/json"
	"fmt"
	"strings"
)

// step is the time of the ops in the steps of one kind, for a row.
type step struct {
	Kind  string `json:"kind"` // prefill, decode
	Steps int64  `json:"steps"`
	Ops   []struct {
		Op     string  `json:"op"`
		Micros float64 `json:"us"`
		Share  float64 `json:"share"`
	} `json:"ops"`
	Kernels []struct {
		Op     string  `json:"op"`
		Calls  int64   `json:"calls"`
		Micros float64 `json:"us"`
	} `json:"kernels"`
}

// between is the op that backend.BetweenSteps names, all the sum of ops.
const between, all = "(no step)", "all"

// op returns the microseconds of an op in a step; 0 where there is none.
func (s step) op(name string) float64 {
	for _, o := range s.Ops {
		if o.Op == name {
			return o.Micros
		}
	}
	return 0
}

// longest lists the ops that take most of a step, with their shares.
func (s step) longest(n int) string {
	var out []string
	for _, o := range s.Ops {
		if o.Op != between && o.Op != all && len(out) < n {
			out = append(out, fmt.Sprintf("%s %.0f %%", o.Op, 100*o.Share))
		}
	}
	return strings.Join(out, ", ")
}

// steps writes one table of all parts with op times.
func (w *page) steps(results []Result) {
	begun := false
	for _, r := range results {
		var b bench
		if r.Kind != Bench && r.Kind != Ops || json.Unmarshal(r.Data, &b) != nil {
			continue
		}
		for _, x := range b.Rows {
			for _, s := range x.Steps {
				if !begun {
					begun = true
					w.line("## Where steps spend their time")
					w.line("")
					w.line("Microseconds of the device, by its own clock. Ops inside graphs are not measured separately; the parts with op times run without graphs.")
					w.line("")
					w.head("lrrlrrrl", "part", "streams", "context", "steps", "of them", "µs a step", "µs before it", "longest ops")
				}
				w.row(r.Name, fmt.Sprint(x.Streams), fmt.Sprint(x.Prompt), s.Kind, fmt.Sprint(s.Steps), number(s.op(all)-s.op(between)), number(s.op(between)), s.longest(8))
			}
		}
	}
	if begun {
		w.line("")
	}
}

package report

import "fmt"

// Client is the cost of the benchmark's client. A client that lacks CPU time measures itself.
type Client struct {
	// CPU is the CPU time of this process during the run, in seconds; 0: unknown.
	CPU float64
	// Cores is the number of cores that it could use.
	Cores int
}

// busy is the share of all cores from which on the client influences the result.
const busy = 0.25

// ClientCost returns a line about the client's CPU time, "" where it is unknown.
func (r *Result) ClientCost() string {
	if r.Client.CPU <= 0 || r.Duration <= 0 {
		return ""
	}
	chunks := 0
	for i := range r.Traces {
		if t := &r.Traces[i]; t.Failure == nil && t.TTFT > 0 {
			chunks += len(t.ITL) + 1
		}
	}
	text := fmt.Sprintf("client: %.2f s of CPU time", r.Client.CPU)
	if chunks > 0 {
		text += fmt.Sprintf(", %.1f µs a chunk", 1e6*r.Client.CPU/float64(chunks))
	}
	share := r.Client.CPU / r.Duration
	text += fmt.Sprintf(", %.0f %% of a core", 100*share)
	if share > busy*float64(max(1, r.Client.Cores)) {
		text += "; its own work is in these figures: run it on another machine, or with fewer requests at once"
	}
	return text + "\n"
}

// Unfinished returns a note on an interrupted run, "" for a complete one.
func (r *Result) Unfinished() string {
	if !r.Partial {
		return ""
	}
	return fmt.Sprintf("Interrupted: %d of %d requests were finished, and the figures are of those alone.\n", r.Completed+r.Failed, r.NumPrompts)
}

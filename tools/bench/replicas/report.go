package replicas

import (
	"fmt"
	"strings"
)

// Report is a result with what it was computed from.
type Report struct {
	Basis    string  `json:"basis"` // "measured" or "predicted"
	Source   string  `json:"source"`
	Band     float64 `json:"band,omitempty"` // relative error of predicted rates
	Requests int     `json:"requests"`
	Rate     float64 `json:"requests_per_second"`
	Prompt   float64 `json:"mean_prompt_tokens"`
	Output   float64 `json:"mean_output_tokens"`
	Routing  string  `json:"routing"`
	Target   Target  `json:"target"`
	Result
}

// Describe sets what the report says of the workload.
func (r *Report) Describe(w Workload) {
	r.Requests = len(w.Requests)
	for _, q := range w.Requests {
		r.Prompt += float64(len(q.IDs)) / float64(r.Requests)
		r.Output += float64(q.Output) / float64(r.Requests)
	}
	if last := w.Times[len(w.Times)-1]; last > 0 {
		r.Rate = float64(r.Requests) / last
	}
}

// String returns the report as text.
func (r *Report) String() string {
	var b strings.Builder
	source := r.Basis + ": " + r.Source
	if r.Band > 0 {
		source += fmt.Sprintf(", ± %.0f %%", 100*r.Band)
	}
	fmt.Fprintf(&b, "step times  %s\n", source)
	rate := "all at once"
	if r.Rate > 0 {
		rate = fmt.Sprintf("%.3g a second", r.Rate)
	}
	fmt.Fprintf(&b, "workload    %d requests, %s; on average %.0f tokens in, %.0f out; routing %s\n", r.Requests, rate, r.Prompt, r.Output, r.Routing)
	fmt.Fprintf(&b, "target      p%g: %s\n\n", r.Target.Percentile, r.Target)
	p := fmt.Sprintf("p%g", r.Target.Percentile)
	fmt.Fprintf(&b, "%8s  %5s  %12s  %12s  %12s  %10s  %s\n", "replicas", "busy", "TTFT "+p+", ms", "ITL "+p+", ms", "E2E "+p+", ms", "tokens/s", "target")
	for _, o := range r.Outcomes {
		meets := "missed"
		if o.Meets {
			meets = "met"
		}
		fmt.Fprintf(&b, "%8d  %3.0f %%  %12.1f  %12.1f  %12.1f  %10.1f  %s\n", o.Replicas, 100*o.Busy, 1e3*o.TTFT, 1e3*o.ITL, 1e3*o.E2E, o.Tokens, meets)
	}
	fmt.Fprintf(&b, "\n%s\n", r.verdict())
	return b.String()
}

func (r *Report) verdict() string {
	switch r.Need {
	case 0:
		n := r.Outcomes[len(r.Outcomes)-1].Replicas
		return fmt.Sprintf("%s not meet the target: raise --max-replicas, or the target; a replica that is little busy and misses it is too slow for one request.", count(n, "does", "do"))
	case 1:
		return "1 replica meets the target."
	}
	return count(r.Need, "meets", "meet") + " the target."
}

// count returns "1 replica meets" or "3 replicas meet".
func count(n int, one, several string) string {
	if n == 1 {
		return "1 replica " + one
	}
	return fmt.Sprintf("%d replicas %s", n, several)
}

// String returns the limits of the target.
func (t Target) String() string {
	var parts []string
	for _, l := range []struct {
		name  string
		limit float64
	}{{"TTFT", t.TTFT}, {"ITL", t.ITL}, {"E2E", t.E2E}} {
		if l.limit > 0 {
			parts = append(parts, fmt.Sprintf("%s ≤ %g ms", l.name, 1e3*l.limit))
		}
	}
	return strings.Join(parts, ", ")
}

// TargetError reports a target that cannot be parsed.
type TargetError struct{ Text, Why string }

func (e *TargetError) Error() string {
	return fmt.Sprintf("--target %q: %s; give limits in ms such as ttft:500,itl:50,e2el:8000", e.Text, e.Why)
}

// ParseTarget parses "ttft:500,itl:50", in ms. The error is a *TargetError.
func ParseTarget(text string, percentile float64) (Target, error) {
	t := Target{Percentile: percentile}
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(part, ":")
		var ms float64
		if n, err := fmt.Sscanf(value+"\n", "%g\n", &ms); !ok || err != nil || n != 1 || !(ms > 0 && ms < 1e9) {
			return t, &TargetError{text, fmt.Sprintf("%q is no NAME:MILLISECONDS above 0", part)}
		}
		to := map[string]*float64{"ttft": &t.TTFT, "itl": &t.ITL, "e2el": &t.E2E}[name]
		if to == nil {
			return t, &TargetError{text, fmt.Sprintf("%q: there are ttft, itl and e2el", name)}
		}
		if *to > 0 {
			return t, &TargetError{text, fmt.Sprintf("%s is there twice", name)}
		}
		*to = ms / 1e3
	}
	return t, nil
}

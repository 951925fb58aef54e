package report

import "math"

// Setup is the configuration of a run; it is copied to the result.
type Setup struct {
	// Date is the date of the run, YYYYMMDD-HHMMSS.
	Date                             string
	Backend, Label, Model, Tokenizer string
	NumPrompts                       int
	// Metadata are the user's own keys, in the order of the command line.
	Metadata [][2]string
	// Rate is in requests per second, +Inf for all at once.
	Rate, Burstiness float64
	// MaxConcurrency is 0 where there is no bound.
	MaxConcurrency     int
	RampUp             string
	RampStart, RampEnd float64
	Goodput            Goodput
	// Metrics are the metrics shown with percentiles: ttft, tpot, itl, e2el.
	Metrics     []string
	Percentiles []float64
	// Pooling marks a run without generated tokens (embeddings).
	Pooling bool
}

// Result is a run with its figures.
type Result struct {
	Setup
	// Duration is from the first send until all were done, in seconds.
	Duration          float64
	Completed, Failed int
	// Input and Output are the tokens of successful requests.
	Input, Output int
	// Good is the number of requests within all limits of Goodput.
	Good int
	// PeakOutput is the most chunks in one second, PeakConcurrent the most requests active in one
	// second.
	PeakOutput, PeakConcurrent float64
	// By has the statistics of all metrics.
	By map[string]Stats
	// Speculation is nil where the server counts no drafts.
	Speculation *Speculation
	Traces      []Trace
	// Partial marks a run that was interrupted before all requests were done.
	Partial bool
	Client  Client

	lists map[string][]float64 // by metric: seconds of each successful request
}

// Names of the metrics.
const (
	TTFT = "ttft"
	TPOT = "tpot"
	ITL  = "itl"
	E2EL = "e2el"
)

// Make computes the figures of a run of the given duration.
func Make(s Setup, traces []Trace, seconds float64, spec *Speculation) Result {
	r := Result{Setup: s, Duration: seconds, Traces: traces, Speculation: spec, By: map[string]Stats{}, lists: map[string][]float64{}}
	lists := r.lists
	for i := range traces {
		t := &traces[i]
		if t.Failure != nil {
			r.Failed++
			continue
		}
		r.Completed++
		r.Input, r.Output = r.Input+t.Input, r.Output+t.Output
		lists[TTFT] = append(lists[TTFT], t.TTFT)
		lists[ITL] = append(lists[ITL], t.ITL...)
		lists[E2EL] = append(lists[E2EL], t.Latency)
		perToken := t.perToken()
		if t.Output > 1 {
			lists[TPOT] = append(lists[TPOT], perToken)
		}
		if s.Goodput.meets(t.TTFT, perToken, t.Latency) {
			r.Good++
		}
	}
	for _, m := range []string{TTFT, TPOT, ITL, E2EL} {
		r.By[m] = statsOf(lists[m], s.Percentiles)
	}
	r.PeakOutput, r.PeakConcurrent = peaks(traces)
	return r
}

// Percentile returns a percentile of a metric in milliseconds, whether it is shown or not.
func (r *Result) Percentile(metric string, p float64) float64 {
	return Percentile(r.lists[metric], p) * 1000
}

// perToken returns the time per output token after the first, 0 where there is none.
func (t *Trace) perToken() float64 {
	if t.Output <= 1 {
		return 0
	}
	return (t.Latency - t.TTFT) / float64(t.Output-1)
}

// meets compares times in seconds with the limits in milliseconds.
func (g Goodput) meets(ttft, tpot, e2el float64) bool {
	for metric, limit := range g {
		got := map[string]float64{TTFT: ttft, TPOT: tpot, E2EL: e2el}[metric]
		if got > limit/1000 {
			return false
		}
	}
	return true
}

// peaks returns the most chunks received in one second and the most requests active in any part of
// one second. Seconds are counted from the earliest start.
func peaks(traces []Trace) (output, concurrent float64) {
	from, until := math.Inf(1), 0.0
	for i := range traces {
		if t := &traces[i]; t.Failure == nil {
			from, until = min(from, t.Start), max(until, t.Start+t.Latency)
		}
	}
	if math.IsInf(from, 1) {
		return 0, 0
	}
	seconds := int(math.Ceil(until-from)) + 1
	chunks, active := make([]float64, seconds), make([]float64, seconds)
	for i := range traces {
		t := &traces[i]
		if t.Failure != nil {
			continue
		}
		at := t.Start - from + t.TTFT
		for k := 0; ; k++ {
			if s := int(at); s < seconds {
				chunks[s]++
			}
			if k == len(t.ITL) {
				break
			}
			at += t.ITL[k]
		}
		for s := int(t.Start - from); s <= int(t.Start-from+t.Latency) && s < seconds; s++ {
			active[s]++
		}
	}
	for i := range chunks {
		output, concurrent = max(output, chunks[i]), max(concurrent, active[i])
	}
	return output, concurrent
}

// per returns n per second of the run; 0 where the run took no time.
func (r *Result) per(n int) float64 {
	if r.Duration <= 0 {
		return 0
	}
	return float64(n) / r.Duration
}

// RequestThroughput returns requests per second; the methods below return tokens per second.
func (r *Result) RequestThroughput() float64 { return r.per(r.Completed) }
func (r *Result) OutputThroughput() float64  { return r.per(r.Output) }
func (r *Result) TotalThroughput() float64   { return r.per(r.Input + r.Output) }

// GoodRequests returns the requests per second within all limits.
func (r *Result) GoodRequests() float64 { return r.per(r.Good) }

// AcceptanceRate returns the share of drafted tokens that were accepted, in percent.
func (s *Speculation) AcceptanceRate() float64 {
	if s.DraftTokens == 0 {
		return 0
	}
	return s.Accepted / s.DraftTokens * 100
}

// AcceptanceLength returns the tokens per step: its own and the accepted ones.
func (s *Speculation) AcceptanceLength() float64 { return 1 + s.Accepted/s.Drafts }

// At returns the share of drafts whose token i was accepted.
func (s *Speculation) At(i int) float64 { return s.Positions[i] / s.Drafts }

// hasDrafts reports whether there were drafts.
func (s *Speculation) hasDrafts() bool { return s != nil && s.Drafts > 0 }

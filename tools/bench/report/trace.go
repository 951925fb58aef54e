// Package report turns what a benchmark's client saw of each request into the rows,
// the saved results, the comparison and the charts that people know from vLLM. It is
// arithmetic: the same traces give the same bytes.
package report

// Trace is what the client saw of one request. Times are in seconds, starts since
// the run began.
type Trace struct {
	// Start is when the request was really sent.
	Start float64 `json:"start"`
	// TTFT is from there to the first chunk with choices.
	TTFT float64 `json:"ttft"`
	// Latency is from the start to the end of the answer.
	Latency float64 `json:"latency"`
	// ITL are the gaps between the chunks with choices.
	ITL []float64 `json:"itl"`
	// Input and Output are lengths in tokens.
	Input  int `json:"input"`
	Output int `json:"output"`
	// Counted says that the tokenizer counted Output, and not the server.
	Counted bool `json:"counted,omitempty"`
	// Text is what was generated.
	Text string `json:"text,omitempty"`
	// Failure is nil where the request succeeded.
	Failure *Failure `json:"failure,omitempty"`
}

// Failure is why a request does not count.
type Failure struct {
	// Reason is what failures are counted by, such as "HTTP 503".
	Reason string `json:"reason"`
	// Detail is what was seen of this one.
	Detail string `json:"detail,omitempty"`
}

// Error is the reason and the detail, in one line.
func (f *Failure) Error() string {
	if f.Detail == "" {
		return f.Reason
	}
	return f.Reason + ": " + f.Detail
}

// Speculation are counters of speculative decoding: what the server's grew by while
// the run lasted.
type Speculation struct {
	Drafts, DraftTokens, Accepted float64
	// Positions are accepted tokens by their place in the draft.
	Positions []float64
}

// Goodput are limits in milliseconds by metric (ttft, tpot, e2el).
type Goodput map[string]float64

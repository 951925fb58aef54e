// Package report computes the results of a benchmark from the traces of its requests: the table,
// the saved JSON, comparisons and charts, as vLLM prints and saves them. The same traces give the
// same bytes. It must not read the clock or files. Start reading at Make.
package report

// Trace is what the client measured of one request. Times are in seconds, starts relative to the
// start of the run.
type Trace struct {
	// Start is the actual send time.
	Start float64 `json:"start"`
	// TTFT is the time from Start to the first chunk with choices.
	TTFT float64 `json:"ttft"`
	// Latency is the time from Start to the end of the answer.
	Latency float64 `json:"latency"`
	// ITL are the gaps between chunks with choices.
	ITL []float64 `json:"itl"`
	// Input and Output are lengths in tokens.
	Input  int `json:"input"`
	Output int `json:"output"`
	// Counted means that the tokenizer counted Output, not the server.
	Counted bool `json:"counted,omitempty"`
	// Text is the generated text.
	Text string `json:"text,omitempty"`
	// Failure is nil where the request succeeded.
	Failure *Failure `json:"failure,omitempty"`
}

// Failure is the reason why a request failed.
type Failure struct {
	// Reason is the key by which failures are counted, such as "HTTP 503".
	Reason string `json:"reason"`
	// Detail describes this failure.
	Detail string `json:"detail,omitempty"`
}

// Error returns the reason and the detail in one line.
func (f *Failure) Error() string {
	if f.Detail == "" {
		return f.Reason
	}
	return f.Reason + ": " + f.Detail
}

// Speculation is the increase of the server's counters of speculative decoding during the run.
type Speculation struct {
	Drafts, DraftTokens, Accepted float64
	// Positions are the accepted tokens by their position in the draft.
	Positions []float64
}

// Goodput maps metrics (ttft, tpot, e2el) to limits in milliseconds.
type Goodput map[string]float64

// Package sample holds the sampling parameters of a request: their validation, stop conditions,
// and the rows, masks and logit edits that the device's sampling op reads. It must not read or
// change logits: the device does. Start reading at Params in params.go, then Params.Row in row.go.
package sample

// Params are the sampling parameters of a request. Default returns the neutral ones.
type Params struct {
	Temperature float64 // 0 (below 1e-5): greedy
	TopP        float64 // 1: off
	TopK        int     // 0 or −1: off
	MinP        float64 // 0: off

	Repetition float64 // repetition_penalty; 1: off
	Frequency  float64 // frequency_penalty; 0: off
	Presence   float64 // presence_penalty; 0: off

	Seed    uint64 // with HasSeed
	HasSeed bool

	MaxTokens    int
	MinTokens    int
	StopTokenIDs []int32
	EOS          []int32 // the tokenizer's own first (−1: none), then those of the generation config
	IgnoreEOS    bool

	LogitBias       []Bias    // in any order; values of equal tokens add up
	AllowedTokenIDs []int32   // nil: all
	BadWords        [][]int32 // token sequences that must not be generated

	Logprobs       int // number of top logprobs of each generated token; −1: no logprobs
	PromptLogprobs int // number of top logprobs of each prompt token; −1: no logprobs
}

// Bias is one entry of logit_bias.
type Bias struct {
	Token int32
	Value float64
}

// Default returns the neutral parameters: temperature 1, everything else off, and at most 16
// tokens.
func Default() Params {
	return Params{Temperature: 1, TopP: 1, Repetition: 1, MaxTokens: 16, Logprobs: -1, PromptLogprobs: -1}
}

// Greedy reports whether the likeliest token is always taken.
func (p *Params) Greedy() bool { return p.Temperature < greedyBelow }

const greedyBelow = 1e-5

// LeastTemperature is the lowest temperature of the sampler. It raises lower ones to it, except
// greedy ones.
const LeastTemperature = 0.01

// NeedsOutput reports whether a row's logit edits depend on the tokens generated before it, so
// that the host must know them to prepare the row.
func (p *Params) NeedsOutput() bool {
	for _, w := range p.BadWords {
		if len(w) > 1 {
			return true
		}
	}
	return false
}

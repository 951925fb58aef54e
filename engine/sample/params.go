// Package sample is how a request wants its tokens drawn: the sampling
// parameters, their rules, and the rows, masks and logit edits that the device
// op reads. It never touches a logit.
package sample

// Params are the sampling parameters of a request. Default gives the neutral ones.
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
	EOS          []int32 // the tokenizer's own first (−1: it has none), then those of the generation config
	IgnoreEOS    bool

	LogitBias       []Bias    // sorted or not; of equal tokens the values add up
	AllowedTokenIDs []int32   // nil: all
	BadWords        [][]int32 // token sequences that must not come out

	Logprobs       int // top logprobs of each generated token; −1: none at all
	PromptLogprobs int // top logprobs of each prompt token; −1: none at all
}

// Bias is one entry of logit_bias.
type Bias struct {
	Token int32
	Value float64
}

// Default are the neutral parameters: temperature 1, nothing else in force,
// 16 tokens at most.
func Default() Params {
	return Params{Temperature: 1, TopP: 1, Repetition: 1, MaxTokens: 16, Logprobs: -1, PromptLogprobs: -1}
}

// Greedy says that the likeliest token is always taken.
func (p *Params) Greedy() bool { return p.Temperature < greedyBelow }

const greedyBelow = 1e-5

// LeastTemperature is what the sampler raises a lower temperature to that is not greedy.
const LeastTemperature = 0.01

// NeedsOutput says that a row's edits depend on the tokens generated before
// it, so that they must be known on the host before the row is prepared.
func (p *Params) NeedsOutput() bool {
	for _, w := range p.BadWords {
		if len(w) > 1 {
			return true
		}
	}
	return false
}

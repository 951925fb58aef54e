package sample

import "vapp.dev/engine/backend"

// At is where a sampled row stands in its sequence.
type At struct {
	Seq      int32   // of the step
	Seed     uint64  // of the request and choice, see ChoiceSeed
	Position int     // that the sampled token will have
	Prompt   int     // tokens of the prompt
	Output   []int32 // tokens generated so far; may lack the last one unless NeedsOutput
}

// Row fills row r of a step: its SampleRow, its mask of allowed tokens and its
// logit edits. All of it was validated with the step's widths.
func (p *Params) Row(s *backend.Step, r int, at At) {}

// Target fills row r for a prompt logprob: the raw logprob of token target and
// the top PromptLogprobs.
func (p *Params) Target(s *backend.Step, r int, at At, target int32) {}

package sample

import (
	"math"

	"vapp.dev/engine/backend"
)

// At is the place of a sampled row in its sequence.
type At struct {
	Seq      int32   // index of the sequence in the step
	Seed     uint64  // of the choice, see ChoiceSeed
	Position int     // position of the sampled token
	Prompt   int     // number of prompt tokens
	Output   []int32 // tokens generated so far; may lack the last one unless NeedsOutput
}

// Row fills sampled row r of a step: its SampleRow, its mask of allowed tokens and its logit
// edits. The parameters must have been validated with the step's widths.
func (p *Params) Row(s *backend.Step, r int, at At) {
	row := backend.SampleRow{
		Seed: at.Seed, Position: int32(at.Position), Seq: at.Seq,
		Temperature: float(p.Temperature), TopP: 1, Repetition: 1,
		PromptLen: int32(at.Prompt), HistoryLen: int32(at.Position),
	}
	if p.Repetition != 1 {
		row.Repetition = max(float(p.Repetition), smallest)
	}
	row.Frequency, row.Presence = float(p.Frequency), float(p.Presence)
	if p.Greedy() {
		row.Temperature = 0
	} else {
		row.TopP, row.MinP = max(float(p.TopP), smallest), float(p.MinP)
		row.TopK = int32(min(max(p.TopK, 0), math.MaxInt32))
	}
	if p.Logprobs >= 0 {
		row.Flags |= backend.WantLogprob
		row.NumTop = int32(p.Logprobs)
	}
	if p.AllowedTokenIDs != nil {
		row.Flags |= backend.UseAllowed
		p.allow(s.Allowed[r*s.Words:][:s.Words])
	}
	width := len(s.Bias) / len(s.Rows)
	row.NumBias = int32(p.bias(s.Bias[r*width:][:0:width], at))
	s.Sampling[r] = row
}

// Target fills row r for a prompt logprob: the raw logprob of token target at
// at.Position, its rank, and the top PromptLogprobs.
func (p *Params) Target(s *backend.Step, r int, at At, target int32) {
	s.Sampling[r] = backend.SampleRow{
		Seed: at.Seed, Position: int32(at.Position), Seq: at.Seq,
		Flags:  backend.UseTarget | backend.WantLogprob,
		NumTop: int32(max(0, p.PromptLogprobs)), Target: target,
		TopP: 1, Repetition: 1, PromptLen: int32(at.Prompt), HistoryLen: int32(at.Position),
	}
}

// Known fills row r with a token that is known already: the row gives target and no logprobs.
func (p *Params) Known(s *backend.Step, r int, at At, target int32) {
	p.Target(s, r, at, target)
	s.Sampling[r].Flags, s.Sampling[r].NumTop = backend.UseTarget, 0
}

// smallest is the smallest positive normal float32. Values that are positive as float64 are
// raised to it, so that they stay positive.
const smallest = 1.1754943508222875e-38

func float(v float64) float32 {
	return float32(min(max(v, -math.MaxFloat32), math.MaxFloat32))
}

// allow sets the bits of the allowed tokens.
func (p *Params) allow(words []uint32) {
	clear(words)
	for _, id := range p.AllowedTokenIDs {
		words[id/32] |= 1 << (id % 32)
	}
}

var never = float32(math.Inf(-1))

// bias appends the row's logit edits to dst, whose capacity is sufficient, and returns their
// number. The edits are logit_bias clamped to ±100, −Inf for EOS and stop ids until MinTokens
// tokens exist, and −Inf for each token that would complete a bad word.
func (p *Params) bias(dst []backend.BiasEntry, at At) int {
	for _, b := range p.LogitBias {
		dst = append(dst, backend.BiasEntry{Token: b.Token, Value: float32(min(max(b.Value, -100), 100))})
	}
	if at.Position-at.Prompt < p.MinTokens {
		dst = forbid(dst, p.EOS)
		dst = forbid(dst, p.StopTokenIDs)
	}
	for _, w := range p.BadWords {
		if endsWith(at.Output, w[:len(w)-1]) {
			dst = append(dst, backend.BiasEntry{Token: w[len(w)-1], Value: never})
		}
	}
	return len(dst)
}

func forbid(dst []backend.BiasEntry, ids []int32) []backend.BiasEntry {
	for _, id := range ids {
		if id >= 0 {
			dst = append(dst, backend.BiasEntry{Token: id, Value: never})
		}
	}
	return dst
}

func endsWith(tokens, tail []int32) bool {
	if len(tail) > len(tokens) {
		return false
	}
	for i, id := range tail {
		if tokens[len(tokens)-len(tail)+i] != id {
			return false
		}
	}
	return true
}

// edits returns the most logit edits that a row may need.
func (p *Params) edits() int {
	n := len(p.LogitBias) + len(p.BadWords)
	if p.MinTokens > 0 {
		n += len(p.EOS) + len(p.StopTokenIDs)
	}
	return n
}

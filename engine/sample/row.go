package sample

import (
	"math"

	"vapp.dev/engine/backend"
)

// At is where a sampled row stands in its sequence.
type At struct {
	Seq      int32   // of the step
	Seed     uint64  // of the request and choice, see ChoiceSeed
	Position int     // that the sampled token will have
	Prompt   int     // tokens of the prompt
	Output   []int32 // tokens generated so far; may lack the last one unless NeedsOutput
}

// Row fills row r of a step: its SampleRow, its mask of allowed tokens and its
// logit edits. The parameters were validated with the step's widths.
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

// Known fills row r with token target at at.Position, which is known already: nothing
// is drawn or said of it.
func (p *Params) Known(s *backend.Step, r int, at At, target int32) {
	p.Target(s, r, at, target)
	s.Sampling[r].Flags, s.Sampling[r].NumTop = backend.UseTarget, 0
}

// smallest is the least positive normal float32: what is in range as a float64
// stays in range.
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

// bias writes the row's logit edits to dst, which has room, and returns their
// number: logit_bias within ±100, EOS and stop ids until MinTokens tokens exist,
// and the last token of each bad word that would complete it.
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

// edits is the most logit edits a row may need.
func (p *Params) edits() int {
	n := len(p.LogitBias) + len(p.BadWords)
	if p.MinTokens > 0 {
		n += len(p.EOS) + len(p.StopTokenIDs)
	}
	return n
}

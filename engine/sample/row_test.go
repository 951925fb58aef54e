package sample

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
)

// stepOf returns step buffers with that many sampled rows.
func stepOf(rows, vocab, bias int) *backend.Step {
	shape := backend.StepShape{Tokens: 4, Seqs: 4, Samples: rows, Vocab: vocab, Bias: bias, Logprobs: 20, MaxPages: []int{1}}
	return shape.Carve(make([]byte, shape.SetBytes()))
}

func TestRowOfNeutralParams(t *testing.T) {
	s, p := stepOf(3, 100, 8), Default()
	s.Sampling[2] = backend.SampleRow{Flags: ^uint32(0), NumBias: 3, Target: 9}
	p.Row(s, 2, At{Seq: 1, Seed: 77, Position: 12, Prompt: 10, Output: []int32{4, 5}})
	want := backend.SampleRow{Seed: 77, Position: 12, Seq: 1, Temperature: 1, TopP: 1, Repetition: 1, PromptLen: 10, HistoryLen: 12}
	if s.Sampling[2] != want {
		t.Errorf("got  %+v\nwant %+v", s.Sampling[2], want)
	}
}

func TestRowOfEverything(t *testing.T) {
	s := stepOf(2, 100, 8)
	p := Params{
		Temperature: 0.5, TopP: 0.9, TopK: -1, MinP: 0.1, Repetition: 1.5, Frequency: 0.25, Presence: -1,
		MaxTokens: 9, MinTokens: 3, EOS: []int32{-1, 2}, StopTokenIDs: []int32{3},
		LogitBias: []Bias{{7, 500}, {8, -2}}, AllowedTokenIDs: []int32{0, 33, 99, 33},
		BadWords: [][]int32{{20}, {4, 5, 21}, {5, 4, 22}, {1, 2, 4, 5, 23}},
		Logprobs: 5, PromptLogprobs: 2,
	}
	at := At{Seed: 1, Position: 12, Prompt: 10, Output: []int32{4, 5}}
	p.Row(s, 1, at)
	row := s.Sampling[1]
	if row.Flags != backend.UseAllowed|backend.WantLogprob || row.NumTop != 5 || row.TopK != 0 ||
		row.Temperature != 0.5 || row.TopP != 0.9 || row.MinP != 0.1 || row.Repetition != 1.5 || row.Frequency != 0.25 || row.Presence != -1 {
		t.Errorf("row %+v", row)
	}
	inf := float32(math.Inf(-1))
	want := []backend.BiasEntry{{Token: 7, Value: 100}, {Token: 8, Value: -2}, {Token: 2, Value: inf}, {Token: 3, Value: inf}, {Token: 20, Value: inf}, {Token: 21, Value: inf}}
	if got := s.Bias[8:][:row.NumBias]; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("edits %v, want %v", got, want)
	}
	if got := fmt.Sprintf("%x", s.Allowed[s.Words:]); got != "[1 2 0 8]" {
		t.Errorf("allowed %s", got)
	}
	if s.Allowed[0] != 0 || s.Bias[0] != (backend.BiasEntry{}) {
		t.Error("another row was touched")
	}
	// With three tokens EOS is allowed, and the bad words do not match.
	at.Position, at.Output = 13, []int32{4, 5, 6}
	p.Row(s, 1, at)
	if n := s.Sampling[1].NumBias; n != 3 {
		t.Errorf("%d edits, want 3", n)
	}
}

func TestGreedyRowIsPlain(t *testing.T) {
	s, p := stepOf(1, 100, 8), Default()
	p.Temperature, p.TopP, p.TopK, p.MinP = 1e-6, 0.5, 7, 0.5
	p.Row(s, 0, At{Position: 1, Prompt: 1})
	if r := s.Sampling[0]; r.Temperature != 0 || r.TopP != 1 || r.TopK != 0 || r.MinP != 0 {
		t.Errorf("row %+v", r)
	}
}

func TestTarget(t *testing.T) {
	s, p := stepOf(1, 100, 8), Default()
	p.PromptLogprobs = 3
	p.Target(s, 0, At{Seq: 2, Position: 5, Prompt: 9}, 42)
	r := s.Sampling[0]
	if r.Flags != backend.UseTarget|backend.WantLogprob || r.NumTop != 3 || r.Target != 42 || r.NumBias != 0 || r.HistoryLen != 5 {
		t.Errorf("row %+v", r)
	}
}

func TestNeedsOutput(t *testing.T) {
	p := Default()
	p.BadWords = [][]int32{{1}, {2}}
	if p.NeedsOutput() {
		t.Error("words of one token depend on nothing")
	}
	p.BadWords = append(p.BadWords, []int32{3, 4})
	if !p.NeedsOutput() {
		t.Error("a word of two tokens depends on the first")
	}
}

func TestRowAllocatesNothing(t *testing.T) {
	s, p := stepOf(1, 100, 8), Default()
	p.LogitBias, p.AllowedTokenIDs, p.BadWords = []Bias{{1, 1}}, []int32{1}, [][]int32{{1, 2}}
	if n := testing.AllocsPerRun(100, func() { p.Row(s, 0, At{Position: 1, Prompt: 1}) }); n != 0 {
		t.Errorf("%g allocations a row", n)
	}
}

package engine_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/sample"
	"vapp.dev/engine/speculate"
	"vapp.dev/kernels"
)

const (
	distKinds    = 4 // top_k
	distRequests = 150
	distTokens   = 60
)

// TestSampledDistribution samples 9,000 tokens at temperature 1 with proposals, and compares them with
// the probabilities that the model without proposals gives for the same tokens. It counts how often
// each rank of likelihood occurs (chi-square of 3 degrees of freedom, below 16.3, which chance
// exceeds once in 1,000), and how often the proposals of prompt lookup occur (within 3.3 standard
// deviations). Seeds are fixed. Of more than 3,000 proposals 431 are expected to occur, with a
// standard deviation of 17. A verification that accepts one wrong proposal in 25 moves that by seven
// deviations and is detected with a probability over 0.99. One that accepts one proposal too many in
// each step gives a chi-square of 2,300.
func TestSampledDistribution(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	dir := filepath.Join(t.TempDir(), "toy")
	if err := enginetest.WriteLlama(dir, enginetest.Llama{Seed: 11}); err != nil {
		t.Fatal(err)
	}
	open := func(change func(*toy)) *engine.Engine {
		y := &toy{dir: dir, slabs: 40, opts: engine.Options{
			MaxModelLen: 96, MaxNumSeqs: 32, MaxNumBatchedTokens: 256, BlockSize: 16, KVFormat: kernels.F32, ChunkedPrefill: true,
		}}
		change(y)
		return y.open(t)
	}
	var proposed, accepted atomic.Int64
	drawn := drawAll(t, open(func(y *toy) {
		ngrams(4)(y)
		y.hooks.Step = func(s engine.StepStats) { proposed.Add(int64(s.DraftTokens)); accepted.Add(int64(s.AcceptedTokens)) }
	}))
	ranks, guesses := newTally(distKinds), newTally(1)
	for i, top := range score(t, open(func(*toy) {}), drawn) {
		for at, probs := range top {
			pos := distPrompt + at
			ranks.add(probs, probs[drawn[i][pos]])
			x := speculate.NewIndex(speculate.NGram{Min: 1, Max: 3})
			x.Read(drawn[i][:pos], pos)
			if d := x.Propose(nil, drawn[i][:pos], 1); len(d) > 0 {
				guesses.count(0, probs[d[0]], drawn[i][pos] == d[0])
			}
		}
	}
	var chi float64
	for k := range distKinds {
		chi += ranks.chi(k)
	}
	z := guesses.deviations(0)
	t.Logf("%d of %d proposals accepted; %.0f variance; chi-square %.1f; %d proposed tokens came, %.1f expected, %.1f deviations",
		accepted.Load(), proposed.Load(), guesses.variance[0], chi, guesses.seen[0], guesses.expected[0], z)
	if accepted.Load() < 300 || proposed.Load() < 2000 {
		t.Errorf("%d of %d proposals accepted: the test tests too little", accepted.Load(), proposed.Load())
	}
	if chi > 16.3 || math.Abs(z) > 3.3 {
		t.Errorf("tokens are not drawn as without proposals: chi-square %.1f, %.1f deviations", chi, z)
	}
}

// distPrompt is the length of each prompt.
const distPrompt = 8

// drawAll returns the tokens of all requests, their prompts included.
func drawAll(t *testing.T, e *engine.Engine) [][]int32 {
	t.Helper()
	out := make([][]int32, distRequests)
	streams := make([]*engine.Stream, distRequests)
	for i := range out {
		p := sample.Default()
		p.MaxTokens, p.IgnoreEOS, p.Seed, p.HasSeed, p.TopK = distTokens, true, uint64(i)+1, true, distKinds
		for k := range distPrompt {
			out[i] = append(out[i], int32((i+k*k)%16))
		}
		s, err := e.Submit(context.Background(), engine.Request{ID: fmt.Sprint(i), Prompt: slices.Clone(out[i]), Params: p, N: 1})
		if err != nil {
			t.Fatal(err)
		}
		streams[i] = s[0]
	}
	for i, s := range streams {
		tokens, _ := collect(t, s)
		out[i] = append(out[i], tokens...)
	}
	return out
}

// score returns, for each sampled token of each sequence, the probabilities of all allowed ids, given
// the tokens before it.
func score(t *testing.T, e *engine.Engine, drawn [][]int32) [][]map[int32]float64 {
	t.Helper()
	out := make([][]map[int32]float64, len(drawn))
	for i, tokens := range drawn {
		p := sample.Default()
		p.MaxTokens, p.IgnoreEOS, p.PromptLogprobs = 1, true, distKinds
		s, err := e.Submit(context.Background(), engine.Request{ID: fmt.Sprint(i), Prompt: tokens, Params: p, N: 1})
		if err != nil {
			t.Fatal(err)
		}
		evs, err := s[0].Next(context.Background())
		if err != nil || len(evs) == 0 || len(evs[0].Prompt) != len(tokens)-1 {
			t.Fatalf("no prompt logprobs: %v %v", evs, err)
		}
		for _, lp := range evs[0].Prompt[distPrompt-1:] {
			probs := map[int32]float64{}
			sum := 0.0
			for _, top := range lp.Top[:distKinds] {
				probs[top.Token] = math.Exp(float64(top.Logprob))
				sum += probs[top.Token]
			}
			for id := range probs {
				probs[id] /= sum
			}
			out[i] = append(out[i], probs)
		}
	}
	return out
}

// tally counts events with known probabilities.
type tally struct {
	seen               []int
	expected, variance []float64
}

func newTally(kinds int) *tally {
	return &tally{make([]int, kinds), make([]float64, kinds), make([]float64, kinds)}
}

func (c *tally) count(kind int, p float64, came bool) {
	if came {
		c.seen[kind]++
	}
	c.expected[kind] += p
	c.variance[kind] += p * (1 - p)
}

// add counts every rank of likelihood; came is the probability of the sampled token.
func (c *tally) add(probs map[int32]float64, came float64) {
	for k, p := range slices.Sorted(maps.Values(probs)) {
		c.count(k, p, p == came)
	}
}

// chi returns one kind's part of Pearson's sum.
func (c *tally) chi(k int) float64 {
	d := float64(c.seen[k]) - c.expected[k]
	return d * d / c.expected[k]
}

// deviations returns how many standard deviations a kind's count is off.
func (c *tally) deviations(k int) float64 {
	return (float64(c.seen[k]) - c.expected[k]) / math.Sqrt(c.variance[k])
}

package backendtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

const (
	sampleTops  = 8
	sampleBias  = 6
	sampleBlock = 16
	sampleWidth = 4 // pages of a sequence
)

// samplePlan returns a program whose logits are rows of a table: a token id selects the row.
// It has up to rows tokens, sequences and samples.
func samplePlan(m *tensors, table backend.WeightID, vocab, rows int) plan {
	return plan{
		tensors: m, vocab: vocab, bucket: backend.Bucket{Tokens: rows, Seqs: rows, Samples: rows},
		classes: []backend.KVClass{class(kernels.F32, sampleBlock, 1, 1, 16, sampleWidth)}, pages: rows * sampleWidth, bias: sampleBias, tops: sampleTops,
		record: func(rec *backend.Recorder) {
			x := input(rec, table, vocab)
			rec.Do(backend.StoreTokens{Ids: 0})
			logits := rec.New("logits", kernels.F32, backend.PerSample, vocab)
			rec.Do(backend.Gather{X: x, Y: logits})
			rec.Do(backend.Sample{Logits: logits})
		},
	}
}

// sampleCase is one row: a history whose last token selects the logits.
type sampleCase struct {
	history          []int32
	row              backend.SampleRow
	grammar, allowed []uint32
	bias             []backend.BiasEntry
}

// sample compares rows with kernels/ref.
func (s *subject) sample(t *testing.T) {
	s.run(t, "vocabulary of 50", func(t *testing.T) { s.sampleCases(t, 50, 400) })
	s.run(t, "vocabulary of 5003", func(t *testing.T) { s.sampleCases(t, 5003, 120) })
	s.run(t, "bad rows", s.badRows)
	s.run(t, "distribution", s.distribution)
}

// sampleTable returns rows of logits: smooth, with ties, flat, peaked, with −Inf.
func sampleTable(r *rand.Rand, rows, vocab int) []float32 {
	x := make([]float32, rows*vocab)
	for i := range rows {
		row := x[i*vocab : (i+1)*vocab]
		for j := range row {
			switch z := r.NormFloat64() * 3; i % 5 {
			case 0, 1:
				row[j] = float32(z)
			case 2:
				row[j] = float32(math.Round(z)) // ties
			case 3:
				if row[j] = float32(z); r.IntN(2) == 0 {
					row[j] = float32(math.Inf(-1))
				}
			}
		}
		row[r.IntN(vocab)] += float32(3 * (i % 3))
	}
	return x
}

func (s *subject) sampleCases(t *testing.T, vocab, cases int) {
	const rows, tableRows, batch = 128, 40, 3
	r, m := rng(uint64(vocab)), &tensors{}
	x := sampleTable(r, tableRows, vocab)
	rig := s.rig(t, samplePlan(m, m.table("x", x, vocab), vocab, rows))
	near := 0
	for done := 0; done < cases; done += batch {
		var list []sampleCase
		for range batch {
			list = append(list, randomCase(r, vocab, tableRows))
		}
		rig.runCases(list)
		step := rig.dev.Step(0)
		for i, c := range list {
			z := x[int(c.history[len(c.history)-1])*vocab:][:vocab]
			if compareSample(t, fmt.Sprintf("case %d", done+i), step, i, c, z) {
				near++
			}
		}
		if t.Failed() {
			return
		}
	}
	if near > cases/50 {
		t.Errorf("%d of %d draws differ from kernels/ref, though by less than 10⁻⁵ of a limit", near, cases)
	}
}

// randomCase returns a random case: about a third of the parameters are on.
func randomCase(r *rand.Rand, vocab, ids int) sampleCase {
	c := sampleCase{history: make([]int32, 1+r.IntN(40))}
	for i := range c.history {
		c.history[i] = int32(r.IntN(ids))
	}
	pick := func(off, on float32) float32 {
		if r.IntN(3) == 0 {
			return on
		}
		return off
	}
	c.row = backend.SampleRow{
		Seed: r.Uint64(), Position: int32(len(c.history)), Flags: backend.WantLogprob, NumTop: int32(r.IntN(sampleTops + 1)),
		TopK: int32(pick(0, float32(1+r.IntN(vocab+5)))), Temperature: pick(r.Float32()*2, 0), TopP: pick(1, r.Float32()), MinP: pick(0, r.Float32()*0.3),
		Repetition: pick(1, 0.5+r.Float32()*1.5), Frequency: pick(0, r.Float32()*2-0.5), Presence: pick(0, r.Float32()*2-0.5),
		PromptLen: int32(r.IntN(len(c.history) + 1)), HistoryLen: int32(len(c.history)), Target: int32(r.IntN(vocab)),
	}
	mask := func() []uint32 {
		m := make([]uint32, (vocab+31)/32)
		for i := range m {
			m[i] = r.Uint32() | r.Uint32()
		}
		return m
	}
	if r.IntN(3) == 0 {
		c.row.Flags, c.grammar = c.row.Flags|backend.UseGrammar, mask()
	}
	if r.IntN(3) == 0 {
		c.row.Flags, c.allowed = c.row.Flags|backend.UseAllowed, mask()
	}
	if r.IntN(8) == 0 {
		c.row.Flags |= backend.UseTarget
	}
	for range r.IntN(sampleBias + 1) {
		c.bias = append(c.bias, backend.BiasEntry{Token: int32(r.IntN(vocab)), Value: float32(r.NormFloat64() * 5)})
	}
	if len(c.bias) > 1 {
		c.bias[0].Value = float32(math.Inf(-1))
	}
	c.row.NumBias = int32(len(c.bias))
	return c
}

// runCases runs one step with a sequence for each case.
func (r *rig) runCases(list []sampleCase) {
	r.t.Helper()
	var feeds []feed
	for i, c := range list {
		pages := make([]int32, sampleWidth)
		for j := range pages {
			pages[j] = int32((len(list)-1-i)*sampleWidth + j)
		}
		feeds = append(feeds, feed{tokens: c.history, pages: pages, sampled: []int{len(c.history) - 1}, row: c.row})
	}
	b := r.fill(0, feeds)
	s := r.dev.Step(0)
	for i, c := range list {
		copy(s.Grammar[i*s.Words:(i+1)*s.Words], c.grammar)
		copy(s.Allowed[i*s.Words:(i+1)*s.Words], c.allowed)
		copy(s.Bias[i*sampleBias:(i+1)*sampleBias], c.bias)
		if c.row.TopP == 0 {
			s.Sampling[i].TopP = 0
		}
	}
	r.launch(b)
}

// compareSample compares row i of the step. It returns whether it accepted another token
// because the draw was close to a limit.
func compareSample(t *testing.T, what string, s *backend.Step, i int, c sampleCase, z []float32) (near bool) {
	t.Helper()
	want, tops, probs := c.expect(z, c.row.TopP, c.row.MinP, backend.Random(c.row.Seed, c.row.Position))
	if want.Token != s.Sampled[i] {
		if near = c.near(z, s.Sampled[i]); !near {
			t.Errorf("%s: token %d, want %d: %+v", what, s.Sampled[i], want.Token, c.row)
			return false
		}
	}
	if ok := s.Status[i] == backend.RowOK; ok != (want.Token >= 0) {
		t.Errorf("%s: status %d, want token %d", what, s.Status[i], want.Token)
		return near
	}
	if want.Token < 0 || near {
		return near
	}
	if s.Rank[i] != want.Rank || !(math.Abs(float64(s.Logprob[i]-want.Logprob)) <= 2e-5 || s.Logprob[i] == want.Logprob) {
		t.Errorf("%s: token %d has rank %d, logprob %v, want %d, %v", what, want.Token, s.Rank[i], s.Logprob[i], want.Rank, want.Logprob)
	}
	if got := s.TopIDs[i*sampleTops:][:len(tops)]; !slices.Equal(got, tops) {
		t.Errorf("%s: top tokens %v, want %v", what, got, tops)
	}
	for j, p := range probs {
		if got := s.TopProbs[i*sampleTops+j]; !(math.Abs(float64(got-p)) <= 2e-5 || got == p) {
			t.Errorf("%s: logprob %d is %v, want %v", what, j, got, p)
		}
	}
	return near
}

// expect returns the result of kernels/ref with these limits.
func (c sampleCase) expect(z []float32, topP, minP float32, u float64) (ref.Sampled, []int32, []float32) {
	vocab := len(z)
	a := ref.SampleArgs{
		Logits: slices.Clone(z), Grammar: c.grammar, Allowed: c.allowed, History: c.history, Prompt: int(c.row.PromptLen),
		Repetition: c.row.Repetition, Frequency: c.row.Frequency, Presence: c.row.Presence, Temperature: c.row.Temperature,
		MinP: minP, TopP: topP, TopK: int(c.row.TopK), Uniform: u,
		UseTarget: c.row.Flags&backend.UseTarget != 0, Target: c.row.Target, Logprobs: true,
		TopIDs: make([]int32, c.row.NumTop), TopProbs: make([]float32, c.row.NumTop),
		Workspace: ref.SampleWorkspace{Raw: make([]float32, vocab), Order: make([]int32, vocab), Counts: make([]int32, vocab)},
	}
	for _, b := range c.bias {
		a.Bias = append(a.Bias, ref.Bias(b))
	}
	return ref.Sample(a), a.TopIDs, a.TopProbs
}

// near reports whether moving the draw, top-p and min-p by 10⁻⁵ gives the token.
func (c sampleCase) near(z []float32, token int32) bool {
	u := backend.Random(c.row.Seed, c.row.Position)
	for _, du := range []float64{0, -1e-5, 1e-5} {
		for _, dp := range []float32{0, -1e-5, 1e-5} {
			for _, dm := range []float32{0, -1e-5, 1e-5} {
				if got, _, _ := c.expect(z, c.row.TopP+dp, max(0, c.row.MinP+dm), min(max(u+du, 0), 1)); got.Token == token {
					return true
				}
			}
		}
	}
	return false
}

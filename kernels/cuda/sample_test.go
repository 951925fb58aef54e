package cuda_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cudatest"
	"vapp.dev/kernels/ref"
)

// random is backend.Random.
func random(seed uint64, position int32) float64 {
	z := seed + 0x9e3779b97f4a7c15*(uint64(uint32(position))+1)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return float64((z^z>>31)>>11) / (1 << 53)
}

// sampleCase is a row, its logits and its edits.
type sampleCase struct {
	row              cuda.SampleRow
	z                []float32
	grammar, allowed []uint32
	bias             []cuda.BiasEntry
	history          []int32
}

const (
	vocab     = 12500 // more than can be counted at a time
	biasWidth = 3
	topWidth  = 5
)

// want returns ref's result.
func (c sampleCase) want() (ref.Sampled, []int32, []float32) {
	a := ref.SampleArgs{
		Logits: append([]float32{}, c.z...), History: c.history, Prompt: int(c.row.Prompt),
		Repetition: c.row.Repetition, Frequency: c.row.Frequency, Presence: c.row.Presence, Temperature: c.row.Temperature,
		MinP: c.row.MinP, TopP: c.row.TopP, TopK: int(c.row.TopK), Uniform: random(c.row.Seed, c.row.Position),
		UseTarget: c.row.Flags&cuda.UseTarget != 0, Target: c.row.Target, Logprobs: c.row.Flags&cuda.WantLogprob != 0,
		TopIDs: make([]int32, c.row.NumTop), TopProbs: make([]float32, c.row.NumTop),
		Workspace: ref.SampleWorkspace{Raw: make([]float32, vocab), Order: make([]int32, vocab), Counts: make([]int32, vocab)},
	}
	if c.row.Flags&cuda.UseGrammar != 0 {
		a.Grammar = c.grammar
	}
	if c.row.Flags&cuda.UseAllowed != 0 {
		a.Allowed = c.allowed
	}
	for _, b := range c.bias {
		a.Bias = append(a.Bias, ref.Bias(b))
	}
	return ref.Sample(a), a.TopIDs, a.TopProbs
}

func (r *rig) sampleCases() []sampleCase {
	off := cuda.SampleRow{Temperature: 1, TopP: 1, Repetition: 1}
	row := func(f func(*cuda.SampleRow)) cuda.SampleRow {
		w := off
		w.Seed, w.Position = r.rnd.Uint64(), int32(r.rnd.IntN(1000))
		f(&w)
		return w
	}
	rows := []cuda.SampleRow{
		row(func(w *cuda.SampleRow) { w.Temperature = 0 }),
		row(func(w *cuda.SampleRow) {}),
		row(func(w *cuda.SampleRow) { w.TopK = 1 }),
		row(func(w *cuda.SampleRow) { w.TopK = 40; w.Temperature = 0.7 }),
		row(func(w *cuda.SampleRow) { w.TopP = 0.9 }),
		row(func(w *cuda.SampleRow) { w.TopP = 0.05; w.Temperature = 3 }),
		row(func(w *cuda.SampleRow) { w.TopP = 0; w.MinP = 0.1 }),
		row(func(w *cuda.SampleRow) { w.MinP, w.Temperature = 0.5, 4 }), // most of the weight is below
		row(func(w *cuda.SampleRow) { w.TopP, w.TopK, w.MinP, w.Temperature = 0.8, 200, 0.01, 1.5 }),
		row(func(w *cuda.SampleRow) { w.Flags, w.NumTop = cuda.WantLogprob, topWidth }),
		row(func(w *cuda.SampleRow) { w.Flags, w.Target, w.NumTop = cuda.WantLogprob|cuda.UseTarget, 77, 2 }),
		row(func(w *cuda.SampleRow) {
			w.Flags, w.NumBias, w.NumTop = cuda.WantLogprob|cuda.UseGrammar|cuda.UseAllowed, biasWidth, 3
		}),
		row(func(w *cuda.SampleRow) {
			w.Flags, w.Repetition, w.Frequency, w.Presence, w.NumTop = cuda.WantLogprob, 1.3, 0.4, 0.7, 1
			w.Temperature = 0
		}),
	}
	var out []sampleCase
	for i, w := range rows {
		c := sampleCase{row: w, z: r.floats(vocab, 3), grammar: make([]uint32, ceil(vocab, 32)), allowed: make([]uint32, ceil(vocab, 32))}
		for j := range c.z { // ties, at the edges too
			c.z[j] = float32(math.Round(float64(c.z[j])*8)) / 8
		}
		for j := range c.grammar {
			c.grammar[j], c.allowed[j] = r.rnd.Uint32(), r.rnd.Uint32()|1
		}
		if w.NumBias > 0 {
			c.bias = []cuda.BiasEntry{{3, 9}, {9000, float32(math.Inf(-1))}, {3, 0.5}}
			c.grammar[0], c.allowed[0] = c.grammar[0]|8, c.allowed[0]|8
		}
		if w.Repetition != 1 {
			c.history = make([]int32, 50)
			for j := range c.history {
				c.history[j] = int32(r.rnd.IntN(8) * 1700)
			}
			c.row.Prompt, c.row.History, c.row.Seq = 20, 50, 1
			for j := range 8 {
				c.z[j*1700] = 14 - float32(j)
			}
		}
		c.row.Position += int32(i)
		out = append(out, c)
	}
	// Rows without a token: NaN, +Inf, all forbidden. Then a draw among ties, a certain token,
	// and cases that random rows do not reach.
	for _, f := range []func(c *sampleCase){
		func(c *sampleCase) { c.z[5000] = float32(math.NaN()) },
		func(c *sampleCase) { c.z[0] = float32(math.Inf(1)) },
		func(c *sampleCase) { c.row.Flags, c.grammar = cuda.UseGrammar, make([]uint32, ceil(vocab, 32)) },
		func(c *sampleCase) { clear(c.z); c.row.TopP = 0.3 },
		func(c *sampleCase) {
			for j := range c.z[1:] {
				c.z[1+j] = float32(math.Inf(-1))
			}
		},
		func(c *sampleCase) { // the best is not allowed, and there is no other edit
			c.row.Flags, c.row.Temperature = cuda.UseAllowed, 0
			for j := range c.allowed {
				c.allowed[j] = 0x55555555
			}
			c.z[4001] = 20
		},
		func(c *sampleCase) { // prompt tokens are not counted, and the second of two ranges of counted tokens is used
			c.row.Temperature, c.row.Frequency, c.row.Presence = 0, 0.5, 1
			c.row.Prompt, c.row.History = 20, 50
			c.history = append(slices.Repeat([]int32{1700}, 20), slices.Repeat([]int32{vocab - 1}, 30)...)
			c.z[vocab-1], c.z[1700] = 22, 18
		},
		func(c *sampleCase) { // too many candidates, and others that only min-p removes
			c.row.MinP, c.row.TopP = 0.5, 0.9
			clear(c.z)
			for j := range vocab / 2 {
				c.z[j] = -1
			}
		},
		func(c *sampleCase) { // the nucleus is exactly the best: weights of 1 and of 64 times 63/64
			c.row.TopP = 1.0 / 64
			for j := range c.z {
				c.z[j] = float32(math.Inf(-1))
			}
			for j := range 65 {
				c.z[50*j] = float32(math.Log(63.0 / 64))
			}
			c.z[50*32] = 0
		},
	} {
		c := sampleCase{row: row(func(*cuda.SampleRow) {}), z: r.floats(vocab, 3), grammar: make([]uint32, ceil(vocab, 32)), allowed: make([]uint32, ceil(vocab, 32))}
		f(&c)
		out = append(out, c)
	}
	return out
}

func TestSample(t *testing.T) {
	r := newRig(t)
	cases := r.sampleCases()
	c := newCache(r, kernels.BF16, 16, 1, 8, 0, 2, 64)
	n := len(cases)
	var rows []cuda.SampleRow
	var z []float32
	var grammar, allowed []uint32
	bias := make([]cuda.BiasEntry, n*biasWidth)
	for i, s := range cases {
		rows, z, grammar, allowed = append(rows, s.row), append(z, s.z...), append(grammar, s.grammar...), append(allowed, s.allowed...)
		copy(bias[i*biasWidth:], s.bias)
		for p, id := range s.history {
			copy(c.ref.Page(c.tables[int(s.row.Seq)*c.width+p/16])[4*(p%16):], cudatest.Bytes([]int32{id}))
		}
	}
	a := cuda.SampleArgs{
		Rows: up(r, rows), Grammar: up(r, grammar), Allowed: up(r, allowed), Bias: up(r, bias),
		Raw: alloc[float32](r, len(z)), Pages: c.args(r), Vocab: vocab, Words: int32(ceil(vocab, 32)), BiasWidth: biasWidth, TopWidth: topWidth,
	}
	for i, slices := range []int{1, 3, 64, 7} {
		r.Schedule(cudatest.Schedules[i])
		a.Logits = up(r, z)
		a.Sampled, a.Status, a.Rank, a.Logprob = alloc[int32](r, n), alloc[int32](r, n), alloc[int32](r, n), alloc[float32](r, n)
		a.TopIDs, a.TopProbs = alloc[int32](r, n*topWidth), alloc[float32](r, n*topWidth)
		r.sample(a, n, slices, 96)
		r.wantSampled(a, cases, slices)
	}
}

// sample launches the kernels for rows in that many slices.
func (r *rig) sample(a cuda.SampleArgs, rows, parts, threads int) {
	r.Helper()
	a.Workspace, a.Slices, a.Reported = alloc[byte](r, rows*cuda.SampleWorkspace), int32(parts), alloc[int32](r, rows)
	a.Finished = up(r, make([]uint32, rows))
	done := make([][2]int32, rows) // tokens and status behind the first launch
	g := cudatest.Line(rows, threads)
	g.Blocks = [3]int{parts, rows, 1}
	for _, k := range []struct {
		kernel string
		shared int
	}{{"sample_edit", cuda.SampleShared}, {"sample_weigh", 0}, {"sample_draw", cuda.SampleDrawShared}, {"sample_report", 0}} {
		g.Shared = k.shared
		launch(r, k.kernel, g, &a)
		if k.kernel != "sample_edit" {
			continue
		}
		for i, n := range down[uint32](r, a.Finished, rows) {
			if done[i] = [2]int32{down[int32](r, a.Sampled, rows)[i], down[int32](r, a.Status, rows)[i]}; n != 0 {
				r.Errorf("%d slices, row %d: the counter is %d behind the launch", parts, i, n)
			}
		}
	}
	for i, w := range down[cuda.SampleRow](r, a.Rows, rows) {
		if got := [2]int32{down[int32](r, a.Sampled, rows)[i], down[int32](r, a.Status, rows)[i]}; !w.Draws() && got != done[i] {
			r.Errorf("%d slices, row %d: token and status %v behind the first launch, %v behind the last", parts, i, done[i], got)
		}
	}
	if tokens, reported := down[int32](r, a.Sampled, rows), down[int32](r, a.Reported, rows); !slices.Equal(tokens, reported) {
		r.Errorf("the host gets %v, kernels get %v", reported, tokens)
	}
}

// wantSampled compares what was sampled with ref.
func (r *rig) wantSampled(a cuda.SampleArgs, cases []sampleCase, slices int) {
	r.Helper()
	t, n := r.T, len(cases)
	tokens, status, ranks := down[int32](r, a.Sampled, n), down[int32](r, a.Status, n), down[int32](r, a.Rank, n)
	ids, probs, logprobs := down[int32](r, a.TopIDs, n*topWidth), down[float32](r, a.TopProbs, n*topWidth), down[float32](r, a.Logprob, n)
	for i, s := range cases {
		want, wantIDs, wantProbs := s.want()
		if tokens[i] != want.Token || status[i] != yes(want.Token < 0) || ranks[i] != want.Rank {
			t.Errorf("%d slices, row %d, %+v: token %d, status %d, rank %d; want %+v", slices, i, s.row, tokens[i], status[i], ranks[i], want)
		}
		r.near(fmt.Sprint("logprob of row ", i), logprobs[i:i+1], []float32{want.Logprob}, 1e-5)
		if want.Token < 0 {
			continue
		}
		if got := ids[i*topWidth:][:len(wantIDs)]; fmt.Sprint(got) != fmt.Sprint(wantIDs) {
			t.Errorf("row %d: best %v, want %v", i, got, wantIDs)
		}
		r.near(fmt.Sprint("best of row ", i), probs[i*topWidth:][:len(wantProbs)], wantProbs, 1e-5)
	}
}

// TestSampleDraws checks over many positions that each draw is ref's.
func TestSampleDraws(t *testing.T) {
	r := newRig(t)
	const rows = 60
	z := make([]float32, 0, rows*vocab)
	one := r.floats(vocab, 1.5)
	var all []cuda.SampleRow
	for i := range rows {
		z = append(z, one...)
		all = append(all, cuda.SampleRow{Seed: 42, Position: int32(i), Temperature: 0.9, TopP: 0.7, TopK: int32(30 * (i % 2)), MinP: 0.25 * float32(i%3), Repetition: 1})
	}
	for _, slices := range []int{1, 5} {
		a := cuda.SampleArgs{
			Logits: up(r, z), Rows: up(r, all), Sampled: alloc[int32](r, rows), Status: alloc[int32](r, rows), Rank: alloc[int32](r, rows),
			Logprob: alloc[float32](r, rows), Vocab: vocab, Words: int32(ceil(vocab, 32)),
		}
		r.sample(a, rows, slices, 64)
		seen := map[int32]bool{}
		for i, got := range down[int32](r, a.Sampled, rows) {
			want, _, _ := sampleCase{row: all[i], z: one}.want()
			if got != want.Token {
				t.Errorf("%d slices, position %d: token %d, want %d", slices, i, got, want.Token)
			}
			seen[got] = true
		}
		if len(seen) < 8 {
			t.Errorf("only %d tokens were drawn", len(seen))
		}
	}
}

// TestSampleSmall tests vocabularies smaller than the number of slices, and a vocabulary of one
// token.
func TestSampleSmall(t *testing.T) {
	r := newRig(t)
	const width = 36
	for _, small := range []int{1, 37} {
		one := r.floats(small, 2)
		var rows []cuda.SampleRow
		var z []float32
		for i := range 8 {
			z = append(z, one...)
			rows = append(rows, cuda.SampleRow{Seed: 7, Position: int32(i), Temperature: float32(i%3) / 2, TopP: 0.9, TopK: int32(i % 5), Repetition: 1, Flags: cuda.WantLogprob, NumTop: int32(2 + 33*(i%2))})
		}
		for _, slices := range []int{1, 64} {
			n := len(rows)
			a := cuda.SampleArgs{
				Logits: up(r, z), Rows: up(r, rows), Raw: alloc[float32](r, len(z)), Sampled: alloc[int32](r, n), Status: alloc[int32](r, n), Rank: alloc[int32](r, n),
				Logprob: alloc[float32](r, n), TopIDs: alloc[int32](r, width*n), TopProbs: alloc[float32](r, width*n), Vocab: int32(small), Words: 2, TopWidth: width,
			}
			r.sample(a, n, slices, 32)
			tokens, ranks, ids := down[int32](r, a.Sampled, n), down[int32](r, a.Rank, n), down[int32](r, a.TopIDs, width*n)
			for i := range n {
				want, wantIDs, _ := sampleCase{row: rows[i], z: one}.want()
				if k := min(len(wantIDs), small); tokens[i] != want.Token || ranks[i] != want.Rank || fmt.Sprint(ids[width*i:width*i+k]) != fmt.Sprint(wantIDs[:k]) {
					t.Errorf("%d slices of %d, row %d: token %d, rank %d, best %v; want %+v, %v", slices, small, i, tokens[i], ranks[i], ids[width*i:width*i+k], want, wantIDs)
				}
			}
		}
	}
}

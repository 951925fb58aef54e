package models

import (
	"math"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// TestSpeculation checks that every family gives a batch the tokens and logprobs of plain decoding,
// bit for bit, greedy and sampled, for any chunks of the prompts. In turn none, some and all
// proposals are right, so no trace of a rejected one remains in pages, windows or states.
func TestSpeculation(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	const n, most = 30, 4
	for _, name := range []string{"tiny-llama3-tied", "tiny-qwen2", "tiny-qwen3", "tiny-gpt-oss", "tiny-gemma4", "tiny-gemma4-moe", "tiny-qwen35", "tiny-qwen35-fp8"} {
		ck := openTestdata(t, name)
		vocab := ck.Config().VocabSize
		plain, err := New(ck, Build{})
		if err != nil {
			t.Fatal(err)
		}
		m, err := New(ck, Build{Verify: most})
		if err != nil {
			t.Fatal(err)
		}
		prompts := randomPrompts(vocab, 40, 1, 16)
		for _, w := range ways(t) {
			t.Run(name+"/"+w.name, func(t *testing.T) {
				capacity := size{seqs: 3, tokens: 64, positions: 40 + n + most + 1}
				one := drive(t, w, plain, ck, kernels.F16, capacity)
				capacity.verify = most
				two := drive(t, w, m, ck, kernels.F16, capacity)
				for _, draw := range []backend.SampleRow{{}, {Temperature: 1, Seed: 5, Presence: 0.5}} {
					want := one.generate(prompts, n+most+1, 16, draw, func(int, int, []int32) []int32 { return nil })
					round := 0
					some := func(seq, done int, _ []int32) []int32 { // right proposals, then wrong ones
						round++
						next := slices.Clone(want.tokens[seq][done:min(done+round%(most+1), len(want.tokens[seq]))])
						for k := range next {
							if k >= round%(most+1)/2 && round%3 == 0 {
								next[k] = (next[k] + 1) % int32(vocab)
							}
						}
						return next
					}
					for _, chunk := range []int{16, 7, 40} {
						got := two.generate(prompts, n, chunk, draw, some)
						got.same(t, want, n)
						if got.held == 0 || got.held == got.proposed {
							t.Errorf("%d of %d proposals held", got.held, got.proposed)
						}
					}
				}
			})
		}
	}
}

// TestMTP runs Qwen3.5's MTP head on devices. Its proposals after each token, and their logits,
// must equal those of transformers' modules for the whole sequence (testdata/record_mtp.py), for
// any chunks of the prompt, and whether none, some or all verified proposals were right.
func TestMTP(t *testing.T) {
	const draft = 3
	ck := openTestdata(t, "tiny-qwen35-mtp")
	read := func(name string) (out []int32) {
		o := oracle{t: t, ck: ck}
		for _, id := range whole(o.tensor(name)) {
			out = append(out, int32(id))
		}
		return out
	}
	prompt, output, proposed := read("input.ids"), read("output.ids"), read("output.drafts")
	o := oracle{t: t, ck: ck}
	logits := o.tensor("output.draft_logits")
	const bound = 2e-4 // float32 sums; logits deviate by 1.5
	for _, of := range []int{1, 2, draft} {
		l := &loader{src: ck, Build: Build{Shard: backend.Whole, Pipe: backend.Whole, Draft: of}}
		m, err := newQwen35(ck.Config(), l)
		if err != nil || l.err != nil {
			t.Fatal(err, l.err)
		}
		for _, w := range ways(t) {
			off := 0.0
			d := drive(t, w, m, ck, kernels.F32, size{seqs: 1, tokens: 24, positions: 64, verify: of, drafts: of})
			for _, chunk := range []int{len(prompt), 8, 1} {
				for _, right := range [][]int{nil, {0}, {of}, {0, 1, of, 1, 0}} { // nil: the head's own proposals
					round, n := 0, len(output)-of
					g := d.generate([][]int32{prompt}, n, chunk, backend.SampleRow{}, func(_, done int, own []int32) []int32 {
						next := slices.Clone(own)
						if right != nil {
							copy(next, output[done:])
							for k := right[round%len(right)]; k < len(next); k++ {
								next[k] = (next[k] + 1) % 64
							}
						}
						round++
						return next
					})
					if !slices.Equal(g.tokens[0][:n], output[:n]) {
						t.Fatalf("%s, %d proposals, chunks of %d: %v, of transformers %v", w.name, of, chunk, g.tokens[0], output)
					}
					for done, own := range g.drafts[0][:len(output)] {
						if own == nil {
							continue
						}
						if want := proposed[draft*(done-1):][:of]; !slices.Equal(own, want) {
							t.Errorf("%s, chunks of %d, %v right: behind %d tokens %v are proposed, of transformers' modules %v", w.name, chunk, right, done, own, want)
						}
						for i, x := range g.heads[done] {
							off = max(off, math.Abs(float64(x)-logits[(draft*(done-1)+of-1)*64+i]))
						}
					}
				}
			}
			t.Logf("%s: max |Δ| of the logits of proposal %d: %.2g", w.name, of, off)
			if !(off <= bound) {
				t.Errorf("%s: logits of proposal %d are off by %.2g, at most %.2g", w.name, of, off, bound)
			}
		}
	}
}

package cuda_test

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cudatest"
	"vapp.dev/kernels/ref"
)

// TestDraft compares drafted and verify with ref on random steps: sequences without rows,
// prompts, rows sampled twice, proposals that are accepted and rejected.
func TestDraft(t *testing.T) {
	r := newRig(t)
	for range 40 {
		d := ref.DraftRows{First: []int32{0}}
		seqs := 1 + r.rnd.IntN(5)
		for s := range seqs {
			n := r.rnd.IntN(4) * r.rnd.IntN(14)
			for i := range n {
				d.Ids = append(d.Ids, int32(r.rnd.IntN(3)))
				if i >= n-4 || r.rnd.IntN(8) == 0 {
					d.Rows, d.Sampled = append(d.Rows, int32(len(d.Ids)-1)), append(d.Sampled, int32(r.rnd.IntN(4)-1))
				}
			}
			d.First = append(d.First, d.First[s]+int32(n))
		}
		if n := len(d.Rows); n > 0 {
			d.Rows, d.Sampled = append(d.Rows, d.Rows[n-1]), append(d.Sampled, 2)
		}
		tokens := len(d.Ids)
		out, kept, accepted := make([]int32, tokens), make([]int32, seqs), make([]int32, seqs)
		ref.DraftInput(d, out)
		ref.Verify(d, kept, accepted)
		a := cuda.DraftArgs{
			IDs: up(r, append(d.Ids, 0)), First: up(r, d.First), Rows: up(r, append(d.Rows, 0)), Sampled: up(r, append(d.Sampled, 0)),
			Index: alloc[int32](r, tokens), Out: alloc[int32](r, tokens), Accepted: alloc[int32](r, seqs),
			Tokens: int32(tokens), Seqs: int32(seqs), Samples: int32(len(d.Rows)),
		}
		launch(r, "drafted", cudatest.Line(1, 64), &a)
		if got := down[int32](r, a.Out, tokens); fmt.Sprint(got) != fmt.Sprint(out) {
			t.Errorf("%+v: successors %v, want %v", d, got, out)
		}
		a.Out = alloc[int32](r, seqs)
		launch(r, "verify", cudatest.Line(1, 64), &a)
		if k, n := down[int32](r, a.Out, seqs), down[int32](r, a.Accepted, seqs); fmt.Sprint(k, n) != fmt.Sprint(kept, accepted) {
			t.Errorf("%+v: kept %v accepted %v, want %v %v", d, k, n, kept, accepted)
		}
	}
}

func TestPropose(t *testing.T) {
	r := newRig(t)
	const vocab, seqs = 301, 4
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	z := r.floats(seqs*vocab, 1)
	z[200], z[40], z[0] = 9, 9, nan
	for i := range vocab {
		z[vocab+i], z[2*vocab+i] = nan, inf
	}
	a := cuda.ProposeArgs{Logits: up(r, z), IDs: alloc[int32](r, seqs), Drafts: up(r, make([]int32, 2*seqs)), Vocab: vocab, N: 1, Of: 2}
	launch(r, "propose", cudatest.Line(seqs, 96), &a)
	ids, drafts := down[int32](r, a.IDs, seqs), down[int32](r, a.Drafts, 2*seqs)
	for s := range seqs {
		want := ref.Largest(z[s*vocab : (s+1)*vocab])
		if ids[s] != want || drafts[2*s+1] != want || drafts[2*s] != 0 {
			t.Errorf("sequence %d: %d, %v, want %d", s, ids[s], drafts[2*s:2*s+2], want)
		}
	}
}

package backendtest

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// drafts tests DraftInput, Verify, GatherAccepted and Propose: none, some or all proposals
// accepted; rows that are sampled twice, not at all or without a token; sequences without
// rows; and one sequence alone.
func (s *subject) drafts(t *testing.T) {
	const vocab, seqs, most, proposals = 11, 6, 40, 3
	r, m := rng(5), &tensors{}
	x := sampleTable(r, vocab, vocab)
	for j := range vocab { // token 0 has no successor, and of the tie between 7 and 9 the first wins
		x[j], x[1*vocab+j] = float32(math.NaN()), -4
	}
	x[1*vocab+7], x[1*vocab+9] = 2, 2
	table := m.table("x", x, vocab)
	var d draftValues
	rig := s.rig(t, plan{
		tensors: m, vocab: vocab, bucket: backend.Bucket{Tokens: most, Seqs: seqs, Samples: most}, drafts: proposals,
		classes: []backend.KVClass{class(kernels.F32, sampleBlock, 1, 1, 16, sampleWidth)}, pages: seqs * sampleWidth,
		record: func(rec *backend.Recorder) { d = recordDrafts(rec, table, vocab, proposals) },
	})
	for range 300 {
		d.check(t, rig, x, randomDrafts(r, 1+r.IntN(seqs), vocab))
	}
	d.check(t, rig, x, []draftFeed{{}})
	d.check(t, rig, x, []draftFeed{{tokens: []int32{4}}, {}, {tokens: []int32{1}, rows: []int{0}, targets: []int32{0}}, {}})
}

// draftFeed is a sequence in a step: its tokens, its sampled rows, and the tokens sampled for
// these; −1: sampling fails.
type draftFeed struct {
	tokens, targets []int32
	rows            []int
}

// draftValues are the results.
type draftValues struct{ next, kept, row, id, proposed backend.Value }

func recordDrafts(rec *backend.Recorder, table backend.WeightID, vocab, of int) draftValues {
	x := input(rec, table, vocab)
	rec.Do(backend.StoreTokens{Ids: 0})
	logits := rec.New("logits", kernels.F32, backend.PerSample, vocab)
	rec.Do(backend.Gather{X: x, Y: logits})
	rec.Do(backend.Sample{Logits: logits})
	d := draftValues{
		next: rec.New("next", kernels.I32, backend.PerToken, 1), kept: rec.New("kept", kernels.I32, backend.PerSeq, 1),
		row: rec.New("row", kernels.F32, backend.PerSeq, vocab), id: rec.New("id", kernels.I32, backend.PerSeq, 1),
		proposed: rec.New("proposed", kernels.I32, backend.PerSeq, 1),
	}
	rec.Do(backend.DraftInput{Ids: 0, Out: d.next})
	rec.Do(backend.Verify{Ids: 0, AcceptedRow: d.kept})
	rec.Do(backend.GatherAccepted{X: x, AcceptedRow: d.kept, Y: d.row})
	rec.Do(backend.GatherAccepted{X: d.next, AcceptedRow: d.kept, Y: d.id})
	for n := range of {
		rec.Do(backend.Propose{Logits: d.row, Ids: d.proposed, N: n, Of: of})
	}
	return d
}

// randomDrafts returns sequences whose sampled tokens sometimes equal the proposals.
func randomDrafts(r *rand.Rand, seqs, vocab int) []draftFeed {
	out := make([]draftFeed, seqs)
	for i := range out {
		f := &out[i]
		for range r.IntN(7) {
			f.tokens = append(f.tokens, int32(r.IntN(vocab)))
		}
		from := 0 // mostly the last rows are sampled
		if len(f.tokens) > 0 {
			from = r.IntN(len(f.tokens) + 1)
		}
		for k := from; k < len(f.tokens); k++ {
			target := int32(r.IntN(vocab))
			if k+1 < len(f.tokens) && r.IntN(4) > 0 {
				target = f.tokens[k+1]
			}
			if f.tokens[k] == 0 {
				target = -1
			}
			f.rows, f.targets = append(f.rows, k), append(f.targets, target)
			if r.IntN(8) == 0 && len(f.rows) < 6 { // a second time, with another token
				f.rows, f.targets = append(f.rows, k), append(f.targets, int32(r.IntN(vocab)))
			}
			if r.IntN(10) == 0 {
				k++ // this row is not sampled
			}
		}
	}
	return out
}

func (d draftValues) check(t *testing.T, rig *rig, x []float32, in []draftFeed) {
	t.Helper()
	var feeds []feed
	for i, f := range in {
		feeds = append(feeds, feed{tokens: f.tokens, at: 5 * i, pages: upTo(sampleWidth), sampled: f.rows})
	}
	b, s := rig.fill(0, feeds), rig.dev.Step(0)
	row := 0
	for _, f := range in {
		for i, target := range f.targets {
			if f.tokens[f.rows[i]] == 0 {
				f.targets[i] = -1 // its logits are NaN
			} else {
				s.Sampling[row].Flags, s.Sampling[row].Target = backend.UseTarget, target
			}
			row++
		}
	}
	if b.Tokens == 0 {
		return // Launch rejects steps without tokens
	}
	rig.launch(b)
	next, kept, ids := rig.ints(d.next, b.Tokens), rig.ints(d.kept, b.Seqs), rig.ints(d.id, b.Seqs)
	proposed, vocab := rig.ints(d.proposed, b.Seqs), rig.p.Vocab
	for seq, f := range in {
		first := int(s.First[seq])
		wantNext, wantKept, accepted := f.oracle()
		if got := next[first : first+len(f.tokens)]; !slices.Equal(got, wantNext) {
			t.Fatalf("%+v: successors of sequence %d are %v, want %v", in, seq, got, wantNext)
		}
		id, best := int32(0), int32(0)
		want := make([]float32, vocab)
		if wantKept >= 0 {
			id = wantNext[wantKept]
			copy(want, x[int(f.tokens[wantKept])*vocab:][:vocab])
			best = largest(want)
			wantKept += first
		}
		if int(kept[seq]) != wantKept || int(s.Accepted[seq]) != accepted {
			t.Fatalf("%+v: sequence %d: accepted row %d, %d rows accepted; want %d, %d", in, seq, kept[seq], s.Accepted[seq], wantKept, accepted)
		}
		if at := bits(rig.floats(d.row, b.Seqs)[seq*vocab:][:vocab], want); at >= 0 || ids[seq] != id {
			t.Fatalf("%+v: the accepted row of sequence %d differs at %d, its successor is %d, want %d", in, seq, at, ids[seq], id)
		}
		drafts := s.Drafts[seq*len(s.Drafts)/len(s.Accepted):][:len(s.Drafts)/len(s.Accepted)]
		if proposed[seq] != best || slices.Min(drafts) != best || slices.Max(drafts) != best {
			t.Fatalf("%+v: for sequence %d %d is proposed, %v in the step, want %d", in, seq, proposed[seq], drafts, best)
		}
	}
}

// largest returns the index of the largest number, the first of equals; 0 if all are NaN.
func largest(x []float32) int32 {
	best := 0
	for i, v := range x {
		if !math.IsNaN(float64(v)) && (math.IsNaN(float64(x[best])) || v > x[best]) {
			best = i
		}
	}
	return int32(best)
}

// oracle returns each row's successor, the last accepted row (−1: none), and how many sampled
// rows are accepted, computed row by row from the definitions of the ops.
func (f draftFeed) oracle() (next []int32, kept, accepted int) {
	kept = -1
	var keeps func(row int) bool
	keeps = func(row int) bool {
		at := slices.Index(f.rows, row)
		if at < 0 || slices.Min(f.rows) == row {
			return true
		}
		before := slices.Index(f.rows, row-1)
		return before >= 0 && f.targets[before] == f.tokens[row] && keeps(row-1)
	}
	for row := range f.tokens {
		successor := int32(0)
		if row+1 < len(f.tokens) {
			successor = f.tokens[row+1]
		}
		if at := slices.Index(f.rows, row); at >= 0 {
			successor = max(0, f.targets[at])
		}
		next = append(next, successor)
		if keeps(row) {
			kept = row
		}
	}
	for _, row := range f.rows {
		if keeps(row) {
			accepted++
		}
	}
	return next, kept, accepted
}

package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
)

// recurrent is a program of one op with a state, over sequences whose tokens select rows of
// tables. The tables' last row is NaN, to fill pages like an earlier user.
type recurrent struct {
	lengths   []int
	most      int // maximum tokens of a step
	shape     backend.StateShape
	tensors   *tensors
	y         backend.Value
	width     int // columns of the result
	record    func(rec *backend.Recorder) backend.Value
	snapshots bool // there is a class of snapshots
}

// total returns the number of tokens of all sequences.
func (c *recurrent) total() int {
	n := 0
	for _, l := range c.lengths {
		n += l
	}
	return n
}

// inputs returns random rows for all tokens, and the row of NaN.
func (c *recurrent) inputs(seed uint64, cols int, deviation float64) []float32 {
	x := normal(rng(seed), (c.total()+1)*cols, deviation)
	for i := range cols {
		x[c.total()*cols+i] = float32(math.NaN())
	}
	return x
}

// rig opens the program; the op uses the state of the second of two layers.
func (c *recurrent) rig(t testing.TB, s *subject) *rig {
	k := backend.KVClass{Name: "state", Layers: 2, State: &c.shape, PagesPerSlab: 2, MaxPages: 1}
	k.SlabBytes = 2*k.PageBytes() + 64
	classes, pages := []backend.KVClass{k}, len(c.lengths)+1
	if c.snapshots {
		classes, pages = append(classes, k.SnapshotClass(0, 16)), c.mark(4)
	}
	return s.rig(t, plan{
		tensors: c.tensors, vocab: c.total() + 1, bucket: backend.Bucket{Tokens: c.most, Seqs: len(c.lengths), Samples: c.most},
		classes: classes, pages: pages,
		record: func(rec *backend.Recorder) { c.y = c.record(rec) },
	})
}

// tokens returns n ids of a sequence, from position at on.
func (c *recurrent) tokens(seq, at, n int) []int32 {
	first := at
	for i := range seq {
		first += c.lengths[i]
	}
	ids := upTo(n)
	for i := range ids {
		ids[i] += int32(first)
	}
	return ids
}

// page returns the page of a sequence's state.
func (c *recurrent) page(seq int) []int32 { return []int32{int32(len(c.lengths) - seq)} }

// runs runs the sequences together in chunks, repeating the last size, and returns the
// results of each. Their pages contain NaN before.
func (c *recurrent) runs(r *rig, seqs []int, chunks []int) [][]float32 {
	r.t.Helper()
	for seq := range c.lengths {
		r.run(feed{tokens: []int32{int32(c.total())}, pages: c.page(seq)})
	}
	out, at := make([][]float32, len(c.lengths)), make([]int, len(c.lengths))
	for step := 0; ; step++ {
		var feeds []feed
		var who []int
		left := c.most
		for _, seq := range seqs {
			n := min(chunks[min(step, len(chunks)-1)], c.lengths[seq]-at[seq], left)
			if n > 0 {
				feeds, who = append(feeds, feed{tokens: c.tokens(seq, at[seq], n), at: at[seq], pages: c.page(seq)}), append(who, seq)
				at[seq], left = at[seq]+n, left-n
			}
		}
		if len(feeds) == 0 {
			return out
		}
		got := r.floats(c.y, r.run(feeds...).Tokens)
		for i, f := range feeds {
			n := len(f.tokens) * c.width
			out[who[i]], got = append(out[who[i]], got[:n]...), got[n:]
		}
	}
}

// test compares with the expected numbers, each within its bound, and then checks that other
// chunkings give the same bits.
func (c *recurrent) test(t *testing.T, s *subject, want [][]float32, bound func(seq, i int) float64) {
	every := all(len(c.lengths))
	r := c.rig(t, s)
	first := c.runs(r, every, []int{c.most})
	for seq := range want {
		for i, w := range want[seq] {
			if d := math.Abs(float64(first[seq][i] - w)); !(d <= bound(seq, i)) {
				t.Fatalf("sequence %d, token %d, column %d: %v, want %v within %.2g", seq, i/c.width, i%c.width, first[seq][i], w, bound(seq, i))
			}
		}
	}
	for _, chunks := range [][]int{{1}, {16}, {3, 7, 1, 64, 5}} {
		c.same(t, s, fmt.Sprintf("in chunks of %v", chunks), c.runs(r, every, chunks), first)
	}
	for _, seq := range []int{0, len(c.lengths) - 1} {
		alone := c.runs(r, []int{seq}, []int{64})
		c.same(t, s, "alone", alone[seq:seq+1], first[seq:seq+1])
	}
	for _, threads := range []int{1, 3} {
		sub := s.withThreads(t, threads)
		again := *c
		c.same(t, s, fmt.Sprintf("with %d threads", threads), again.runs(again.rig(t, sub), every, []int{20}), first)
	}
}

// rollback runs proposals that the next step rejects: it begins at a position before the end
// of the last step. Every row is sampled, so that every state is stored.
func (c *recurrent) rollback(t *testing.T, s *subject, want []float32, drafts int) {
	r := c.rig(t, s)
	r.run(feed{tokens: []int32{int32(c.total())}, pages: c.page(0)})
	for at, n := 0, 20; at < c.lengths[0]; at, n = at+n, 1+(at+n)%(drafts+1) {
		n = min(n, c.lengths[0]-at)
		ids := c.tokens(0, at, n)
		right, samples := len(ids), []int{n - 1}
		if at > 0 { // the wrong tokens are another sequence's
			ids, samples = append(ids, c.tokens(1, at/2, drafts+1-n)...), all(drafts+1)
		}
		b := r.run(feed{tokens: ids, at: at, pages: c.page(0), sampled: samples})
		got := r.floats(c.y, b.Tokens)[:right*c.width]
		if i := s.alike(got, want[at*c.width:(at+right)*c.width], recurrence); i >= 0 {
			t.Fatalf("token %d, column %d: %v, without proposals %v", at+i/c.width, i%c.width, got[i], want[at*c.width+i])
		}
	}
}

// mark returns the page of a snapshot, in slabs of its own.
func (c *recurrent) mark(i int) int { return (len(c.lengths)+2)/2*2 + i }

// resume continues sequences from snapshots that another sequence stored: two in one step,
// and one that the sequence itself passed before. Their own pages contain NaN, and so do the
// snapshots' pages before they are stored to.
func (c recurrent) resume(t *testing.T, s *subject) {
	c.snapshots = true
	r := c.rig(t, s)
	want := c.runs(r, []int{0}, []int{c.most})[0]
	for _, chunks := range [][]int{{c.most}, {1}, {16}, {3, 7, 1, 29, 5}} {
		for seq := range c.lengths {
			nan := []int32{int32(c.total())}
			r.run(feed{tokens: nan, pages: c.page(seq), snapshots: []int32{-1, int32(c.mark(seq % 4)), 1, -1, 0}})
		}
		places := []int32{1, 2, 13, 32}
		c.resumed(t, s, r, feed{pages: c.page(0)}, 0, c.lengths[0], chunks, places, want)
		for i, n := range places {
			seq := 1 + i%(len(c.lengths)-1)
			r.run(feed{tokens: []int32{int32(c.total())}, pages: c.page(seq)})
			f := feed{pages: c.page(seq), snapshots: []int32{int32(c.mark(i)), -1, 0, -1, 0}}
			c.resumed(t, s, r, f, int(n), min(c.lengths[0], int(n)+20), chunks, nil, want)
		}
	}
}

// resumed computes the tokens of sequence 0 from at to end with f's pages. The first step
// reads f's snapshots; snapshots are stored at places. Then it compares the results.
func (c *recurrent) resumed(t *testing.T, s *subject, r *rig, f feed, at, end int, chunks []int, places []int32, want []float32) {
	t.Helper()
	begin := int32(-1)
	if f.snapshots != nil {
		begin = f.snapshots[0]
	}
	for step := 0; at < end; step++ {
		n := min(chunks[min(step, len(chunks)-1)], end-at, c.most)
		f.tokens, f.at, f.snapshots = c.tokens(0, at, n), at, []int32{begin, -1, 0, -1, 0}
		inside := 0
		for i, p := range places {
			if int(p) > at && int(p) <= at+n {
				if inside++; inside > backend.SnapshotStores { // the others need a shorter step
					n, inside = places2(places, at)-at, backend.SnapshotStores
					f.tokens = f.tokens[:n]
					break
				}
				f.snapshots[2*inside-1], f.snapshots[2*inside] = int32(c.mark(i)), p
			}
		}
		got := r.floats(c.y, r.run(f).Tokens)
		if i := s.alike(got, want[at*c.width:(at+n)*c.width], recurrence); i >= 0 {
			t.Fatalf("in chunks of %v, token %d, column %d: %v, without checkpoints %v", chunks, at+i/c.width, i%c.width, got[i], want[at*c.width+i])
		}
		at, begin = at+n, -1
	}
}

// places2 returns the second place after at.
func places2(places []int32, at int) int {
	for i, p := range places {
		if int(p) > at {
			return int(places[i+1])
		}
	}
	return at
}

// recurrence is the tolerance between two orders of float32 sums. Each order is within half of
// it of the result in float64 (deltaCase.bounds).
const recurrence = 1.0 / (1 << 16)

func (c *recurrent) same(t *testing.T, s *subject, what string, got, want [][]float32) {
	t.Helper()
	for seq := range want {
		if at := s.alike(got[seq], want[seq], recurrence); at >= 0 {
			t.Fatalf("%s: sequence %d, token %d, column %d: %v, before %v", what, seq, at/c.width, at%c.width, got[seq][at], want[seq][at])
		}
	}
}

package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// ahead tests rows that are sequences, positions ahead of the row that Verify keeps:
// their angles, what they store and what they attend to. Their bits are those of the
// same tokens decoded one by one.
func (s *subject) ahead(t *testing.T) {
	for _, c := range []aheadCase{
		{format: kernels.F32, heads: 4, kv: 2, dim: 64, block: 16, long: 70},
		{format: kernels.F16, heads: 9, kv: 3, dim: 32, block: 32, long: 130},
		{format: kernels.BF16, heads: 8, kv: 1, dim: 96, block: 16, long: 300},
		{format: kernels.F32, heads: 2, kv: 1, dim: 32, block: 16, long: 70, window: 20},
		{format: kernels.F8E4M3, heads: 4, kv: 4, dim: 64, block: 16, long: 40},
	} {
		t.Run(fmt.Sprintf("%v/%d heads of %d, window %d", c.format, c.heads, c.dim, c.window), func(t *testing.T) { c.test(t, s) })
	}
}

// aheadCase is one geometry; long is how many positions the longest sequence has.
type aheadCase struct {
	format                        kernels.Format
	heads, kv, dim, block, window int
	long                          int

	tokens, seqs int // tokens of the vocabulary that are fed; the rest of it are those of later passes
	freqs, table backend.WeightID
}

const aheadPasses = 3

// aheadValues are the results of the rows ahead, by pass.
type aheadValues struct{ angles, y [aheadPasses]backend.Value }

// aheadSeq is a sequence: history is computed in steps of its own; then come proposals
// behind the last of it, of which some hold, and the drawn token. reach is how many
// pages its table has; 0: all.
type aheadSeq struct{ history, proposals, hold, reach int }

func (c *aheadCase) test(t *testing.T, s *subject) {
	long := c.long
	for _, seqs := range [][]aheadSeq{
		{{history: 1}},
		{{history: long}},
		{{history: c.block - 1}, {history: c.block}, {history: c.block + 1}},                                          // a page's border before, at and behind the first row ahead
		{{history: long, proposals: 4, hold: 2}, {history: 9, proposals: 3}, {}, {history: 1, proposals: 2, hold: 2}}, // one without rows
		{{history: c.block, reach: 1}, {history: c.block - 1, reach: 1}, {history: c.block - 2, reach: 1}, {history: 3 * c.block, proposals: 1, hold: 1}},
	} {
		t.Run(fmt.Sprint(seqs), func(t *testing.T) { c.sequences(t, s, seqs) })
	}
}

// sequences compares the rows ahead of seqs with those of a program without any.
func (c *aheadCase) sequences(t *testing.T, s *subject, seqs []aheadSeq) {
	const most = 64
	c.tokens, c.seqs = 29, len(seqs)
	cols, vocab := (c.heads+2*c.kv)*c.dim, 29*(1+aheadPasses)
	r, m := rng(uint64(c.dim)), &tensors{}
	width := (c.long+8+c.block-1)/c.block + 1
	freqs := make([]float32, c.dim/2)
	c.table = m.table("x", normal(r, vocab*cols, 1), cols)
	logits := m.table("logits", make([]float32, vocab*vocab), vocab)
	c.freqs = m.literal("freqs", freqs)
	turning := m.literal("turning", []float32{1, 0.01})
	var got aheadValues
	var plain, turned backend.Value
	open := func(record func(rec *backend.Recorder, ids backend.Value)) *rig {
		return s.rig(t, plan{
			tensors: m, vocab: vocab, bucket: backend.Bucket{Tokens: most * len(seqs), Seqs: len(seqs), Samples: most},
			classes: []backend.KVClass{class(c.format, c.block, 2, c.kv, c.dim, width)}, pages: len(seqs) * width, drafts: aheadPasses,
			record: func(rec *backend.Recorder) {
				x := input(rec, c.table, cols)
				plain = c.pass(rec, x, nil, true)
				turned = rec.New("turned", kernels.F32, backend.PerToken, 4)
				rec.Do(backend.Angles{InvFreq: turning, Scale: 1, Y: turned})
				record(rec, 0)
			},
		})
	}
	one := open(func(*backend.Recorder, backend.Value) {})
	many := open(func(rec *backend.Recorder, ids backend.Value) { got = c.record(rec, ids, logits, turning) })
	pages := make([][]int32, len(seqs))
	for i, p := range r.Perm(len(seqs) * width) {
		pages[i%len(seqs)] = append(pages[i%len(seqs)], int32(p))
	}
	history := func(i, at int) int32 { return int32((7*i + at*at) % c.tokens) }
	for i, q := range seqs {
		for at := 0; at < q.history-1; at += most {
			f := feed{at: at, pages: pages[i]}
			for p := at; p < min(q.history-1, at+most); p++ {
				f.tokens = append(f.tokens, history(i, p))
			}
			one.run(f)
			many.run(f)
		}
	}
	c.step(many, seqs, pages, history)
	for i, q := range seqs {
		if q.history == 0 {
			continue
		}
		held := feed{at: q.history - 1, pages: pages[i]}
		for p := q.history - 1; p < q.history+q.hold; p++ {
			held.tokens = append(held.tokens, history(i, p))
		}
		one.run(held)
		width, drawn, gap := c.heads*c.dim, history(i, q.history+q.hold), 0
		for n := range aheadPasses {
			pos := q.history + q.hold + n
			if q.reach > 0 && pos-1 >= q.reach*c.block { // what is passed over is not there
				gap = pos - max(q.reach*c.block, q.history+q.hold)
			}
			one.run(feed{tokens: []int32{drawn + int32((n+1)*c.tokens)}, at: pos - gap, pages: pages[i]})
			if at := bits(many.floats(got.y[n], len(seqs))[i*width:][:width], one.floats(plain, 1)); at >= 0 {
				t.Errorf("%+v, %d ahead: number %d is %v, decoded it is %v", q, n+1, at, many.floats(got.y[n], len(seqs))[i*width+at], one.floats(plain, 1)[at])
			}
			if gap == 0 {
				if at := bits(many.floats(got.angles[n], len(seqs))[i*4:][:4], one.floats(turned, 1)); at >= 0 {
					t.Errorf("%+v, %d ahead: angle %d differs", q, n+1, at)
				}
			}
		}
	}
}

// step is the one that verifies: its tokens are each sequence's last and the proposals,
// its samples what the history has there, for those that hold.
func (c *aheadCase) step(many *rig, seqs []aheadSeq, pages [][]int32, history func(i, at int) int32) {
	var feeds []feed
	for i, q := range seqs {
		f := feed{at: q.history - 1, pages: pages[i]}
		if q.reach > 0 {
			f.pages = f.pages[:q.reach]
		}
		for k := range 1 + q.proposals {
			if q.history == 0 {
				break
			}
			id := history(i, q.history-1+k)
			if k > q.hold {
				id = (id + 1) % int32(c.tokens)
			}
			f.tokens, f.sampled = append(f.tokens, id), append(f.sampled, k)
		}
		feeds = append(feeds, f)
	}
	b, s, row := many.fill(0, feeds), many.dev.Step(0), 0
	for i, f := range feeds {
		for k := range f.tokens {
			s.Sampling[row].Flags, s.Sampling[row].Target = backend.UseTarget, history(i, f.at+k+1)
			row++
		}
	}
	many.launch(b)
	for i, q := range seqs {
		if want := 1 + q.hold; int(s.Accepted[i]) != want && q.history > 0 {
			many.t.Fatalf("sequence %d: %d rows accepted, want %d", i, s.Accepted[i], want)
		}
	}
}

// pass is Rope by angles of 0 and attention of rows x, on the second of two layers.
func (c *aheadCase) pass(rec *backend.Recorder, x backend.Value, a *backend.Ahead, store bool) backend.Value {
	rows, n := rec.Info(x).Rows, fmt.Sprint(len(rec.Info(x).Name))
	angles := rec.New("angles"+n, kernels.F32, rows, c.dim)
	rec.Do(backend.Angles{InvFreq: c.freqs, Scale: 1, Y: angles, Ahead: a})
	q, y := rec.New("q", kernels.F32, rows, c.heads*c.dim), rec.New("y", kernels.F32, rows, c.heads*c.dim)
	k, v := rec.New("k", c.format, rows, c.kv*c.dim), rec.New("v", c.format, rows, c.kv*c.dim)
	rec.Do(backend.Rope{QKV: x, Angles: angles, Q: q, K: k, V: v, Heads: c.heads, KVHeads: c.kv, HeadDim: c.dim, Rotary: c.dim})
	rec.Do(backend.Attention{Q: q, K: k, V: v, Y: y, Layer: 1, Heads: c.heads, KVHeads: c.kv, HeadDim: c.dim, Scale: float32(1 / math.Sqrt(float64(c.dim))), Window: c.window, Ahead: a})
	if store {
		rec.Do(backend.StoreKV{K: k, V: v, Layer: 1, Ahead: a})
	}
	return y
}

// record samples, verifies, and goes on from the drawn token: pass n has the rows of the
// table that lie n times tokens behind its own.
func (c *aheadCase) record(rec *backend.Recorder, ids backend.Value, table, turning backend.WeightID) (out aheadValues) {
	vocab, cols := c.tokens*(1+aheadPasses), (c.heads+2*c.kv)*c.dim
	x, logits := rec.New("logits", kernels.F32, backend.PerToken, vocab), rec.New("logits.sampled", kernels.F32, backend.PerSample, vocab)
	rec.Do(backend.Embed{Ids: ids, Table: table, Y: x, Scale: 1})
	rec.Do(backend.Gather{X: x, Y: logits})
	rec.Do(backend.Sample{Logits: logits})
	next, kept, id := rec.New("next", kernels.I32, backend.PerToken, 1), rec.New("kept", kernels.I32, backend.PerSeq, 1), rec.New("id", kernels.I32, backend.PerSeq, 1)
	rec.Do(backend.Drafted{Ids: ids, Out: next})
	rec.Do(backend.Verify{Ids: ids, Kept: kept})
	rec.Do(backend.GatherKept{X: next, Kept: kept, Y: id})
	for n := range aheadPasses {
		a := &backend.Ahead{Kept: kept, By: n + 1}
		out.angles[n] = rec.New("turned", kernels.F32, backend.PerSeq, 4)
		rec.Do(backend.Angles{InvFreq: turning, Scale: 1, Y: out.angles[n], Ahead: a})
		row := rec.New("row", kernels.F32, backend.PerSeq, cols)
		rec.Do(backend.Embed{Ids: id, Table: c.table, Y: row, Scale: 1, Row0: -(n + 1) * c.tokens})
		out.y[n] = c.pass(rec, row, a, n < aheadPasses-1)
	}
	return out
}

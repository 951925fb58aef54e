package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// draftPositions tests draft rows, at positions after the row that Verify accepts: their
// angles, what they store and what they attend to. Their bits equal those of the same tokens
// decoded one by one.
func (s *subject) draftPositions(t *testing.T) {
	for _, c := range []passCase{
		{format: kernels.BF16, heads: 4, kv: 1, dim: 96, latent: 32, block: 16, long: 70},
		{format: kernels.F32, heads: 4, kv: 2, dim: 64, block: 16, long: 70},
		{format: kernels.F32, heads: 2, kv: 1, dim: 32, block: 16, long: 70, sections: [3]int{1, 1, 0}},
		{format: kernels.F16, heads: 9, kv: 3, dim: 32, block: 32, long: 130},
		{format: kernels.BF16, heads: 8, kv: 1, dim: 96, block: 16, long: 300},
		{format: kernels.F32, heads: 2, kv: 1, dim: 32, block: 16, long: 70, window: 20},
		{format: kernels.F8E4M3, heads: 4, kv: 4, dim: 64, block: 16, long: 40},
	} {
		s.run(t, fmt.Sprintf("%v/%d heads of %d, window %d", c.format, c.heads, c.dim, c.window), func(t *testing.T) { c.test(t, s) })
	}
}

// passCase is one geometry; long is the number of positions of the longest sequence.
type passCase struct {
	format                        kernels.Format
	heads, kv, dim, block, window int
	long                          int
	latent                        int    // 0: attention is not latent, else the rotated numbers of a head
	sections                      [3]int // not zero: tokens have three positions

	table, logits, still, turning backend.WeightID
	down, norm, key               backend.WeightID // of latent attention
}

// Token ids below passTokens are inputs. Each of the draftPasses has as many ids of its own
// after them.
const passTokens, draftPasses = 29, 3

// passValues are the results of the draft rows, by pass.
type passValues struct{ angles, y [draftPasses]backend.Value }

// passSeq is a sequence: history tokens are computed in earlier steps; then come proposals,
// of which the first hold are accepted, and the sampled token. reach is how many pages its
// table has; 0: all. If every sequence has a reach, tables have that width.
type passSeq struct{ history, proposals, hold, reach int }

func (c *passCase) test(t *testing.T, s *subject) {
	long := c.long
	for _, seqs := range [][]passSeq{
		{{history: 1}},
		{{history: long}},
		{{history: c.block - 1}, {history: c.block}, {history: c.block + 1}},                                          // a page boundary before, at and after the first draft row
		{{history: long, proposals: 4, hold: 2}, {history: 9, proposals: 3}, {}, {history: 1, proposals: 2, hold: 2}}, // one sequence without rows
		{{history: 2 * c.block, reach: 2}, {history: 2*c.block - 1, reach: 2}},
		{{history: c.block, reach: 1}, {history: c.block - 1, reach: 1}, {history: c.block - 2, reach: 1}, {history: 3 * c.block, proposals: 1, hold: 1}},
	} {
		s.run(t, fmt.Sprint(seqs), func(t *testing.T) { c.sequences(t, s, seqs) })
	}
}

// passRun has two devices of one plan: one decodes token by token, many runs the draft rows.
type passRun struct {
	*passCase
	seqs          []passSeq
	pages         [][]int32
	width, narrow int // widths of the page tables of one and of many
	one, many     *rig
	plain, turned backend.Value // of one
	got           passValues    // of many
}

// history returns the token of sequence i at a position.
func (c *passCase) history(i, at int) int32 { return int32((7*i + at*at) % passTokens) }

// sequences compares the draft rows of seqs with rows of a program without draft passes.
func (c *passCase) sequences(t *testing.T, s *subject, seqs []passSeq) {
	const most = 64
	r := &passRun{passCase: c, seqs: seqs, width: (c.long+8+c.block-1)/c.block + 1}
	for _, q := range seqs {
		if r.narrow = max(r.narrow, q.reach); q.reach == 0 {
			r.narrow = r.width
			break
		}
	}
	r.open(t, s, most)
	r.pages = make([][]int32, len(seqs))
	for i, p := range rng(3).Perm(len(seqs) * r.width) {
		r.pages[i%len(seqs)] = append(r.pages[i%len(seqs)], int32(p))
	}
	for i, q := range seqs {
		for at := 0; at < q.history-1; at += most {
			f := feed{at: at, pages: r.pages[i][:r.narrow]}
			for p := at; p < min(q.history-1, at+most); p++ {
				f.tokens = append(f.tokens, c.history(i, p))
			}
			r.one.run(f)
			r.many.run(f)
		}
	}
	r.step()
	for i, q := range seqs {
		if q.history > 0 {
			r.compare(t, s, i, q)
		}
	}
}

// open opens both devices.
func (r *passRun) open(t *testing.T, s *subject, most int) {
	c, n, m := r.passCase, len(r.seqs), &tensors{}
	cols, vocab := c.cols(), passTokens*(1+draftPasses)
	c.table = m.table("x", normal(rng(uint64(c.dim)), vocab*cols, 1), cols)
	if c.latent > 0 {
		c.addLatent(m, vocab)
	}
	c.logits = m.table("logits", make([]float32, vocab*vocab), vocab)
	c.still, c.turning = m.literal("still", make([]float32, c.rotary()/2)), m.literal("turning", []float32{1, 0.01})
	pl := plan{tensors: m, vocab: vocab, bucket: backend.Bucket{Tokens: most * n, Seqs: n, Samples: most}, pages: n * r.width, drafts: draftPasses}
	if c.sections != [3]int{} {
		pl.axes = 3
	}
	pl.classes = []backend.KVClass{c.class(r.width)}
	pl.record = func(rec *backend.Recorder) {
		r.plain = c.pass(rec, inputIDs(rec), 0, nil, true)
		r.turned = rec.New("turned", kernels.F32, backend.PerToken, 4)
		rec.Do(backend.Angles{InvFreq: c.turning, Scale: 1, Y: r.turned, Sections: c.sections})
	}
	r.one = s.rig(t, pl)
	pl.classes = []backend.KVClass{c.class(r.narrow)}
	pl.record = func(rec *backend.Recorder) {
		ids := inputIDs(rec)
		c.pass(rec, ids, 0, nil, true)
		r.got = c.record(rec, ids)
	}
	r.many = s.rig(t, pl)
}

// compare decodes the accepted tokens of sequence i, and then the tokens of the draft rows.
func (r *passRun) compare(t *testing.T, s *subject, i int, q passSeq) {
	t.Helper()
	accepted := feed{at: q.history - 1, pages: r.pages[i]}
	for p := q.history - 1; p < q.history+q.hold; p++ {
		accepted.tokens = append(accepted.tokens, r.history(i, p))
	}
	r.one.run(accepted)
	width, end, gap := r.heads*r.dim, q.history+q.hold, 0
	for n := range draftPasses {
		if q.reach > 0 && end+n-1 >= q.reach*r.block { // skipped positions are not stored
			gap = end + n - max(q.reach*r.block, end)
		}
		id := r.history(i, end) + int32((n+1)*passTokens)
		r.one.run(feed{tokens: []int32{id}, at: end + n - gap, pages: r.pages[i]})
		got, want := r.many.floats(r.got.y[n], len(r.seqs))[i*width:][:width], r.one.floats(r.plain, 1)
		if at := s.alike(got, want, 1.0/256); at >= 0 { // narrow tables may be split in another way
			t.Errorf("%+v, %d ahead: number %d is %v, decoded it is %v", q, n+1, at, got[at], want[at])
		}
		if at := bits(r.many.floats(r.got.angles[n], len(r.seqs))[i*4:][:4], r.one.floats(r.turned, 1)); gap == 0 && at >= 0 {
			t.Errorf("%+v, %d ahead: angle %d differs", q, n+1, at)
		}
	}
}

// step runs the step that verifies: its tokens are each sequence's last token and the
// proposals, and each row samples the token that follows in the history.
func (r *passRun) step() {
	var feeds []feed
	for i, q := range r.seqs {
		f := feed{at: q.history - 1, pages: r.pages[i]}
		if q.reach > 0 {
			f.pages = f.pages[:q.reach]
		}
		for k := range 1 + q.proposals {
			if q.history == 0 {
				break
			}
			id := r.history(i, q.history-1+k)
			if k > q.hold {
				id = (id + 1) % int32(passTokens)
			}
			f.tokens, f.sampled = append(f.tokens, id), append(f.sampled, k)
		}
		feeds = append(feeds, f)
	}
	b, s, row := r.many.fill(0, feeds), r.many.dev.Step(0), 0
	for i, f := range feeds {
		for k := range f.tokens {
			s.Sampling[row].Flags, s.Sampling[row].Target = backend.UseTarget, r.history(i, f.at+k+1)
			row++
		}
	}
	r.many.launch(b)
	for i, q := range r.seqs {
		if want := 1 + q.hold; int(s.Accepted[i]) != want && q.history > 0 {
			r.many.t.Fatalf("sequence %d: %d rows accepted, want %d", i, s.Accepted[i], want)
		}
	}
}

// cols returns the columns of the table, rotary how many dimensions of a head have angles.
func (c *passCase) cols() int {
	if c.latent > 0 {
		return c.heads * 2 * c.latent
	}
	return (c.heads + 2*c.kv) * c.dim
}

func (c *passCase) rotary() int {
	if c.latent > 0 {
		return c.latent
	}
	return c.dim
}

// class returns the class of pages.
func (c *passCase) class(maxPages int) backend.KVClass {
	k := class(c.format, c.block, 2, c.kv, c.dim, maxPages)
	k.KeyDim = c.latent
	k.SlabBytes = 2*k.PageBytes() + 64
	return k
}

// inputIDs records Tokens.
func inputIDs(rec *backend.Recorder) backend.Value {
	ids := rec.New("ids", kernels.I32, backend.PerToken, 1)
	rec.Do(backend.Tokens{Out: ids})
	return ids
}

// pass records Rope with angles of 0 and attention of the rows of ids, on the second of two layers.
// Row0 is that of Embed.
func (c *passCase) pass(rec *backend.Recorder, ids backend.Value, row0 int, a *backend.DraftPosition, store bool) backend.Value {
	rows := rec.Info(ids).Rows
	x := rec.New("row", kernels.F32, rows, c.cols())
	rec.Do(backend.Embed{Ids: ids, Table: c.table, Y: x, Scale: 1, Row0: row0})
	angles := rec.New("angles", kernels.F32, rows, c.rotary())
	rec.Do(backend.Angles{InvFreq: c.still, Scale: 1, Y: angles, Draft: a})
	if c.latent > 0 {
		return c.latentPass(rec, ids, row0, x, angles, a, store)
	}
	q, y := rec.New("q", kernels.F32, rows, c.heads*c.dim), rec.New("y", kernels.F32, rows, c.heads*c.dim)
	k, v := rec.New("k", c.format, rows, c.kv*c.dim), rec.New("v", c.format, rows, c.kv*c.dim)
	rec.Do(backend.Rope{QKV: x, Angles: angles, Q: q, K: k, V: v, Heads: c.heads, KVHeads: c.kv, HeadDim: c.dim, Rotary: c.dim})
	rec.Do(backend.Attention{Q: q, K: k, V: v, Y: y, Layer: 1, Heads: c.heads, KVHeads: c.kv, HeadDim: c.dim, Scale: float32(1 / math.Sqrt(float64(c.dim))), Window: c.window, Draft: a})
	if store {
		rec.Do(backend.StoreKV{K: k, V: v, Layer: 1, Draft: a})
	}
	return y
}

// record records sampling, verification and the draft passes from the sampled token. The rows
// of pass n are those n·passTokens further on in the table.
func (c *passCase) record(rec *backend.Recorder, ids backend.Value) (out passValues) {
	vocab := passTokens * (1 + draftPasses)
	x, logits := rec.New("logits", kernels.F32, backend.PerToken, vocab), rec.New("logits.sampled", kernels.F32, backend.PerSample, vocab)
	rec.Do(backend.Embed{Ids: ids, Table: c.logits, Y: x, Scale: 1})
	rec.Do(backend.Gather{X: x, Y: logits})
	rec.Do(backend.Sample{Logits: logits})
	next, kept, id := rec.New("next", kernels.I32, backend.PerToken, 1), rec.New("kept", kernels.I32, backend.PerSeq, 1), rec.New("id", kernels.I32, backend.PerSeq, 1)
	rec.Do(backend.DraftInput{Ids: ids, Out: next})
	rec.Do(backend.Verify{Ids: ids, AcceptedRow: kept})
	rec.Do(backend.GatherAccepted{X: next, AcceptedRow: kept, Y: id})
	for n := range draftPasses {
		a := &backend.DraftPosition{AcceptedRow: kept, By: n + 1}
		out.angles[n] = rec.New("turned", kernels.F32, backend.PerSeq, 4)
		rec.Do(backend.Angles{InvFreq: c.turning, Scale: 1, Y: out.angles[n], Draft: a, Sections: c.sections})
		out.y[n] = c.pass(rec, id, -(n+1)*passTokens, a, n < draftPasses-1)
	}
	return out
}

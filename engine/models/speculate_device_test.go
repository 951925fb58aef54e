package models

import (
	"slices"
	"testing"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/dry"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/kernels"
)

// driver runs a recorded step on a device for a few sequences, each with its own pages.
type driver struct {
	t       testing.TB
	dev     backend.Device
	exe     backend.Executable
	p       *backend.Program
	classes []backend.KVClass
	pages   [][]int32 // by class: the first sequence's first page, and pages per sequence
	drafts  int
}

// way is a device to test.
type way struct {
	name     string
	opener   backend.Opener
	settings backend.Settings
}

// ways returns ref and every variant of cpu that this machine supports.
func ways(t testing.TB) []way {
	out := []way{{"ref", ref.Opener{}, backend.Settings{}}}
	facts, err := cpu.Opener{}.Probe()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range facts.Variants {
		out = append(out, way{"cpu " + v, cpu.Opener{}, backend.Settings{Variant: v}})
	}
	return out
}

// size is the capacity of a driver.
type size struct{ seqs, tokens, positions, verify, drafts int }

func drive(t testing.TB, w way, m Model, src backend.RowReader, kv kernels.Format, n size) *driver {
	t.Helper()
	ok := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	facts, err := w.opener.Probe()
	ok(err)
	l, err := w.opener.Layout(facts, w.settings)
	ok(err)
	d := &driver{t: t, classes: m.Classes(16, kv), drafts: n.drafts}
	slab, end := int64(0), int64(0)
	for _, c := range d.classes {
		slab = max(slab, 2*c.PageBytes())
	}
	shape := backend.StepShape{Tokens: n.tokens, Seqs: n.seqs, Samples: n.tokens, Vocab: m.Vocab(), Bias: 1, Logprobs: 1, Verify: n.verify, Drafts: n.drafts}
	for i := range d.classes {
		c := &d.classes[i]
		c.SlabBytes, c.PagesPerSlab, c.MaxPages = slab, int(slab/c.PageBytes()), 1
		if c.State == nil {
			c.MaxPages = (n.positions + c.BlockSize - 1) / c.BlockSize
		}
		d.pages = append(d.pages, []int32{int32(end/slab) * int32(c.PagesPerSlab), int32(c.MaxPages)})
		need := int64(c.MaxPages * n.seqs)
		if c.Window > 0 {
			c.MaxPages *= 2 // pages read and pages stored
		}
		end += (need + int64(c.PagesPerSlab) - 1) / int64(c.PagesPerSlab) * slab
		shape.MaxPages = append(shape.MaxPages, c.MaxPages)
	}
	d.p, err = m.Record(&backend.Program{Name: "speculate", Bucket: backend.Bucket{Tokens: n.tokens, Seqs: n.seqs, Samples: n.tokens}, Classes: d.classes})
	ok(err)
	res, err := dry.Run(l, m.Weights(), []*backend.Program{d.p}, shape, end)
	ok(err)
	d.dev, err = w.opener.Open(facts, w.settings, res)
	ok(err)
	t.Cleanup(func() { d.dev.Close() })
	for i := range res.Weights {
		ok(d.dev.Pack(i, src))
	}
	d.exe, err = d.dev.Compile(d.p)
	ok(err)
	return d
}

// turn is a sequence's part of a step: tokens whose positions start at at, of which the last rows
// are sampled. With a target, its one row is sampled as that token.
type turn struct {
	seq, at, rows int
	tokens        []int32
	target        int32 // −1: sampled
	draw          backend.SampleRow
}

// result is the outcome of a turn: a token and its logprob for each sampled row, the number of
// valid rows, the next proposals, and the logits of the last proposal.
type result struct {
	sampled  []int32
	logprobs []float32
	accepted int
	drafts   []int32
	head     []float32
}

func (d *driver) step(turns ...turn) []result {
	d.t.Helper()
	s, b := d.dev.Step(0), backend.Binding{Seqs: len(turns)}
	for i, f := range turns {
		s.First[i] = int32(b.Tokens)
		for k, id := range f.tokens {
			s.Tokens[b.Tokens+k], s.Positions[b.Tokens+k], s.Seq[b.Tokens+k] = id, int32(f.at+k), int32(i)
		}
		for k := len(f.tokens) - f.rows; k < len(f.tokens); k++ {
			row := f.draw
			row.Seq, row.Position, row.HistoryLen = int32(i), int32(f.at+k+1), int32(f.at+k+1)
			row.TopP, row.Flags = 1, backend.WantLogprob
			row.Repetition = max(row.Repetition, 1)
			if f.target >= 0 {
				row.Flags, row.Target = row.Flags|backend.UseTarget, f.target
			}
			s.Rows[b.Samples], s.Sampling[b.Samples] = int32(b.Tokens+k), row
			b.Samples++
		}
		b.Tokens += len(f.tokens)
		for c, k := range d.classes {
			d.table(c, f, s.Pages[c][i*k.MaxPages:][:k.MaxPages])
		}
	}
	s.First[len(turns)] = int32(b.Tokens)
	if err := d.dev.Launch(d.exe, b); err != nil {
		d.t.Fatal(err)
	}
	if err := d.dev.Wait(0); err != nil {
		d.t.Fatal(err)
	}
	out, row := make([]result, len(turns)), 0
	for i, f := range turns {
		out[i] = result{slices.Clone(s.Sampled[row:][:f.rows]), slices.Clone(s.Logprob[row:][:f.rows]), f.rows, nil, nil}
		if s.Accepted != nil {
			out[i].accepted = int(s.Accepted[i])
		}
		out[i].drafts = slices.Clone(s.Drafts[i*d.drafts:][:d.drafts])
		if last, ok := d.p.Ops[len(d.p.Ops)-1].(backend.Propose); ok {
			b := d.dev.(backend.Inspector).Scratch(last.Logits, d.p)
			out[i].head = slices.Clone(unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4)[i*d.p.Vocab:][:d.p.Vocab])
		}
		row += f.rows
	}
	return out
}

// table fills in the page table of a turn's sequence; every block has its own page.
func (d *driver) table(class int, f turn, table []int32) {
	k, pages := d.classes[class], d.pages[class]
	page := func(block int) int32 { return pages[0] + int32(f.seq)*pages[1] + pages[1] - 1 - int32(block) }
	for j := range table {
		table[j] = -1
	}
	if k.Window == 0 {
		for b := range table {
			table[b] = page(b)
		}
		return
	}
	to := f.at + len(f.tokens)
	for b := k.FirstBlock(f.at); b*k.BlockSize < f.at; b++ {
		table[k.Entry(b, f.at)] = page(b)
	}
	for b := k.FirstBlock(to); b*k.BlockSize < to; b++ {
		table[k.StoreEntry(b, to)] = page(b)
	}
}

// generation collects the generated tokens of the sequences.
type generation struct {
	tokens   [][]int32   // by sequence, after the prompt
	logprobs [][]float32 // of them
	drafts   [][][]int32 // by sequence and by number of tokens at the end of a step: the proposals after them
	heads    [][]float32 // of the first sequence, in the same order: logits of the last proposal
	steps    int
	proposed int // verified proposals
	held     int // accepted proposals
}

// generate decodes n tokens after prompts, which are processed in chunks. propose, unless nil,
// replaces the device's proposals for a sequence with done tokens.
func (d *driver) generate(prompts [][]int32, n, chunk int, draw backend.SampleRow, propose func(seq, done int, own []int32) []int32) *generation {
	d.t.Helper()
	g := &generation{tokens: make([][]int32, len(prompts)), logprobs: make([][]float32, len(prompts)), drafts: make([][][]int32, len(prompts)), heads: make([][]float32, n+64)}
	own := make([][]int32, len(prompts))
	at := make([]int, len(prompts))
	for seq := range prompts {
		g.drafts[seq] = make([][]int32, n+64)
	}
	for {
		var turns []turn
		for seq, prompt := range prompts {
			row := draw
			row.Seed, row.PromptLen = row.Seed+uint64(seq), int32(len(prompt))
			f := turn{seq: seq, at: at[seq], rows: 1, target: -1, draw: row}
			switch done := len(g.tokens[seq]); {
			case done >= n:
				continue
			case at[seq] < len(prompt):
				f.tokens = prompt[at[seq]:min(len(prompt), at[seq]+chunk)]
				if end := at[seq] + len(f.tokens); end < len(prompt) {
					f.target = prompt[end]
				}
			default:
				f.tokens = append(f.tokens, g.tokens[seq][done-1])
				next := own[seq]
				if propose != nil {
					next = propose(seq, done, next)
				}
				f.tokens = append(f.tokens, next...)
				f.rows = len(f.tokens)
			}
			turns = append(turns, f)
		}
		if len(turns) == 0 {
			return g
		}
		g.steps++
		for i, r := range d.step(turns...) {
			f := turns[i]
			seq := f.seq
			if f.target >= 0 {
				at[seq] += len(f.tokens)
				continue
			}
			at[seq] = f.at + len(f.tokens) - f.rows + r.accepted
			g.tokens[seq] = append(g.tokens[seq], r.sampled[:r.accepted]...)
			g.logprobs[seq] = append(g.logprobs[seq], r.logprobs[:r.accepted]...)
			own[seq] = r.drafts
			g.drafts[seq][len(g.tokens[seq])] = r.drafts
			if seq == 0 {
				g.heads[len(g.tokens[seq])] = r.head
			}
			g.proposed, g.held = g.proposed+f.rows-1, g.held+r.accepted-1
		}
	}
}

// same compares the first n tokens of every sequence and the bits of their logprobs.
func (g *generation) same(t testing.TB, want *generation, n int) {
	t.Helper()
	for seq := range want.tokens {
		if got := g.tokens[seq][:n]; !slices.Equal(got, want.tokens[seq][:n]) {
			t.Fatalf("sequence %d gets %v, plain decoding %v", seq, got, want.tokens[seq][:n])
		}
		if !slices.Equal(g.logprobs[seq][:n], want.logprobs[seq][:n]) {
			t.Fatalf("sequence %d: logprobs %v, of plain decoding %v", seq, g.logprobs[seq][:n], want.logprobs[seq][:n])
		}
	}
}

package sched

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"testing"

	"vapp.dev/engine/kv"
	"vapp.dev/engine/sample"
)

// device simulates a device: it runs steps strictly in order, on pages that hold what was last stored.
// The content of a slot stands for K and V: a hash of the tokens up to it. A sampled token is a
// function of that hash and the seed, so any wrong page changes the tokens.
type device struct {
	layout  kv.Layout
	mem     []map[slot]uint64
	host    []map[slot]uint64
	truth   map[*Seq][]uint64 // the required content of a sequence's slots
	last    []int32           // sampled rows of the previous step
	drafts  int               // proposals after each step
	rng     *rand.Rand        // decides how many of them are right
	begun   int               // rows that began from a snapshot
	slabs   map[int]int       // slab → class, for the pages that the step's rows read
	torn    error             // a row stored to such a slab as another class
	guessed uint64            // hash of the tokens up to the newest proposal
	encoder Encoder
	encoded []uint64 // encoded rows
	nexts   int      // rows whose next token has an encoded row
}

type slot struct {
	page int32
	at   int
}

func newDevice(l kv.Layout) *device {
	d := &device{layout: l, truth: map[*Seq][]uint64{}}
	for range l.Specs {
		d.mem, d.host = append(d.mem, map[slot]uint64{}), append(d.host, map[slot]uint64{})
	}
	return d
}

const vocab = 29

var hashSeed = maphash.MakeSeed()

func extendHash(h uint64, salt string, id int32, content uint64) uint64 {
	return maphash.Comparable(hashSeed, struct {
		h       uint64
		salt    string
		id      int32
		content uint64
	}{h, salt, id, content})
}

// draw is the toy model: it returns the token of a sequence whose prefix hashes to h and ends with last.
// With odd seeds it depends on the last token only, so that sequences repeat themselves.
func draw(h, seed uint64, last int32) int32 {
	if seed%2 == 1 {
		h = uint64(last) * 6
	}
	return int32((h ^ seed*0x9e3779b97f4a7c15) % 1000003 % vocab)
}

// launch runs a step and returns its result.
func (d *device) launch(st *Step) (Result, error) {
	r := Result{Tokens: make([]int32, st.Samples), Status: make([]int32, st.Samples)}
	seen := make([]int, st.Samples)
	for _, m := range st.Moves {
		d.move(m)
	}
	for _, e := range st.Encodes {
		for k := range e.Item.Tokens {
			d.encoded[e.At+k] = encodedRow(e.Item, k)
		}
	}
	d.slabs = map[int]int{}
	for i := range st.Rows {
		if err := d.items(&st.Rows[i]); err != nil {
			return r, err
		}
		if err := d.read(&st.Rows[i]); err != nil {
			return r, err
		}
	}
	if err := d.apart(st); err != nil {
		return r, err
	}
	d.torn = nil
	tokens := 0
	for i := range st.Rows {
		row := &st.Rows[i]
		q := row.Seq
		tokens += row.Count
		ids := row.Tokens
		if row.Ref >= 0 {
			if row.Count != 1 || row.Tokens != nil || row.Ref >= len(d.last) {
				return r, fmt.Errorf("%s: row refers to %d of %d with %d tokens", q.ID(), row.Ref, len(d.last), row.Count)
			}
			ids = d.last[row.Ref : row.Ref+1]
		}
		if len(ids) != row.Count {
			return r, fmt.Errorf("%s: %d tokens for %d positions", q.ID(), len(ids), row.Count)
		}
		d.truth[q] = d.truth[q][:min(len(d.truth[q]), row.From)]
		for k, id := range ids {
			d.store(row, row.From+k, id)
		}
		for k := range row.Targets {
			if id := q.Prompt()[row.TargetPos+k]; row.TargetPos+k-1 < row.From || row.TargetPos+k > row.From+row.Count {
				return r, fmt.Errorf("%s: target %d (token %d) is not of positions %d+%d", q.ID(), row.TargetPos+k, id, row.From, row.Count)
			}
			r.Tokens[row.Sample+k] = q.Prompt()[row.TargetPos+k]
			seen[row.Sample+k]++
		}
		if err := d.draws(i, row, ids, &r, seen); err != nil {
			return r, err
		}
	}
	for i, n := range seen {
		if n != 1 {
			return r, fmt.Errorf("sampled row %d is used %d times", i, n)
		}
	}
	if tokens != st.Tokens {
		return r, fmt.Errorf("the step says %d tokens and has %d", st.Tokens, tokens)
	}
	d.last = r.Tokens
	return r, d.torn
}

// draws samples after the last position and after each proposal, counts the accepted proposals, and
// proposes the next tokens.
func (d *device) draws(i int, row *Row, ids []int32, r *Result, seen []int) error {
	q, first := row.Seq, row.From+row.Count-row.Proposed
	n := row.Targets
	if row.Draw {
		n++
		for k := range 1 + row.Proposed {
			at := row.DrawRow() + k
			r.Tokens[at] = d.sample(q, first+k, ids[len(ids)-1-row.Proposed+k])
			seen[at]++
			if k > 0 && n == row.Targets+k && r.Tokens[at-1] == ids[len(ids)-1-row.Proposed+k] {
				n++
			}
		}
	}
	if row.Next >= 0 {
		if row.Draw || row.Next != q.tokens[row.From+row.Count] {
			return fmt.Errorf("%s: %d is not the token at %d", q.ID(), row.Next, row.From+row.Count)
		}
		seen[row.DrawRow()]++
		n++
	}
	last := row.Draw || row.Next >= 0 || row.Targets > 0 && row.TargetPos+row.Targets == row.From+row.Count+1
	if d.drafts > 0 && !last {
		return fmt.Errorf("%s: position %d is not sampled", q.ID(), row.From+row.Count-1)
	}
	r.Accepted = append(r.Accepted, int32(n))
	at := first + n - row.Targets - 1 // position of the last accepted token
	for k := range d.drafts {
		id := int32(-1)
		if row.Draw && k == 0 {
			id = r.Tokens[row.DrawRow()+n-row.Targets-1]
		} else if row.Draw {
			id = r.Drafts[len(r.Drafts)-1]
		}
		if row.Draw {
			var h uint64
			if k == 0 {
				h = d.truth[q][at-1]
			} else {
				h = d.guessed
			}
			d.guessed = extendHash(h, q.spec.Salt, id, 0)
			id = edited(q.Params(), nil, at+1+k-len(q.Prompt()), draw(d.guessed, q.Seed(), id))
			if d.rng.IntN(3) == 0 {
				id = (id + 1) % vocab
			}
		}
		r.Drafts = append(r.Drafts, id)
	}
	return nil
}

// move copies a page, whatever its content.
func (d *device) move(m Move) {
	to, at, from, n := d.mem[m.Class], m.Page, d.host[m.Class], m.Slot
	if m.Out {
		to, at, from, n = from, n, to, at
	}
	for i := range max(copies, d.layout.Specs[m.Class].BlockSize) {
		to[slot{at, i}] = from[slot{n, i}]
	}
}

// read checks all history that attention would read.
func (d *device) read(row *Row) error {
	q := row.Seq
	for p := len(d.truth[q]); p < row.From; p++ { // a cached prefix: the memory must hold it
		d.know(q, p, q.tokens[p])
	}
	for c, spec := range d.layout.Specs {
		if spec.Kind == kv.Snapshot {
			continue
		}
		if spec.Kind == kv.State {
			if err := d.readState(row, c); err != nil {
				return err
			}
			continue
		}
		first := 0
		switch spec.Kind {
		case kv.Window:
			first = max(0, row.From-spec.Window+1)
		case kv.Chunk:
			first = row.From / spec.Window * spec.Window
		}
		for p := first; p < row.From; p++ {
			page := q.Pages(c)[p/spec.BlockSize]
			d.slabs[int(page)/d.layout.PagesPerSlab[c]] = c
			if got := d.mem[c][slot{page, p % spec.BlockSize}]; got != d.truth[q][p] {
				return fmt.Errorf("%s: class %s: page %d does not hold position %d of %d", q.ID(), spec.Name, page, p, row.From)
			}
		}
	}
	return nil
}

// copies is the number of copies of a state: more than a step verifies.
const copies = 8

// readState checks the state that a row continues from: its own, or a snapshot.
func (d *device) readState(row *Row, c int) error {
	q, at := row.Seq, slot{row.Seq.Pages(c)[0], (row.From + copies - 1) % copies}
	if m := d.snapshots(); m >= 0 && q.Pages(m)[0] >= 0 {
		c, at = m, slot{q.Pages(m)[0], 0}
		d.begun++
	}
	if row.From > 0 && d.mem[c][at] != d.truth[q][row.From-1] {
		return fmt.Errorf("%s: page %d of class %s is no state after %d tokens", q.ID(), at.page, d.layout.Specs[c].Name, row.From)
	}
	return nil
}

// snapshots returns the class of state snapshots, −1 without one.
func (d *device) snapshots() int {
	return slices.IndexFunc(d.layout.Specs, func(s kv.Spec) bool { return s.Kind == kv.Snapshot })
}

// apart checks that no row stores to a snapshot page that another row of the step reads or stores to,
// since the sequences of a step are computed in parallel.
func (d *device) apart(st *Step) error {
	m := d.snapshots()
	if m < 0 {
		return nil
	}
	uses := map[int32]int{}
	for i := range st.Rows {
		table := st.Rows[i].Seq.Pages(m)
		for k := 1; k < len(table); k += 2 {
			if table[k] >= 0 {
				uses[table[k]]++
			}
		}
	}
	for page, n := range uses {
		for i := range st.Rows {
			if st.Rows[i].Seq.Pages(m)[0] == page {
				n++
			}
		}
		if n > 1 {
			return fmt.Errorf("%d rows use page %d of checkpoints, which one stores to", n, page)
		}
	}
	return nil
}

// know returns what the slot of position p must hold.
func (d *device) know(q *Seq, p int, id int32) uint64 {
	var h uint64
	if p > 0 {
		h = d.truth[q][p-1]
	}
	h = extendHash(h, q.spec.Salt, id, contentAt(q.spec.Items, d.encoder.Whole, p))
	if p == len(d.truth[q]) {
		d.truth[q] = append(d.truth[q], h)
	}
	return h
}

func (d *device) store(row *Row, p int, id int32) {
	q := row.Seq
	h, end := d.know(q, p, id), row.From+row.Count-row.Proposed
	for c, spec := range d.layout.Specs {
		switch table := q.Pages(c); spec.Kind {
		case kv.State:
			d.over(c, table[0])
			d.mem[c][slot{table[0], p % copies}] = h
			continue
		case kv.Snapshot:
			for k := 1; k < len(table); k += 2 {
				if table[k] >= 0 && int(table[k+1]) == p+1 {
					d.over(c, table[k])
					d.mem[c][slot{table[k], 0}] = h
				}
			}
			continue
		}
		if spec.Kind == kv.Window && p/spec.BlockSize < max(0, end-spec.Window+1)/spec.BlockSize {
			continue // its block has left the window by the end of the step, and the page has another owner
		}
		if spec.Kind == kv.Chunk && p/spec.BlockSize < (row.From+row.Count)/spec.Window*spec.Window/spec.BlockSize {
			continue // its block is of an earlier chunk than the position after the step
		}
		if page := q.Pages(c)[p/spec.BlockSize]; page >= 0 {
			d.over(c, page)
			d.mem[c][slot{page, p % spec.BlockSize}] = h
		}
	}
}

// over records an error if a page that is stored to is in a slab that the step reads as another class:
// a layer that runs later would read what was stored.
func (d *device) over(c int, page int32) {
	slab := int(page) / d.layout.PagesPerSlab[c]
	if read, ok := d.slabs[slab]; ok && read != c {
		d.torn = fmt.Errorf("slab %d is read as class %s and stored to as %s in one step", slab, d.layout.Specs[read].Name, d.layout.Specs[c].Name)
	}
}

// sample returns the token at position p after last, edited by bad words and min_tokens.
func (d *device) sample(q *Seq, p int, last int32) int32 {
	h := d.truth[q][p-1]
	return edited(q.Params(), q.Output(), p-len(q.Prompt()), draw(h, q.Seed(), last))
}

// edited returns the first allowed token from id on.
func edited(p *sample.Params, output []int32, n int, id int32) int32 {
	for range vocab {
		bad := n < p.MinTokens && p.StopAt(id, p.MinTokens) != sample.GoOn
		for _, w := range p.BadWords {
			if k := len(w) - 1; w[k] == id && len(output) >= k && fmt.Sprint(output[len(output)-k:]) == fmt.Sprint(w[:k]) {
				bad = true
			}
		}
		if !bad {
			return id
		}
		id = (id + 1) % vocab
	}
	return id
}

// alone returns the tokens that a sequence must give, whatever runs with it.
func alone(o Options, sp Spec) (out []int32, why Finish) {
	var h uint64
	var id int32
	for p := range sp.Prompt {
		id = sp.Prompt[p]
		h = extendHash(h, sp.Salt, id, contentAt(sp.Items, o.Encoder.Whole, p))
	}
	for {
		id = edited(sp.Params, out, len(out), draw(h, sp.Seed, id))
		out = append(out, id)
		switch {
		case sp.Params.StopAt(id, len(out)) != sample.GoOn:
			return out, FinishStop
		case len(out) >= sp.Params.MaxTokens, len(sp.Prompt)+len(out) >= o.MaxModelLen:
			return out, FinishLength
		}
		h = extendHash(h, sp.Salt, id, 0)
	}
}

// rig runs a scheduler on the simulated device as the engine's loop does.
type rig struct {
	t       testing.TB
	opts    Options
	s       *Scheduler
	pool    *kv.Pool
	dev     *device
	flight  []launched
	out     map[*Seq][]int32
	targets map[*Seq]int
	finish  map[*Seq]Finish
	steps   int
	total   Stats
	guessed Speculation
	trace   func(format string, args ...any)
}

type launched struct {
	step   *Step
	result Result
}

func newRig(t testing.TB, o Options, l kv.Layout, slabs int, caching bool) *rig {
	pool := kv.NewPool(l, slabs, caching)
	dev := newDevice(l)
	dev.drafts, dev.rng = o.Drafts, rand.New(rand.NewPCG(3, 4))
	dev.encoder, dev.encoded = o.Encoder, make([]uint64, o.Encoder.Rows)
	return &rig{
		t: t, opts: o, s: New(o, pool), pool: pool, dev: dev,
		out: map[*Seq][]int32{}, targets: map[*Seq]int{}, finish: map[*Seq]Finish{},
		trace: func(string, ...any) {},
	}
}

// swap gives the scheduler that many slabs of swap space.
func (g *rig) swap(slabs int) *rig {
	if slabs > 0 {
		g.s.SetSwap(kv.NewPool(g.dev.layout, slabs, false))
	}
	return g
}

// beat is one iteration of the loop: Next, launch, and a Commit if one is due.
func (g *rig) beat() (busy bool, err error) {
	st := g.s.Next()
	if st != nil {
		g.steps++
		g.total.Preempted += st.Stats.Preempted
		g.total.PromptTokens += st.Stats.PromptTokens
		g.total.CacheHits += st.Stats.CacheHits
		g.total.SwappedOut += st.Stats.SwappedOut
		g.total.SwappedIn += st.Stats.SwappedIn
		g.total.Items += st.Stats.Items
		g.total.Encoded += st.Stats.Encoded
		g.trace("%s", describe(st))
		if err := g.bounds(st); err != nil {
			return false, err
		}
		for _, row := range st.Rows {
			if g.s.opts.Staged && row.Ref >= 0 {
				return false, fmt.Errorf("%s: a row of a pipeline refers to a token in flight", row.Seq.ID())
			}
		}
		r, err := g.dev.launch(st)
		if err != nil {
			return false, err
		}
		g.flight = append(g.flight, launched{st, r})
	}
	if len(g.flight) > g.opts.Lag || (st == nil && len(g.flight) > 0) {
		l := g.flight[0]
		g.flight = g.flight[1:]
		if err := g.take(g.s.Commit(l.step, l.result)); err != nil {
			return false, err
		}
		st = l.step
		g.add(st.Speculation)
	}
	if err := g.trimmed(); err != nil {
		return false, err
	}
	return st != nil, g.s.Check()
}

// add counts proposals.
func (g *rig) add(v Speculation) {
	g.guessed.Drafts += v.Drafts
	g.guessed.Proposed += v.Proposed
	g.guessed.Accepted += v.Accepted
	if v.Drafts > 0 {
		g.trace("  drafts %d proposed %d accepted %d %v", v.Drafts, v.Proposed, v.Accepted, v.PerPosition)
	}
}

func (g *rig) bounds(st *Step) error {
	running, _ := g.s.Counts()
	switch {
	case st.Tokens > g.opts.MaxNumBatchedTokens:
		return fmt.Errorf("%d tokens in a step", st.Tokens)
	case st.Samples > g.opts.MaxSamples:
		return fmt.Errorf("%d sampled rows in a step", st.Samples)
	case len(st.Rows) > g.opts.MaxNumSeqs || running > g.opts.MaxNumSeqs:
		return fmt.Errorf("%d sequences in a step, %d running", len(st.Rows), running)
	}
	if err := g.encodes(st); err != nil {
		return err
	}
	for i := range st.Rows {
		r := &st.Rows[i]
		switch q := r.Seq; {
		case r.From+r.Count >= q.limit:
			return fmt.Errorf("%s: position %d is computed, the sequence ends at %d", q.ID(), r.From+r.Count-1, q.limit)
		case r.Proposed > g.opts.Verify || r.Proposed > 0 && (!r.Draw || r.Count != 1+r.Proposed || q.Params().NeedsOutput()):
			return fmt.Errorf("%s: %d proposals in a row of %d", q.ID(), r.Proposed, r.Count)
		}
	}
	return nil
}

// trimmed checks that between steps no page is kept for rejected proposals.
func (g *rig) trimmed() error {
	for _, q := range g.s.running {
		for c, spec := range g.dev.layout.Specs {
			if n := len(q.Pages(c)); spec.BlockSize > 0 && spec.Kind != kv.Snapshot && len(g.flight) == 0 && n*spec.BlockSize >= q.scheduled+spec.BlockSize {
				return fmt.Errorf("%s: %d pages of class %s for %d tokens", q.ID(), n, spec.Name, q.scheduled)
			}
		}
	}
	return nil
}

func (g *rig) take(outs []Output) error {
	for i, o := range outs {
		if g.finish[o.Seq] != NotFinished {
			return fmt.Errorf("%s: output after its end", o.Seq.ID())
		}
		if o.Targets > 0 {
			if g.targets[o.Seq] == 0 {
				g.targets[o.Seq] = 1
			}
			if o.TargetPos != g.targets[o.Seq] {
				return fmt.Errorf("%s: prompt logprobs from %d, want %d", o.Seq.ID(), o.TargetPos, g.targets[o.Seq])
			}
			g.targets[o.Seq] += o.Targets
		}
		if o.Token >= 0 {
			if o.First != (len(g.out[o.Seq]) == 0) || o.More != (i > 0 && outs[i-1].Seq == o.Seq) {
				return fmt.Errorf("%s: wrong First", o.Seq.ID())
			}
			g.out[o.Seq] = append(g.out[o.Seq], o.Token)
		}
		g.finish[o.Seq] = o.Finish
		g.trace("  %s", describeOutput(o, len(g.out[o.Seq])))
	}
	return nil
}

// verify compares a finished sequence with the result that it gives alone.
func (g *rig) verify(q *Seq) error {
	want, why := alone(g.opts, q.spec)
	if fmt.Sprint(g.out[q]) != fmt.Sprint(want) || g.finish[q] != why {
		return fmt.Errorf("%s: gave %v (%d), alone %v (%d)", q.ID(), g.out[q], g.finish[q], want, why)
	}
	if n := g.targets[q]; q.Params().PromptLogprobs >= 0 && len(q.Prompt()) > 1 && n != len(q.Prompt()) {
		return fmt.Errorf("%s: prompt logprobs up to %d of %d", q.ID(), n, len(q.Prompt()))
	}
	return nil
}

func describe(st *Step) string {
	s := fmt.Sprintf("step %d tokens %d rows:", st.Tokens, st.Samples)
	for _, e := range st.Encodes {
		s += fmt.Sprintf(" encode %c to %d", e.Item.Hash[0], e.At)
	}
	for _, r := range st.Rows {
		s += fmt.Sprintf(" %s[%d:%d]", r.Seq.ID(), r.From, r.From+r.Count)
		if r.Proposed > 0 {
			s += fmt.Sprintf("+%d", r.Proposed)
		}
		if r.Ref >= 0 {
			s += fmt.Sprintf("<%d", r.Ref)
		}
		if r.Targets > 0 {
			s += fmt.Sprintf("?%d+%d", r.TargetPos, r.Targets)
		}
		if r.Next >= 0 {
			s += fmt.Sprintf("=%d", r.DrawRow())
		}
		if r.Draw {
			s += fmt.Sprintf(">%d", r.DrawRow())
		}
	}
	v := st.Stats
	if v.Items, v.Encoded = 0, 0; v != (Stats{}) {
		s += fmt.Sprintf(" prompt=%d preempted=%d new=%d cache=%d/%d", v.PromptTokens, v.Preempted, v.Scheduled, v.CacheHits, v.CacheQueries)
		if v.SwappedOut+v.SwappedIn > 0 {
			s += fmt.Sprintf(" out=%d in=%d moves=%d", v.SwappedOut, v.SwappedIn, len(st.Moves))
		}
	}
	return s
}

func describeOutput(o Output, tokens int) string {
	s := fmt.Sprintf("%s:", o.Seq.ID())
	if o.Targets > 0 {
		s += fmt.Sprintf(" logprobs %d+%d", o.TargetPos, o.Targets)
	}
	if o.Token >= 0 {
		s += fmt.Sprintf(" token %d", tokens)
	}
	if o.Finish != NotFinished {
		s += " " + [...]string{"", "stop", "length", "error"}[o.Finish]
		if o.StopToken >= 0 {
			s += fmt.Sprintf("(%d)", o.StopToken)
		}
	}
	return s
}

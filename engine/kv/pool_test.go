package kv

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// simSeq is a simulated sequence: what a scheduler stores about a sequence.
type simSeq struct {
	t      *Table
	salt   string
	tokens []int32
	done   int
	most   int // most positions that had a page
}

// sim runs sequences on a pool and records the content of every page.
type sim struct {
	pool    *Pool
	rng     *rand.Rand
	content []map[int32]string // per class: page → tokens of the sequence up to the end of its block
	seqs    []*simSeq

	marked, begun int // snapshots stored, sequences that began from one
}

func newSim(t testing.TB, specs []Spec, slabs int, seed uint64) *sim {
	l, err := NewLayout(specs)
	if err != nil {
		t.Fatal(err)
	}
	s := &sim{pool: NewPool(l, slabs, true), rng: rand.New(rand.NewPCG(seed, 1))}
	for range specs {
		s.content = append(s.content, map[int32]string{})
	}
	return s
}

func text(q *simSeq, n int) string {
	var b strings.Builder
	b.WriteString(q.salt)
	for i := range n {
		if i < len(q.tokens) {
			fmt.Fprint(&b, q.tokens[i], " ")
		} else {
			b.WriteString("proposed ")
		}
	}
	return b.String()
}

// compute stores the positions from to to−1 of q, as a device would. Those from sure on are proposed
// tokens, of which kept are accepted.
func (s *sim) compute(q *simSeq, sure, to, kept int) (bool, error) {
	s.pool.BeginStep()
	if !s.pool.Extend(q.t, q.done, sure, to) {
		if s.pool.Fits(s.pool.need) {
			return false, fmt.Errorf("%v pages fit and were not given", s.pool.need)
		}
		s.pool.Free(q.t)
		q.done, q.most = 0, 0
		return false, nil
	}
	s.pool.PlanSnapshots(q.t, q.tokens, q.done, sure, 1+s.rng.IntN(len(q.tokens)))
	if err := s.verify(q); err != nil {
		return false, fmt.Errorf("before storing %d: %w", to, err)
	}
	for c, spec := range s.pool.layout.Specs {
		if spec.Kind == State {
			s.content[c][q.t.Pages(c)[0]] = text(q, sure+kept)
			continue
		}
		if spec.Kind == Snapshot {
			if err := s.mark(c, q, sure); err != nil {
				return false, err
			}
			continue
		}
		for b := q.done / spec.BlockSize; b < spec.blocks(to); b++ {
			if page := q.t.Pages(c)[b]; page >= 0 {
				s.content[c][page] = text(q, min(to, (b+1)*spec.BlockSize))
			}
		}
	}
	if err := s.stored(q, to); err != nil {
		return false, err
	}
	q.done, q.most = sure+kept, max(q.most, to)
	s.pool.Seal(q.t, q.tokens, q.done)
	for c := range s.content {
		if most := s.pool.layout.SequencePages(c, q.most); q.t.parts[c].held > most {
			return false, fmt.Errorf("class %d holds %d pages for %d tokens, planned are %d", c, q.t.parts[c].held, to, most)
		}
	}
	return true, nil
}

// mark stores the snapshots of the step.
func (s *sim) mark(c int, q *simSeq, to int) error {
	table := q.t.Pages(c)
	for i := 1; i < len(table); i += 2 {
		page, n := table[i], int(table[i+1])
		if page < 0 {
			continue
		}
		if n <= q.done || n > to || n%s.pool.layout.Specs[c].BlockSize != 0 || page == table[0] || s.pool.classes[c].pages[page].hashed {
			return fmt.Errorf("positions %d to %d leave a checkpoint of %d tokens in page %d: %v", q.done, to, n, page, table)
		}
		s.content[c][page] = text(q, n)
		s.marked++
	}
	return nil
}

// state checks that q continues from the state after its tokens.
func (s *sim) state(c int, q *simSeq) error {
	page, held := q.t.Pages(c)[0], s.content[c]
	if m := s.pool.snapClass; m != none && q.t.Pages(m)[0] >= 0 && q.t.snaps.from == q.done {
		page, held = q.t.Pages(m)[0], s.content[m]
		s.begun++
	}
	if want := text(q, q.done); q.done > 0 && held[page] != want {
		return fmt.Errorf("state in page %d is of %q, want %q", page, held[page], want)
	}
	return nil
}

// stored checks that a step up to position to has a page for every block that later positions read.
func (s *sim) stored(q *simSeq, to int) error {
	for _, spec := range s.pool.layout.Specs {
		if spec.Kind == Window && spec.Ahead > 0 && to-q.done <= 1+spec.Ahead && q.done/spec.BlockSize < spec.firstBlock(to) {
			return fmt.Errorf("class %s: position %d is out of sight of %d", spec.Name, q.done, to)
		}
	}
	return nil
}

// verify checks that every page that the next position reads has q's content.
func (s *sim) verify(q *simSeq) error {
	for c, spec := range s.pool.layout.Specs {
		if spec.Kind == State && len(q.t.Pages(c)) > 0 {
			if err := s.state(c, q); err != nil {
				return err
			}
		}
		if spec.Kind == State || spec.Kind == Snapshot {
			continue
		}
		for b := spec.firstBlock(q.done); b < spec.blocks(q.done); b++ {
			page := q.t.Pages(c)[b]
			if page < 0 {
				return fmt.Errorf("class %s: block %d of %d tokens has no page", spec.Name, b, q.done)
			}
			if want := text(q, min(q.done, (b+1)*spec.BlockSize)); !strings.HasPrefix(s.content[c][page], want) {
				return fmt.Errorf("class %s: page %d holds %q, want %q", spec.Name, page, s.content[c][page], want)
			}
		}
	}
	return nil
}

// ahead returns a number of proposals that every class allows.
func (s *sim) ahead() int {
	most := 8
	for _, spec := range s.pool.layout.Specs {
		if spec.Kind == Window {
			most = min(most, spec.Ahead)
		}
	}
	return s.rng.IntN(most + 1)
}

func (s *sim) step() error {
	switch k := s.rng.IntN(10); {
	case k < 3 || len(s.seqs) == 0:
		q := &simSeq{salt: string(rune('a' + s.rng.IntN(2)))}
		for range 1 + s.rng.IntN(40) {
			q.tokens = append(q.tokens, int32(s.rng.IntN(10)/9))
		}
		q.t = s.pool.NewTable(q.salt)
		q.done = s.pool.Match(q.t, q.tokens)
		if q.done >= len(q.tokens) {
			return fmt.Errorf("matched %d of %d tokens", q.done, len(q.tokens))
		}
		s.seqs = append(s.seqs, q)
	case k < 5:
		i := s.rng.IntN(len(s.seqs))
		s.pool.Free(s.seqs[i].t)
		s.seqs = slices.Delete(s.seqs, i, i+1)
	case k == 5 && s.rng.IntN(20) == 0:
		s.pool.EvictAll()
	default:
		q := s.seqs[s.rng.IntN(len(s.seqs))]
		if q.done == len(q.tokens) {
			q.tokens = append(q.tokens, int32(s.rng.IntN(2)))
		}
		to := q.done + 1 + s.rng.IntN(len(q.tokens)-q.done)
		sure, kept := to, 0
		if n := s.pool.layout.Speculative(sure, s.ahead()); q.done == len(q.tokens)-1 && n > 0 {
			// The newest token and proposals, of which the first few are accepted.
			to, kept = sure+n, s.rng.IntN(n+1)
			for range kept {
				q.tokens = append(q.tokens, int32(s.rng.IntN(2)))
			}
		}
		if _, err := s.compute(q, sure, to, kept); err != nil {
			return err
		}
	}
	for _, q := range s.seqs {
		if err := s.verify(q); err != nil {
			return err
		}
	}
	return s.pool.Check()
}

var (
	fullSpec    = Spec{Name: "full", Kind: Full, PageBytes: 300 << 10, BlockSize: 4}
	windowSpec  = Spec{Name: "window", Kind: Window, PageBytes: 500 << 10, BlockSize: 4, Window: 6}
	wideSpec    = Spec{Name: "wide", Kind: Window, PageBytes: 900 << 10, BlockSize: 8, Window: 9}
	aheadSpec   = Spec{Name: "ahead", Kind: Window, PageBytes: 600 << 10, BlockSize: 4, Window: 6, Ahead: 4}
	fartherSpec = Spec{Name: "farther", Kind: Window, PageBytes: 600 << 10, BlockSize: 2, Window: 21, Ahead: 7}
	chunkSpec   = Spec{Name: "chunk", Kind: Chunk, PageBytes: 450 << 10, BlockSize: 4, Window: 12}
	oddSpec     = Spec{Name: "odd chunk", Kind: Chunk, PageBytes: 550 << 10, BlockSize: 8, Window: 10}
	stateSpec   = Spec{Name: "state", Kind: State, PageBytes: 700 << 10}
	markSpec    = Spec{Name: "checkpoint", Kind: Snapshot, PageBytes: 650 << 10, BlockSize: 4}
	bigMarkSpec = Spec{Name: "checkpoint", Kind: Snapshot, PageBytes: 650 << 10, BlockSize: 8}
)

func TestPoolAtRandom(t *testing.T) {
	for _, specs := range [][]Spec{
		{fullSpec},
		{fullSpec, windowSpec},
		{windowSpec},
		{fullSpec, windowSpec, wideSpec},
		{fullSpec, stateSpec},
		{fullSpec, chunkSpec},
		{oddSpec},
		{fullSpec, oddSpec, aheadSpec, chunkSpec},
		{fullSpec, aheadSpec},
		{aheadSpec, fartherSpec},
		{fullSpec, stateSpec, markSpec},
		{fullSpec, markSpec, aheadSpec, stateSpec},
		{fullSpec, stateSpec, wideSpec, bigMarkSpec},
		{stateSpec, markSpec},
	} {
		var marked, begun int
		for seed := range uint64(4) {
			s := newSim(t, specs, 3+int(seed)*4, seed)
			s.pool.snapshotEvery = 8
			for i := range 700 {
				if err := s.step(); err != nil {
					t.Fatalf("%d classes, seed %d, step %d: %v", len(specs), seed, i, err)
				}
			}
			marked, begun = marked+s.marked, begun+s.begun
			for _, q := range s.seqs {
				s.pool.Free(q.t)
			}
			s.pool.EvictAll()
			s.pool.BeginStep()
			if err := s.pool.Check(); err != nil {
				t.Fatal(err)
			}
			if n := len(s.pool.freeSlabs); n != s.pool.Slabs() || s.pool.Share() != 0 {
				t.Fatalf("%d of %d slabs came back", n, s.pool.Slabs())
			}
		}
		if slices.ContainsFunc(specs, func(s Spec) bool { return s.Kind == Snapshot }) && (marked < 40 || begun < 4) {
			t.Errorf("%d classes: %d checkpoints were left and %d begun from: that tests too little", len(specs), marked, begun)
		}
	}
}

// TestCachedPagesGiveWay: cached pages of one class, spread over all slabs, must not make an allocation
// fail that Fits accepts. They are evicted together if evicting them one by one would take a slab
// that another class needs.
func TestCachedPagesGiveWay(t *testing.T) {
	l, err := NewLayout([]Spec{
		{Name: "full", Kind: Full, PageBytes: 1 << 20, BlockSize: 4},
		{Name: "state", Kind: State, PageBytes: 600 << 10},
	})
	if err != nil {
		t.Fatal(err)
	}
	per := l.PagesPerSlab[0]
	p := NewPool(l, 5, true)
	scatter := make([]*Table, 3*per)
	for i := range scatter { // one page in each of three slabs, the state in a fourth
		scatter[i] = p.NewTable("")
		if !p.Extend(scatter[i], 0, 4, 4) {
			t.Fatal("no page")
		}
		p.Seal(scatter[i], []int32{int32(i), 1, 2, 3}, 4*(1-min(1, i%per)))
	}
	for _, s := range scatter {
		p.Free(s)
	}
	if u := p.Usage(0); u.Cached != 3 || u.Used != 0 {
		t.Fatalf("usage %+v, want three cached pages", u)
	}
	table, tokens := p.NewTable(""), 4*(4*per-1)
	need := make([]int, 2)
	if p.Need(table, tokens, need); !p.Fits(need) {
		t.Fatalf("%v pages do not fit into an empty pool of %d slabs", need, p.Slabs())
	}
	if !p.Extend(table, 0, tokens, tokens) {
		t.Error("what fits was refused")
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
}

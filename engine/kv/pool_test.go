package kv

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// seqs of a simulation: what a scheduler knows of a sequence.
type simSeq struct {
	t      *Table
	salt   string
	tokens []int32
	done   int
}

// sim drives a pool and remembers what every page holds.
type sim struct {
	pool    *Pool
	rng     *rand.Rand
	content []map[int32]string // per class: page → the sequence up to its block's end
	seqs    []*simSeq
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

func text(q *simSeq, n int) string { return q.salt + fmt.Sprint(q.tokens[:n]) }

// compute writes the positions from to to−1 of q, as a device would.
func (s *sim) compute(q *simSeq, to int) (bool, error) {
	if !s.pool.Extend(q.t, q.done, to) {
		s.pool.Free(q.t)
		q.done = 0
		return false, nil
	}
	if err := s.verify(q); err != nil {
		return false, fmt.Errorf("before storing %d: %w", to, err)
	}
	for c, spec := range s.pool.layout.Specs {
		if spec.Kind == State {
			continue
		}
		for b := q.done / spec.BlockSize; b < spec.blocks(to); b++ {
			if page := q.t.Pages(c)[b]; page >= 0 {
				s.content[c][page] = text(q, min(to, (b+1)*spec.BlockSize))
			}
		}
	}
	q.done = to
	s.pool.Seal(q.t, q.tokens, q.done)
	for c := range s.content {
		if most := s.pool.layout.SequencePages(c, to); q.t.parts[c].held > most {
			return false, fmt.Errorf("class %d holds %d pages for %d tokens, planned are %d", c, q.t.parts[c].held, to, most)
		}
	}
	return true, nil
}

// verify says that every page a next position reads holds what q computed.
func (s *sim) verify(q *simSeq) error {
	for c, spec := range s.pool.layout.Specs {
		if spec.Kind == State {
			continue
		}
		for b := spec.kept(q.done); b < spec.blocks(q.done); b++ {
			page := q.t.Pages(c)[b]
			if page < 0 {
				return fmt.Errorf("class %s: block %d of %d tokens has no page", spec.Name, b, q.done)
			}
			if want := text(q, min(q.done, (b+1)*spec.BlockSize)); s.content[c][page] != want {
				return fmt.Errorf("class %s: page %d holds %q, want %q", spec.Name, page, s.content[c][page], want)
			}
		}
	}
	return nil
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
		s.pool.Drop()
	default:
		q := s.seqs[s.rng.IntN(len(s.seqs))]
		if q.done == len(q.tokens) {
			q.tokens = append(q.tokens, int32(s.rng.IntN(2)))
		}
		if _, err := s.compute(q, q.done+1+s.rng.IntN(len(q.tokens)-q.done)); err != nil {
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
	fullSpec   = Spec{Name: "full", Kind: Full, PageBytes: 300 << 10, BlockSize: 4}
	windowSpec = Spec{Name: "window", Kind: Window, PageBytes: 500 << 10, BlockSize: 4, Window: 6}
	wideSpec   = Spec{Name: "wide", Kind: Window, PageBytes: 900 << 10, BlockSize: 8, Window: 9}
	stateSpec  = Spec{Name: "state", Kind: State, PageBytes: 700 << 10}
)

func TestPoolAtRandom(t *testing.T) {
	for _, specs := range [][]Spec{
		{fullSpec},
		{fullSpec, windowSpec},
		{windowSpec},
		{fullSpec, windowSpec, wideSpec},
		{fullSpec, stateSpec},
	} {
		for seed := range uint64(4) {
			s := newSim(t, specs, 3+int(seed)*4, seed)
			for i := range 700 {
				if err := s.step(); err != nil {
					t.Fatalf("%d classes, seed %d, step %d: %v", len(specs), seed, i, err)
				}
			}
			for _, q := range s.seqs {
				s.pool.Free(q.t)
			}
			s.pool.Drop()
			if err := s.pool.Check(); err != nil {
				t.Fatal(err)
			}
			if n := len(s.pool.unlent); n != s.pool.Slabs() || s.pool.Share() != 0 {
				t.Fatalf("%d of %d slabs came back", n, s.pool.Slabs())
			}
		}
	}
}

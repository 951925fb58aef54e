package kv

import (
	"errors"
	"fmt"
	"math"
	"sort"
)

// Layout divides the KV arena into slabs of one size. A slab is assigned to one class at a time
// and holds PagesPerSlab of its pages.
type Layout struct {
	Specs        []Spec
	SlabBytes    int64
	PagesPerSlab []int // per class
}

const (
	// minSlab limits the number of slabs.
	minSlab = 1 << 20
	// candidates is about how many slab sizes are tried for a class. For small pages not
	// every multiple is tried.
	candidates = 4096
	// negligible is the unused share of a slab, summed over the classes, that does not
	// justify a larger slab.
	negligible = 1.0 / 512
)

// NewLayout chooses the slab size, which depends on the specs only. Candidates are the
// multiples of each class's page size from 1 MiB (or the largest page, if that is more) to four
// times that. It takes the smallest one whose unused share is negligible: small slabs also
// waste less of the arena's end, which fills no whole slab. If there is none, it takes the one
// with the least unused share. The error is a *SpecError, or reports no or too many classes.
func NewLayout(specs []Spec) (Layout, error) {
	if len(specs) == 0 || len(specs) > maxClasses {
		return Layout{}, errors.New("kv: a layout has 1 to 64 classes of page")
	}
	least := int64(minSlab)
	for _, s := range specs {
		if err := s.check(); err != nil {
			return Layout{}, err
		}
		least = max(least, s.PageBytes)
	}
	most, best, waste := 4*least, int64(0), math.Inf(1)
	better := func(size int64, w float64) bool {
		if w <= negligible && waste <= negligible {
			return size < best
		}
		return w < waste || w == waste && size < best
	}
	for _, s := range specs {
		if s.Kind == Snapshot {
			continue // snapshots do not influence the slab size
		}
		first, last := (least+s.PageBytes-1)/s.PageBytes, most/s.PageBytes
		stride := max(1, (last-first)/candidates)
		for n := first; n <= last; n += stride {
			size := n * s.PageBytes
			if w := unusedShare(specs, size); better(size, w) {
				best, waste = size, w
			}
		}
	}
	l := Layout{Specs: append([]Spec(nil), specs...), SlabBytes: best}
	for _, s := range specs {
		l.PagesPerSlab = append(l.PagesPerSlab, int(best/s.PageBytes))
	}
	return l, nil
}

// Stage returns the layout of a pipeline stage, whose classes are some of l's: each class has l's
// pages a slab, so that a page has the same number on every stage. The slab is as large as the
// largest class needs. specs have the names of l's classes. The error is a *SpecError, or names a
// class that l lacks.
func (l Layout) Stage(specs []Spec) (Layout, error) {
	out := Layout{Specs: append([]Spec(nil), specs...)}
	for _, s := range specs {
		if err := s.check(); err != nil {
			return Layout{}, err
		}
		c := l.Class(s.Name)
		if c < 0 {
			return Layout{}, fmt.Errorf("kv class %s: the pipeline's layout has no class of this name", s.Name)
		}
		out.PagesPerSlab = append(out.PagesPerSlab, l.PagesPerSlab[c])
		out.SlabBytes = max(out.SlabBytes, int64(l.PagesPerSlab[c])*s.PageBytes)
	}
	if len(specs) == 0 {
		return Layout{}, errors.New("kv: a stage without a class of page")
	}
	return out, nil
}

// Class returns the index of the class with a name, −1 if there is none.
func (l Layout) Class(name string) int {
	for i, s := range l.Specs {
		if s.Name == name {
			return i
		}
	}
	return -1
}

// unusedShare returns the share of a slab that no page covers, summed over the classes.
func unusedShare(specs []Spec, size int64) float64 {
	var w float64
	for _, s := range specs {
		if s.Kind == Snapshot {
			continue
		}
		w += float64(size%s.PageBytes) / float64(size)
	}
	return w
}

// Slabs returns how many whole slabs an arena of that many bytes has.
func (l Layout) Slabs(bytes int64) int {
	if bytes <= 0 {
		return 0
	}
	return int(min(bytes/l.SlabBytes, int64(l.MaxSlabs())))
}

// MaxSlabs returns the most slabs for which page numbers fit int32.
func (l Layout) MaxSlabs() int {
	n := math.MaxInt32
	for _, p := range l.PagesPerSlab {
		n = min(n, math.MaxInt32/p)
	}
	return n
}

// Pages returns how many pages of a class that many slabs hold.
func (l Layout) Pages(class, slabs int) int { return slabs * l.PagesPerSlab[class] }

// SequencePages returns how many pages of a class a sequence of that many tokens holds at
// steady state: those of all blocks, of the blocks that a window and the tokens ahead of it can
// overlap, of the blocks that a chunk can overlap, or of one state.
func (l Layout) SequencePages(class, tokens int) int {
	if tokens <= 0 {
		return 0
	}
	s := l.Specs[class]
	n := s.blocks(tokens)
	switch s.Kind {
	case Window:
		n = min(n, (max(2, s.Window)-2+s.Ahead+s.BlockSize-1)/s.BlockSize+1)
	case Chunk:
		n = min(n, s.blocks(s.Window+s.BlockSize-gcd(s.Window, s.BlockSize)))
	}
	return n
}

func gcd(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// Speculative returns how many proposed tokens a step may add at position sure, at most n. A step
// stores nothing of a chunk that its last position has left, so that proposals end before the next
// chunk begins: those that are rejected would take the sequence back into the old one.
func (l Layout) Speculative(sure, n int) int {
	for _, s := range l.Specs {
		if s.Kind == Chunk {
			n = min(n, s.Window-1-sure%s.Window)
		}
	}
	return n
}

// SequenceSlabs returns how many slabs are enough for one sequence of that many tokens alone in
// the arena. The pages of a window or a chunk move through their slabs, so they may occupy one
// slab more than they fill.
func (l Layout) SequenceSlabs(tokens int) int {
	var slabs int
	for c := range l.Specs {
		n := l.SequencePages(c, tokens)
		per := l.PagesPerSlab[c]
		if l.Specs[c].bounded() && n > 0 && n < l.Specs[c].blocks(tokens) {
			slabs += (n-1+per-1)/per + 1
			continue
		}
		slabs += (n + per - 1) / per
	}
	return slabs
}

// Share returns how many slabs one sequence of that many tokens takes at steady state, as a
// fraction: each page counts for its share of a slab, since other sequences use the rest.
func (l Layout) Share(tokens int) float64 {
	var n float64
	for c, per := range l.PagesPerSlab {
		n += float64(l.SequencePages(c, tokens)) / float64(per)
	}
	return n
}

// Sequences returns how many sequences of that many tokens fit at steady state.
func (l Layout) Sequences(slabs, tokens int) int {
	if tokens <= 0 || slabs <= 0 {
		return 0
	}
	fits := func(n int) bool {
		var need int64
		for c, per := range l.PagesPerSlab {
			pages := int64(n) * int64(l.SequencePages(c, tokens))
			need += (pages + int64(per) - 1) / int64(per)
		}
		return need <= int64(slabs)
	}
	most := math.MaxInt
	for c := range l.Specs {
		if n := l.SequencePages(c, tokens); n > 0 {
			most = min(most, l.Pages(c, slabs)/n)
		}
	}
	return sort.Search(most+1, func(n int) bool { return !fits(n) }) - 1
}

// Tokens returns how many tokens the first class could hold if it had all slabs.
func (l Layout) Tokens(slabs int) int64 {
	return int64(l.Pages(0, slabs)) * int64(max(1, l.Specs[0].BlockSize))
}

package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"vapp.dev/schema"
)

// Change is a change of one field that alone makes the profile fit. It was planned like the
// profile itself.
type Change struct {
	// Path is a field of the profile (memory.utilization), or "--gpu" for another device, or
	// "--why-not" for another request.
	Path string `json:"path"`
	Old  string `json:"old"` // as written in a profile
	New  string `json:"new"`
	// Cost is the disadvantage of the change, in plain words.
	Cost string `json:"cost"`

	far float64 // distance of New from Old: 0 equal, 1 the largest, more for other machines
}

// refused reports whether vapp up would refuse the profile with the change.
func (c Change) refused() bool { return strings.HasSuffix(c.Cost, planOnlyCost) }

// planOnlyCost ends the cost of a change that this release plans and does not run.
const planOnlyCost = "; plan-only"

// String returns for example "memory.utilization: 0.95 (now 0.9)".
func (c Change) String() string { return fmt.Sprintf("%s: %s (now %s)", c.Path, c.New, c.Old) }

// first returns the smallest change that vapp up does not refuse; if there is none, the smallest.
func first(cs []Change) Change {
	for _, c := range cs {
		if !c.refused() {
			return c
		}
	}
	return cs[0]
}

// listChanges formats changes and their costs, one a line.
func listChanges(cs []Change) string {
	t := &text{width: TextWidth}
	width := 0
	for _, c := range cs {
		width = max(width, utf8.RuneCountInString(c.String()))
	}
	for _, c := range cs {
		t.hang(fmt.Sprintf("  %-*s  ", width, c), c.Cost)
	}
	return t.b.String()
}

// knobs search one field each for a value that makes the profile fit.
var knobs = []func(resolved, *shortError) []Change{
	byUtilization, byModelLen, bySeqs, byBatch, byReserve, byKVCache, byVariant, byDevice,
}

// variantKnobs are the likely knobs, which are tried together with a variant.
var variantKnobs = []func(resolved, *shortError) []Change{byUtilization, bySeqs, byKVCache, byVariant, byDevice}

// changes returns the changes that make the profile fit, the smallest first.
func (w resolved) changes(s *shortError) []Change { return w.tryKnobs(knobs, s) }

func (w resolved) tryKnobs(knobs []func(resolved, *shortError) []Change, s *shortError) []Change {
	var out []Change
	for _, knob := range knobs {
		out = append(out, knob(w, s)...)
	}
	slices.SortStableFunc(out, func(a, b Change) int { return cmp.Compare(a.far, b.far) })
	return out
}

// fits reports whether there is a solution that meets the goal.
func (w resolved) fits() bool {
	s, err := w.solve()
	if err != nil {
		return false
	}
	slabs := s.account.Slabs(s.options.KVBytes)
	return w.goal.fits(s.options, s.account, slabs) && (w.within == 0 || w.withSlabs(s.options, s.account, slabs).Total() <= w.within)
}

// most returns the largest n in [lo, hi] for which try(n) is true.
func most(lo, hi int64, try func(int64) bool) (int64, bool) {
	if hi < lo {
		return 0, false
	}
	i := sort.Search(int(hi-lo+1), func(i int) bool { return !try(lo + int64(i)) })
	return lo + int64(i) - 1, i > 0
}

// least returns the smallest n in [lo, hi] for which try(n) is true.
func least(lo, hi int64, try func(int64) bool) (int64, bool) {
	if hi < lo {
		return 0, false
	}
	i := sort.Search(int(hi-lo+1), func(i int) bool { return try(lo + int64(i)) })
	return lo + int64(i), int64(i) <= hi-lo
}

func distance(old, new float64) float64 {
	return math.Abs(new-old) / math.Max(math.Abs(new), math.Abs(old))
}

// numberChange returns a change of a number.
func numberChange(path string, old, new int64, cost string) []Change {
	return []Change{{path, fmt.Sprint(old), fmt.Sprint(new), cost, distance(float64(old), float64(new))}}
}

// byUtilization raises memory.utilization, in hundredths.
func byUtilization(w resolved, _ *shortError) []Change {
	old := w.utilization
	if old == 0 {
		return nil
	}
	n, ok := least(int64(math.Floor(old*100))+1, 100, func(n int64) bool {
		w.utilization = float64(n) / 100
		return w.fits()
	})
	if !ok {
		return nil
	}
	w.utilization = float64(n) / 100
	left := w.in.Facts.TotalBytes - w.limit()
	return []Change{{"memory.utilization", fmt.Sprint(old), fmt.Sprint(w.utilization),
		fmt.Sprintf("leaves %s of %s to everything else", Size(left), Size(w.in.Facts.TotalBytes)), distance(old, w.utilization)}}
}

// byModelLen lowers maxModelLen, in whole blocks, not below the goal's length.
func byModelLen(w resolved, _ *shortError) []Change {
	old, block := w.options.MaxModelLen, int64(w.options.BlockSize)
	if old == 0 {
		return nil
	}
	lo := (int64(w.goal.tokens) + block - 1) / block
	n, ok := most(max(1, lo), int64(old-1)/block, func(n int64) bool {
		w.options.MaxModelLen = int(n * block)
		return w.fits()
	})
	if !ok {
		return nil
	}
	return numberChange("maxModelLen", int64(old), n*block, fmt.Sprintf("no request may be longer than %s tokens", Group(n*block)))
}

func bySeqs(w resolved, _ *shortError) []Change {
	old := w.options.MaxNumSeqs
	n, ok := most(int64(max(1, w.goal.seqs)), int64(old-1), func(n int64) bool {
		w.options.MaxNumSeqs = int(n)
		return w.fits()
	})
	if !ok {
		return nil
	}
	return numberChange("scheduler.maxNumSeqs", int64(old), n, fmt.Sprintf("at most %s at once, the others wait", numberOf(int(n), "request")))
}

func byBatch(w resolved, _ *shortError) []Change {
	old := w.options.MaxNumBatchedTokens
	lo := w.options.MaxNumSeqs
	if !w.options.ChunkedPrefill {
		lo = max(lo, w.options.MaxModelLen) // a prompt must fit one step
	}
	if shape, largest := Images(w.in.Profile, w.in.Model); shape.Budgets {
		lo = max(lo, largest) // a step computes an image whole
	}
	n, ok := most(int64(lo), int64(old-1), func(n int64) bool {
		w.options.MaxNumBatchedTokens = int(n)
		return w.fits()
	})
	if !ok {
		return nil
	}
	return numberChange("scheduler.maxNumBatchedTokens", int64(old), n, "prompts are computed in more and smaller steps")
}

// mib is the granularity of suggested sizes.
const mib = 1 << 20

func size(n int64) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%q", schema.Bytes(n).String())
}

func byReserve(w resolved, _ *shortError) []Change {
	old := w.reserve
	n, ok := most(0, (old-1)/mib, func(n int64) bool {
		w.reserve = n * mib
		return w.fits()
	})
	if !ok || old == 0 {
		return nil
	}
	return []Change{{"memory.reserve", size(old), size(n * mib), fmt.Sprintf("%s less kept free for others", Size(old-n*mib)), distance(float64(old), float64(n*mib))}}
}

// byKVCache sets memory.kvCache. It raises it to the required size, lowers it to the largest
// size that fits, or sets it in place of memory.utilization.
func byKVCache(w resolved, s *shortError) []Change {
	old, share := w.kvCache, w.utilization
	if w.in.Facts.TotalBytes <= 0 && !s.kvOnly && w.goal.seqs == 0 {
		return nil
	}
	w.utilization = 0
	try := func(n int64) bool {
		w.kvCache = n * mib
		return w.fits()
	}
	var n int64
	var ok bool
	lo := max(1, (s.one+mib-1)/mib)
	if old > 0 && !s.kvOnly && w.goal.seqs == 0 {
		n, ok = most(lo, (old-1)/mib, try)
	} else {
		n, ok = lo, try(lo)
	}
	if !ok {
		return nil
	}
	if old == 0 {
		cost := "the KV cache takes this, whatever is free"
		if total := w.in.Facts.TotalBytes; total > 0 {
			sol, _ := w.solve()
			taken := w.withSlabs(sol.options, sol.account, sol.account.Slabs(sol.options.KVBytes)).Total()
			cost = fmt.Sprintf("the server takes %.0f %% of the memory, the KV cache this much", 100*float64(taken)/float64(total))
		}
		return []Change{{"memory.kvCache", fmt.Sprintf("utilization %v", share), size(n * mib), cost, 1}}
	}
	cost := fmt.Sprintf("%s more of the memory", Size(n*mib-old))
	if n*mib < old {
		cost = fmt.Sprintf("%s less for sequences and prefixes", Size(old-n*mib))
	}
	return []Change{{"memory.kvCache", size(old), size(n * mib), cost, distance(float64(old), float64(n*mib))}}
}

func quote(s string) string { return `"` + s + `"` }

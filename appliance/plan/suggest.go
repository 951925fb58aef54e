package plan

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"vapp.dev/kernels"
	"vapp.dev/schema"
)

// Change is one field that, changed alone, makes the profile fit: the change
// was planned like the profile itself.
type Change struct {
	Path string `json:"path"` // memory.utilization
	Old  string `json:"old"`  // as the profile would say it
	New  string `json:"new"`

	far float64 // how far New is from Old: 0 not at all, 1 as far as can be
}

// String is "memory.utilization: 0.95 (now 0.9)".
func (c Change) String() string { return fmt.Sprintf("%s: %s (now %s)", c.Path, c.New, c.Old) }

// knobs are the fields that can make room, each by itself.
var knobs = []func(want, *shortError) []Change{
	byUtilization, byModelLen, bySeqs, byBatch, byReserve, byKVCache, byDtype,
}

func (w want) fits() bool {
	_, err := w.solve()
	return err == nil
}

// most finds the largest n in [lo, hi] for which try(n) fits; n is tried.
func most(lo, hi int64, try func(int64) bool) (int64, bool) {
	if hi < lo {
		return 0, false
	}
	i := sort.Search(int(hi-lo+1), func(i int) bool { return !try(lo + int64(i)) })
	return lo + int64(i) - 1, i > 0
}

// least finds the smallest n in [lo, hi] for which try(n) fits.
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

func change(path, old, new string, a, b float64) []Change {
	return []Change{{path, old, new, distance(a, b)}}
}

// byUtilization raises the share, in hundredths.
func byUtilization(w want, _ *shortError) []Change {
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
	new := float64(n) / 100
	return change("memory.utilization", fmt.Sprint(old), fmt.Sprint(new), old, new)
}

// byModelLen shortens it, in whole blocks.
func byModelLen(w want, _ *shortError) []Change {
	old, block := w.options.MaxModelLen, int64(w.options.BlockSize)
	if old == 0 {
		return nil
	}
	n, ok := most(1, int64(old-1)/block, func(n int64) bool {
		w.options.MaxModelLen = int(n * block)
		return w.fits()
	})
	if !ok {
		return nil
	}
	return change("maxModelLen", fmt.Sprint(old), fmt.Sprint(n*block), float64(old), float64(n*block))
}

func bySeqs(w want, _ *shortError) []Change {
	old := w.options.MaxNumSeqs
	n, ok := most(1, int64(old-1), func(n int64) bool {
		w.options.MaxNumSeqs = int(n)
		return w.fits()
	})
	if !ok {
		return nil
	}
	return change("scheduler.maxNumSeqs", fmt.Sprint(old), fmt.Sprint(n), float64(old), float64(n))
}

func byBatch(w want, _ *shortError) []Change {
	old := w.options.MaxNumBatchedTokens
	lo := w.options.MaxNumSeqs
	if !w.options.ChunkedPrefill {
		lo = max(lo, w.options.MaxModelLen) // below it a prompt would not fit one step
	}
	n, ok := most(int64(lo), int64(old-1), func(n int64) bool {
		w.options.MaxNumBatchedTokens = int(n)
		return w.fits()
	})
	if !ok {
		return nil
	}
	return change("scheduler.maxNumBatchedTokens", fmt.Sprint(old), fmt.Sprint(n), float64(old), float64(n))
}

// mib is the step in which sizes are proposed.
const mib = 1 << 20

func size(n int64) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%q", schema.Bytes(n).String())
}

func byReserve(w want, _ *shortError) []Change {
	old := w.reserve
	n, ok := most(0, (old-1)/mib, func(n int64) bool {
		w.reserve = n * mib
		return w.fits()
	})
	if !ok || old == 0 {
		return nil
	}
	return change("memory.reserve", size(old), size(n*mib), float64(old), float64(n*mib))
}

// byKVCache fixes the KV arena: raised to what a sequence needs, lowered to what
// there is room for, or in place of a share of memory.
func byKVCache(w want, s *shortError) []Change {
	old, share := w.kvCache, w.utilization
	if w.in.Facts.TotalBytes <= 0 && !s.kvOnly {
		return nil
	}
	w.utilization = 0
	try := func(n int64) bool {
		w.kvCache = n * mib
		return w.fits()
	}
	var n int64
	var ok bool
	least := max(1, (s.one+mib-1)/mib)
	if old > 0 && !s.kvOnly {
		n, ok = most(least, (old-1)/mib, try)
	} else {
		n, ok = least, try(least)
	}
	if !ok {
		return nil
	}
	if old == 0 {
		return []Change{{"memory.kvCache", fmt.Sprintf("utilization %v", share), size(n * mib), 1}}
	}
	return change("memory.kvCache", size(old), size(n*mib), float64(old), float64(n*mib))
}

// byDtype stores K and V in fewer bytes.
func byDtype(w want, _ *shortError) []Change {
	var out []Change
	old := w.options.KVFormat
	for _, f := range []kernels.Format{kernels.BF16, kernels.F16} {
		if f.Bytes(1) >= old.Bytes(1) || !slices.Contains(w.layout.KVFormats(), f) {
			continue
		}
		w.options.KVFormat = f
		if w.fits() {
			out = append(out, Change{"memory.kvCacheDtype", quoted(w.in.Profile.Memory.KVCacheDtype), quoted(word(f)), 0.5})
		}
	}
	return out
}

func quoted(s string) string { return `"` + s + `"` }

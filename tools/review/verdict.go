package review

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"vapp.dev/appliance/plan"
)

// least is the smallest change, as a share, of memory and of the KV cache that is worse or better.
// Smaller ones come from rounding to pages and slabs; the tables of figures have them, exactly. Lengths
// and numbers of sequences have no such limit: one less is one less.
const least = 0.001

// moved reports whether a figure changes by at least least.
func moved(a, b int64) bool {
	return a != b && math.Abs(float64(b)-float64(a)) >= least*math.Abs(float64(a))
}

// sizes formats two sizes in the largest unit in which they print differently.
func sizes(a, b int64) (string, string) {
	if x, y := plan.Size(a), plan.Size(b); x != y {
		return x, y
	}
	for _, u := range []struct {
		bytes int64
		name  string
	}{{1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		show := func(n int64) string {
			tenths := (10*(n%u.bytes) + u.bytes/2) / u.bytes
			return fmt.Sprintf("%s.%d %s", plan.Group(n/u.bytes+tenths/10), tenths%10, u.name)
		}
		if x, y := show(a), show(b); x != y {
			return x, y
		}
	}
	return plan.Group(a) + " B", plan.Group(b) + " B"
}

// verdict returns the figures that get worse and better for clients and operators.
func verdict(old, new *Figures) (worse, better []string) {
	say := func(good bool, format string, args ...any) {
		to := &worse
		if good {
			to = &better
		}
		*to = append(*to, fmt.Sprintf(format, args...))
	}
	move := func(format string, a, b int64) {
		if a != b {
			say(b > a, format+"%s", plan.Group(a), plan.Group(b), percent(a, b))
		}
	}
	move("longest sequence %s → %s tokens", int64(old.MaxModelLen), int64(new.MaxModelLen))
	if moved(old.KVTokens, new.KVTokens) {
		move("KV cache %s → %s tokens", old.KVTokens, new.KVTokens)
	}
	if n, a, b := widest(old, new); a != b {
		move("%s → %s sequences of "+plan.Group(int64(n))+" tokens", int64(a), int64(b))
	}
	move("at most %s → %s run at once", int64(old.MaxNumSeqs), int64(new.MaxNumSeqs))
	if moved(old.Total, new.Total) {
		a, b := sizes(old.Total, new.Total)
		say(new.Total < old.Total, "memory %s → %s%s", a, b, percent(old.Total, new.Total))
	}
	return worse, better
}

// widest returns the length, of those on both sides, whose number of sequences changes most in
// proportion; on a tie the longer one.
func widest(old, new *Figures) (tokens, a, b int) {
	was := map[int]int{}
	for _, l := range old.Lengths {
		was[l.Tokens] = l.Sequences
	}
	most := 0.0
	for _, l := range new.Lengths {
		before, ok := was[l.Tokens]
		if !ok || before == l.Sequences {
			continue
		}
		share := float64(max(before, l.Sequences)) / float64(max(1, min(before, l.Sequences)))
		if share >= most {
			most, tokens, a, b = share, l.Tokens, before, l.Sequences
		}
	}
	return tokens, a, b
}

func sorted(set map[int]bool) []int { return slices.Sorted(maps.Keys(set)) }

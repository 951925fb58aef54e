package review

import (
	"fmt"
	"maps"
	"slices"

	"vapp.dev/appliance/plan"
)

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
	move("KV cache %s → %s tokens", old.KVTokens, new.KVTokens)
	if n, a, b := widest(old, new); a != b {
		move("%s → %s sequences of "+plan.Group(int64(n))+" tokens", int64(a), int64(b))
	}
	move("at most %s → %s run at once", int64(old.MaxNumSeqs), int64(new.MaxNumSeqs))
	if old.Total != new.Total {
		say(new.Total < old.Total, "memory %s → %s%s", plan.Size(old.Total), plan.Size(new.Total), percent(old.Total, new.Total))
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

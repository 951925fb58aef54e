package chat

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// circles is a direct implementation of the rule: the tokens end with one pattern, repeated.
func circles(tokens []int32, r Repetition) bool {
	for p := max(1, r.MinPattern); p <= r.MaxPattern; p++ {
		if len(tokens) < p*r.MinCount {
			return false
		}
		last, same := tokens[len(tokens)-p:], true
		for k := range r.MinCount {
			from := len(tokens) - (k+1)*p
			same = same && slices.Equal(tokens[from:from+p], last)
		}
		if same {
			return true
		}
	}
	return false
}

// TestRepetition compares the incremental detector with the direct implementation.
func TestRepetition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 4000 {
		rule := Repetition{MinPattern: r.IntN(3), MaxPattern: 1 + r.IntN(6), MinCount: 2 + r.IntN(3)}
		if rule.MinPattern > rule.MaxPattern {
			continue
		}
		f := rule.follow()
		var tokens []int32
		for range 30 {
			tokens = append(tokens, int32(r.IntN(2)))
			got := f.take(tokens[len(tokens)-1])
			if want := circles(tokens, rule); got != want {
				t.Fatalf("%+v: %v is %v, want %v", rule, tokens, got, want)
			}
			if got {
				found++
				break
			}
		}
	}
	if found < 1000 {
		t.Errorf("only %d repetitions", found)
	}
	if (*Repetition)(nil).follow().take(1) || (&Repetition{MinCount: 2}).follow().take(1) {
		t.Error("found something where nothing is looked for")
	}
}

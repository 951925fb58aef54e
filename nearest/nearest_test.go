package nearest

import (
	"slices"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	names := []string{"a100-80g", "a100-40g", "h100", "h200", "rtx-4090", "l4", "l40s"}
	for _, c := range []struct {
		word string
		want []string
	}{
		{"A100_80G", []string{"a100-80g", "a100-40g"}},
		{"a100", []string{"a100-80g", "a100-40g", "h100"}},
		{"rtx4080", []string{"rtx-4090"}},
		{"h10", []string{"h100"}},
		{"l4", []string{"l4", "l40s"}},
		{"unicorn", nil},
		{"", nil},
		{"-._", nil},
		{strings.Repeat("a", 97), nil},
	} {
		if got := Names(c.word, names, 3); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.word, got, c.want)
		}
	}
	if got := Names("a100", names, 1); len(got) != 1 {
		t.Errorf("at most one: %q", got)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"h100", "h200", 1}, {"abc", "abc", 0}, {"cdua", "cuda", 1}} {
		if got := Distance(c.a, c.b); got != c.want || Distance(c.b, c.a) != c.want {
			t.Errorf("%q, %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestBest(t *testing.T) {
	fields := []string{"maxModelLen", "maxNumSeqs", "blockSize", `"cuda"`}
	for _, c := range []struct{ word, want string }{
		{"max_model_len", "maxModelLen"}, {"maxModelLength", "maxModelLen"}, {"blokcSize", "blockSize"},
		{"cdua", `"cuda"`}, {"max", ""}, {"", ""}, {strings.Repeat("a", 97), ""},
	} {
		if got := Best(c.word, fields); got != c.want {
			t.Errorf("%q: %q, want %q", c.word, got, c.want)
		}
	}
}

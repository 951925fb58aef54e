// Package nearest suggests the name that a mistyped word was probably meant to be: fields,
// flags, models, devices and releases all say "did you mean" by it. It must not import
// anything of this tree, so that every layer may use it. Start reading at Best.
package nearest

import (
	"cmp"
	"slices"
	"strings"
)

// longest is the length of the longest word that is compared; a longer one is no name.
const longest = 96

// Best returns the candidate that word was probably meant to be, or "": one that is equal
// except for case and punctuation, otherwise the closest by Distance within a third of the
// longer one's length.
func Best(word string, candidates []string) string {
	word = Folded(word)
	if word == "" || len(word) > longest {
		return ""
	}
	best, least := "", 1<<30
	for _, c := range candidates {
		f := Folded(c)
		if d := Distance(word, f); d < least && isClose(d, word, f) {
			best, least = c, d
		}
	}
	return best
}

// Names returns up to most candidates that are close to word: first those that contain it
// or are contained in it, then those that are close as Best requires, each group the
// closest first. Case and punctuation do not count.
func Names(word string, candidates []string, most int) []string {
	word = Folded(word)
	if word == "" || len(word) > longest {
		return nil
	}
	type found struct {
		name     string
		contains bool
		distance int
	}
	var list []found
	for _, c := range candidates {
		f := Folded(c)
		d := Distance(word, f)
		contains := len(word) >= 2 && strings.Contains(f, word) || len(f) >= 2 && strings.Contains(word, f)
		if contains || isClose(d, word, f) {
			list = append(list, found{c, contains, d})
		}
	}
	slices.SortStableFunc(list, func(a, b found) int {
		if a.contains != b.contains {
			if a.contains {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.distance, b.distance)
	})
	var out []string
	for _, f := range list[:min(len(list), most)] {
		out = append(out, f.name)
	}
	return out
}

// isClose reports whether a distance is at most a third of the longer word's length.
func isClose(distance int, a, b string) bool { return 3*distance <= max(len(a), len(b)) }

// Folded returns s in lower case, without anything that is not an ASCII letter or digit.
func Folded(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		}
		return -1
	}, s)
}

// Distance returns how many bytes must be inserted, deleted, replaced or swapped with the
// next one to turn a into b (optimal string alignment).
func Distance(a, b string) int {
	two, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		two, prev, row = prev, row, two
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], two[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

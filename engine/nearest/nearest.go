// Package nearest is the names that a mistyped word was probably meant to be:
// what an error about an unknown model or device suggests.
package nearest

import (
	"cmp"
	"slices"
	"strings"
)

// longest word that is compared; what is longer is no name.
const longest = 96

// Names returns up to most candidates that are near to word: first those that
// hold it or are held by it, then those within an edit distance of a third of the
// longer one's letters, each the nearest first. Case and signs do not count.
func Names(word string, candidates []string, most int) []string {
	word = Folded(word)
	if word == "" || len(word) > longest {
		return nil
	}
	type found struct {
		name  string
		holds bool
		away  int
	}
	var list []found
	for _, c := range candidates {
		f := Folded(c)
		d := distance(word, f)
		holds := len(word) >= 2 && strings.Contains(f, word) || len(f) >= 2 && strings.Contains(word, f)
		if holds || 3*d <= max(len(word), len(f)) {
			list = append(list, found{c, holds, d})
		}
	}
	slices.SortStableFunc(list, func(a, b found) int {
		if a.holds != b.holds {
			if a.holds {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.away, b.away)
	})
	var out []string
	for _, f := range list[:min(len(list), most)] {
		out = append(out, f.name)
	}
	return out
}

// Folded drops what people write differently: case, and all that is neither a
// letter nor a digit. What is not ASCII is dropped too.
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

// distance is the number of letters to insert, drop or replace to make b of a
// (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

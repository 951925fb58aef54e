package schema

import "strings"

// nearest is the candidate that word was probably meant to be, or "": equal but
// for case and separators, else the closest by edit distance within a third of
// the longer one's length.
func nearest(word string, candidates []string) string {
	word = folded(word)
	if len(word) > 64 {
		return ""
	}
	best, least := "", 1<<30
	for _, c := range candidates {
		f := folded(c)
		if d := distance(word, f); d < least && 3*d <= max(len(word), len(f)) {
			best, least = c, d
		}
	}
	return best
}

// Nearest is the candidate that word was probably meant to be, or "". What reads
// other names than fields, such as flags, says "did you mean" by the same rule.
func Nearest(word string, candidates []string) string { return nearest(word, candidates) }

// folded drops what people write differently: case, _, - and quotes.
func folded(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", `"`, "", "#", "").Replace(s))
}

// distance is the number of letters to insert, drop, replace or swap with the
// next one to make b of a (optimal string alignment).
func distance(a, b string) int {
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

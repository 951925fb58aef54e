package schema

import "strings"

// nearest returns the candidate with the smallest edit distance to word, ignoring case and
// separators, if the distance is at most a third of the longer name's length; else "".
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

// Nearest returns the candidate that word was probably intended to be, or "". Other
// packages use it for suggestions of other names than fields, such as flags.
func Nearest(word string, candidates []string) string { return nearest(word, candidates) }

// folded returns s in lower case, without _, -, # and quotes.
func folded(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", `"`, "", "#", "").Replace(s))
}

// distance returns the number of insertions, deletions, replacements and swaps of adjacent
// letters that turn a into b (optimal string alignment distance).
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

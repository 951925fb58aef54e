package grammar

import (
	"strconv"
	"strings"

	"vapp.dev/engine/tokenizer"
)

const (
	plainBytes = 4 << 10
	plainTimes = 4096 // product of nested repetition counts

	// plainMemory is an upper bound on the memory to compile a plain grammar. The worst of 20
	// sources of up to 4 KiB (a?{600}a{600}, 100 alternatives, 300 properties, Unicode classes)
	// keep 0.4 to 1.5 MiB; the process grew by up to 4.8 MiB, its first arena included.
	plainMemory = 4 << 20
	overhead    = 8 // the allocator adds one byte in this many, for blocks of 100 bytes and more

	maxTimes       = 1 << 24
	multipleOfCost = 16 << 10 // the cost of one multipleOf, in bytes of source
)

// plain reports whether a grammar has a short source with small numbers, so that the library's own
// limits keep its compilation under a fraction of a second.
func plain(s Spec) bool {
	if len(s.Source) > plainBytes || strings.Contains(s.Source, "multipleOf") {
		return false
	}
	times, large := repetitions(s)
	return !large && times <= plainTimes
}

// cost estimates the work of compiling a grammar, in bytes of source.
func cost(s Spec) int {
	times, _ := repetitions(s)
	return len(s.Source) + times + multipleOfCost*strings.Count(s.Source, "multipleOf")
}

// repetitions returns the product of the numbers in a source that may be repetition counts, at most
// maxTimes, and whether any number has more than three digits. A schema's minimum and maximum are
// not counts: a range needs a few states per digit.
func repetitions(s Spec) (times int, large bool) {
	times = 1
	for i := 0; i < len(s.Source); i++ {
		n := 0
		for i+n < len(s.Source) && s.Source[i+n] >= '0' && s.Source[i+n] <= '9' {
			n++
		}
		if n == 0 || n <= maxBoundDigits && s.Kind == tokenizer.GrammarJSONSchema && isBound(s.Source[:i]) {
			i += n
			continue
		}
		large = large || n > 3 && !isTokenID(s.Source, i, n)
		if v, err := strconv.Atoi(s.Source[i : i+n]); err != nil {
			times = maxTimes
		} else if v > 1 && isCount(s.Source, i, i+n) {
			times = min(maxTimes, times*min(v, maxTimes))
		}
		i += n
	}
	return times, large
}

// isTokenID reports whether the n digits at i are a token id, as in <[200008]>.
func isTokenID(s string, i, n int) bool {
	return strings.HasSuffix(s[:i], "<[") && strings.HasPrefix(s[i+n:], "]>")
}

// isCount reports whether the number source[from:to] is in a position for a count, as in {2,3} or
// in JSON.
func isCount(source string, from, to int) bool {
	return from > 0 && strings.IndexByte("{, ", source[from-1]) >= 0 && to < len(source) && strings.IndexByte(",} ", source[to]) >= 0
}

const maxBoundDigits = 16

// isBound reports whether before ends with a schema key whose number limits a value.
func isBound(before string) bool {
	before = strings.TrimSuffix(strings.TrimRight(before, "0123456789."), "-")
	key, is := strings.CutSuffix(strings.TrimRight(before, " \t\r\n"), ":")
	key = strings.TrimRight(key, " \t\r\n")
	for _, name := range []string{`"minimum"`, `"maximum"`, `"exclusiveMinimum"`, `"exclusiveMaximum"`} {
		if is && strings.HasSuffix(key, name) {
			return true
		}
	}
	return false
}

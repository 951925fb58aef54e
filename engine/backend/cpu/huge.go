package cpu

import (
	"bufio"
	"io"
	"strconv"
	"strings"
)

// addresses are a range of memory.
type addresses struct{ from, to uint64 }

// hugeBytes sums, of the mappings in /proc/self/smaps that touch one of the ranges, the
// bytes that lie in huge pages: anonymous ones, and a file's.
func hugeBytes(smaps io.Reader, of []addresses) int64 {
	var sum int64
	in := false
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		key, rest, _ := strings.Cut(lines.Text(), " ")
		if from, to, ok := strings.Cut(key, "-"); ok {
			a, err := strconv.ParseUint(from, 16, 64)
			b, err2 := strconv.ParseUint(to, 16, 64)
			in = false
			for _, r := range of {
				in = in || err == nil && err2 == nil && a < r.to && r.from < b
			}
			continue
		}
		if !in || key != "AnonHugePages:" && key != "FilePmdMapped:" {
			continue
		}
		n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		sum += n << 10
	}
	return sum
}

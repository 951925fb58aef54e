package cpu

import (
	"bufio"
	"io"
	"strconv"
	"strings"
)

// addresses is a range of memory.
type addresses struct{ from, to uint64 }

// hugeBytes returns how many bytes of the mappings that touch one of the ranges are in huge
// pages, anonymous or of a file. smaps is /proc/self/smaps.
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

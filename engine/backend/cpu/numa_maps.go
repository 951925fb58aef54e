package cpu

import (
	"bufio"
	"io"
	"strconv"
	"strings"
)

// nodeBytes returns how many resident bytes of the mappings that begin in one of the ranges are
// on each NUMA node. maps is /proc/self/numa_maps: a line for each mapping has its begin, its
// policy, and for each node N<node>=<pages>, counted in pages of kernelpagesize_kB.
func nodeBytes(maps io.Reader, of []addresses) map[int]int64 {
	sum := map[int]int64{}
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		w := strings.Fields(lines.Text())
		if len(w) == 0 {
			continue
		}
		at, err := strconv.ParseUint(w[0], 16, 64)
		in := false
		for _, r := range of {
			in = in || err == nil && r.from <= at && at < r.to
		}
		if !in {
			continue
		}
		pages, size := map[int]int64{}, int64(0)
		for _, f := range w[1:] {
			key, value, _ := strings.Cut(f, "=")
			n, err := strconv.ParseInt(value, 10, 40)
			if err != nil || n < 0 {
				continue
			}
			if key == "kernelpagesize_kB" {
				size = min(n, 1<<20) << 10
			} else if id, ok := strings.CutPrefix(key, "N"); ok {
				if node, err := strconv.ParseUint(id, 10, 16); err == nil {
					pages[int(node)] = min(n, 1<<30)
				}
			}
		}
		for node, n := range pages {
			sum[node] += n * size
		}
	}
	return sum
}

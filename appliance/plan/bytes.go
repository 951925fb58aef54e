package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// Size formats bytes with a unit: "81.2 MiB".
func Size(n int64) string {
	switch {
	case n < 0:
		return "-" + Size(-n)
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
}

// Group formats a number with commas: 1,215,552.
func Group(n int64) string {
	s := strconv.FormatInt(n, 10)
	head := len(s) % 3
	if strings.HasPrefix(s, "-") {
		return "-" + Group(-n)
	}
	parts := []string{}
	if head > 0 {
		parts = append(parts, s[:head])
	}
	for ; head < len(s); head += 3 {
		parts = append(parts, s[head:head+3])
	}
	return strings.Join(parts, ",")
}

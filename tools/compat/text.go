package compat

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// groupDigits formats a number as 1,215,552.
func groupDigits(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// rounded returns Python's str(round(x, 2)): "48.5".
func rounded(x float64) string {
	s := strings.TrimRight(strconv.FormatFloat(x, 'f', 2, 64), "0")
	if strings.HasSuffix(s, ".") {
		s += "0"
	}
	return s
}

// about formats a fitted count with its significant digits.
func about(n float64) string {
	switch {
	case n >= 1e6:
		return strconv.FormatFloat(n/1e6, 'g', 3, 64) + " M"
	case n >= 1e3:
		return strconv.FormatFloat(n/1e3, 'g', 3, 64) + " K"
	}
	return strconv.FormatFloat(n, 'g', 3, 64)
}

// count formats a number of tokens with the digits that its basis allows.
func count(n float64, b Basis) string {
	if b == Fitted {
		return "about " + about(n)
	}
	return groupDigits(int64(n))
}

// times returns a product, saturated instead of wrapped.
func times(a, b int64) int64 {
	if a > 0 && b > math.MaxInt64/a {
		return math.MaxInt64
	}
	return a * b
}

// loading formats the weights line.
func (r Release) loading(n int64) string {
	switch {
	case r == V07:
		return fmt.Sprintf("Loading model weights took %.4f GB", gib(n))
	case r == V2025Aug:
		return fmt.Sprintf("Model loading took %.4f GiB", gib(n))
	}
	return fmt.Sprintf("Model loading took %s GiB memory", rounded(gib(n)))
}

// available formats the line of the KV cache's memory.
func (r Release) available(n int64) string {
	switch {
	case r == V07:
		return fmt.Sprintf("the rest of the memory reserved for KV Cache is %.2fGiB.", gib(n))
	case r == V2025Aug:
		return fmt.Sprintf("Available KV cache memory: %.2f GiB", gib(n))
	}
	return fmt.Sprintf("Available KV cache memory: %s GiB", rounded(gib(n)))
}

// concurrency formats the line of the maximum concurrency.
func (r Release) concurrency(length int64, x float64) string {
	if r == V07 {
		return fmt.Sprintf("Maximum concurrency for %d tokens per request: %.2fx", length, x)
	}
	return fmt.Sprintf("Maximum concurrency for %s tokens per request: %.2fx", groupDigits(length), x)
}

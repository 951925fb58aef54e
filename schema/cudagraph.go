package schema

// CaptureSizes returns the batch sizes, in tokens, that vLLM's default rule captures up
// to largest: 1, 2, 4, multiples of 8 up to 256, and multiples of 16 above.
func CaptureSizes(largest int) []int {
	var out []int
	for n := 1; n <= largest; {
		out = append(out, n)
		switch {
		case n < 4:
			n *= 2
		case n < 8:
			n = 8
		case n < 256:
			n += 8
		default:
			n += 16
		}
	}
	return out
}

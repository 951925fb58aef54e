package schema

// CaptureSizes are the batch sizes, in tokens, that vLLM's rule captures up to a
// largest one where a profile gives none: 1, 2, 4, every 8th below 256, every 16th
// from there.
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

package mpi

// part is the number of values of an AllReduce's message at most. More are summed part by part, so that buffers are
// small.
const part = 1 << 18

// directMany is the number of values up to which more than two ranks send whole values to each other: one exchange, and
// each computes every sum. Above it each rank sums its part of the values and sends the sums: two exchanges, and less
// traffic. Results are the same.
const directMany = 1 << 14

// sizes are the numbers of values that an AllReduce over some ranks needs.
type sizes struct {
	direct   int64 // up to which ranks send whole values
	incoming int64 // of all other ranks' terms
}

// sizesOf returns the sizes over this many ranks. Two ranks always send whole values: the traffic is the same.
func sizesOf(ranks int) sizes {
	direct := int64(directMany)
	if ranks == 2 {
		direct = part
	}
	return sizes{direct, max(part, int64(ranks-1)*direct)}
}

// Buffer returns the bytes that a rank of this many processes allocates for its calls, besides the library's own.
func Buffer(ranks int, w Wire) int64 {
	bytes := 4 * sizesOf(ranks).incoming
	if w == BF16 {
		bytes += 2 * part
	}
	return bytes
}

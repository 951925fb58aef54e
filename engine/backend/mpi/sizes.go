package mpi

// part is the number of values of an AllReduce's message at most. More are summed part by part, so that buffers are
// small.
const part = 1 << 18

// direct is the number of values up to which ranks send whole values to each other: one exchange, and each computes
// every sum. Above it each rank sums its part of the values and sends the sums: two exchanges, less traffic and fewer
// additions. Results are the same. Measured on two cores with Open MPI 4.1.4 in shared memory, one exchange and two, in
// µs, f32:
//
//	        16 KiB   32 KiB   64 KiB   128 KiB   512 KiB
//	2 ranks          13, 12   21, 21    39, 35  138, 113
//	3 ranks 38, 61   57, 54  103, 67  215, 144  886, 550
//
// Two ranks in bf16 send whole values always: sums travel as f32, so that two exchanges are more traffic (128 KiB of
// f32: 51 µs, 68 µs; 512 KiB: 176, 169).
const direct = 1 << 13

// sizes are the numbers of values that an AllReduce over some ranks needs.
type sizes struct {
	direct   int64 // up to which ranks send whole values
	incoming int64 // of all other ranks' terms
}

// sizesOf returns the sizes over this many ranks.
func sizesOf(ranks int, w Wire) sizes {
	if ranks == 2 && w == BF16 {
		return sizes{part, part}
	}
	return sizes{direct, max(part, int64(ranks-1)*direct)}
}

// Buffer returns the bytes that a rank of this many processes allocates for its calls, besides the library's own.
func Buffer(ranks int, w Wire) int64 {
	bytes := 4 * sizesOf(ranks, w).incoming
	if w == BF16 {
		bytes += 2 * part
	}
	return bytes
}

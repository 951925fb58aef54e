package ref

import "vapp.dev/kernels"

// AdaptArgs are the operands of Adapt for one row.
type AdaptArgs struct {
	X, Mid, Y []float32 // [in], [modules·Rank], [out]
	A, B      []byte    // [slots·modules·Rank, in], [slots·Rank, out] of Format
	Format    kernels.Format
	Slot      int
	Rank      int
	Ends      []int     // the end of each module's columns in Y
	Row       []float32 // [max(in, out)], overwritten
}

// Adapt adds a low-rank adapter to a row: Mid = A[Slot]·X, then for each module
// Y += B[Slot]ᵀ·Mid, in the order of the rank.
func Adapt(a AdaptArgs) {
	for j := range a.Mid {
		w := a.Row[:len(a.X)]
		Embed(a.Format, a.A, int32(a.Slot*len(a.Mid)+j), 1, w)
		var sum float32
		for i, x := range a.X {
			sum += w[i] * x
		}
		a.Mid[j] = sum
	}
	sums := make([]float32, len(a.Y))
	for r := range a.Rank {
		w := a.Row[:len(a.Y)]
		Embed(a.Format, a.B, int32(a.Slot*a.Rank+r), 1, w)
		from := 0
		for m, end := range a.Ends {
			for i := from; i < end; i++ {
				sums[i] += w[i] * a.Mid[m*a.Rank+r]
			}
			from = end
		}
	}
	Add(a.Y, sums)
}

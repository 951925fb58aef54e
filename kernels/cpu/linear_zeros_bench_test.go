//go:build linux && cgo

package cpu

import (
	"fmt"
	"slices"
	"testing"

	"vapp.dev/kernels"
)

// BenchmarkZeroPoints compares I4 with Q4_1, whose kernels multiply it, in turns: two threads, weights
// larger than the caches. It reports the median of Q4_1's time over I4's: above 1, I4 is faster.
func BenchmarkZeroPoints(b *testing.B) {
	for _, variant := range []string{"avx2", "avx512", AVX512BF16, "avx2" + int8Suffix, AVX512BF16 + int8Suffix} {
		for _, rows := range []int{1, 16, 512} {
			m := Matrix{Variant: variant, Rows: 8192, Cols: 2048}
			b.Run(fmt.Sprintf("%s/%d", variant, rows), func(b *testing.B) {
				var runs []func(round int) float64
				for _, f := range []kernels.Format{kernels.Q4_1, kernels.I4} {
					m.Format = f
					if _, _, ok := m.Layout(); !ok || !present(limitVariant(m)) {
						b.Skip("not run: this CPU has no", variant)
					}
					runs = append(runs, products(b, m, rows))
				}
				var ratios []float64
				for round := range max(b.N, 5) {
					old := runs[0](round)
					ratios = append(ratios, old/runs[1](round))
				}
				slices.Sort(ratios)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(ratios[len(ratios)/2], "x")
			})
		}
	}
}

// products returns a function that multiplies rows with copies of m until they are 64 MB or 2^32
// products, and returns its seconds.
func products(b *testing.B, m Matrix, rows int) func(round int) float64 {
	const parts = 2
	k, _ := m.Kernel()
	packed, _, _ := m.Layout()
	copies := int(1 + (64<<20)/packed)
	weights := huge(b, packed*int64(copies))
	likely(m, weights)
	shared, work := LinearWorkspace(k.variant, k.format, rows, m.Cols, m.Rows, parts)
	sharedBuf, workBuf := huge(b, shared), huge(b, work*parts)
	x, y := make([]float32, rows*m.Cols), make([]float32, rows*m.Rows)
	for i := range x {
		x[i] = float32(i%7) * 0.25
	}
	times := max(1, min(copies, 1<<32/(rows*m.Rows*m.Cols)))
	args := func(round, part int) *LinearArgs {
		return &LinearArgs{Rows: rows, In: m.Cols, Out: m.Rows, LdX: m.Cols, LdY: m.Rows, W: weights[int64(round%copies)*packed:][:packed], X: x, Y: y,
			Shared: sharedBuf, Work: workBuf[int64(part)*work:][:work]}
	}
	return func(int) float64 {
		prepared := timed(parts, 1, func(r, p, n int) { k.Prepare(args(r, p), p, n) })
		return prepared.Seconds() + timed(parts, times, func(r, p, n int) { k.Run(args(r, p), p, n) }).Seconds()
	}
}

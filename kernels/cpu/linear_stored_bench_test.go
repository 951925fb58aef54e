//go:build linux && cgo

package cpu

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"vapp.dev/kernels"
)

// BenchmarkGrids compares products of GGUF's IQ and ternary formats with those of Q4_K and Q3_K, in
// turns: two threads, and weights larger than the caches for one row. It reports the median of each
// format's time for a weight, and for a byte of weights, as a share of Q4_K's.
func BenchmarkGrids(b *testing.B) {
	formats := append([]kernels.Format{kernels.Q4_K, kernels.Q3_K, kernels.IQ4_NL, kernels.IQ4_XS}, storedFormats...)
	for _, variant := range []string{"avx2", "avx512", "avx512bf16", "generic"} {
		for _, rows := range []int{1, 256} {
			if !present(variant) || variant == "generic" && rows > 1 {
				continue
			}
			b.Run(fmt.Sprintf("%s/%d", variant, rows), func(b *testing.B) { benchGrids(b, variant, rows, formats) })
		}
	}
}

func benchGrids(b *testing.B, variant string, rows int, formats []kernels.Format) {
	const parts, cols, out, bytes = 2, 2048, 4096, 48 << 20
	var runs []func() float64
	var bits []float64
	for _, f := range formats {
		k, _ := LinearFor(variant, f)
		m := k.matrix(out, cols)
		packed, _, _ := m.Layout()
		copies := 1
		if rows == 1 {
			copies = int(bytes / packed)
		}
		weights := huge(b, packed*int64(copies))
		likely(m, weights)
		shared, work := LinearWorkspace(variant, f, rows, cols, out, parts)
		sharedBuf, workBuf := huge(b, shared+64), huge(b, work*parts)
		x, y := make([]float32, rows*cols), make([]float32, rows*out)
		for i := range x {
			x[i] = float32(i%7) * 0.25
		}
		taken := make([]int64, copies)
		args := func(round, part int) *LinearArgs {
			return &LinearArgs{Rows: rows, In: cols, Out: out, LdX: cols, LdY: out, W: weights[int64(round)*packed:][:packed], X: x, Y: y,
				Shared: sharedBuf, Work: workBuf[int64(part)*work:][:work], Taken: &taken[round]}
		}
		if at := k.PrepareRows(); at > 0 && rows >= at {
			pair(parts, 1, func(r, p, n int) { k.Prepare(args(r, p), p, n) })
		}
		runs = append(runs, func() float64 {
			clear(taken)
			return timed(parts, copies, func(r, p, n int) { k.Run(args(r, p), p, n) }).Seconds() / float64(copies)
		})
		bits = append(bits, 8*float64(packed)/cols/out)
	}
	times := make([][]float64, len(runs))
	for _, run := range runs {
		run()
	}
	b.ResetTimer()
	for range b.N {
		for i, run := range runs {
			times[i] = append(times[i], run())
		}
	}
	b.ReportMetric(0, "ns/op")
	var text strings.Builder
	var first float64
	for i, t := range times {
		slices.Sort(t)
		median := t[len(t)/2]
		if i == 0 {
			first = median
			fmt.Fprintf(&text, "%s, %d rows: q4_k takes %.3f ns for a thousand weights, %.2f bits each\n", variant, rows, median*1e12/cols/out/float64(rows), bits[0])
		}
		fmt.Fprintf(&text, "%-8v %.2f bits: %.2f of q4_k's time for a weight, %.2f for a byte\n", formats[i], bits[i], median/first, median/first*bits[0]/bits[i])
	}
	b.Log(text.String()) // one text: of several only the first ten are printed
}

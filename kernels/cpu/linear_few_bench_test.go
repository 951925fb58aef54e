//go:build linux && cgo

package cpu

import (
	"fmt"
	"slices"
	"testing"

	"vapp.dev/kernels"
)

// BenchmarkFewRows compares the kernels of amx for one and two rows, which need no tiles, with
// those of avx512bf16 and with plain reading of the same bytes, in turns: two threads, weights
// larger than the caches. It reports the median of each one's share of reading.
func BenchmarkFewRows(b *testing.B) {
	if !present(AVX512BF16) {
		b.Skip("not run: this CPU has no", AVX512BF16)
	}
	for _, m := range linearMatrices() {
		if plain[m.Format] || m.Scales > ChannelScales {
			continue
		}
		for _, rows := range []int{1, 2} {
			b.Run(fmt.Sprintf("%v/%d", m, rows), func(b *testing.B) { benchFew(b, m, rows) })
		}
	}
}

// plain lists the formats that are not quantized.
var plain = map[kernels.Format]bool{kernels.F32: true, kernels.F16: true, kernels.BF16: true}

func benchFew(b *testing.B, m Matrix, rows int) {
	const parts = 2
	m.Variant, m.Rows, m.Cols = AVX512BF16, 8192, 2048
	vectors, _ := m.Kernel()
	tiles, _ := softTiles(m.Format)
	tiles.scales = m.Scales
	all := map[string]LinearKernel{"%avx512bf16": vectors, "%amx": tiles}
	if k, ok := softOutside(m.Format); ok {
		all["%outside"] = k
	}
	shares := map[string][]float64{}
	var buffers []func(round int) (took, read float64)
	var names []string
	for name, k := range all {
		one := Matrix{k.variant, m.Format, m.Scales, m.Rows, m.Cols}
		buffers, names = append(buffers, fewRows(b, k, one, rows, parts)), append(names, name)
	}
	b.ResetTimer()
	for round := range b.N {
		for i, run := range buffers {
			took, read := run(round)
			shares[names[i]] = append(shares[names[i]], 100*read/took)
		}
	}
	b.ReportMetric(0, "ns/op")
	for name, s := range shares {
		slices.Sort(s)
		b.ReportMetric(s[len(s)/2], name)
	}
}

// fewRows returns a function that multiplies rows with copies of m, and reads them, and returns
// the seconds of both.
func fewRows(b *testing.B, k LinearKernel, m Matrix, rows, parts int) func(int) (took, read float64) {
	packed, _, _ := m.Layout()
	copies := int(1 + (128<<20)/packed)
	weights := huge(b, packed*int64(copies))
	likely(m, weights)
	shared, work := LinearWorkspace(k.variant, k.format, rows, m.Cols, m.Rows, parts)
	sharedBuf, workBuf := huge(b, shared+64), huge(b, work*int64(parts))
	x, y := make([]float32, rows*m.Cols), make([]float32, rows*m.Rows)
	for i := range x {
		x[i] = float32(i%7) * 0.25
	}
	args := func(round, part int) *LinearArgs {
		return &LinearArgs{Rows: rows, In: m.Cols, Out: m.Rows, LdX: m.Cols, LdY: m.Rows, W: weights[int64(round)*packed:][:packed], X: x, Y: y,
			Shared: sharedBuf, Work: workBuf[int64(part)*work:][:work]}
	}
	return func(int) (float64, float64) {
		took := timed(parts, copies, func(r, p, n int) { k.Run(args(r, p), p, n) })
		read := timed(parts, 1, func(_, p, n int) { runLimit(OpRead, AVX512BF16, weights, 0, p, n) })
		return took.Seconds(), read.Seconds()
	}
}

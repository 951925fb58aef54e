//go:build linux && cgo

package cpu

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cpu/native"
)

// huge returns n bytes backed by huge pages where the system has them.
func huge(tb testing.TB, n int64) []byte {
	const page = 2 << 20
	all, err := syscall.Mmap(-1, 0, int(n)+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = syscall.Munmap(all) })
	skip := -int(uintptr(unsafe.Pointer(&all[0]))) & (page - 1)
	_ = syscall.Madvise(all[skip:], syscall.MADV_HUGEPAGE)
	return all[skip : skip+int(n) : skip+int(n)]
}

// pair runs n rounds of f(round, part, parts) on a thread for each part; parts do not wait for
// each other.
func pair(parts, n int, f func(round, part, parts int)) {
	var wg sync.WaitGroup
	for part := range parts {
		wg.Add(1)
		go func() {
			runtime.LockOSThread()
			defer wg.Done()
			for round := range n {
				f(round, part, parts)
			}
		}()
	}
	wg.Wait()
}

// BenchmarkLinear multiplies with weights larger than the caches, one after the other like the
// layers of a model, on two threads. Between the sweeps it measures what the threads read and
// multiply at most, and reports its shares of that.
func BenchmarkLinear(b *testing.B) {
	shapes := [][2]int{{2048, 8192}, {576, 1536}}
	for _, variant := range testedVariants()[2:] {
		for _, m := range linearMatrices() {
			for i := range 3 * len(shapes) {
				m.Variant, m.Rows, m.Cols = variant, shapes[i/3][1], shapes[i/3][0]
				rows := []int{1, 16, 512}[i%3]
				if _, _, ok := m.Layout(); !ok || !present(variant) {
					continue
				}
				name := fmt.Sprintf("%s/%v/%dx%d/%d", variant, m, m.Cols, m.Rows, rows)
				b.Run(name, func(b *testing.B) { benchLinear(b, m, rows) })
			}
		}
	}
}

// likely fills weights with panels of realistic numbers: zeros and subnormals take a different
// time.
func likely(m Matrix, weights []byte) {
	rng := rand.New(rand.NewPCG(1, 2))
	one := m
	one.Rows = panelRows
	stored := storedRandom(rng, m.Format, one.Rows*one.Cols)
	if m.Format == kernels.MXFP4 {
		for i := 16; i < len(stored); i += 17 {
			stored[i] = byte(118 + rng.IntN(6))
		}
	}
	if m.Format == kernels.NVFP4 {
		for i := 8; i < len(stored); i += 9 {
			stored[i] = byte(0x60 + rng.IntN(16))
		}
	}
	panel, _, _ := one.Layout()
	one.PackRows(weights[:panel], 0, stored)
	if m.Scales != NoScales {
		scales := make([]float32, m.Across())
		for r := range one.Rows {
			for i := range scales {
				scales[i] = 0.01 + rng.Float32()/100
			}
			one.PackScales(weights[:panel], r, scales)
		}
	}
	for rest := weights[panel:]; len(rest) > 0; rest = rest[panel:] {
		copy(rest, weights[:panel])
	}
}

func benchLinear(b *testing.B, m Matrix, rows int) {
	const parts = 2
	k, _ := m.Kernel()
	packed, _, _ := m.Layout()
	copies := int(1 + (256<<20)/packed)
	weights := huge(b, packed*int64(copies))
	likely(m, weights)
	shared, work := LinearWorkspace(k.variant, k.format, rows, m.Cols, m.Rows, parts)
	sharedBuf, workBuf := huge(b, shared), huge(b, work*int64(parts))
	x := make([]float32, rows*m.Cols)
	for i := range x {
		x[i] = float32(i%7) * 0.25
	}
	y := make([]float32, rows*m.Rows)
	each := func(round, part, parts int, f func(*LinearArgs, int, int)) {
		w := weights[int64(round%copies)*packed:]
		f(&LinearArgs{Rows: rows, In: m.Cols, Out: m.Rows, LdX: m.Cols, LdY: m.Rows, W: w[:packed], X: x, Y: y,
			Shared: sharedBuf, Work: workBuf[int64(part)*work : int64(part+1)*work]}, part, parts)
	}
	pair(parts, 1, func(r, p, n int) { each(r, p, n, k.Prepare) })
	// The products of a sweep: about 2^31, or all weights once.
	sweep := max(1, min(copies, 1<<31/(rows*m.Rows*m.Cols)))
	rate, perRound := multiplying(m)
	rounds := int64(sweep) * int64(rows) * int64(m.Rows) * int64(m.Cols) * 2 / perRound / parts
	var took, reading, multiply time.Duration
	b.ResetTimer()
	for done := 0; done < b.N; done += sweep {
		took += timed(parts, sweep, func(r, p, n int) { each(r+done, p, n, k.Run) })
		reading += timed(parts, 1, func(_, p, n int) { runLimit(OpRead, limitVariant(m), weights, 0, p, n) })
		multiply += timed(parts, 1, func(_, p, n int) { runLimit(rate, limitVariant(m), nil, rounds, p, n) })
	}
	sweeps := (b.N + sweep - 1) / sweep
	each1 := took.Seconds() / float64(sweeps*sweep)
	read := float64(len(weights)) * float64(sweeps) / reading.Seconds()
	b.ReportMetric(0, "ns/op") // without the measurements of limits
	b.ReportMetric(float64(packed)/each1/1e9, "GB/s")
	b.ReportMetric(100*float64(packed)/each1/read, "%read")
	b.ReportMetric(2*float64(rows)*float64(m.Cols)*float64(m.Rows)/each1/1e9, "GFLOP/s")
	b.ReportMetric(100*multiply.Seconds()/took.Seconds(), "%rate")
}

// timed runs pair and returns the time that it took.
func timed(parts, n int, f func(round, part, parts int)) time.Duration {
	start := time.Now()
	pair(parts, n, f)
	return time.Since(start)
}

// limitVariant returns the variant of m whose ops measure limits.
func limitVariant(m Matrix) string {
	return strings.TrimSuffix(strings.TrimSuffix(m.Variant, int8Suffix), outsideSuffix)
}

// multiplying returns the op that measures how fast m's numbers are multiplied, and the
// operations of Linear that a round stands for. Two planes of x are two products of bytes.
func multiplying(m Matrix) (op Op, perRound int64) {
	op, products := OpFMA, int64(1)
	switch {
	case integers(m.Variant, m.Format) > 0 && present("avx512"):
		op, products = OpDotInt8, int64(integers(m.Variant, m.Format))
	case asPairs(m.Variant, m.Format):
		op = OpDotBF16
	case limitVariant(m) == "amx" && m.Format != kernels.F32 && m.Format != kernels.F16:
		op = OpTilesBF16
	}
	if _, ok := Kernel(op, limitVariant(m)); !ok {
		op, products = OpFMA, 1
	}
	return op, LimitFLOP(op, limitVariant(m)) / products
}

// runLimit runs part of parts of an op that measures a limit: it reads buffer once, or does
// `rounds` rounds. It panics if this build or variant has no such op.
func runLimit(op Op, variant string, buffer []byte, rounds int64, part, parts int) {
	f, ok := Kernel(op, variant)
	if !ok || part >= parts {
		panic("cpu: no such measurement")
	}
	sink := make([]float32, 16*parts)
	native.Limit(f, buffer, rounds, part, parts, sink)
}

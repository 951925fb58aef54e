//go:build linux && cgo

package cpu

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"vapp.dev/kernels"
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

// pair runs n rounds of f(round, part, parts) on a thread for each part; no part
// waits for another.
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

// BenchmarkLinear multiplies with weights larger than the caches, one after the
// other as the layers of a model are, on two threads.
func BenchmarkLinear(b *testing.B) {
	const in, out, parts = 2048, 8192, 2
	for _, variant := range testedVariants()[1:] {
		for _, m := range linearMatrices() {
			for _, rows := range []int{1, 2, 4, 8, 16, 64, 512} {
				m.Variant = variant
				k, ok := m.Kernel()
				if !ok || !present(variant) {
					continue
				}
				b.Run(fmt.Sprintf("%s/%v/%d", variant, m, rows), func(b *testing.B) { benchLinear(b, k, rows, in, out, parts) })
			}
		}
	}
}

// BenchmarkRead is what Linear's GB/s compare with: two threads that only read.
func BenchmarkRead(b *testing.B) {
	const parts = 2
	words := unsafe.Slice((*uint64)(unsafe.Pointer(&huge(b, 1<<28)[0])), 1<<25)
	for i := range words {
		words[i] = uint64(i)
	}
	var sums [parts]uint64
	b.ResetTimer()
	start := time.Now()
	pair(parts, b.N, func(_, part, parts int) {
		sums[part] += total(words[len(words)*part/parts : len(words)*(part+1)/parts])
	})
	b.ReportMetric(float64(b.N)*float64(8*len(words))/time.Since(start).Seconds()/1e9, "GB/s")
	if sums == [parts]uint64{} {
		b.Fatal("read nothing")
	}
}

func total(words []uint64) (sum uint64) {
	var s [4]uint64
	for ; len(words) >= 8; words = words[8:] {
		s[0] += words[0] + words[4]
		s[1] += words[1] + words[5]
		s[2] += words[2] + words[6]
		s[3] += words[3] + words[7]
	}
	return s[0] + s[1] + s[2] + s[3]
}

// likely fills weights with panels of numbers as models have them: neither zeros nor
// what is too small for its format, which cost another time.
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
	panel, _, _ := one.Layout()
	one.PackRows(weights[:panel], 0, stored)
	if m.Scales != NoScales {
		scales := make([]float32, m.across())
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

func benchLinear(b *testing.B, k LinearKernel, rows, in, out, parts int) {
	packed, _, _ := k.matrix(out, in).Layout()
	copies := int(1 + (256<<20)/packed)
	weights := huge(b, packed*int64(copies))
	likely(k.matrix(out, in), weights)
	shared, work := LinearWorkspace(k.variant, k.format, rows, in, out, parts)
	sharedRoom, workRoom := huge(b, shared), huge(b, work*int64(parts))
	x := make([]float32, rows*in)
	for i := range x {
		x[i] = float32(i%7) * 0.25
	}
	y := make([]float32, rows*out)
	each := func(round, part, parts int, f func(*LinearArgs, int, int)) {
		w := weights[int64(round%copies)*packed:]
		f(&LinearArgs{Rows: rows, In: in, Out: out, LdX: in, LdY: out, W: w[:packed], X: x, Y: y,
			Shared: sharedRoom, Work: workRoom[int64(part)*work : int64(part+1)*work]}, part, parts)
	}
	pair(parts, 1, func(r, p, n int) { each(r, p, n, k.Prepare) })
	b.ResetTimer()
	start := time.Now()
	pair(parts, b.N, func(r, p, n int) { each(r, p, n, k.Run) })
	s := time.Since(start).Seconds() / float64(b.N)
	b.ReportMetric(float64(packed)/s/1e9, "GB/s")
	b.ReportMetric(2*float64(rows)*float64(in)*float64(out)/s/1e9, "GFLOP/s")
	b.ReportMetric(float64(in)*float64(out)/s/1e9, "Gweights/s")
}

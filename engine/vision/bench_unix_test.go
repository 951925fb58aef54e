//go:build unix

package vision

import (
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// BenchmarkPatches makes the patches of an image of 12 megapixels for Gemma's 280 tokens, on one
// processor and on all. testdata/compare.py runs it in turns with Pillow.
func BenchmarkPatches(b *testing.B) {
	rule := processors(b)["gemma"].Image
	src := picture(4000, 3000, 0)
	g, err := rule.Size(src.Width, src.Height, 0)
	if err != nil {
		b.Fatal(err)
	}
	var p Patches
	for _, n := range []int{1, runtime.GOMAXPROCS(0)} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
			rule.Patches(&p, src, g)
			before := processorTime(b)
			for b.Loop() {
				rule.Patches(&p, src, g)
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processorTime returns the time that this process has used.
func processorTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

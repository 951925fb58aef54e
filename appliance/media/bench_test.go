package media

import (
	"os"
	"testing"
)

// BenchmarkFile decodes the file that VAPP_BENCH_IMAGE names: scripts/bench_media.py runs it beside
// Pillow.
func BenchmarkFile(b *testing.B) {
	file := os.Getenv("VAPP_BENCH_IMAGE")
	if file == "" {
		b.Skip("VAPP_BENCH_IMAGE names no file; make bench-media does")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Decode(data, Bounds{}); err != nil {
			b.Fatal(err)
		}
	}
}

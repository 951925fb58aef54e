//go:build unix

package load

import (
	"os"
	"syscall"
	"testing"

	"vapp.dev/appliance/media"
	"vapp.dev/engine/vision"
)

// spent returns a function that reports the processor's time of each iteration since.
func spent(b *testing.B) func() {
	now := func() float64 {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			b.Fatal(err)
		}
		return float64(r.Utime.Nano() + r.Stime.Nano())
	}
	before := now()
	return func() { b.ReportMetric((now()-before)/float64(b.N), "cpu-ns/op") }
}

// BenchmarkFile decodes the file that VAPP_BENCH_IMAGE names, makes the patches of its pixels, and does
// both, for the rules of two models: scripts/bench_media.py runs it beside Pillow.
func BenchmarkFile(b *testing.B) {
	file := os.Getenv("VAPP_BENCH_IMAGE")
	if file == "" {
		b.Skip("VAPP_BENCH_IMAGE names no file; make bench-media does")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("decode", func(b *testing.B) {
		defer spent(b)()
		for b.Loop() {
			if _, err := media.Decode(data, media.Bounds{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, r := range []struct{ name, config string }{
		{"gemma", `{"image_processor_type": "Gemma4ImageProcessor", "max_soft_tokens": 280}`},
		{"qwen", `{"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 16, "merge_size": 2, "temporal_patch_size": 2, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "size": {"shortest_edge": 65536, "longest_edge": 16777216}}`},
	} {
		p, err := vision.Read(vision.Files{Image: []byte(r.config)})
		if err != nil {
			b.Fatal(err)
		}
		for _, decode := range []bool{false, true} {
			name := map[bool]string{false: "resize-", true: "all-"}[decode] + r.name
			b.Run(name, func(b *testing.B) {
				m, err := media.Decode(data, media.Bounds{})
				if err != nil {
					b.Fatal(err)
				}
				g, err := p.Image.Size(m.Width, m.Height, 0)
				if err != nil {
					b.Fatal(err)
				}
				var patches vision.Patches
				defer spent(b)()
				for b.Loop() {
					if decode {
						if m, err = media.Decode(data, media.Bounds{}); err != nil {
							b.Fatal(err)
						}
					}
					p.Image.Patches(&patches, m, g)
				}
				b.ReportMetric(float64(g.Width), "across")
				b.ReportMetric(float64(g.Height), "down")
			})
		}
	}
}

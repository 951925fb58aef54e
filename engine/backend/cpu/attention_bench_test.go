//go:build cgo && linux

package cpu_test

import (
	"fmt"
	"testing"
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/kernels"
)

// BenchmarkAttentionRates holds attention against what the machine does in the same
// run: decoding against its read bandwidth, with more pages than caches hold, prefill
// against its multiply-adds in F32, those of pairs that a token does not see left out.
func BenchmarkAttentionRates(b *testing.B) {
	top, err := cpu.MeasureLimits(2, 600*time.Millisecond)
	must(b, err)
	for _, s := range []struct {
		name           string
		heads, kv, dim int
	}{{"smollm2", 9, 3, 64}, {"llama", 32, 8, 64}, {"qwen2-7b", 28, 4, 128}} {
		for _, f := range []kernels.Format{kernels.F16, kernels.BF16, kernels.F8E4M3} {
			for _, w := range []struct{ tokens, seqs, at int }{{1, 64, 540}, {1, 16, 4096}, {1, 1, 65536}, {512, 1, 0}, {512, 1, 1536}} {
				b.Run(fmt.Sprintf("%s/%v/tokens=%d/seqs=%d/at=%d", s.name, f, w.tokens, w.seqs, w.at), func(b *testing.B) {
					n := tiny{heads: s.heads, kv: s.kv, dim: s.dim, vocab: 16, tokens: max(w.tokens, w.seqs), seqs: w.seqs, length: w.at + w.tokens, format: f}
					d := n.open(b, backend.Settings{Threads: 2, Profile: true})
					bind := d.fill(0, w.seqs, w.tokens, w.at)
					for b.Loop() {
						d.run(b, bind)
					}
					seconds := attentionSeconds(d)
					b.ReportMetric(seconds*1e6, "µs")
					if w.tokens == 1 {
						bytes := 2 * f.Bytes(int64(w.seqs*w.at*n.kv*n.dim))
						b.ReportMetric(100*float64(bytes)/seconds/top.Read, "%bandwidth")
						return
					}
					seen := float64(w.tokens) * (float64(w.at) + float64(w.tokens+1)/2)
					b.ReportMetric(100*4*seen*float64(n.heads*n.dim)/seconds/top.F32, "%matrix")
				})
			}
		}
	}
}

// attentionSeconds is the mean of a step.
func attentionSeconds(d *device) float64 {
	decode, prompts := d.Device.(backend.Profiler).OpTimes()
	var wall, steps float64
	for _, o := range append(decode, prompts...) {
		switch o.Op {
		case "attention":
			wall += o.Wall.Seconds()
		case "tokens":
			steps += float64(o.Runs)
		}
	}
	return wall / steps
}

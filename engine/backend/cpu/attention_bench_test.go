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

// rated is one measurement of attention with a variant, on pages in format.
type rated struct {
	variant    string
	format     kernels.Format
	dim, group int
	tokens, at int
}

// BenchmarkAttentionRates compares attention of eight key/value heads with the machine's
// limits, measured just before. Decoding is compared with its read bandwidth, with more pages
// than caches hold. A prompt is compared with the variant's multiply-adds, counting only
// pairs that the mask allows: of bf16 if the variant multiplies pages so, else of F32.
func BenchmarkAttentionRates(b *testing.B) {
	facts, err := cpu.Opener{}.Probe()
	must(b, err)
	for _, variant := range facts.Variants {
		for _, f := range []kernels.Format{kernels.BF16, kernels.F8E4M3, kernels.F16} {
			for _, dim := range []int{64, 128} {
				for _, group := range []int{4, 8} {
					for _, at := range []int{512, 4096, 32768} {
						b.Run(fmt.Sprintf("decode/%s/%v/dim=%d/group=%d/at=%d", variant, f, dim, group, at), rated{variant, f, dim, group, 1, at}.decode)
					}
					for _, n := range []int{512, 2048, 8192} {
						b.Run(fmt.Sprintf("prompt/%s/%v/dim=%d/group=%d/tokens=%d", variant, f, dim, group, n), rated{variant, f, dim, group, n, 0}.prompt)
					}
				}
			}
		}
	}
}

func (r rated) decode(b *testing.B) {
	const kv, most = 8, 1 << 28
	each := 2 * r.format.Bytes(int64(r.at*kv*r.dim))
	seqs := max(1, int(most/each))
	top, err := cpu.MeasureLimits(2, 300*time.Millisecond)
	must(b, err)
	n := tiny{heads: kv * r.group, kv: kv, dim: r.dim, vocab: 16, tokens: seqs, seqs: seqs, length: r.at + 1, format: r.format}
	seconds := r.best(b, n)
	b.ReportMetric(100*float64(int64(seqs)*each)/seconds/top.Read, "%bandwidth")
	b.ReportMetric(top.Read/1e9, "GB/s")
	b.ReportMetric(100*4*float64(seqs*r.at*n.heads*n.dim)/seconds/r.rate(top), "%matrix")
}

func (r rated) prompt(b *testing.B) {
	top, err := cpu.MeasureLimits(2, 300*time.Millisecond)
	must(b, err)
	kv := max(1, 8*2048/max(r.tokens, 2048)) // small enough for a short run
	n := tiny{heads: kv * r.group, kv: kv, dim: r.dim, vocab: 16, tokens: r.tokens, seqs: 1, length: r.tokens, format: r.format}
	seen := float64(r.tokens) * float64(r.tokens+1) / 2
	b.ReportMetric(100*4*seen*float64(n.heads*n.dim)/r.best(b, n)/r.rate(top), "%matrix")
	b.ReportMetric(r.rate(top)/1e9, "GFLOP/s")
}

// rate returns the variant's highest multiply rate, in FLOP per second.
func (r rated) rate(top cpu.Limits) float64 {
	switch {
	case r.variant == "amx" && r.format == kernels.BF16, r.variant == "avx512bf16" && r.format != kernels.F16:
		return top.BF16
	}
	return top.F32
}

// best returns the seconds of attention in the fastest step, which other load on the machine
// disturbed least.
func (r rated) best(b *testing.B, n tiny) float64 {
	d := n.open(b, backend.Settings{Variant: r.variant, Threads: 2, TimeOps: true})
	bind := d.fill(0, n.seqs, r.tokens, r.at)
	d.run(b, bind)
	least, before := time.Hour, d.attention()
	for b.Loop() {
		d.run(b, bind)
		now := d.attention()
		least, before = min(least, now-before), now
	}
	b.ReportMetric(float64(least.Microseconds()), "µs")
	return least.Seconds()
}

// attention returns the time of attention in all steps so far.
func (d *device) attention() (wall time.Duration) {
	decode, prompts := d.Device.(backend.OpTimer).OpTimes()
	for _, o := range append(decode, prompts...) {
		if o.Op == "attention" {
			wall += o.Wall
		}
	}
	return wall
}

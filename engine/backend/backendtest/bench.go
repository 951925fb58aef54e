package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// Bench measures ops: Linear in every format at decode and prefill row counts
// (bytes of weights read and multiply-adds a second), attention over a long
// history, and a whole step of a small net.
func Bench(b *testing.B, o backend.Opener, s backend.Settings) {
	sub := open(b, o, s)
	for _, f := range weightFormats {
		for _, rows := range []int{1, 8, 64, 256} {
			b.Run(fmt.Sprintf("linear/%v/%d", f, rows), func(b *testing.B) { sub.benchLinear(b, f, rows) })
		}
	}
	for _, f := range kvFormats {
		for _, tokens := range []int{1, 64} {
			b.Run(fmt.Sprintf("attention/%v/%d", f, tokens), func(b *testing.B) { sub.benchAttention(b, f, tokens) })
		}
	}
	b.Run("step", sub.benchStep)
}

// benchLinear is one weight of 2048×4096, larger than a cache.
func (s *subject) benchLinear(b *testing.B, f kernels.Format, rows int) {
	const in, out = 2048, 4096
	r, m := rng(1), &tensors{}
	table := m.table("x", normal(r, in, 1), in)
	w := m.matrix("w", backend.Multiply, f, out, in, random(r, f, in*out, 1/math.Sqrt(in)))
	rig := s.rig(b, plan{tensors: m, vocab: 1, bucket: backend.Bucket{Tokens: rows, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		x := input(rec, table, in)
		rec.Do(backend.Linear{X: x, W: w, Bias: backend.NoWeight, Y: rec.New("y", kernels.F32, backend.PerToken, out)})
	}})
	step := rig.fill(0, []feed{{tokens: repeat(0, rows)}})
	rig.launch(step)
	for b.Loop() {
		rig.launch(step)
	}
	seconds := b.Elapsed().Seconds() / float64(b.N)
	b.ReportMetric(float64(rig.res.Packed[w].Bytes)/seconds/1e9, "GB/s")
	b.ReportMetric(2*float64(rows)*in*out/seconds/1e9, "GFLOP/s")
}

// benchAttention is tokens at the end of a history of 1024, 9 heads on 3.
func (s *subject) benchAttention(b *testing.B, f kernels.Format, tokens int) {
	const history, block = 1024, 16
	c := attentionCase{format: f, heads: 9, kv: 3, dim: 64, block: block, vocab: 1}
	c.cols = (c.heads + 2*c.kv) * c.dim
	m, width := &tensors{}, (history+64)/block
	table, inv := m.table("x", normal(rng(2), c.cols, 1), c.cols), m.literal("freqs", make([]float32, c.dim/2))
	rig := s.rig(b, plan{
		tensors: m, vocab: 1, bucket: backend.Bucket{Tokens: 64, Seqs: 1, Samples: 1},
		classes: []backend.KVClass{class(f, block, 2, c.kv, c.dim, width)}, pages: width,
		record: func(rec *backend.Recorder) { c.record(rec, table, inv, 0.125) },
	})
	for at := 0; at < history; at += 64 {
		rig.run(feed{tokens: repeat(0, 64), at: at, pages: upTo(width)})
	}
	step := rig.fill(0, []feed{{tokens: repeat(0, tokens), at: history, pages: upTo(width)}})
	for b.Loop() {
		rig.launch(step)
	}
	seconds := b.Elapsed().Seconds() / float64(b.N)
	seen := float64(tokens) * (history + float64(tokens+1)/2)
	b.ReportMetric(4*seen*float64(c.heads*c.dim)/seconds/1e9, "GFLOP/s")
}

// benchStep is a step of eight sequences of the small net, sampled.
func (s *subject) benchStep(b *testing.B) {
	n := net{weights: kernels.Q8_0, pages: kernels.F16, block: 16, rows: 8, seqs: 8, sampled: true}
	rig := n.rig(b, s, 8)
	pages := netPages(rig, 8, upTo(rig.pageCount()))
	var feeds []feed
	for i := range 8 {
		feeds = append(feeds, feed{tokens: []int32{int32(i)}, at: 60, pages: pages[i], sampled: []int{0}, row: backend.SampleRow{Temperature: 1, TopK: 20}})
	}
	step := rig.fill(0, feeds)
	for b.Loop() {
		rig.launch(step)
	}
}

package backendtest

import (
	"fmt"
	"math"
	"testing"
	"time"

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
	for _, f := range unrounded() {
		b.Run("experts/"+f.name, func(b *testing.B) { sub.benchExperts(b, f) })
	}
	for _, f := range kvFormats {
		for _, tokens := range []int{1, 64} {
			b.Run(fmt.Sprintf("attention/%v/%d", f, tokens), func(b *testing.B) { sub.benchAttention(b, f, tokens) })
		}
	}
	for _, tokens := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("delta_net/%d", tokens), func(b *testing.B) { sub.benchDelta(b, tokens) })
		b.Run(fmt.Sprintf("conv/%d", tokens), func(b *testing.B) { sub.benchConv(b, tokens) })
		b.Run(fmt.Sprintf("norm/%d", tokens), func(b *testing.B) { sub.benchRows(b, tokens) })
	}
	b.Run("step", sub.benchStep)
}

// benchLinear measures one weight of 2048×4096, larger than a cache.
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

// benchExperts measures a mixture of 16 experts, 4 of them for a row. Consecutive rows select
// different experts.
func (s *subject) benchExperts(b *testing.B, f scaledFormat) {
	m := mixture{format: f, experts: 16, top: 4, cols: 1024, width: 1024}
	r := m.rig(b, s)
	var expert int64
	for i, w := range r.res.Weights {
		if w.Experts > 0 {
			expert += r.res.Packed[i].Bytes / int64(w.Experts)
		}
	}
	for _, rows := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			read, at := 0, 0
			for b.Loop() {
				if at += rows; at+rows > mixtureRows {
					at = 0
				}
				r.run(feed{tokens: upTo(mixtureRows)[at : at+rows]})
				picked := map[int32]bool{}
				for _, id := range r.ints(m.ids, rows) {
					picked[id] = true
				}
				read += len(picked)
			}
			seconds := b.Elapsed().Seconds()
			b.ReportMetric(float64(expert)*float64(read)/seconds/1e9, "GB/s")
			b.ReportMetric(6*float64(m.cols*m.width*m.top*rows)*float64(b.N)/seconds/1e9, "GFLOP/s")
		})
	}
}

// benchAttention measures tokens at the end of a history of 1024, with 9 heads on 3.
func (s *subject) benchAttention(b *testing.B, f kernels.Format, tokens int) {
	const history, block = 1024, 16
	c := attentionCase{format: f, heads: 9, kv: 3, dim: 64, block: block, vocab: 1}
	c.cols = (c.heads + 2*c.kv) * c.dim
	m, width := &tensors{}, (history+64)/block
	table, inv := m.table("x", normal(rng(2), c.cols, 1), c.cols), m.literal("freqs", make([]float32, c.dim/2))
	rig := s.rig(b, plan{
		tensors: m, vocab: 1, bucket: backend.Bucket{Tokens: 64, Seqs: 1, Samples: 1},
		classes: []backend.KVClass{class(f, block, 2, c.kv, c.dim, width)}, pages: width,
		record: func(rec *backend.Recorder) { c.record(rec, []backend.WeightID{table}, inv, 0.125) },
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

// benchStep measures a step of eight sequences of the small net, sampled.
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

// benchDelta measures one layer of Qwen3.5-27B's recurrence: 48 matrices of 128×128.
func (s *subject) benchDelta(b *testing.B, tokens int) {
	c := deltaCase{keyHeads: 16, valueHeads: 48, keyDim: 128, valueDim: 128}
	c.open(0)
	seconds := s.benchState(b, &c.recurrent, tokens)
	b.ReportMetric(2*float64(c.shape.MatrixBytes())/seconds/1e9, "state-GB/s")
	b.ReportMetric(float64(tokens)*8*float64(c.valueHeads*c.keyDim*c.valueDim)/seconds/1e9, "GFLOP/s")
}

// benchConv measures that model's convolution: 10240 columns, the last four rows.
func (s *subject) benchConv(b *testing.B, tokens int) {
	c, _, _ := newConv(kernels.BF16, 10240, 4, 0)
	b.ReportMetric(float64(tokens)*10240/s.benchState(b, c, tokens)/1e9, "Gcolumns/s")
}

// benchState measures a step of a sequence with a state, including the Embed of its inputs.
// It returns the seconds of the fastest step.
func (s *subject) benchState(b *testing.B, c *recurrent, tokens int) float64 {
	c.most = tokens
	rig := c.rig(b, s)
	rig.run(feed{tokens: []int32{0}, pages: c.page(0)})
	return rig.best(b, rig.fill(0, []feed{{tokens: repeat(1, tokens), at: 1, pages: c.page(0)}}))
}

// best returns the seconds of the fastest step, which other load on the machine disturbed
// least.
func (r *rig) best(b *testing.B, step backend.Binding) float64 {
	r.launch(step)
	best := time.Hour
	for b.Loop() {
		start := time.Now()
		r.launch(step)
		best = min(best, time.Since(start))
	}
	b.ReportMetric(best.Seconds()*1e6, "best-µs")
	return best.Seconds()
}

// benchRows measures the gated norm of 48 heads of 128, including the Embed of its inputs.
func (s *subject) benchRows(b *testing.B, tokens int) {
	const cols = 48 * 128
	m := &tensors{}
	table, w := m.table("x", normal(rng(1), cols, 1), cols), m.vector("w", kernels.F32, normal(rng(2), 128, 1))
	rig := s.rig(b, plan{tensors: m, vocab: 1, bucket: backend.Bucket{Tokens: tokens, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		x, gate := input(rec, table, cols), input(rec, table, cols)
		rec.Do(backend.Norm{X: x, Residual: backend.NoValue, W: w, Eps: 1e-6, Y: x, Segment: 128, Gated: true, Gate: gate})
	}})
	b.ReportMetric(float64(tokens)*cols/rig.best(b, rig.fill(0, []feed{{tokens: repeat(0, tokens)}}))/1e9, "Gcolumns/s")
}

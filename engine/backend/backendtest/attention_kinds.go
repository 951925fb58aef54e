package backendtest

import (
	"fmt"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// attentionKinds tests all other features of attention: windows (smaller than a block, not a
// multiple of one, longer than the history, in a class that keeps as much, more, or all);
// chunks (of a block, of several, with their end inside of one); sinks above and below all scores; softcaps; the heads of real models; pages of 8-bit
// floats; bidirectional attention without history.
func (s *subject) attentionKinds(t *testing.T) {
	sinks := []float32{-90, -3, 0, 1, 2, 5, 30, 120}
	for _, k := range []struct {
		name string
		long int
		attentionCase
	}{
		{"window below a block", 70, attentionCase{format: kernels.F16, heads: 8, kv: 1, dim: 64, block: 32, window: 5, keeps: 5}},
		{"window of 1", 70, attentionCase{format: kernels.F32, heads: 2, kv: 2, dim: 32, block: 16, window: 1, keeps: 1}},
		{"window of a block", 70, attentionCase{format: kernels.F32, heads: 4, kv: 4, dim: 64, block: 16, window: 16, keeps: 16}},
		{"window of several blocks and a part", 130, attentionCase{format: kernels.BF16, heads: 9, kv: 3, dim: 96, block: 16, window: 41, keeps: 41}},
		{"window above the history", 70, attentionCase{format: kernels.F16, heads: 4, kv: 2, dim: 64, block: 16, window: 200, keeps: 200}},
		{"window in a class that keeps more", 130, attentionCase{format: kernels.F16, heads: 4, kv: 2, dim: 64, block: 16, window: 20, keeps: 49}},
		{"window in a class that keeps all", 130, attentionCase{format: kernels.F16, heads: 4, kv: 2, dim: 64, block: 32, window: 20}},
		{"window beyond a span", 600, attentionCase{format: kernels.F32, heads: 2, kv: 1, dim: 32, block: 16, window: 270, keeps: 270}},
		{"chunk of a block", 70, attentionCase{format: kernels.F32, heads: 4, kv: 4, dim: 64, block: 16, window: 16, keeps: 16, chunked: true}},
		{"chunk of several blocks", 300, attentionCase{format: kernels.BF16, heads: 10, kv: 2, dim: 128, block: 16, window: 64, keeps: 64, chunked: true}},
		{"chunk that ends inside of a block", 130, attentionCase{format: kernels.F16, heads: 4, kv: 2, dim: 64, block: 32, window: 40, keeps: 40, chunked: true}},
		{"chunk beyond a span", 600, attentionCase{format: kernels.F8E4M3, heads: 2, kv: 1, dim: 32, block: 16, window: 272, keeps: 272, chunked: true}},
		{"gpt-oss", 300, attentionCase{format: kernels.BF16, heads: 8, kv: 1, dim: 64, block: 32, window: 128, keeps: 128, sinks: sinks}},
		{"sinks over a whole history", 300, attentionCase{format: kernels.F32, heads: 8, kv: 2, dim: 64, block: 16, sinks: sinks}},
		{"softcap", 300, attentionCase{format: kernels.F32, heads: 4, kv: 2, dim: 64, block: 16, softcap: 2.5}},
		{"softcap, sinks and a window", 70, attentionCase{format: kernels.F16, heads: 8, kv: 2, dim: 72, block: 16, softcap: 5, window: 33, keeps: 33, sinks: sinks}},
		{"gemma4 in a window", 70, attentionCase{format: kernels.F16, heads: 16, kv: 8, dim: 256, block: 16, window: 48, keeps: 48}},
		{"gemma4 over all", 70, attentionCase{format: kernels.F16, heads: 16, kv: 2, dim: 512, block: 16}},
		{"qwen3.5", 70, attentionCase{format: kernels.BF16, heads: 24, kv: 4, dim: 256, block: 32}},
		{"f8_e4m3", 300, attentionCase{format: kernels.F8E4M3, heads: 8, kv: 2, dim: 64, block: 16}},
		{"f8_e4m3 heads of 72 in a window", 70, attentionCase{format: kernels.F8E4M3, heads: 4, kv: 4, dim: 72, block: 32, window: 21, keeps: 21}},
		{"f8_e5m2", 70, attentionCase{format: kernels.F8E5M2, heads: 8, kv: 2, dim: 128, block: 16}},
	} {
		s.run(t, k.name, func(t *testing.T) { k.test(t, s, k.long) })
	}
	for _, f := range []kernels.Format{kernels.F32, kernels.F16} {
		for _, dim := range []int{64, 72} {
			s.run(t, fmt.Sprintf("both directions/%v, heads of %d", f, dim), func(t *testing.T) {
				c := attentionCase{format: f, heads: 6, kv: 3, dim: dim, both: true}
				c.unpaged(t, s, []int{70, 1, 300})
			})
		}
	}
}

// saturate makes some values larger than an 8-bit format's largest number, and some smaller
// than its least normal one.
func (c attentionCase) saturate() {
	most := map[kernels.Format]float32{kernels.F8E4M3: 448, kernels.F8E5M2: 57344}[c.format]
	if most == 0 || c.turning > 0 || c.latent > 0 { // values are in scores too
		return
	}
	for i := range c.x {
		if i%c.cols >= (c.heads+c.kv)*c.dim && i%3 > 0 {
			c.x[i] *= []float32{most / 2, 1 / most}[i%3-1]
		}
	}
}

// unpaged runs one step of whole sequences without pages.
func (c attentionCase) unpaged(t *testing.T, s *subject, lengths []int) {
	const scale = 0.17
	total := 0
	for _, n := range lengths {
		total += n
	}
	c.cols, c.vocab = (c.heads+2*c.kv)*c.dim, total
	m := &tensors{}
	c.x = normal(rng(uint64(c.dim)), total*c.cols, 1)
	table, inv := m.table("x", c.x, c.cols), m.literal("freqs", make([]float32, c.dim/2))
	var y backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: total, bucket: backend.Bucket{Tokens: total, Seqs: len(lengths), Samples: 1},
		record: func(rec *backend.Recorder) { y = c.record(rec, []backend.WeightID{table}, inv, scale) }})
	var feeds []feed
	ids := upTo(total)
	for _, n := range lengths {
		feeds = append(feeds, feed{tokens: ids[:n]})
		ids = ids[n:]
	}
	rig.run(feeds...)
	got, first, width := rig.floats(y, total), 0, c.heads*c.dim
	for i, n := range lengths {
		want, unit := s.oracles.of(&c, s.matrixTolerance, first, n, scale)
		compareUnits(t, fmt.Sprintf("sequence %d", i), got[first*width:(first+n)*width], want, unit)
		first += n
	}
}

//go:build cgo && linux

package engine_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"vapp.dev/engine"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/engine/sample"
	"vapp.dev/kernels"
)

// BenchmarkAdapters measures 16 streams of the model alone and, in turns with them, 16 streams with eight
// adapters of rank 16, on random models in bf16. It reports tokens per second of both and the median of their
// ratio. A step reads all weights once, so the ratio of the bytes of both is what memory allows.
func BenchmarkAdapters(b *testing.B) {
	for _, m := range []struct {
		name  string
		model enginetest.Llama
	}{
		{"90M", enginetest.Llama{Layers: 8, Hidden: 1024, Heads: 16, KVHeads: 4, HeadDim: 64, Intermediate: 2816, DType: kernels.BF16, Seed: 1}},
		{"Llama-3.2-1B", enginetest.Llama{Layers: 16, Hidden: 2048, Heads: 32, KVHeads: 8, HeadDim: 64, Intermediate: 8192, Vocab: 128256, Tied: true, DType: kernels.BF16, Seed: 1}},
	} {
		b.Run(m.name, func(b *testing.B) { benchAdapters(b, m.model) })
	}
}

func benchAdapters(b *testing.B, o enginetest.Llama) {
	const slots, streams, rank = 8, 16, 16
	dir := filepath.Join(b.TempDir(), "model")
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	must(enginetest.WriteLlama(dir, o))
	y := &toy{dir: dir, on: cpu.Opener{}, slabs: 64, build: models.Build{LoRA: models.LoRA{Slots: slots, Rank: rank}}, opts: engine.Options{
		MaxModelLen: 256, MaxNumSeqs: streams, MaxNumBatchedTokens: 256, BlockSize: 16, KVFormat: kernels.BF16, ChunkedPrefill: true, Overlap: true,
	}}
	e := y.open(b)
	for i := range slots {
		load(b, e, fmt.Sprint("a", i), writeAdapter(b, dir, rank, uint64(i)))
	}
	turn := func(adapters bool) float64 {
		p := sample.Default()
		p.Temperature, p.MaxTokens, p.IgnoreEOS = 0, 48, true
		var all []*engine.Stream
		begin := time.Now()
		for i := range streams {
			q := engine.Request{Params: p, N: 1, Prompt: []int32{3, int32(4 + i), 5, 6}}
			if adapters {
				q.Adapter = fmt.Sprint("a", i%slots)
			}
			s, err := e.Submit(context.Background(), q)
			must(err)
			all = append(all, s...)
		}
		for _, s := range all {
			collect(b, s)
		}
		return float64(streams*p.MaxTokens) / time.Since(begin).Seconds()
	}
	turn(false)
	turn(true)
	var ratios, alone, with []float64
	for b.Loop() {
		alone, with = append(alone, turn(false)), append(with, turn(true))
		ratios = append(ratios, with[len(with)-1]/alone[len(alone)-1])
	}
	for name, list := range map[string][]float64{"ratio": ratios, "tok/s-alone": alone, "tok/s-adapters": with} {
		slices.Sort(list)
		b.ReportMetric(list[len(list)/2], name)
	}
	b.Logf("ratios %.3f", ratios)
}

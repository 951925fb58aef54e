//go:build cgo && linux

package models_test

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/enginetest"
	"vapp.dev/kernels"
)

// TestGoldenInt8 checks int8 activations against their bounds on the best variant: the products,
// and the logits of checkpoints with quantized weights. Chunks of any size give the same bits. With
// VAPP_GOLDEN=all the products of every variant are checked.
func TestGoldenInt8(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	facts, err := cpu.Opener{}.Probe()
	must(t, err)
	for i, v := range facts.Variants {
		if i > 0 && !all() {
			break
		}
		s := backend.Settings{Variant: v, Activations: "int8"}
		t.Run(v, func(t *testing.T) { formatErrors(t, cpu.Opener{}, s) })
	}
	s := backend.Settings{Variant: facts.Variants[0], Activations: "int8"}
	for _, name := range []string{"tiny-mha-q8_0", "tiny-mha-q4_1", "tiny-qwen2-gguf", "tiny-qwen3-gguf", "tiny-gpt-oss-gguf", "smollm2-chat"} {
		t.Run(name, func(t *testing.T) {
			run := goldenRun{Opener: cpu.Opener{}, Settings: s, KV: kernels.F32, Block: 16, Chunks: []int{1 << 8}}
			want := runBound(t, run, name, boundInt8)
			if enginetest.Tiny(name) {
				run.Chunks = []int{7, 1, 33, 16}
				sameRows(t, "in chunks of 7, 1, 33 and 16", runBound(t, run, name, boundInt8), want)
			}
		})
	}
}

// boundInt8 returns the bound for activations that are rounded, in groups of 32, to multiples of
// 1/127 of the largest one: the error is at most half a step and uniformly distributed.
func boundInt8(golden string, _ kernels.Format) enginetest.GoldenBound {
	switch {
	case enginetest.Mixture(golden): // a token may be sent to another expert
		return enginetest.GoldenBound{Max: 1.6, RMS: 0.1, Gap: 0.3}
	case enginetest.Tiny(golden):
		return enginetest.GoldenBound{Max: 0.9, RMS: 0.05, Gap: 0.25}
	}
	return enginetest.GoldenBound{Max: 4, RMS: 0.4, Gap: 0.6}
}

package models_test

import (
	"fmt"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/kernels"
)

// TestGoldenRef holds ref to the bounds of float32 arithmetic.
func TestGoldenRef(t *testing.T) { RunGoldens(t, ref.Opener{}, backend.Settings{}, boundFloat, true) }

// BenchmarkSmolRef is tokens a second of SmolLM2 on ref: a prompt of 256 in one
// step, and steps of one token after it. Every row's logits are computed.
func BenchmarkSmolRef(b *testing.B) {
	g := readGolden(b, "smollm2-chat")
	m := openGolden(b, goldenRun{Opener: ref.Opener{}, KV: kernels.F16, Block: 16, Chunks: []int{256}}, g, checkpointOf(b, "smollm2-chat"))
	for _, n := range []int{256, 1} {
		b.Run(fmt.Sprintf("%d at once", n), func(b *testing.B) {
			at := 256 - n
			for b.Loop() {
				m.step(b, g.Tokens()[at:at+n], at, 0)
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

//go:build linux && cgo && cuda

package engine_test

import (
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/enginetest"
	"vapp.dev/kernels"
)

// TestImagesCUDA sends recorded prompts with one and with three images through the whole engine, by graphs
// and by single launches, in steps of the largest image. In float32 the reply begins as that of transformers, and the
// device's memory is that of the plan.
func TestImagesCUDA(t *testing.T) {
	emulate(t)
	kinds := []string{"middle", "several"}
	for i, name := range []string{"tiny-gemma4-tower", "tiny-qwen35-tower"} {
		t.Run(name, func(t *testing.T) {
			replayed := 0
			y := recordedImages(name, cuda.Opener{}, backend.Settings{Graphs: graphs()[1-i]}, 20)
			y.build.Dtype = kernels.F32
			y.hooks.Step = func(s engine.StepStats) {
				if s.Graph == "FULL" || s.Graph == "PIECEWISE" {
					replayed++
				}
			}
			closed(t, y.replies(t, recordedRun{name: name, kind: kinds[i], tokens: 4, limit: enginetest.BoundFloat, opened: func(e *engine.Engine) { ledgered(t, y, e) }}))
			if (replayed > 0) != (i == 0) {
				t.Errorf("%d steps ran by graphs", replayed)
			}
		})
	}
}

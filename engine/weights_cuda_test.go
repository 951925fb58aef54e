//go:build linux && cgo && cuda

package engine_test

import (
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/kernels"
)

// TestRebuildCUDA is TestRebuild with steps that run by graphs. TestSleepCUDA has the other models.
func TestRebuildCUDA(t *testing.T) {
	emulate(t)
	s := backend.Settings{Graphs: backend.Graphs{Mode: "full_and_piecewise", Sizes: []int{1, 9}}}
	rebuild(t, cuda.Opener{}, s, kernels.BF16, "GGUF", "fp8")
	t.Run("adapters", func(t *testing.T) { rebuildAdapters(t, cuda.Opener{}, s) })
}

// TestSleepCUDA: an engine is closed, its weights wait in host memory, and the next engine with them, with more pages,
// continues like the first.
func TestSleepCUDA(t *testing.T) {
	emulate(t)
	for _, c := range rebuilt {
		if c.name != "GGUF" && c.name != "fp8" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			y := c.toy(t)
			y.on = cuda.Opener{}
			a := y.open(t)
			want := answer(t, ask(t, a, ""))
			w := weightsOf(t, a)
			ended(t, a)
			use, err := w.(backend.Offloader).Offload()
			if err != nil || use.Bytes != w.Bytes() || use.Bytes == 0 {
				t.Fatalf("%+v, %v", use, err)
			}
			y.weights, y.slabs = w, y.slabs+8
			b := y.open(t)
			if got := answer(t, ask(t, b, "")); !slices.Equal(got, want) {
				t.Errorf("awake %v, before %v", got, want)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			closed(t, b)
		})
	}
}

//go:build linux && cgo && cuda

package engine_test

import (
	"slices"
	"testing"

	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// TestAdaptersCUDA: two adapters and the model alone share steps, by single launches and by graphs. In
// float32 the tokens are those of ref.
func TestAdaptersCUDA(t *testing.T) {
	emulate(t)
	const name = "tiny-llama3-tied"
	y, g := smallModel(t, name)
	y.build = models.Build{Dtype: kernels.F32, LoRA: models.LoRA{Slots: 3, Rank: 8}}
	y.opts.KVFormat = kernels.F32
	y.adapters = []string{writeAdapter(t, y.dir, 8, 1), writeAdapter(t, y.dir, 4, 2)}
	likeRef(t, y, y, promptsOf(g), 0)
	alone := y
	alone.on, alone.adapters = ref.Opener{}, nil
	y.on = ref.Opener{}
	if with, without := continued(t, &y, promptsOf(g)), continued(t, &alone, promptsOf(g)); slices.Equal(with[0], without[0]) || slices.Equal(with[1], without[1]) {
		t.Errorf("adapters give %v, the model alone %v", with, without)
	}
}

//go:build linux && cgo && cuda

package engine_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/engine/backend/nccl"
	"vapp.dev/engine/models"
	"vapp.dev/engine/ranks"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda/cudatest"
)

// overNCCL returns what connects ranks of this process by the emulated NCCL.
func overNCCL(t *testing.T) func(ranks.Places) []backend.Group {
	t.Helper()
	if os.Getenv("VAPP_GPU") != "" {
		t.Skip("not run: the ranks share a GPU, which NCCL has only emulated")
	}
	emulate(t)
	t.Setenv("VAPP_LIBNCCL", cudatest.NCCL(t))
	t.Setenv("VAPP_EMULATED_NCCL", "timeout=600000")
	return func(p ranks.Places) (groups []backend.Group) {
		id, err := nccl.UniqueID()
		if err != nil {
			t.Fatal(err)
		}
		for rank := range p.Tensor * p.Pipeline {
			g, err := nccl.Connect(id, rank, p.Tensor, p.Pipeline, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			groups = append(groups, g)
		}
		return groups
	}
}

// TestImagesRanksCUDA sends requests with images to two tensor parallel ranks and to two stages, each rank with a
// device of its own: they give the tokens of one rank, also where Qwen3.5's head proposes tokens.
func TestImagesRanksCUDA(t *testing.T) {
	groups := overNCCL(t)
	for i, c := range []struct {
		seeing
		propose func(*toy)
	}{{towerSeeing, func(*toy) {}}, {headSeeing, head(2)}} {
		dir := c.folder(t, t.TempDir())
		var plain [][]int32
		for _, p := range []ranks.Places{{}, {Tensor: 2, Pipeline: 1}, {Tensor: 1, Pipeline: 2}} {
			t.Run(fmt.Sprintf("%s %d×%d", c.name, p.Tensor, p.Pipeline), func(t *testing.T) {
				y := &toy{dir: dir, on: cuda.Opener{}, slabs: 16, build: models.Build{Vision: true, Dtype: kernels.F32}, world: p, groups: groups, opts: engine.Options{
					MaxModelLen: 64, MaxNumSeqs: 2, MaxNumBatchedTokens: 16, BlockSize: 16, KVFormat: kernels.F32, ChunkedPrefill: true, Overlap: i == 0,
					Backend: backend.Settings{Graphs: graphs()[i]}, Items: engine.ItemOptions{Patches: 6 * c.side * c.side},
				}}
				if plain != nil {
					c.propose(y)
					y.opts.Backend.Graphs.Query = y.opts.Drafts + 1
				}
				encoded := 0
				y.hooks.Step = func(s engine.StepStats) { encoded += s.EncodedItems }
				collectives := driver.Counted("vapp_emulated_host")
				tokens := c.few(t, y.open(t))
				if plain == nil {
					plain = tokens
				} else if driver.Counted("vapp_emulated_host") == collectives {
					t.Error("no collective was launched")
				}
				if encoded != 3 || !slices.EqualFunc(tokens, plain, slices.Equal[[]int32]) {
					t.Errorf("%v of %d encoded images, on one rank %v of 3", tokens, encoded, plain)
				}
			})
		}
	}
}

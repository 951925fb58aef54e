//go:build linux && cgo && cuda

package models_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/engine/backend/nccl"
	"vapp.dev/engine/enginetest"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda/cudatest"
)

// ncclGroups returns the groups of ranks of this process on an emulated NCCL.
func ncclGroups(t testing.TB, tensor, pipe int) []backend.Group {
	t.Helper()
	id, err := nccl.UniqueID()
	must(t, err)
	var out []backend.Group
	for rank := range tensor * pipe {
		g, err := nccl.Connect(id, rank, tensor, pipe, time.Minute)
		must(t, err)
		out = append(out, g)
	}
	return out
}

// TestGoldenRanksCUDA is TestGoldenRanks on the emulated driver and the emulated NCCL: two pipeline
// stages have the bits of one, two tensor parallel ranks are within the family's bounds, also by
// graphs, which have the bits of single launches. A few checkpoints run; VAPP_GOLDEN=all runs all.
func TestGoldenRanksCUDA(t *testing.T) {
	if os.Getenv("VAPP_GPU") != "" {
		t.Skip("not run: the ranks are devices of one process, which NCCL has only emulated")
	}
	t.Setenv("VAPP_LIBCUDA", cudatest.Driver(t))
	t.Setenv("VAPP_LIBNCCL", cudatest.NCCL(t))
	for _, name := range slices.Sorted(maps.Keys(goldens)) {
		if !enginetest.Tiny(name) || strings.HasSuffix(name, x8) || !enginetest.RunsOn(name, "cuda") {
			continue
		}
		if os.Getenv("VAPP_GOLDEN") != "all" && !slices.Contains([]string{"tiny-qwen3", "tiny-olmo2"}, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			run := goldenRun{Opener: cuda.Opener{}, KV: kernels.F32, Block: 16, Chunks: []int{33}, Groups: ncclGroups}
			if os.Getenv("VAPP_GOLDEN") != "all" {
				run.Rows = 36
			}
			if run.Pipe = 2; refuses(t, name, run, unstaged[name]) {
				run.Pipe = 1
			} else {
				whole := run
				whole.Pipe = 0
				sameRows(t, "in two stages", runBound(t, run, name, enginetest.BoundBF16), runBound(t, whole, name, enginetest.BoundBF16))
			}
			if run.Tensor = 2; apart[name] || refuses(t, name, run, undivided[name]) {
				return
			}
			before := driver.Counted("vapp_emulated_host")
			want := runBound(t, run, name, enginetest.BoundBF16)
			if driver.Counted("vapp_emulated_host") == before {
				t.Error("no collective was launched")
			}
			if name == "tiny-qwen3" { // sums of more than two ranks are a kernel's
				four := run
				four.Tensor, four.Pipe = 4, 0
				runBound(t, four, name, enginetest.BoundBF16)
			}
			run.Graphs = true
			sameRows(t, "by graphs", runBound(t, run, name, enginetest.BoundBF16), want)
		})
	}
}

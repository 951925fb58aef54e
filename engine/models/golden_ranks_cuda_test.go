//go:build linux && cgo && cuda

package models_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// The processes of TestGoldenRanksCUDA have these variables.
const (
	ncclRank = "VAPP_TEST_NCCL_RANK" // the rank
	ncclRuns = "VAPP_TEST_NCCL_RUNS" // path of a file with gpuRuns
)

// gpuRuns are what the ranks of one grid run, in this order.
type gpuRuns struct {
	Tensor, Pipe int
	Rows         int // of each recorded run; 0: all
	Names        []string
	IDs          [][]byte // of NCCL's groups: two for each name
}

// TestGoldenRanksCUDA computes the recorded runs on ranks that are processes, each with the emulated driver and the emulated NCCL. Two
// pipeline stages have the bits of one, and tensor parallel ranks are within the family's bounds. Graphs have the bits of single
// launches. One checkpoint runs on two ranks; VAPP_GOLDEN=all runs all, and a few on four.
func TestGoldenRanksCUDA(t *testing.T) {
	if os.Getenv("VAPP_GPU") != "" {
		t.Skip("not run: it needs a GPU for each rank")
	}
	if rank, err := strconv.Atoi(os.Getenv(ncclRank)); err == nil {
		goldensOfGPU(t, rank)
		return
	}
	t.Setenv("VAPP_LIBCUDA", cudatest.Driver(t))
	t.Setenv("VAPP_LIBNCCL", cudatest.NCCL(t))
	for _, r := range []gpuRuns{{Tensor: 2, Pipe: 1}, {Tensor: 1, Pipe: 2}, {Tensor: 4, Pipe: 1}, {Tensor: 2, Pipe: 2}} {
		switch all := os.Getenv("VAPP_GOLDEN") == "all"; {
		case r.Tensor*r.Pipe > 2 && !all:
			continue
		case r.Tensor*r.Pipe > 2:
			r.Names = []string{"tiny-qwen3", "tiny-olmo2", "tiny-gemma4-moe"}
		case !all:
			r.Names, r.Rows = []string{"tiny-qwen3"}, 36
		default:
			r.Names = onGPUs(r)
		}
		t.Run(fmt.Sprintf("tensor %d, pipeline %d", r.Tensor, r.Pipe), func(t *testing.T) { startGPUs(t, r) })
	}
}

// onGPUs returns the small checkpoints that two ranks run on backend cuda.
func onGPUs(r gpuRuns) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(goldens)), func(name string) bool {
		return !enginetest.Tiny(name) || strings.HasSuffix(name, x8) || !enginetest.RunsOn(name, "cuda") ||
			r.Tensor > 1 && (apart[name] || undivided[name] != "") || r.Pipe > 1 && unstaged[name] != ""
	})
}

// startGPUs runs the ranks as processes of this test. When one fails, the others are killed.
func startGPUs(t *testing.T, r gpuRuns) {
	for range 2 * len(r.Names) {
		id, err := nccl.UniqueID()
		must(t, err)
		r.IDs = append(r.IDs, id)
	}
	b, err := json.Marshal(r)
	must(t, err)
	path := filepath.Join(t.TempDir(), "runs.json")
	must(t, os.WriteFile(path, b, 0o600))
	ctx, fail := context.WithCancel(t.Context())
	defer fail()
	var all sync.WaitGroup
	for rank := range r.Tensor * r.Pipe {
		all.Go(func() {
			c := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestGoldenRanksCUDA$", "-test.v", "-test.timeout=0")
			// A rank waits while another compares its logits with one stage.
			c.Env = append(os.Environ(), ncclRank+"="+strconv.Itoa(rank), ncclRuns+"="+path, "VAPP_EMULATED_NCCL=timeout=600000")
			out, err := c.CombinedOutput()
			if err != nil {
				fail()
				t.Errorf("rank %d: %v\n%s", rank, err, out)
			}
			if n := strings.Count(string(out), "    --- PASS: "); n != len(r.Names) && err == nil {
				t.Errorf("rank %d: %d runs of %d", rank, n, len(r.Names))
			}
		})
	}
	all.Wait()
}

// goldensOfGPU is what one rank runs.
func goldensOfGPU(t *testing.T, rank int) {
	b, err := os.ReadFile(os.Getenv(ncclRuns))
	must(t, err)
	var r gpuRuns
	must(t, json.Unmarshal(b, &r))
	last := rank >= (r.Pipe-1)*r.Tensor
	for i, name := range r.Names {
		ids := r.IDs[2*i : 2*i+2]
		run := goldenRun{Opener: cuda.Opener{}, KV: kernels.F32, Block: 16, Chunks: []int{33}, Tensor: r.Tensor, Pipe: r.Pipe, Rows: r.Rows}
		run.Groups = func(t testing.TB, tensor, pipe int) []backend.Group {
			g, err := nccl.Connect(ids[0], rank, tensor, pipe, 10*time.Minute)
			must(t, err)
			ids = ids[1:]
			return []backend.Group{g}
		}
		t.Run(name, func(t *testing.T) {
			before := driver.Counted("vapp_emulated_host")
			want := runBound(t, run, name, enginetest.BoundCUDA)
			if driver.Counted("vapp_emulated_host") == before {
				t.Error("no collective was launched")
			}
			if last && len(want) == 0 {
				t.Error("the last stage has no logits")
			}
			run.Graphs = true
			sameRows(t, "by graphs", runBound(t, run, name, enginetest.BoundCUDA), want)
			if last && r.Tensor == 1 {
				run.Graphs, run.Tensor, run.Pipe = false, 0, 0
				sameRows(t, "in one stage", runBound(t, run, name, enginetest.BoundCUDA), want)
			}
		})
	}
}

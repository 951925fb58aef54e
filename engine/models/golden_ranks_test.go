package models_test

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/internal/goldentest"
	"vapp.dev/kernels"
)

// undivided are the small checkpoints that two tensor parallel ranks do not run, with a word of the reason: their
// widths, or the family.
var undivided = map[string]string{
	"tiny-bias": "vocab_size", "tiny-mha-q8_0": "blocks", "tiny-mha-q4_1": "blocks", "tiny-qwen2-gguf": "blocks", "tiny-qwen3-gguf": "blocks",
	"tiny-w8a16": "blocks", "tiny-w4a16": "blocks", "tiny-awq": "blocks", "tiny-nvfp4-moe": "blocks", "tiny-qwen35-fp8": "blocks", "tiny-gptq": "act-order",
	"tiny-granite4-h": "norms",
}

// apart are those whose ranks round other groups of inputs than one rank, as in vLLM: other experts may be selected.
var apart = map[string]bool{"tiny-w8a8-moe": true}

// unstaged are those that two pipeline stages do not run.
var unstaged = map[string]string{"tiny-gemma4-e": "num_kv_shared_layers", "tiny-qwen3-next": "full_attention"}

// TestRanksFile: testdata/ranks.txt lists what TestGoldenRanks runs, for docs/models.md.
func TestRanksFile(t *testing.T) {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(goldens)) {
		if !enginetest.Tiny(name) || strings.HasSuffix(name, x8) {
			continue
		}
		b.WriteString(name)
		if undivided[name] == "" && !apart[name] {
			b.WriteString(" tp2")
		}
		if unstaged[name] == "" {
			b.WriteString(" pp2")
		}
		b.WriteString("\n")
	}
	goldentest.Compare(t, "testdata/ranks.txt", b.String())
}

// TestGoldenRanks computes the recorded runs on two pipeline stages, which change no bit, and on two tensor parallel
// ranks, of two stages each where the model has them: within the bounds of one rank, the same bits in all chunks. Four
// ranks share two key/value heads.
func TestGoldenRanks(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	runRanks(t, ref.Opener{}, backend.Settings{}, enginetest.BoundFloat)
	for _, name := range []string{"tiny-qwen3", "tiny-olmo2", "tiny-gemma4-moe"} {
		t.Run(name+" on four", func(t *testing.T) {
			runBound(t, goldenRun{Opener: ref.Opener{}, KV: kernels.F32, Block: 16, Chunks: []int{33, 1}, Tensor: 4}, name, enginetest.BoundFloat)
		})
	}
}

func runRanks(t *testing.T, o backend.Opener, s backend.Settings, limit bound) {
	for name := range goldens {
		if !enginetest.Tiny(name) || strings.HasSuffix(name, x8) || !enginetest.RunsOn(name, o.Name()) || o.Name() == "ref" && brief(name) && !all() {
			continue // backend cpu runs all of them
		}
		t.Run(name, func(t *testing.T) {
			run := goldenRun{Opener: o, Settings: s, KV: kernels.F32, Block: 16, Chunks: []int{33, 1, 40}}
			if run.Pipe = 2; refuses(t, name, run, unstaged[name]) {
				run.Pipe = 1
			} else {
				whole := run
				whole.Pipe = 0
				sameRows(t, "in two stages", runBound(t, run, name, limit), runBound(t, whole, name, limit))
			}
			if run.Tensor = 2; apart[name] || refuses(t, name, run, undivided[name]) {
				return
			}
			want := runBound(t, run, name, limit)
			run.Chunks = []int{1 << 20}
			sameRows(t, fmt.Sprintf("on ranks, in chunks of %v", run.Chunks), runBound(t, run, name, limit), want)
		})
	}
}

// refuses reports whether ranks of a run are refused. They are if and only if there is a reason, which the error has.
func refuses(t *testing.T, name string, r goldenRun, reason string) bool {
	t.Helper()
	path := checkpointOf(t, name)
	ck, err := checkpoint.Open(path)
	must(t, err)
	defer ck.Close()
	for rank := range max(1, r.Tensor) * r.Pipe {
		b := models.Build{Shard: backend.Shard{Rank: rank % max(1, r.Tensor), World: max(1, r.Tensor)}, Pipe: backend.Shard{Rank: rank / max(1, r.Tensor), World: r.Pipe}}
		_, err := models.New(ck, b)
		var unsupported *models.UnsupportedError
		switch {
		case errors.As(err, &unsupported) && reason != "" && strings.Contains(err.Error(), reason):
			return true
		case err != nil:
			t.Fatalf("%s, rank %d: %v", filepath.Base(path), rank, err)
		}
	}
	if reason != "" {
		t.Errorf("%d stages of %d ranks are not refused because of %q", r.Pipe, max(1, r.Tensor), reason)
	}
	return false
}

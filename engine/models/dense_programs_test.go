package models

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"vapp.dev/engine/backend"
	"vapp.dev/internal/goldentest"
	"vapp.dev/kernels"
)

// TestDensePrograms compares listings of the dense families' programs with
// testdata/programs/*.txtar, a part for each form.
func TestDensePrograms(t *testing.T) {
	block := quantConfig(`{"quant_method":"fp8","weight_block_size":[128,128]}`)
	for _, name := range []string{"llama-3.2-1b", "qwen2-7b", "qwen3-8b"} {
		t.Run(name, func(t *testing.T) {
			got := &txtar.Archive{Comment: []byte("Weights and programs of " + name + " from its published config: a step of 2048 tokens of 64 sequences.\n\n")}
			for _, form := range []struct {
				name   string
				config map[string]any
				build  Build
			}{
				{"bf16", nil, Build{}},
				{"fp32", nil, Build{Dtype: kernels.F32}},
				{"fp8 at load", nil, Build{Quantize: kernels.F8E4M3}},
				{"fp8 in blocks", block, Build{}},
				{"rank 3 of 4", nil, Build{Shard: backend.Shard{Rank: 3, World: 4}}},
				{"stage 0 of 2", nil, Build{Pipe: backend.Shard{World: 2}}},
				{"stage 1 of 2, rank 1 of 2, fp8 at load", nil, Build{Pipe: backend.Shard{Rank: 1, World: 2}, Shard: backend.Shard{Rank: 1, World: 2}, Quantize: kernels.F8E4M3}},
			} {
				m, err := buildModel(alterConfig(t, name, form.config), form.build)
				if err != nil {
					t.Fatalf("%s: %v", form.name, err)
				}
				got.Files = append(got.Files, txtar.File{Name: form.name, Data: []byte(listing(m, passes(t, m)))})
			}
			path := filepath.Join("testdata", "programs", name+".txtar")
			goldentest.CompareArchive(t, path, got)
		})
	}
}

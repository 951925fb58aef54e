package models

import (
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// TestVerifies checks that every family's step, on the rank that samples, verifies proposals if
// there are any, and that it otherwise records the same ops as without.
func TestVerifies(t *testing.T) {
	for _, name := range []string{"llama-3.2-1b", "qwen2-7b", "qwen3-8b", "gpt-oss-20b", "gemma-4-26b-a4b-it", "gemma-4-31b-it", "Qwen/Qwen3.5-27B"} {
		t.Run(name, func(t *testing.T) {
			ops := func(b Build) []string {
				m, err := buildModel(alterConfig(t, name, nil), b)
				if err != nil {
					t.Fatal(err)
				}
				p, err := recordStep(m, kernels.BF16, backend.Bucket{Tokens: 64, Seqs: 4, Samples: 16})
				if err != nil {
					t.Fatal(err)
				}
				if err := p.Check(); err != nil {
					t.Fatal(err)
				}
				var out []string
				for _, op := range p.Ops {
					out = append(out, backend.OpName(op))
				}
				return out
			}
			plain := ops(Build{})
			if n := len(plain) - 1; plain[n] != "sample" {
				t.Errorf("a step ends with %s", plain[n])
			}
			if got := ops(Build{Verify: 3}); !slices.Equal(got, append(slices.Clone(plain), "verify")) {
				t.Errorf("a step that verifies ends with %v", got[len(got)-3:])
			}
			for rank, last := range []string{"send", "verify"} {
				if got := ops(Build{Verify: 3, Pipe: backend.Shard{Rank: rank, World: 2}}); got[len(got)-1] != last {
					t.Errorf("rank %d of 2 ends with %s", rank, got[len(got)-1])
				}
			}
		})
	}
}

package engine_test

import (
	"errors"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/kv"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// TestHybridAccount computes the accounts of full-size models with windows or chunks on every layout: their
// classes, slabs and page tables, and whether each backend runs them.
func TestHybridAccount(t *testing.T) {
	facts := map[string]backend.Facts{
		"cpu": {Cores: 8, Variants: []string{"avx512"}, PageBytes: 4096, TotalBytes: 1 << 40}, "ref": {Cores: 8, TotalBytes: 1 << 40},
		"cuda": {Capability: "9.0", TotalBytes: 140 << 30, SMs: 132},
	}
	for _, c := range []struct {
		model  string
		build  models.Build
		window int // pages of a sequence at steady state in the class of the window or the chunk
	}{
		{"openai/gpt-oss-20b", models.Build{}, 9},
		{"google/gemma-4-26B-A4B", models.Build{Vision: true}, 65},
		{"google/gemma-4-26B-A4B", models.Build{Quantize: kernels.F8E4M3, Rebuild: true}, 65},
		{"google/gemma-4-31B-it", models.Build{Vision: true}, 65},
		{"meta-llama/Llama-4-Scout-17B-16E-Instruct", models.Build{}, 512},
	} {
		for _, op := range []backend.Opener{cpu.Opener{}, ref.Opener{}, cuda.Opener{}} {
			t.Run(c.model+"/"+op.Name(), func(t *testing.T) {
				m, err := engine.Inspect(engine.Source{Name: c.model, Path: "/absent", Format: "auto", Build: c.build})
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				o := engine.Options{
					MaxModelLen: 32768, MaxNumSeqs: 64, MaxNumBatchedTokens: 2048, BlockSize: 16, KVFormat: kernels.BF16, KVBytes: 1 << 30,
					PrefixCaching: true, ChunkedPrefill: true,
				}
				a, err := engine.NewAccount(o, m, op, facts[op.Name()])
				if err != nil {
					t.Fatal(err)
				}
				if s := a.KV.Specs; len(s) != 2 || s[0].Kind != kv.Full || s[1].Kind != kv.Window && s[1].Kind != kv.Chunk {
					t.Fatalf("classes %+v", s)
				}
				if full, window := a.KV.SequencePages(0, o.MaxModelLen), a.KV.SequencePages(1, o.MaxModelLen); full != 2048 || window != c.window {
					t.Errorf("a sequence holds %d pages and %d of the window, want 2048 and %d", full, window, c.window)
				}
				if a.PlanOnly != nil && !errors.Is(a.PlanOnly, backend.ErrUnsupported) || a.PlanOnly != nil && c.build.Rebuild && op.Name() != "cuda" {
					t.Errorf("plan only: %v", a.PlanOnly)
				}
				if programs := len(a.Reservation.Programs); programs != 1 && !c.build.Vision || programs != 2 && c.build.Vision {
					t.Errorf("%d programs", programs)
				}
				var packed int64
				for _, p := range a.Reservation.Packed {
					packed += p.Bytes
				}
				if got := a.Reservation.Arenas[backend.Weights]; got < packed || got > packed+(4<<20) {
					t.Errorf("an arena of %d bytes for weights of %d", got, packed)
				}
			})
		}
	}
}

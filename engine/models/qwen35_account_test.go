package models_test

import (
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// TestQwen35Account plans the published checkpoint from its name alone: two ranks, two proposals.
func TestQwen35Account(t *testing.T) {
	build := models.Build{Shard: backend.Shard{Rank: 0, World: 2}, Draft: 2}
	m, err := engine.Inspect(engine.Source{Path: "testdata/none", Name: "Qwen/Qwen3.5-27B-FP8", Format: "auto", Build: build})
	must(t, err)
	defer m.Close()
	o := engine.Options{MaxModelLen: 262144, MaxNumSeqs: 32, MaxNumBatchedTokens: 8192, BlockSize: 16, KVFormat: kernels.BF16, KVBytes: 1 << 33, Drafts: 2}
	facts := backend.Facts{Cores: 4, Variants: []string{"avx512"}, PageBytes: 4096, HugeBytes: 2 << 20}
	a, err := engine.NewAccount(o, m, cpu.Opener{}, facts)
	must(t, err)
	if a.PlanOnly != nil {
		t.Errorf("it would not run: %v", a.PlanOnly)
	}
	step := a.Reservation.Step
	if step.Drafts != 2 || step.Samples != 96 || step.MaxPages[0] != 262144/16 || step.MaxPages[1] != 1 {
		t.Errorf("step buffers of %+v", step)
	}
	without := step
	without.Drafts, without.Verify = 0, 0
	if got := step.Bytes() - without.Bytes(); got != 2*(128+256) {
		t.Errorf("what was accepted and proposed takes %d bytes", got)
	}
	if slab := a.KV.SlabBytes; slab < a.Reservation.Classes[1].PageBytes() {
		t.Errorf("a slab of %d bytes holds no state", slab)
	}
}

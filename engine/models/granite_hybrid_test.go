package models

import (
	"errors"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// TestGraniteHybrid plans hybrid models whole and in stages, and checks their classes and who runs them.
func TestGraniteHybrid(t *testing.T) {
	for _, name := range []string{"granite-4.0-h-tiny", "granite-4.0-h-small"} {
		checkBuilt(t, name, Build{Verify: 2})
		for pipe := range 3 {
			checkBuilt(t, name, Build{Pipe: backend.Shard{Rank: pipe, World: 3}})
		}
	}
	m := publishedModel(t, "granite-4.0-h-tiny", Build{})
	k := m.Classes(16, kernels.BF16)
	if len(k) != 2 || k[0].Layers != 4 || !k[0].Plane || k[1].Layers != 36 || k[1].State == nil {
		t.Fatalf("classes %+v", k)
	}
	if token, want := k[0].KOffset(1)*4/16, int64(4*2*4*128*2); token != want {
		t.Errorf("a token takes %d bytes, want %d", token, want)
	}
	if got, want := k[1].State.Bytes(), int64(3*(48*64+2*128)*2+48*64*128*4); got != want {
		t.Errorf("a layer's state takes %d bytes, want %d", got, want)
	}
	p, err := recordStep(m, kernels.BF16, bucket)
	if err != nil {
		t.Fatal(err)
	}
	for on, l := range layouts(t) {
		err := l.Runs(m.Weights(), p)
		if onRef := strings.HasPrefix(on, "ref"); onRef && err != nil || !onRef && (!errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), "Mamba-2")) {
			t.Errorf("%s: %v", on, err)
		}
	}
}

// TestGraniteHybridRefusals checks that configs which the family does not run are refused by field.
func TestGraniteHybridRefusals(t *testing.T) {
	const tiny = "granite-4.0-h-tiny"
	checkRefusals(t, []refusal{
		{tiny, map[string]any{"mamba_n_groups": 8}, Build{}, "mamba_n_groups 8"},
		{tiny, map[string]any{"mamba_n_heads": 7}, Build{}, "mamba_n_heads 7"},
		{tiny, map[string]any{"mamba_proj_bias": true}, Build{}, "mamba_proj_bias"},
		{tiny, map[string]any{"time_step_limit": []float64{0, 1}}, Build{}, "time_step_limit"},
		{tiny, map[string]any{"position_embedding_type": "alibi"}, Build{}, `position_embedding_type "alibi"`},
		{tiny, map[string]any{"layer_types": append(make([]string, 39), "mlp")}, Build{}, `layer_types[0] ""`},
		{tiny, nil, Build{Shard: backend.Shard{World: 2}}, "tensor parallel size 2 of GraniteMoeHybridForCausalLM"},
	})
}

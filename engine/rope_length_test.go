package engine_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/kernels"
)

// TestRopeFollowsModelLen checks that the planned length selects the factors of a longrope: an
// account of at most original_max_position_embeddings tokens has the short ones, a longer one the
// long ones.
func TestRopeFollowsModelLen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	config := `{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":64,"intermediate_size":96,"num_hidden_layers":1,
		"num_attention_heads":4,"vocab_size":512,"max_position_embeddings":256,"original_max_position_embeddings":64,"rms_norm_eps":1e-5,"torch_dtype":"bfloat16",
		"rope_scaling":{"type":"longrope","short_factor":[2,2,2,2,2,2,2,2],"long_factor":[8,8,8,8,8,8,8,8]}}`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := engine.Inspect(engine.Source{Config: file, Format: "auto"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if !m.DependsOnLength() {
		t.Error("a longrope does not depend on the length")
	}
	for length, want := range map[int]float64{64: 0.5, 80: 0.125, 256: 0.125} {
		o := engine.Options{MaxModelLen: length, MaxNumSeqs: 2, MaxNumBatchedTokens: 64, BlockSize: 16, KVFormat: kernels.BF16, KVBytes: 1 << 20, ChunkedPrefill: true}
		a, err := engine.NewAccount(o, m, ref.Opener{}, backend.Facts{})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, w := range a.Reservation.Weights {
			if v := w.Parts[0].Values; len(v) == 8 {
				found = true
				if math.Abs(float64(v[0])-want) > 1e-6 {
					t.Errorf("%d tokens: %s starts with %v, want %v", length, w.Name, v[0], want)
				}
			}
		}
		if !found {
			t.Errorf("%d tokens: no vector of frequencies", length)
		}
	}
}

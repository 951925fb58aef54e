package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/kv"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// FuzzConfig plans any config.json: a refusal is a typed error, and an accepted one has sane numbers.
func FuzzConfig(f *testing.F) {
	list, err := models.Catalogue()
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range list {
		cfg, err := e.Config()
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(cfg.Raw))
	}
	f.Add([]byte(`{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":1048576,"intermediate_size":16777216,"num_hidden_layers":1024,
		"num_attention_heads":16384,"num_key_value_heads":16384,"head_dim":16384,"vocab_size":16777216,"max_position_embeddings":268435456,"rms_norm_eps":1e-5}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(dir, "config.json")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := engine.Inspect(engine.Source{Config: path, Format: "auto"})
		if err != nil {
			typed(t, err)
			return
		}
		defer m.Close()
		o := engine.Options{
			MaxModelLen: min(m.Config.MaxPositionEmbeddings, 4096), MaxNumSeqs: 8, MaxNumBatchedTokens: 256, BlockSize: 16,
			KVFormat: kernels.BF16, ChunkedPrefill: true,
		}
		a, err := engine.NewAccount(o, m, cuda.Opener{}, backend.Facts{Capability: "9.0", TotalBytes: 80 << 30, SMs: 132})
		if err != nil {
			typed(t, err)
			return
		}
		for arena, n := range a.Reservation.Arenas {
			if n < 0 || n > 1<<58 {
				t.Errorf("arena %v has %d bytes", backend.Arena(arena), n)
			}
		}
		if n := a.Reservation.Arenas[backend.Weights]; n == 0 {
			t.Error("a model without weights")
		}
	})
}

// typed checks that an error has a type that names its source.
func typed(t *testing.T, err error) {
	t.Helper()
	var file *checkpoint.Error
	var unsupported *models.UnsupportedError
	var mismatch *models.MismatchError
	var page *kv.SpecError
	if !errors.As(err, &file) && !errors.As(err, &unsupported) && !errors.As(err, &mismatch) && !errors.As(err, &page) &&
		!errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("an error without a type: %v", err)
	}
}

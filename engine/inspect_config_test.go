package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/models"
)

// TestInspectConfig: a config.json replaces the named model, by its own path and by its directory's.
func TestInspectConfig(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.json")
	write := func(s string) {
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good := `{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":64,"intermediate_size":96,"num_hidden_layers":3,
		"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":512,"max_position_embeddings":128,"rms_norm_eps":1e-5,"torch_dtype":"bfloat16"}`
	write(good)
	for _, path := range []string{dir, file} {
		m, err := engine.Inspect(engine.Source{Path: "testdata/absent", Name: "nobody/knows", Format: "auto", Config: path})
		if err != nil {
			t.Fatal(err)
		}
		if m.Where != engine.FromConfig || m.Config.NumLayers != 3 || m.Source.Name != path || m.Loadable() == nil {
			t.Errorf("%s: %s, %d layers, named %s, loadable: %v", path, m.Where, m.Config.NumLayers, m.Source.Name, m.Loadable())
		}
		m.Close()
	}
	var bad *checkpoint.Error
	write(strings.Replace(good, "512", "-1", 1))
	if _, err := engine.Inspect(engine.Source{Config: dir}); !errors.As(err, &bad) || bad.Field != "vocab_size" {
		t.Errorf("a bad config: %v", err)
	}
	if _, err := engine.Inspect(engine.Source{Config: filepath.Join(dir, "none.json")}); !errors.As(err, &bad) {
		t.Errorf("no config: %v", err)
	}
	if _, err := engine.Inspect(engine.Source{Config: dir, Format: "gguf"}); err == nil || !strings.Contains(err.Error(), "loadFormat is gguf") {
		t.Errorf("gguf: %v", err)
	}
	write(strings.Replace(good, "LlamaForCausalLM", "UnicornForCausalLM", 1))
	var unsupported *models.UnsupportedError
	if _, err := engine.Inspect(engine.Source{Config: dir}); !errors.As(err, &unsupported) {
		t.Errorf("an unknown architecture: %v", err)
	}
}

func TestMissingErrorSuggests(t *testing.T) {
	_, err := engine.Inspect(engine.Source{Path: "testdata/absent", Name: "google/gemma4-26b", Format: "auto"})
	var missing *engine.MissingError
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "did you mean google/gemma-4-26B-A4B-it") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
	if _, err = engine.Inspect(engine.Source{Path: "testdata/absent", Name: "nobody/knows", Format: "auto"}); strings.Contains(err.Error(), "did you mean") {
		t.Errorf("%v", err)
	}
}

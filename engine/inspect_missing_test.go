package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vapp.dev/engine"
)

// TestMissingPath names paths that do not exist; DIR is a folder with two GGUF files.
func TestMissingPath(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"SmolLM2-135M.Q4_1.gguf", "other.gguf", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"DIR/smollm2-135m.gguf": "model DIR/smollm2-135m.gguf: no such file or folder; did you mean DIR/SmolLM2-135M.Q4_1.gguf?",
		"DIR/x.gguf":            "model DIR/x.gguf: no such file or folder; its folder has DIR/SmolLM2-135M.Q4_1.gguf, DIR/other.gguf; want a GGUF file, a folder with safetensors, or org/name of the hub",
		"DIR/a/b/c":             "model DIR/a/b/c: no such file or folder (DIR/a does not exist); want a GGUF file, a folder with safetensors, or org/name of the hub",
	} {
		path = strings.ReplaceAll(path, "DIR", dir)
		_, err := engine.Inspect(engine.Source{Path: path, Name: path, Format: "auto"})
		var missing *engine.MissingError
		if want = strings.ReplaceAll(want, "DIR", dir); !errors.As(err, &missing) || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
	_, err := engine.Inspect(engine.Source{Path: filepath.Join(dir, "q/x.gguf"), Name: "./q/x.gguf", Format: "auto"})
	if want := "model ./q/x.gguf: no file or folder at " + filepath.Join(dir, "q/x.gguf") + " ("; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v\nwant %s…", err, want)
	}
}

// TestUnreadFolder checks what is said where a folder has a config and other weights than safetensors.
func TestUnreadFolder(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("config.json", `{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":64,"intermediate_size":96,"num_hidden_layers":3,
		"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":512,"max_position_embeddings":128,"rms_norm_eps":1e-5,"torch_dtype":"bfloat16"}`)
	put("pytorch_model.bin", "")
	source := engine.Source{Path: dir, Name: "m", Format: "auto"}
	m, err := engine.Inspect(source)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if want := "model m: " + dir + " holds pytorch_model.bin, which is not read; want a GGUF file or a folder with safetensors (planned from the config)"; m.Loadable() == nil || m.Loadable().Error() != want {
		t.Errorf("got %v\nwant %s", m.Loadable(), want)
	}
	// A config describes no GGUF file: what it plans would be another model.
	put("m.Q4_0.gguf", "GGUF")
	if _, err := engine.Inspect(source); err == nil || !strings.Contains(err.Error(), "holds a GGUF model; give the file: "+filepath.Join(dir, "m.Q4_0.gguf")) {
		t.Errorf("%v", err)
	}
	source.Format = "dummy"
	d, err := engine.Inspect(source)
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
}

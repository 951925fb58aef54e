package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// poolingDir returns a checkpoint whose directory has these files.
func poolingDir(t testing.TB, files map[string]string) *Checkpoint {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &Checkpoint{path: dir, cfg: Config{Dialect: "huggingface"}}
}

const (
	poolingModule = `{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"}`
	normalModule  = `{"idx":2,"name":"2","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}`
	textModule    = `{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"}`
)

func TestPoolingConfig(t *testing.T) {
	for name, c := range map[string]struct {
		modules, pooling string
		want             *PoolingConfig
		wrong            string
	}{
		"last, normalized":   {"[" + textModule + "," + poolingModule + "," + normalModule + "]", `{"pooling_mode_lasttoken":true,"pooling_mode_mean_tokens":false}`, &PoolingConfig{"LAST", true, "1_Pooling/config.json"}, ""},
		"mean":               {"[" + poolingModule + "]", `{"pooling_mode_mean_tokens":true}`, &PoolingConfig{"MEAN", false, "1_Pooling/config.json"}, ""},
		"one word":           {"[" + poolingModule + "]", `{"pooling_mode":"cls"}`, &PoolingConfig{"CLS", false, "1_Pooling/config.json"}, ""},
		"nothing":            {"", "", nil, ""},
		"no pooling":         {"[" + textModule + "]", "", nil, ""},
		"two modes":          {"[" + poolingModule + "]", `{"pooling_mode_mean_tokens":true,"pooling_mode_cls_token":true}`, nil, "has 2 pooling modes"},
		"no mode":            {"[" + poolingModule + "]", `{}`, nil, "has 0 pooling modes"},
		"another mode":       {"[" + poolingModule + "]", `{"pooling_mode_max_tokens":true}`, nil, "is not supported"},
		"a projection":       {`[{"type":"sentence_transformers.models.Dense","path":"2_Dense"}]`, "", nil, "Dense"},
		"out of the folder":  {`[{"type":"x.Pooling","path":"../1_Pooling"}]`, "", nil, "not a subdirectory"},
		"twice":              {"[" + poolingModule + "," + poolingModule + "]", `{"pooling_mode_mean_tokens":true}`, nil, "not a subdirectory with the only"},
		"no list":            {`{}`, "", nil, "is not a list"},
		"no config":          {"[" + poolingModule + "]", "", nil, "1_Pooling"},
		"a mode of no truth": {"[" + poolingModule + "]", `{"pooling_mode_mean_tokens":3}`, nil, "pooling_mode_mean_tokens"},
	} {
		files := map[string]string{}
		if c.modules != "" {
			files["modules.json"] = c.modules
		}
		if c.pooling != "" {
			files["1_Pooling/config.json"] = c.pooling
		}
		got, err := poolingDir(t, files).PoolingConfig()
		switch {
		case c.wrong != "":
			if err == nil || !strings.Contains(err.Error(), c.wrong) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v, want %q", name, err, c.wrong)
			}
		case err != nil || (got == nil) != (c.want == nil) || got != nil && *got != *c.want:
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestPoolingConfigGGUF checks llama.cpp's numbers of pooling types.
func TestPoolingConfigGGUF(t *testing.T) {
	for value, want := range map[string]string{"0": "", "1": "MEAN", "2": "CLS", "3": "LAST", "4": "no"} {
		c := &Checkpoint{path: "x.gguf", cfg: Config{Dialect: "gguf", Raw: []byte(`{"general.architecture":"qwen3","qwen3.pooling_type":` + value + `}`)}}
		s, err := c.PoolingConfig()
		if (err != nil) != (want == "no") || err == nil && (s == nil) != (want == "") || s != nil && s.Pooling != want {
			t.Errorf("%s: %+v, %v", value, s, err)
		}
	}
}

// FuzzPoolingConfig checks that any content of the two files is read, or refused in one line.
func FuzzPoolingConfig(f *testing.F) {
	f.Add("["+poolingModule+"]", `{"pooling_mode_mean_tokens":true}`)
	f.Add("["+textModule+","+poolingModule+","+normalModule+"]", `{"pooling_mode":"lasttoken"}`)
	f.Add(`[{"type":"Pooling","path":"1_Pooling"}]`, `[]`)
	f.Fuzz(func(t *testing.T, modules, pooling string) {
		s, err := poolingDir(t, map[string]string{"modules.json": modules, "1_Pooling/config.json": pooling}).PoolingConfig()
		var known *Error
		if err != nil && (!errors.As(err, &known) && !errors.Is(err, os.ErrNotExist) || strings.Contains(err.Error(), "\n")) {
			t.Fatalf("%T %v", err, err)
		}
		if s != nil && s.Pooling != "LAST" && s.Pooling != "MEAN" && s.Pooling != "CLS" {
			t.Fatalf("%+v", s)
		}
	})
}

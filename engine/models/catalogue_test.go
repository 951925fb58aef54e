package models

import (
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
)

func TestFindEntry(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"meta-llama/Llama-3.2-1B-Instruct", "meta-llama/Llama-3.2-1B-Instruct"},
		{"meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-1B-Instruct"},
		{"META-LLAMA/llama-3.2-1b", "meta-llama/Llama-3.2-1B-Instruct"},
		{"llama-3.2-1b-instruct", "meta-llama/Llama-3.2-1B-Instruct"},
		{"unsloth/Llama-3.2-3B-Instruct", "meta-llama/Llama-3.2-3B-Instruct"},
		{"meta-llama/Meta-Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct"},
		{"Qwen/Qwen2-7B", "Qwen/Qwen2-7B"}, // not the instruct model: its positions differ
		{"Qwen/Qwen2-7B-Instruct", "Qwen/Qwen2-7B-Instruct"},
		{"qwen2.5-3b", "Qwen/Qwen2.5-3B-Instruct"},
		{"google/gemma-4-26B-A4B", "google/gemma-4-26B-A4B-it"},
		{"gemma-4-31b-it", "google/gemma-4-31B-it"},
		{"openai/gpt-oss-20b", "openai/gpt-oss-20b"},
		{"openai/gpt-oss-20b-it", "openai/gpt-oss-20b"},
		{"meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.3-70B-Instruct"},
		{"nobody/knows", ""}, {"", ""}, {"/", ""}, {"-it", ""}, {"..", ""}, {"../catalogue/index", ""},
	} {
		e, ok, err := FindEntry(c.name)
		if err != nil || ok != (c.want != "") || e.Name != c.want {
			t.Errorf("%q: %q %v %v, want %q", c.name, e.Name, ok, err, c.want)
		}
	}
}

func TestNear(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"meta-llama/Llama-3.2-2B", "meta-llama/Llama-3.2-1B-Instruct"},
		{"gpt-oss-20", "openai/gpt-oss-20b"},
		{"google/gemma4-26b", "google/gemma-4-26B-A4B-it"},
		{"Qwen/Qwen2.5-7B-Instuct", "Qwen/Qwen2.5-7B-Instruct"},
	} {
		if got := Suggest(c.name); !slices.Contains(got, c.want) || len(got) > 3 {
			t.Errorf("%s: %q, want %s among them", c.name, got, c.want)
		}
	}
	if got := Suggest("nobody/knows"); got != nil {
		t.Errorf("near nothing: %q", got)
	}
}

// TestCatalogue checks every entry against its config, the tensors that the config implies and the
// model built from them.
func TestCatalogue(t *testing.T) {
	list, err := Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	files, err := catalogue.ReadDir("catalogue")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{"index.json": true}
	names := map[string]bool{}
	for _, e := range list {
		seen := used[e.File+".json"]
		used[e.File+".json"] = true
		for _, n := range e.names() {
			if names[hubName(n)] || strings.Count(n, "/") != 1 {
				t.Errorf("%s: the name %s is another's too, or no hub name", e.Name, n)
			}
			names[hubName(n)] = true
		}
		if e.About == "" || e.Licence == "" || e.Quantization == "" {
			t.Errorf("%s: %+v", e.Name, e)
		}
		t.Run(e.Name, func(t *testing.T) { checkEntry(t, e, !seen) })
	}
	for _, f := range files {
		if !used[f.Name()] {
			t.Errorf("no entry has the file %s", f.Name())
		}
	}
}

// checkEntry builds the model of an entry, unless another entry with the same config has built it.
func checkEntry(t *testing.T, e Entry, build bool) {
	cfg, err := e.Config()
	if err != nil {
		t.Fatal(err)
	}
	if quantized := cfg.QuantizationConfig != nil; quantized != (e.Quantization != "bf16") {
		t.Errorf("quantization %q, the config says %s", e.Quantization, cfg.QuantizationConfig)
	}
	tensors, err := Tensors(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := countTrained(tensors); got != e.Parameters {
		t.Errorf("%d parameters, the tensors hold %d", e.Parameters, got)
	}
	if !build {
		return
	}
	c, err := checkpoint.Dummy(cfg, tensors, 1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(c, Build{Shard: backend.Whole})
	if err != nil {
		t.Fatal(err)
	}
	if m.Vocab() != cfg.VocabSize || len(m.Weights()) == 0 {
		t.Errorf("vocabulary %d of %d, %d weights", m.Vocab(), cfg.VocabSize, len(m.Weights()))
	}
}

// countTrained counts the weights as trained: packed ones individually, scales not at all.
func countTrained(tensors []checkpoint.TensorInfo) (n int64) {
	for _, t := range tensors {
		switch {
		case strings.HasSuffix(t.Name, "_scale_inv") || strings.HasSuffix(t.Name, "_scales") || strings.HasSuffix(t.Name, checkpoint.GlobalScaleSuffix):
		case strings.HasSuffix(t.Name, "_blocks"):
			n += 2 * t.Elements() // two 4-bit weights per byte
		default:
			n += t.Elements()
		}
	}
	return n
}

func BenchmarkFindEntry(b *testing.B) {
	for b.Loop() {
		if _, ok, err := FindEntry("google/gemma-4-26B-A4B"); !ok || err != nil {
			b.Fatal(err)
		}
	}
}

package models

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"vapp.dev/engine/checkpoint"
)

// TestResemblance checks which family an unknown architecture resembles, and what is said to differ.
func TestResemblance(t *testing.T) {
	base, ok, err := CatalogueConfig("Qwen/Qwen3-8B")
	if err != nil || !ok {
		t.Fatal(err)
	}
	config := func(change map[string]any) checkpoint.Config {
		var m map[string]any
		if err := json.Unmarshal(base.Raw, &m); err != nil {
			t.Fatal(err)
		}
		m["architectures"] = []string{"UnicornForCausalLM"}
		maps.Copy(m, change)
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		c, err := checkpoint.ParseConfig("config.json", b)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	_, err = Tensors(config(map[string]any{"num_experts": 8, "norm_topk_prob": true}))
	for _, want := range []string{"UnicornForCausalLM", "resembles Qwen3ForCausalLM most; it adds the fields norm_topk_prob, num_experts"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
	f, _ := findFamily(base, nil)
	list := f.tensors(base)
	list = append(list, checkpoint.TensorInfo{Name: "model.layers.3.mlp.gate.weight"})
	if got := resemblance(config(nil), list); got != "; its config resembles Qwen3ForCausalLM most; it adds the tensors layers.N.mlp.gate.weight" {
		t.Errorf("with tensors: %q", got)
	}
	strange := checkpoint.Config{Dialect: "huggingface", Raw: json.RawMessage(`{"d_model": 1, "n_layer": 2, "d_conv": 3}`)}
	if got := resemblance(strange, nil); got != "" {
		t.Errorf("a config like no other: %q", got)
	}
}

package models

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/internal/goldentest"
	"vapp.dev/kernels"
)

// familyForm is a way to build a family's model: stored or converted weights, parallel ranks, a head.
type familyForm struct {
	name   string
	change map[string]any // of the config
	build  Build
	stored kernels.Format // the format of some of the weights; Invalid: any
	ranks  bool           // devices plan it and do not run it
}

func familyForms() []familyForm {
	awq := strings.Replace(awqConfig, "128", "32", 1)
	forms := []familyForm{
		{name: "plain"},
		{name: "awq", change: quantConfig(awq), stored: kernels.I4},
		{name: "gptq", change: quantConfig(gptqConfig(4, `"sym":true`)), stored: kernels.I4},
		{name: "int4", change: quantConfig(string(int4Config(`"strategy":"group","group_size":32,"symmetric":false`))), stored: kernels.I4},
		{name: "int8", change: quantConfig(string(int8Config("int-quantized", int8Channel, int8Token))), stored: kernels.I8},
		{name: "fp8", change: quantConfig(string(compressed("channel", `["lm_head"]`))), stored: kernels.F8E4M3},
		{name: "nvfp4", change: quantConfig(`{"quant_method":"modelopt","quant_algo":"NVFP4","group_size":16,"ignore":["lm_head"]}`), stored: kernels.NVFP4},
		{name: "fp8-at-load", build: Build{Quantize: kernels.F8E4M3}, stored: kernels.F8E4M3},
		{name: "tp2", build: Build{Shard: backend.Shard{Rank: 1, World: 2}}, ranks: true},
		{name: "pp2", build: Build{Pipe: backend.Shard{Rank: 1, World: 2}}, ranks: true},
		{name: "pooling", build: Build{Pooling: Pooling{Head: Hidden}}},
		{name: "speculate", build: Build{Verify: 3}},
	}
	slots := LoRA{Slots: 2, Rank: 16}
	return append(forms,
		familyForm{name: "lora", build: Build{LoRA: slots}},
		familyForm{name: "lora-tp2", build: Build{LoRA: slots, Shard: backend.Shard{Rank: 1, World: 2}}, ranks: true},
		familyForm{name: "lora-pp2", build: Build{LoRA: slots, Pipe: backend.Shard{Rank: 1, World: 2}}, ranks: true},
		familyForm{name: "lora-awq", build: Build{LoRA: slots}, change: quantConfig(awq), stored: kernels.I4})
}

// TestForms builds every architecture in every form, from the config of a recorded checkpoint or of
// the catalogue, and checks its programs and weights on ref, a CPU and an H100.
// testdata/forms.txt has what can be built. docs/models.md is made from it.
func TestForms(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	on := map[string]backend.Layout{"cuda": onDevice(t, "h100")}
	for _, o := range []struct {
		opener  backend.Opener
		variant string
	}{{ref.Opener{}, ""}, {cpu.Opener{}, "avx2"}} {
		l, err := o.opener.Layout(machine, backend.Settings{Variant: o.variant})
		if err != nil {
			t.Fatal(err)
		}
		on[o.opener.Name()] = l
	}
	configs := familyConfigs(t)
	var text, refusals strings.Builder // refusals: one line for each family and reason
	for _, f := range families {
		text.WriteString(f.architecture)
		if len(configs[f.architecture]) == 0 {
			t.Errorf("no config of %s", f.architecture)
		}
		var why []string
		of := map[string][]string{} // reason → forms
		for _, form := range familyForms() {
			var last error
			for _, raw := range configs[f.architecture] {
				ran, err := form.on(on, raw)
				if err == nil {
					fmt.Fprintf(&text, " %s=%s", form.name, strings.Join(ran, ","))
					last = nil
					break
				}
				var refused *UnsupportedError
				if !errors.As(err, &refused) && !errors.Is(err, backend.ErrUnsupported) {
					t.Errorf("%s, %s: %v", f.architecture, form.name, err)
				}
				last = err
			}
			if last != nil {
				if of[last.Error()] == nil {
					why = append(why, last.Error())
				}
				of[last.Error()] = append(of[last.Error()], form.name)
			}
		}
		for _, w := range why {
			fmt.Fprintf(&refusals, "%s %s: %s\n", f.architecture, strings.Join(of[w], ","), w)
		}
		text.WriteByte('\n')
	}
	goldentest.Compare(t, "testdata/forms.txt", text.String()+"\n"+refusals.String())
}

// familyConfigs returns, by architecture, the configs of the recorded checkpoints and then those of
// the catalogue, all without quantization.
func familyConfigs(t *testing.T) map[string][]map[string]any {
	t.Helper()
	out := map[string][]map[string]any{}
	add := func(data []byte) {
		var m map[string]any
		if err := json.Unmarshal(data, &m); err != nil {
			t.Fatal(err)
		}
		delete(m, "quantization_config")
		delete(m, "compression_config")
		list, ok := m["architectures"].([]any)
		if !ok || len(list) == 0 {
			return
		}
		name := list[0].(string)
		out[name] = append(out[name], widened(m))
		if text, ok := m["text_config"].(map[string]any); ok {
			name = strings.TrimSuffix(name, conditionalSuffix) + causalSuffix
			if text["model_type"] == "ministral3" {
				name = "Ministral3ForCausalLM"
			}
			text = widened(text)
			text["architectures"], text["torch_dtype"] = []any{name}, "bfloat16"
			out[name] = append(out[name], text)
		}
	}
	files, err := filepath.Glob("testdata/tiny-*/config.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.Contains(f, "-tower") || strings.Contains(f, "-mtp") {
			continue // parts of a model
		}
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		add(data)
	}
	list, err := Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		data, err := catalogue.ReadFile("catalogue/" + e.File + ".json")
		if err != nil {
			t.Fatal(err)
		}
		add(data)
	}
	for _, c := range out["MistralForCausalLM"] { // the same recipe
		c = maps.Clone(c)
		c["architectures"] = []any{"MinistralForCausalLM"}
		out["MinistralForCausalLM"] = append(out["MinistralForCausalLM"], c)
	}
	return out
}

// widened returns a config whose MLPs are as wide as blocks of every format and two ranks need.
func widened(m map[string]any) map[string]any {
	m = maps.Clone(m)
	if text, ok := m["text_config"].(map[string]any); ok {
		m["text_config"] = widened(text)
	}
	for _, key := range []string{"intermediate_size", "intermediate_size_mlp", "moe_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size", "hidden_size_per_layer_input"} {
		if n, ok := m[key].(float64); ok {
			m[key] = (int(n) + 127) / 128 * 128
		}
	}
	return m
}

// on builds the form from a config. It returns the layouts that run it, or plan it if it has ranks,
// and the first error if that are none.
func (f familyForm) on(layouts map[string]backend.Layout, raw map[string]any) ([]string, error) {
	m := maps.Clone(raw)
	maps.Copy(m, f.change)
	if f.change != nil {
		m["vision_config"] = nil // towers are not quantized
	}
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	c, err := checkpoint.ParseConfig("config.json", data)
	if err != nil {
		return nil, &UnsupportedError{"the config", err.Error()}
	}
	built, err := buildModel(c, f.build)
	if err != nil {
		return nil, err
	}
	if f.stored != kernels.Invalid && !slices.ContainsFunc(built.Weights(), func(w backend.WeightSpec) bool { return w.Stored() == f.stored }) {
		return nil, fmt.Errorf("no weight is stored as %v", f.stored)
	}
	p, err := recordStep(built, kernels.BF16, bucket)
	if err != nil {
		return nil, err
	}
	var ran []string
	for _, name := range slices.Sorted(maps.Keys(layouts)) {
		l := layouts[name]
		if _, err := dryRun(l, built, p); err != nil {
			return nil, err
		}
		if f.ranks || l.Runs(built.Weights(), p) == nil {
			ran = append(ran, name)
		}
	}
	if ran == nil {
		return nil, fmt.Errorf("no layout runs it")
	}
	return ran, nil
}

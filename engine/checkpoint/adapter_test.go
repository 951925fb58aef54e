package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// adapterFiles are the two files of an adapter.
type adapterFiles struct {
	config  map[string]any
	tensors map[string][]int64 // F32, of zeros
}

func plainAdapter() adapterFiles {
	return adapterFiles{
		config: map[string]any{"peft_type": "LORA", "r": 4, "lora_alpha": 8},
		tensors: map[string][]int64{
			"base_model.model.model.layers.0.mlp.up_proj.lora_A.weight":      {4, 6},
			"base_model.model.model.layers.0.mlp.up_proj.lora_B.weight":      {10, 4},
			"base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight": {4, 6},
			"base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight": {8, 4},
		},
	}
}

// bytes returns the files' contents.
func (a adapterFiles) bytes() (config, weights []byte) {
	config, _ = json.Marshal(a.config)
	head, at := map[string]any{}, int64(0)
	for name, shape := range a.tensors {
		n := int64(4)
		for _, d := range shape {
			n *= d
		}
		head[name] = map[string]any{"dtype": "F32", "shape": shape, "data_offsets": []int64{at, at + n}}
		at += n
	}
	text, _ := json.Marshal(head)
	weights = binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return config, append(append(weights, text...), make([]byte, at)...)
}

func (a adapterFiles) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	config, weights := a.bytes()
	for name, b := range map[string][]byte{adapterConfig: config, adapterWeights: weights} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestReadAdapter reads ranks, alphas and scales as PEFT computes them.
func TestReadAdapter(t *testing.T) {
	f := plainAdapter()
	f.config["use_rslora"] = true
	f.config["rank_pattern"] = map[string]any{"q_proj": 2}
	f.config["alpha_pattern"] = map[string]any{`.*\.0\.mlp\.up_proj`: 3}
	f.tensors["base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight"] = []int64{2, 6}
	f.tensors["base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight"] = []int64{8, 2}
	a, err := ReadAdapter(f.write(t), 8)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if len(a.Modules) != 2 || a.Rank != 4 {
		t.Fatalf("%d modules of rank %d", len(a.Modules), a.Rank)
	}
	up, q := a.Modules[0], a.Modules[1]
	if up.Module != "model.layers.0.mlp.up_proj" || up.Rank != 4 || up.In != 6 || up.Out != 10 || up.Scale != 3.0/2 {
		t.Errorf("%+v", up)
	}
	if q.Module != "model.layers.1.self_attn.q_proj" || q.Rank != 2 || q.In != 6 || q.Out != 8 || q.Scale != 8/math.Sqrt(2) {
		t.Errorf("%+v", q)
	}
	A, B, err := a.Matrices(q)
	if err != nil || len(A) != 12 || len(B) != 16 {
		t.Errorf("%d and %d numbers: %v", len(A), len(B), err)
	}
}

// TestAdapterRefusals changes one thing of an adapter that is read. Each change is refused by its place and a
// part of the message.
func TestAdapterRefusals(t *testing.T) {
	const q = "base_model.model.model.layers.1.self_attn.q_proj."
	set := func(key string, value any) func(*adapterFiles) {
		return func(f *adapterFiles) { f.config[key] = value }
	}
	tensor := func(name string, shape ...int64) func(*adapterFiles) {
		return func(f *adapterFiles) { f.tensors[name] = shape }
	}
	for _, c := range []struct {
		change      func(*adapterFiles)
		field, want string
		form        bool // wraps ErrAdapterForm
	}{
		{set("peft_type", "IA3"), "peft_type", "is IA3", true},
		{set("use_dora", true), "use_dora", "is true", true},
		{set("lora_bias", true), "lora_bias", "is true", true},
		{set("use_qalora", true), "use_qalora", "is true", true},
		{set("fan_in_fan_out", true), "fan_in_fan_out", "is true", true},
		{set("bias", "all"), "bias", "is all", true},
		{set("layer_replication", []any{[]int{0, 2}}), "layer_replication", "is set", true},
		{set("modules_to_save", []string{"lm_head"}), "modules_to_save", "is set", true},
		{set("trainable_token_indices", []int{1}), "trainable_token_indices", "is set", true},
		{set("target_parameters", []string{"mlp.experts.gate_up_proj"}), "target_parameters", "is set", true},
		{set("alora_invocation_tokens", []int{1, 2}), "alora_invocation_tokens", "is set", true},
		{set("init_lora_weights", "pissa"), "init_lora_weights", "changes the base's weights", true},
		{set("r", 0), "r", "", false},
		{set("r", 513), "r", "", false},
		{set("r", nil), "r", "", false},
		{set("lora_alpha", -1), "lora_alpha", "", false},
		{set("alpha_pattern", map[string]any{"q_proj": -2}), "alpha_pattern.q_proj", "", false},
		{set("rank_pattern", []int{2}), "rank_pattern", "", false},
		{set("r", 16), "lora_A.weight", "the rank of the module is 16", false},
		{set("rank_pattern", map[string]any{"(": 2}), "rank_pattern.(", "regular expression", false},
		{set("rank_pattern", map[string]any{"q_proj": 2.5}), "rank_pattern.q_proj", "", false},
		{tensor(q+"lora_A.weight", 9, 6), q + "lora_A.weight", "has shape [9 6]", false},
		{tensor(q+"lora_A.weight", 4), q + "lora_A.weight", "a matrix of f32", false},
		{tensor("base_model.model.lm_head.weight", 4, 4), "base_model.model.lm_head.weight", "linear layers alone", true},
		{tensor("base_model.model.model.embed_tokens.lora_embedding_A", 4, 4), "base_model.model.model.embed_tokens.lora_embedding_A", "an embedding", true},
		{tensor(q+"lora_magnitude_vector", 4), q + "lora_magnitude_vector", "DoRA", true},
		{tensor(q+"lora_B.bias", 4), q + "lora_B.bias", "is a bias", true},
		{func(f *adapterFiles) { delete(f.tensors, q+"lora_A.weight") }, q + "lora_A.weight", "is missing", false},
		{func(f *adapterFiles) { delete(f.tensors, q+"lora_B.weight") }, q + "lora_B.weight", "is missing", false},
		{func(f *adapterFiles) { f.tensors = nil }, "", "no tensors", false},
	} {
		f := plainAdapter()
		c.change(&f)
		_, err := ReadAdapter(f.write(t), 8)
		var at *Error
		if !errors.As(err, &at) || at.Field != c.field && !strings.HasSuffix(at.Field, c.field) || !strings.Contains(at.Msg, c.want) || errors.Is(err, ErrAdapterForm) != c.form {
			t.Errorf("%s: %v (field %+v)", c.field, err, at)
		}
	}
	if _, err := ReadAdapter(plainAdapter().write(t), 2); err == nil || !strings.Contains(err.Error(), "raise lora.maxRank") {
		t.Errorf("rank 4 above 2: %v", err)
	}
	dir := plainAdapter().write(t)
	if err := os.Rename(filepath.Join(dir, adapterWeights), filepath.Join(dir, "adapter_model.bin")); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadAdapter(dir, 8); !errors.Is(err, ErrAdapterForm) || !strings.Contains(err.Error(), "safe_serialization") {
		t.Errorf("adapter_model.bin: %v", err)
	}
	if _, err := ReadAdapter(t.TempDir(), 8); err == nil || !strings.Contains(err.Error(), adapterConfig) {
		t.Errorf("an empty folder: %v", err)
	}
}

// FuzzAdapter reads arbitrary files of an adapter.
func FuzzAdapter(f *testing.F) {
	config, weights := plainAdapter().bytes()
	f.Add(config, weights)
	f.Fuzz(func(t *testing.T, config, weights []byte) {
		c, err := parseAdapterConfig(adapterConfig, config)
		if err == nil {
			var list []TensorInfo
			if list, err = parseSafetensors(adapterWeights, weights); err == nil {
				err = (&Adapter{}).pair(adapterWeights, list, c, 64)
			}
		}
		var at *Error
		if err != nil && !errors.As(err, &at) {
			t.Errorf("%T: %v", err, err)
		}
	})
}

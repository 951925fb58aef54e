package models

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// textAlone returns the published text_config as the config of a text model.
func textAlone(t *testing.T, change func(map[string]any)) checkpoint.Config {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(alterConfig(t, qwen27, nil).Raw, &m); err != nil {
		t.Fatal(err)
	}
	text := m["text_config"].(map[string]any)
	text["architectures"] = []string{qwen35Text}
	if change != nil {
		change(text)
	}
	raw, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.ParseConfig("config.json", raw)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestQwen35Text checks the separate text model: its tensors have other names and no tower, no
// scales in bf16, and its head may be tied.
func TestQwen35Text(t *testing.T) {
	c := textAlone(t, nil)
	list, err := Tensors(c)
	if err != nil {
		t.Fatal(err)
	}
	var elements int64
	for _, i := range list {
		if strings.HasPrefix(i.Name, "model.language_model.") || strings.HasPrefix(i.Name, "model.visual.") || isScale(i.Name) {
			t.Errorf("%s is not a text model's", i.Name)
		}
		elements += i.Elements()
	}
	const tower = 460_730_096
	if elements != 27_781_427_952-tower { // published without scales
		t.Errorf("%d elements, %d less than published", elements, 27_781_427_952-elements)
	}
	m, err := buildModel(c, Build{Draft: 1, Quantize: kernels.F8E4M3})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range m.Weights() {
		eight := w.Target == kernels.F8E4M3
		if linear := slices.Contains([]string{"attention", "mlp", "linear_attention"}, w.Group) && w.Use == 1 && !strings.HasSuffix(w.Name, "in_ba"); linear && !eight {
			t.Errorf("%s stays %v", w.Name, w.Stored())
		}
		if small := strings.HasSuffix(w.Name, "in_ba") || w.Name == "mtp.fc" || w.Group == "head" || w.Group == "embedding"; small && eight {
			t.Errorf("%s is quantized", w.Name)
		}
	}
	m, err = buildModel(textAlone(t, func(m map[string]any) { m["tie_word_embeddings"] = true }), Build{Draft: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range m.Weights() {
		if w.Group == "head" {
			t.Error("a tied model has a head")
		}
	}
	if _, err := recordStep(m, kernels.BF16, draftBucket(1)); err != nil {
		t.Error(err)
	}
}

// TestQwen35Defaults checks that absent keys have transformers' defaults.
func TestQwen35Defaults(t *testing.T) {
	q, err := readQwen35(textAlone(t, func(m map[string]any) {
		for _, k := range []string{"layer_types", "partial_rotary_factor", "linear_num_value_heads", "linear_conv_kernel_dim"} {
			delete(m, k)
		}
		delete(m["rope_parameters"].(map[string]any), "partial_rotary_factor")
		m["full_attention_interval"] = 8
	}))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(q.rope.InvFreq); n != 32 || q.valueHeads != 32 || q.kernel != 4 {
		t.Errorf("%d frequencies, %d value heads, a kernel of %d", n, q.valueHeads, q.kernel)
	}
	for i, kind := range q.types {
		if (kind == fullAttention) != (i%8 == 7) {
			t.Errorf("layer %d is %s", i, kind)
		}
	}
	whole, err := readQwen35(textAlone(t, func(m map[string]any) {
		m["rope_parameters"].(map[string]any)["partial_rotary_factor"] = 1.0
	}))
	if err != nil || len(whole.rope.InvFreq) != 128 {
		t.Errorf("a head that turns whole: %d frequencies, %v", len(whole.rope.InvFreq), err)
	}
}

// TestQwen35Absent checks the error for a build with proposals if the checkpoint lacks the MTP
// head, as checkpoints saved by transformers do.
func TestQwen35Absent(t *testing.T) {
	ck := openTestdata(t, "tiny-qwen35")
	if _, err := New(ck, Build{}); err != nil {
		t.Error(err)
	}
	var missing *MismatchError
	if _, err := New(ck, Build{Draft: 1}); !errors.As(err, &missing) || !strings.Contains(err.Error(), "mtp.") {
		t.Errorf("a head that is not there: %v", err)
	}
}

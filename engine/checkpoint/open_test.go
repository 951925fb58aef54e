package checkpoint

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"vapp.dev/kernels"
)

// smolLM2 opens the default model, which is not committed.
func smolLM2(t *testing.T) *Checkpoint {
	t.Helper()
	const path = "../../models/SmolLM2-135M-Instruct.Q4_1.gguf"
	if _, err := os.Stat(path); err != nil {
		t.Skipf("NOT RUN: the default model is absent, `make model` fetches it: %v", err)
	}
	c, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestSmolLM2Config(t *testing.T) {
	c := smolLM2(t)
	got := c.Config()
	if len(got.Raw) == 0 || !json.Valid(got.Raw) {
		t.Errorf("Raw is no JSON: %.60s", got.Raw)
	}
	got.Raw = nil
	want := Config{
		Architecture: "LlamaForCausalLM", ModelType: "llama", Dialect: "gguf",
		HiddenSize: 576, IntermediateSize: 1536, NumLayers: 30, NumHeads: 9, NumKVHeads: 3, HeadDim: 64,
		VocabSize: 49152, MaxPositionEmbeddings: 8192, RMSNormEps: 1e-5, RopeTheta: 100000, PartialRotaryFactor: 1,
		TieWordEmbeddings: true, HiddenAct: "silu", BosTokenID: 1, EosTokenIDs: []int{2, 0},
	}
	if g, w := dump(got), dump(want); g != w {
		t.Errorf("config\n got %s\nwant %s", g, w)
	}
}

func dump(v any) string { b, _ := json.Marshal(v); return string(b) }

func TestSmolLM2Tensors(t *testing.T) {
	c := smolLM2(t)
	if n := len(c.Tensors()); n != 272 {
		t.Errorf("%d tensors, want 272", n)
	}
	count := map[kernels.Format]int{}
	for _, x := range c.Tensors() {
		count[x.Format]++
	}
	if count[kernels.Q4_1] != 210 || count[kernels.F32] != 61 || count[kernels.Q8_0] != 1 {
		t.Errorf("formats %v", count)
	}
	q, err := c.Want("model.layers.29.self_attn.q_proj.weight", 576, 576)
	if err != nil || q.RopeHead != 64 || q.Format != kernels.Q4_1 {
		t.Errorf("q_proj %+v, %v", q, err)
	}
	if _, err := c.Want("model.layers.0.mlp.down_proj.weight", 1536, 576); err == nil || !strings.Contains(err.Error(), "[576 1536]") {
		t.Errorf("transposed down_proj: %v", err)
	}
	view, err := c.View(q.Name)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]byte, q.Bytes)
	if err := c.ReadRows(q.Name, 0, 576, all); err != nil {
		t.Fatal(err)
	}
	size := int(q.RowBytes())
	for r := range 576 {
		at := int(q.SourceRow(int64(r))) * size
		if !slices.Equal(all[r*size:(r+1)*size], view[at:at+size]) {
			t.Fatalf("row %d is not source row %d", r, q.SourceRow(int64(r)))
		}
	}
	if err := c.Release(q.Name); err != nil {
		t.Error(err)
	}
	if err := c.DropPages(); err != nil {
		t.Error(err)
	}
}

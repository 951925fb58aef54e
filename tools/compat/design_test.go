package compat

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/models"
)

// TestDesignParameters compares the parameters of every model of the catalogue with the bytes that
// vLLM allocates for them on one GPU: equal, but for the padding of the vocabulary.
func TestDesignParameters(t *testing.T) {
	entries, err := models.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	checked := map[string]bool{}
	for _, e := range entries {
		c, err := e.Config()
		if err != nil {
			t.Fatal(err)
		}
		if c.QuantizationConfig != nil {
			continue
		}
		i := Inputs{Release: V033, Config: c, Device: Device{"x", 16 << 40, 132, 9, 0}, Request: Request{TextOnly: designs[c.Architecture].image, MaxModelLen: 1024, KVBytes: 1 << 40}}
		if strings.Contains(string(c.Raw), `"mtp_num_hidden_layers"`) {
			i.Request.Speculative = Speculative{"mtp", 1}
		}
		o, err := work(i)
		var refused *Error
		if errors.As(err, &refused) {
			if !strings.Contains(err.Error(), "audio tower") && plannedOnly[c.Architecture] == "" {
				t.Errorf("%s: %v", e.Name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", e.Name, err)
			continue
		}
		checked[c.Architecture] = true
		w := o.stages[0]
		got, want := float64(w.bytes[resident]+w.bytes[tower]+w.bytes[drafter])/2, float64(e.Parameters)
		if d := got/want - 1; math.Abs(d) > 0.004 {
			t.Errorf("%s (%s): %.0f elements, the model has %.0f parameters: %+.2f %%", e.Name, c.Architecture, got, want, 100*d)
		}
	}
	if len(checked) < 24 {
		t.Errorf("%d architectures checked: %v", len(checked), checked)
	}
}

// deepseek returns DeepSeek-V2-Lite's run with a device and a change of its config.
func deepseek(t *testing.T, d Device, change func(string) string) Inputs {
	t.Helper()
	data, err := os.ReadFile("testdata/deepseek-v2-lite.json")
	if err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.ParseConfig("config.json", []byte(change(string(data))))
	if err != nil {
		t.Fatal(err)
	}
	d.Name, d.TotalBytes, d.SMs = "x", 80<<30, 132
	return Inputs{Release: V033, Config: c, Device: d, Request: Request{MaxModelLen: 4096}}
}

func asItIs(s string) string { return s }

// TestLatentPages checks that latent attention stores one row of 512 + 64 elements for a token and
// layer on every rank, and the block size of each device's kernels.
func TestLatentPages(t *testing.T) {
	for _, c := range []struct {
		d     Device
		kv    string
		block int64
		page  int64
	}{
		{Device{Major: 8, Minor: 0}, "", 16, 16 * 576 * 2},
		{Device{Major: 9, Minor: 0}, "", 16, 16 * 576 * 2},
		{Device{Major: 9, Minor: 0}, "fp8", 64, 64 * 576},
		{Device{Major: 10, Minor: 0}, "", 32, 32 * 576 * 2},
	} {
		for _, tp := range []int{1, 16} {
			i := deepseek(t, c.d, asItIs)
			i.Request.KVCacheDtype, i.Request.TensorParallel = c.kv, tp
			o := must(t, i)
			if o.cache.block != c.block || o.cache.page != c.page || o.cache.slab() != 27*c.page || o.cache.need(4096) != 4096/c.block {
				t.Errorf("%d.%d, KV %q, tensor %d: blocks of %d tokens, %d bytes a page, %d a block", c.d.Major, c.d.Minor, c.kv, tp, o.cache.block, o.cache.page, o.cache.slab())
			}
		}
	}
	if w := must(t, deepseek(t, Device{Major: 9}, asItIs)).stages[0]; w.bytes[resident] != 2*15_706_484_224 {
		t.Errorf("%d bytes of parameters, DeepSeek-V2-Lite has 15,706,484,224", w.bytes[resident])
	}
	corrected := must(t, deepseek(t, Device{Major: 9}, func(s string) string { return strings.Replace(s, `"greedy"`, `"noaux_tc"`, 1) }))
	if d := corrected.stages[0].bytes[resident] - 2*15_706_484_224; d != 26*64*4 {
		t.Errorf("a bias in float32 for each of 64 experts in 26 layers takes %d bytes", d)
	}
}

// TestWholeRowNorms checks that ranks hold OLMo's norms of Q and K whole, as those of layers, and share
// the matrices.
func TestWholeRowNorms(t *testing.T) {
	c, ok, err := models.CatalogueConfig("allenai/OLMo-2-1124-7B-Instruct")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	held := func(ranks int) int64 {
		i := Inputs{Release: V033, Config: c, Device: Device{"x", 80 << 30, 132, 9, 0}, Request: Request{MaxModelLen: 1024, TensorParallel: ranks}}
		return must(t, i).stages[0].bytes[resident]
	}
	norms := int64(2 * (32*(2+2) + 1) * 4096)
	if got := 2*held(2) - held(1); got != norms {
		t.Errorf("two ranks hold %d bytes twice, the norms are %d", got, norms)
	}
}

// TestDesignRefusals checks that what a design cannot answer is refused by name.
func TestDesignRefusals(t *testing.T) {
	for _, c := range []struct {
		field, says string
		i           Inputs
	}{
		{"config.index_topk", "sparse attention", deepseek(t, Device{Major: 9}, func(s string) string {
			return strings.Replace(s, `"kv_lora_rank"`, `"index_topk": 2048, "kv_lora_rank"`, 1)
		})},
		{"config.kv_lora_rank", "is missing", deepseek(t, Device{Major: 9}, func(s string) string { return strings.Replace(s, `"kv_lora_rank"`, `"rank"`, 1) })},
		{"config.first_k_dense_replace", "allowed are 0 to 27", deepseek(t, Device{Major: 9}, func(s string) string {
			return strings.Replace(s, `"first_k_dense_replace": 1`, `"first_k_dense_replace": 28`, 1)
		})},
		{"config.vision_config", "plan text alone", Inputs{Release: V033, Config: config(t, "gemma-3-12b"), Device: Device{"x", 80 << 30, 132, 9, 0}}},
		{"config.architectures", "without a tower", Inputs{Release: V033, Config: config(t, "gemma-4-12b"), Device: Device{"x", 80 << 30, 132, 9, 0}}},
		{"compat", "vllm-0.19 is the first", Inputs{Release: V017, Config: config(t, "phi-4"), Device: Device{"x", 80 << 30, 132, 9, 0}}},
		{"parallel.tensor", "blocks of 128 x 128 do not divide", Inputs{Release: V033, Config: config(t, "qwen3-30b-a3b-fp8"), Device: Device{"x", 80 << 30, 132, 9, 0}, Request: Request{TensorParallel: 8}}},
	} {
		_, err := Make(c.i)
		var e *Error
		if !errors.As(err, &e) || e.Field != c.field || !strings.Contains(e.Msg, c.says) {
			t.Errorf("%v: want %s: %s", err, c.field, c.says)
		}
	}
}

// TestEveryFamily checks that each architecture that the engine runs has a shape here, or a reason
// why not.
func TestEveryFamily(t *testing.T) {
	data, err := os.ReadFile("../../engine/models/testdata/forms.txt") // one line for each
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(data)) {
		a, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(a, "#") || a == "" {
			continue
		}
		seen++
		_, own := architectures[a]
		_, drawn := designs[a]
		if why := plannedOnly[a]; (own || drawn) == (why != "") {
			t.Errorf("%s: a shape %v, a reason %q", a, own || drawn, why)
		}
	}
	if seen < 30 {
		t.Errorf("%d architectures", seen)
	}
}

// TestPackedWeights checks packed weights against sums made by hand. Qwen2.5-7B has 233,046,016 weights in
// the matrices of each of 28 layers: 4 bits each, a scale of 2 bytes for 128, AWQ's zero points of 4 bits.
func TestPackedWeights(t *testing.T) {
	const matrices, rest = 28 * 233_046_016, 2*152064*3584*2 + 28*(3584+512+512)*2 + 57*3584*2
	for model, want := range map[string]int64{
		"Qwen/Qwen2.5-7B-Instruct-AWQ":       matrices/2 + matrices/128*2 + matrices/128/2 + rest,
		"Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4": matrices/2 + matrices/128*2 + rest,
	} {
		c := config(t, model)
		for _, rel := range []Release{V019, V033} {
			i := Inputs{Release: rel, Config: c, Device: Device{"x", 80 << 30, 132, 9, 0}}
			if got := must(t, i).stages[0].bytes[resident]; got != want {
				t.Errorf("%s in %v: %d bytes, want %d", model, rel, got, want)
			}
			i.Request.TensorParallel = 4
			must(t, i)
			i.Config.QuantizationConfig = edit(c.QuantizationConfig, `"group_size":128`, `"group_size":256`)
			if _, err := Make(i); err == nil || !strings.Contains(err.Error(), "896 inputs, which groups of 256 do not divide") {
				t.Errorf("%s on 4 GPUs: %v", model, err)
			}
		}
	}
	i := deepseek(t, Device{Major: 9}, asItIs)
	i.Config.QuantizationConfig = json.RawMessage(`{"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{"group_0":{"weights":{"num_bits":4,"type":"int","strategy":"group","group_size":32,"symmetric":true}}}}`)
	experts := int64(26 * 64 * 3 * 2048 * 1408)
	o := must(t, i)
	whole := must(t, deepseek(t, Device{Major: 9}, asItIs))
	if saved := whole.stages[0].total - o.stages[0].total; saved < experts*2-experts/2-experts/16-1<<20 {
		t.Errorf("4-bit experts save %d bytes", saved)
	}
}

// TestChunkedPages checks Llama 4: a request holds a chunk and the tokens in flight in three groups of
// layers, every token in the fourth.
func TestChunkedPages(t *testing.T) {
	i := Inputs{Release: V033, Config: config(t, "meta-llama/Llama-4-Scout-17B-16E-Instruct"), Device: Device{"NVIDIA H200", 139 << 30, 132, 9, 0}}
	i.Request = Request{TextOnly: true, MaxModelLen: 131072, TensorParallel: 8}
	o := must(t, i)
	if len(o.cache.groups) != 4 || o.cache.size != 12 || o.cache.need(131072) != 131072/16+3*(8192+2*8192)/16 {
		t.Errorf("%d groups of %d layers, %d blocks a request", len(o.cache.groups), o.cache.size, o.cache.need(131072))
	}
	if o.cache.need(4096) != 4*4096/16 || o.cache.steady(131072) != 131072/16+3*8192/16 {
		t.Errorf("%d blocks of 4096 tokens, %d after the prefill", o.cache.need(4096), o.cache.steady(131072))
	}
	i.Request.NoHybridManager = true
	if o := must(t, i); o.cache.need(131072) != 131072/16 || len(o.cache.groups) != 1 {
		t.Errorf("without the hybrid manager %d blocks", o.cache.need(131072))
	}
}

// TestLatentRanks checks DeepSeek-V3 in fp8 on eight ranks: an eighth of what is split, the
// down-projections of 2112 outputs whole, and a copy of the up-projection of K and V in bfloat16.
func TestLatentRanks(t *testing.T) {
	i := Inputs{Release: V033, Config: config(t, "deepseek-ai/DeepSeek-V3"), Device: Device{"NVIDIA H200", 139 << 30, 132, 9, 0}}
	i.Request = Request{TensorParallel: 8, MaxModelLen: 8192}
	const (
		hidden, layers = 7168, 61
		down           = layers * 2112 * hidden
		up             = layers * 16 * 256 * 512
		attention      = layers * (16*192*1536 + 16*128*hidden)
		dense          = 3 * 3 * hidden * 18432 / 8
		experts        = 58 * 257 * 3 * hidden * 2048 / 8
		half           = 2 * (2*129280*hidden/8 + 58*256*hidden + up) // embedding, head, routers, copy
	)
	want := float64(down + up + attention + dense + experts + half)
	if got := float64(must(t, i).stages[0].total); math.Abs(got/want-1) > 0.002 {
		t.Errorf("%.0f bytes, want about %.0f", got, want)
	}
}

package models

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// TestHybridPages checks page sizes against memory-planning's figures: a block of 16 tokens of one
// layer, and one token of all full layers.
func TestHybridPages(t *testing.T) {
	for _, c := range []struct {
		model               string
		rebuild             bool
		window, full, token int64 // bytes: a layer's block of either class, a token of all full layers
	}{
		{"gpt-oss-20b", false, 32_768, 32_768, 24_576},
		{"gemma-4-26b-a4b", false, 131_072, 65_536, 20_480},
		{"gemma-4-26b-a4b", true, 131_072, 40_960, 12_800},
		{"gemma-4-31b", false, 262_144, 131_072, 81_920},
		{"gemma-4-31b", true, 262_144, 81_920, 51_200},
		{"gemma-4-12b", false, 131_072, 32_768, 16_384},
		{"gemma-4-12b", true, 131_072, 20_480, 10_240},
		{"gemma-4-e2b", false, 16_384, 32_768, 6_144},  // 3 of 7 full layers have pages
		{"gemma-4-e4b", false, 32_768, 65_536, 16_384}, // 4 of 7
	} {
		m := publishedModel(t, c.model, Build{Rebuild: c.rebuild})
		k := m.Classes(16, kernels.BF16)
		if len(k) != 2 || k[0].Name != "full" || k[1].Name != "window" || !k[0].Plane || k[1].Plane {
			t.Fatalf("%s: classes %+v", c.model, k)
		}
		full := k[0].KOffset(1)
		if token := full * int64(k[0].Layers) / 16; full != c.full || k[1].KOffset(1) != c.window || token != c.token {
			t.Errorf("%s, rebuilt %t: blocks of %d and %d bytes, a token takes %d; want %d, %d, %d",
				c.model, c.rebuild, full, k[1].KOffset(1), token, c.full, c.window, c.token)
		}
		if want := full*int64(k[0].Layers) + 16*4; k[0].PageBytes() != want {
			t.Errorf("%s: a page of %d bytes, want %d", c.model, k[0].PageBytes(), want)
		}
	}
}

// TestGemmaQuantized checks that exactly the experts and linear layers of the text model become
// 8-bit.
func TestGemmaQuantized(t *testing.T) {
	for _, w := range publishedModel(t, "gemma-4-26b-a4b", Build{Quantize: kernels.F8E4M3, Vision: true}).Weights() {
		want := kernels.BF16
		switch {
		case w.Use&backend.Vector != 0:
			continue
		case w.Group == "attention" || w.Group == "mlp" || w.Group == "experts":
			want = kernels.F8E4M3
		case w.Group != "embedding" && w.Group != "router" && w.Group != "vision":
			t.Errorf("%s is of group %s", w.Name, w.Group)
		}
		if w.Stored() != want || (want == kernels.F8E4M3) != (w.Scaling == backend.PerChannel) {
			t.Errorf("%s is stored as %v, scaled %v", w.Name, w.Stored(), w.Scaling)
		}
	}
}

// rect is a part of a tensor, or of each matrix of a stack.
type rect struct{ experts, row0, rows, col0, cols int64 }

// meets reports whether two parts share elements.
func (r rect) meets(o rect) bool {
	return r.row0 < o.row0+o.rows && o.row0 < r.row0+r.rows && r.col0 < o.col0+o.cols && o.col0 < r.col0+r.cols
}

// TestRanksCover checks that the parts of all ranks, each counted once, are the whole checkpoint.
func TestRanksCover(t *testing.T) {
	for _, c := range []struct {
		model       string
		world, pipe int
	}{
		{"gemma-4-e2b", 1, 1}, {"gemma-4-e2b", 4, 1}, {"gemma-4-e4b", 2, 2}, {"gemma-4-12b", 2, 3},
		{"gpt-oss-20b", 1, 1}, {"gpt-oss-20b", 4, 1}, {"gpt-oss-20b", 2, 3}, {"gpt-oss-20b", 16, 1},
		{"gemma-4-26b-a4b", 1, 1}, {"gemma-4-26b-a4b", 4, 1}, {"gemma-4-26b-a4b", 2, 4}, {"gemma-4-31b", 8, 2},
	} {
		t.Run(fmt.Sprintf("%s-tp%d-pp%d", c.model, c.world, c.pipe), func(t *testing.T) {
			cfg := alterConfig(t, c.model, nil)
			tensors, err := Tensors(cfg)
			if err != nil {
				t.Fatal(err)
			}
			shapes, read := map[string]checkpoint.TensorInfo{}, map[string]map[rect]bool{}
			for _, w := range tensors {
				shapes[w.Name] = w
			}
			for rank := range c.world * c.pipe {
				m, err := buildModel(cfg, Build{Vision: !strings.HasPrefix(c.model, "gemma-4-e") && c.model != "gemma-4-12b", Shard: backend.Shard{Rank: rank / c.pipe, World: c.world}, Pipe: backend.Shard{Rank: rank % c.pipe, World: c.pipe}})
				if err != nil {
					t.Fatal(err)
				}
				for _, w := range m.Weights() {
					for _, p := range w.Parts {
						collect(t, read, shapes, w, p)
					}
				}
			}
			for name, info := range shapes {
				if strings.HasSuffix(name, mxScales) {
					continue // counted with its blocks
				}
				var n int64
				for r := range read[name] {
					n += r.experts * r.rows * r.cols
					for other := range read[name] {
						if r != other && r.meets(other) {
							t.Errorf("%s: ranks read %v and %v", name, r, other)
						}
					}
				}
				if strings.HasSuffix(name, mxBlocks) {
					n /= 2 // two weights a byte
				}
				if n != info.Elements() {
					t.Errorf("%s %v: ranks read %d elements in %d parts", name, info.Shape, n, len(read[name]))
				}
			}
		})
	}
}

func collect(t *testing.T, read map[string]map[rect]bool, shapes map[string]checkpoint.TensorInfo, w backend.WeightSpec, p backend.Part) {
	if p.Values != nil {
		return
	}
	info, ok := shapes[p.Tensor]
	if !ok {
		t.Fatalf("%s reads %s, which is no tensor", w.Name, p.Tensor)
	}
	if read[p.Tensor] == nil {
		read[p.Tensor] = map[rect]bool{}
	}
	if w.Use&backend.Vector != 0 {
		rows := int64(max(1, p.Rows))
		read[p.Tensor][rect{1, int64(p.Row0), rows, int64(p.Col0), int64(p.Elems) / rows}] = true
		return
	}
	cols := int64(w.Cols)
	if p.Cols > 0 && p.Cols != w.Cols {
		t.Errorf("%s: a part of %d columns in a matrix of %d", w.Name, p.Cols, w.Cols)
	}
	per := info.Rows()
	if w.Experts > 0 {
		per = int64(p.Stride)
	}
	if int64(p.Row0+p.Rows) > per {
		t.Errorf("%s reads rows %d to %d of %d of %s", w.Name, p.Row0, p.Row0+p.Rows, per, p.Tensor)
	}
	read[p.Tensor][rect{int64(max(1, w.Experts)), int64(p.Row0), int64(p.Rows), int64(p.Col0), cols}] = true
}

// TestGemmaCausal checks that the separate text model has the same weights under other names.
func TestGemmaCausal(t *testing.T) {
	whole := alterConfig(t, "gemma-4-26b-a4b", nil)
	text := alterConfig(t, "gemma-4-26b-a4b", map[string]any{"architectures": []string{gemmaCausal}})
	a, err := buildModel(whole, Build{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := buildModel(text, Build{})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Weights()) != len(b.Weights()) || elements(a) != elements(b) {
		t.Errorf("%d weights of %d, alone %d of %d", len(a.Weights()), elements(a), len(b.Weights()), elements(b))
	}
	list, err := Tensors(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range list {
		if strings.Contains(w.Name, "vision") || strings.Contains(w.Name, "language_model") {
			t.Errorf("the text model has %s", w.Name)
		}
	}
	var refused *UnsupportedError
	if _, err := buildModel(text, Build{Vision: true}); !errors.As(err, &refused) {
		t.Errorf("a tower of the text model: %v", err)
	}
}

// TestGemmaRefusals checks that features of the smaller models and invalid configs are refused.
func TestGemmaRefusals(t *testing.T) {
	for _, c := range []struct {
		inner  string
		change map[string]any
		want   string
	}{
		{"text_config", map[string]any{"hidden_size_per_layer_input": 1 << 21}, "hidden_size_per_layer_input"},
		{"text_config", map[string]any{"hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 1000}, "vocab_size_per_layer_input 1000"},
		{"text_config", map[string]any{"num_kv_shared_layers": 30}, "less than 30 num_hidden_layers"},
		{"text_config", map[string]any{"num_kv_shared_layers": 25}, "no layer before 5"},
		{"text_config", map[string]any{"num_kv_shared_layers": -1}, "num_kv_shared_layers"},
		{"text_config", map[string]any{"use_double_wide_mlp": 2}, "use_double_wide_mlp"},
		{"text_config", map[string]any{"use_bidirectional_attention": "all"}, "use_bidirectional_attention"},
		{"text_config", map[string]any{"num_experts": nil}, "without experts"},
		{"text_config", map[string]any{"top_k_experts": 129}, "129 experts a token"},
		{"text_config", map[string]any{"moe_intermediate_size": nil}, "moe_intermediate_size"},
		{"text_config", map[string]any{"global_head_dim": 511}, "global_head_dim 511"},
		{"text_config", map[string]any{"global_head_dim": 1e9}, "text_config.global_head_dim"},
		{"text_config", map[string]any{"num_global_key_value_heads": 3}, "num_global_key_value_heads 3"},
		{"text_config", map[string]any{"sliding_window": 0}, "sliding_window"},
		{"text_config", map[string]any{"hidden_activation": "silu"}, "hidden_activation silu"},
		{"text_config", map[string]any{"attention_k_eq_v": 1}, "attention_k_eq_v"},
		{"text_config", map[string]any{"rope_parameters": map[string]any{"full_attention": map[string]any{"rope_theta": 1e4, "rope_type": "default"}}}, "rope_parameters.sliding_attention"},
		{"vision_config", map[string]any{"head_dim": 70}, "heads of 70"},
		{"vision_config", map[string]any{"use_clipped_linears": true}, "use_clipped_linears"},
		{"vision_config", map[string]any{"num_hidden_layers": 1e6}, "vision_config.num_hidden_layers"},
		{"vision_config", map[string]any{"patch_size": "16"}, "vision_config.patch_size"},
	} {
		t.Run(c.want, func(t *testing.T) {
			cfg, err := alterSection(t, "gemma-4-26b-a4b", c.inner, c.change)
			if err == nil {
				_, err = Tensors(cfg)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v: %v", c.change, err)
			}
		})
	}
	var refused *UnsupportedError
	plain, err := alterSection(t, "gemma-4-26b-a4b", "text_config", map[string]any{"attention_k_eq_v": false})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := buildModel(plain, Build{Rebuild: true}); !errors.As(err, &refused) {
		t.Errorf("rebuilding what is not shared: %v", err)
	}
	for _, name := range []string{"gpt-oss-20b", "qwen3.5-27b-fp8"} {
		if _, err := buildModel(alterConfig(t, name, nil), Build{Rebuild: true}); !errors.As(err, &refused) {
			t.Errorf("rebuilding %s: %v", name, err)
		}
	}
	for _, name := range []string{"gpt-oss-20b", "gemma-4-31b"} {
		if _, err := buildModel(alterConfig(t, name, nil), Build{Draft: 1}); !errors.As(err, &refused) {
			t.Errorf("drafting with %s: %v", name, err)
		}
	}
}

// TestGemmaReuse checks which layers of E2B and E4B have pages, which weights and ops the others lack,
// and which pipeline stages are refused.
func TestGemmaReuse(t *testing.T) {
	for _, c := range []struct {
		model                                  string
		layers, first, full, window, inner, ff int // first: that reuses; full, window: layers with pages; inner, ff: width of the last MLP and of the first
	}{
		{"gemma-4-e2b", 35, 15, 3, 12, 12288, 6144}, {"gemma-4-e4b", 42, 24, 4, 20, 10240, 10240},
	} {
		m := publishedModel(t, c.model, Build{}).(*gemma)
		k := m.Classes(16, kernels.BF16)
		if k[0].Layers != c.full || k[1].Layers != c.window || m.text.firstReuse != c.first {
			t.Errorf("%s: %d full and %d sliding layers have pages, layers from %d on none", c.model, k[0].Layers, k[1].Layers, m.text.firstReuse)
		}
		last := [2]pageAt{{0, c.full - 1}, {1, c.window - 1}}
		for i, at := range m.paging.at {
			if want := last[min(1, at.class)]; i >= c.first && at != want {
				t.Errorf("%s: layer %d reads pages of %+v, want %+v", c.model, i, at, want)
			}
		}
		if m.layers[0].width != c.ff || m.layers[c.layers-1].width != c.inner {
			t.Errorf("%s: MLPs of %d and %d", c.model, m.layers[0].width, m.layers[c.layers-1].width)
		}
		stores, lookups, alone := map[pageAt]int{}, 0, 0
		for _, op := range passes(t, m)[0].Ops {
			switch o := op.(type) {
			case backend.StoreKV:
				stores[pageAt{o.Class, o.Layer}]++
			case backend.Attention:
				if at := (pageAt{o.Class, o.Layer}); stores[at] > 0 {
					t.Errorf("%s: layer %+v is read behind the op that stores it", c.model, at)
				}
			case backend.Embed:
				lookups++
			case backend.Rope:
				if o.KVHeads == 0 {
					alone++
				}
			}
		}
		if len(stores) != c.full+c.window || lookups != c.layers+2 || alone != c.layers-c.first {
			t.Errorf("%s: %d layers stored, %d lookups, %d layers of queries alone", c.model, len(stores), lookups, alone)
		}
	}
	var refused *UnsupportedError
	for _, c := range []struct {
		model string
		pipe  int
		want  string // of the refusal; "": it runs
	}{
		{"gemma-4-e4b", 2, ""}, {"gemma-4-12b", 4, ""},
		{"gemma-4-e2b", 2, "layer 18 reuses keys and values of layer 13"}, {"gemma-4-e4b", 3, "layer 28 reuses keys and values of layer 22"},
	} {
		_, err := buildModel(alterConfig(t, c.model, nil), Build{Pipe: backend.Shard{Rank: c.pipe - 1, World: c.pipe}})
		if c.want == "" && err != nil || c.want != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s on %d stages: %v, want %q", c.model, c.pipe, err, c.want)
		}
	}
	for _, name := range []string{"gemma-4-e2b", "gemma-4-12b"} {
		if _, err := buildModel(alterConfig(t, name, nil), Build{Vision: true}); !errors.As(err, &refused) || !strings.Contains(err.Error(), "vision tower") {
			t.Errorf("images of %s: %v", name, err)
		}
	}
}

// TestGemmaUnread checks which tensors of a published checkpoint no program reads.
func TestGemmaUnread(t *testing.T) {
	f, err := findFamily(alterConfig(t, "gemma-4-e2b", nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	const layers = "model.language_model.layers."
	for name, want := range map[string]bool{
		"model.audio_tower.layers.0.norm_out.weight": true, "model.embed_audio.embedding_projection.weight": true, "model.vision_embedder.patch_dense.weight": true,
		"model.vision_tower.encoder.layers.0.mlp.gate_proj.input_max": true, "model.embed_vision.embedding_projection.weight": true,
		layers + "15.self_attn.k_proj.weight": true, layers + "34.self_attn.v_proj.weight": true, layers + "20.self_attn.k_norm.weight": true,
		layers + "14.self_attn.k_proj.weight": false, layers + "15.self_attn.q_proj.weight": false, layers + "15.self_attn.q_norm.weight": false,
		layers + "x.self_attn.k_proj.weight": false, "model.layers.15.self_attn.k_proj.weight": false, "lm_head.weight": false,
	} {
		if f.skip(name) != want {
			t.Errorf("%s: unread %t, want %t", name, !want, want)
		}
	}
}

// alterSection is alterConfig for a nested object of the config.
func alterSection(t testing.TB, name, key string, change map[string]any) (checkpoint.Config, error) {
	t.Helper()
	cfg := alterConfig(t, name, nil)
	m := map[string]any{}
	if err := json.Unmarshal(cfg.Raw, &m); err != nil {
		t.Fatal(err)
	}
	maps.Copy(m[key].(map[string]any), change)
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return checkpoint.ParseConfig(name, raw)
}

// TestRoundTo checks that 53.066 and 73.321, the roots of the hidden sizes, become 53 and 73.5 if
// the embedding table is bf16.
func TestRoundTo(t *testing.T) {
	for _, c := range []struct {
		n    float64
		f    kernels.Format
		want float32
	}{
		{2816, kernels.BF16, 53}, {5376, kernels.BF16, 73.5}, {5376, kernels.F16, 73.3125}, {5376, kernels.F32, 73.32121}, {64, kernels.BF16, 8},
	} {
		if got := roundTo(math.Sqrt(c.n), c.f); math.Abs(float64(got-c.want)) > 1e-5 {
			t.Errorf("√%v in %v is %v, want %v", c.n, c.f, got, c.want)
		}
	}
}

// TestGemmaCheckpoints builds and plans quantized checkpoints of Gemma 4, whose experts have matrices of
// their own.
func TestGemmaCheckpoints(t *testing.T) {
	configs := map[string]kernels.Format{
		strings.Replace(awqConfig, "128", "32", 1):                                 kernels.I4,
		gptqConfig(4, `"sym":true`):                                                kernels.I4,
		string(int4Config(`"strategy":"group","group_size":32,"symmetric":false`)): kernels.I4,
		string(compressed("channel", `["lm_head"]`)):                               kernels.F8E4M3,
		string(int8Config("int-quantized", int8Channel, int8Token)):                kernels.I8,
		nvfp4Config: kernels.NVFP4,
	}
	for _, name := range []string{"gemma-4-26b-a4b", "gemma-4-31b", "gemma-4-e2b"} {
		for config, want := range configs {
			change := quantConfig(config)
			change["vision_config"] = nil // towers are not quantized
			m, err := buildModel(alterConfig(t, name, change), Build{})
			if err != nil {
				t.Fatalf("%s with %s: %v", name, config, err)
			}
			stacks := 0
			for _, w := range m.Weights() {
				if w.Experts > 0 {
					stacks++
				}
				if (w.Group == "attention" || w.Group == "mlp" || w.Group == "experts") && w.Use&backend.Multiply != 0 && w.Source != want {
					t.Errorf("%s: %s is stored as %v, want %v", name, w.Name, w.Source, want)
				}
			}
			if (stacks == 60) != (name == "gemma-4-26b-a4b") {
				t.Errorf("%s: %d stacks of experts", name, stacks)
			}
			p, err := recordStep(m, kernels.BF16, bucket)
			if err != nil {
				t.Fatal(err)
			}
			for on, l := range layouts(t) {
				if _, err := dryRun(l, m, p); err != nil {
					t.Errorf("%s with %s on %s: %v", name, config, on, err)
				}
			}
		}
	}
}

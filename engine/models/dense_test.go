package models

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// TestParameters checks the number of a whole model's weights against the published number; rope
// frequencies are computed and do not count.
func TestParameters(t *testing.T) {
	for name, want := range map[string]int64{
		"meta-llama/Llama-3.2-1B": 1_235_814_400, "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": 7_615_616_512, "Qwen/Qwen2-7B-Instruct": 7_615_616_512,
		"Qwen/Qwen3-8B": 8_190_735_360, "Qwen/Qwen2-0.5B": 494_032_768,
	} {
		for _, q := range quantizations {
			m, err := buildModel(alterConfig(t, name, q.config), q.build)
			if err != nil {
				t.Fatalf("%s, %s: %v", name, q.name, err)
			}
			got := elements(m)
			for _, w := range m.Weights() {
				if w.Parts[0].Values != nil {
					got -= w.Elems()
				}
			}
			if got != want {
				t.Errorf("%s, %s: %d elements, published are %d", name, q.name, got, want)
			}
		}
	}
}

// area is a part of a tensor.
type area struct{ row0, rows, col0, cols int64 }

// TestRanksCoverTensors checks that all ranks together hold every element of every tensor the
// expected number of times: norms once per rank, key/value heads several times if they are fewer
// than the ranks, a tied embedding in the first and the last stage.
func TestRanksCoverTensors(t *testing.T) {
	bias := map[string]any{"attention_bias": true, "mlp_bias": true}
	for _, c := range []struct {
		name         string
		change       map[string]any
		tensor, pipe int
		vocab        int64 // number of ranks that hold the embedding
		kv           int64 // and of those that hold each key/value head
	}{
		{"meta-llama/Llama-3.2-1B", nil, 1, 1, 1, 1}, {"meta-llama/Llama-3.2-1B", bias, 4, 1, 1, 1}, {"meta-llama/Llama-3.2-1B", nil, 16, 1, 1, 2},
		{"meta-llama/Llama-3.2-1B", bias, 1, 3, 2, 1}, {"meta-llama/Llama-3.2-1B", nil, 2, 16, 2, 1}, {"Qwen/Qwen3-8B", nil, 8, 5, 1, 1},
		{"Qwen/Qwen2-7B", nil, 4, 3, 1, 1}, {"phi-4", nil, 2, 3, 1, 1}, {"c4ai-command-r-v01", nil, 2, 2, 2, 1}, {"glm-4-9b-0414", nil, 2, 1, 1, 1}, {"Qwen/Qwen2-7B", nil, 7, 1, 1, 0},
	} {
		t.Run(fmt.Sprintf("%s/tp%d/pp%d", c.name, c.tensor, c.pipe), func(t *testing.T) {
			cfg := alterConfig(t, c.name, c.change)
			held := map[string]map[area]int64{}
			layers := 0
			for pipe := range c.pipe {
				for rank := range c.tensor {
					b := Build{Shard: backend.Shard{Rank: rank, World: c.tensor}, Pipe: backend.Shard{Rank: pipe, World: c.pipe}}
					m, err := buildModel(cfg, b)
					if c.kv == 0 && err != nil {
						t.Skip(err) // 152064 tokens, 4 key/value heads, 7 ranks
					}
					if err != nil {
						t.Fatal(err)
					}
					p, err := recordStep(m, kernels.F16, bucket)
					if err != nil {
						t.Fatal(err)
					}
					checkStage(t, p, b)
					if rank == 0 {
						layers += p.Classes[0].Layers
					}
					hold(held, m)
				}
			}
			if layers != cfg.NumLayers {
				t.Errorf("the stages keep K and V of %d layers of %d", layers, cfg.NumLayers)
			}
			tensors, _ := Tensors(cfg)
			for _, x := range tensors {
				times := int64(1)
				switch {
				case x.Name == "model.embed_tokens.weight":
					times = c.vocab
				case strings.Contains(x.Name, "k_proj") || strings.Contains(x.Name, "v_proj"):
					times = c.kv
				case strings.Contains(x.Name, "norm"):
					times = int64(c.tensor)
				}
				checkCover(t, x, held[x.Name], times)
			}
		})
	}
}

// hold records which part of each tensor a model holds.
func hold(held map[string]map[area]int64, m Model) {
	for _, w := range m.Weights() {
		for _, p := range w.Parts {
			a := area{int64(p.Row0), int64(p.Rows), int64(p.Col0), int64(w.Cols)}
			if w.Use&backend.Vector != 0 {
				a.cols = int64(p.Elems)
			}
			if held[p.Tensor] == nil {
				held[p.Tensor] = map[area]int64{}
			}
			held[p.Tensor][a]++
		}
	}
}

func checkCover(t *testing.T, x checkpoint.TensorInfo, areas map[area]int64, times int64) {
	t.Helper()
	var sum int64
	rows := map[int64]int64{} // elements of the parts that begin at a row
	for a, n := range areas {
		if n != times {
			t.Errorf("%s: %+v is held %d times, want %d", x.Name, a, n, times)
		}
		if a.row0 < 0 || a.row0+a.rows > x.Rows() || a.col0 < 0 || a.col0+a.cols > x.RowElements() {
			t.Errorf("%s %v: %+v is outside", x.Name, x.Shape, a)
		}
		sum += a.rows * a.cols
		rows[a.row0] += a.cols
	}
	if sum != x.Elements() {
		t.Errorf("%s %v: %d elements are held, it has %d", x.Name, x.Shape, sum, x.Elements())
	}
	for row, n := range rows {
		if n != x.RowElements() {
			t.Errorf("%s %v: row %d is held in %d elements", x.Name, x.Shape, row, n)
		}
	}
}

// checkStage checks that only the first stage reads tokens and only the last one samples, that
// other stages send the residual on, and that results are summed if there are several ranks.
func checkStage(t *testing.T, p *backend.Program, b Build) {
	t.Helper()
	n := map[string]int{}
	for _, op := range p.Ops {
		n[backend.OpName(op)]++
		if e, ok := op.(backend.Embed); ok {
			if part := p.Weights[e.Table].Parts[0]; e.Row0 != part.Row0 || part.Row0 != b.Shard.Rank*p.Vocab/b.Shard.World {
				t.Errorf("rank %d of %d looks up from token %d in a table from token %d", b.Shard.Rank, b.Shard.World, e.Row0, part.Row0)
			}
		}
	}
	layers := p.Classes[0].Layers
	first, last := b.Pipe.Rank == 0, b.Pipe.Rank == b.Pipe.World-1
	count := func(yes bool) int {
		if yes {
			return 1
		}
		return 0
	}
	sums := 0
	if b.Shard.World > 1 {
		sums = 2*layers + count(first)
	}
	for op, want := range map[string]int{
		"embed": count(first), "receive": count(!first), "send": count(!last), "sample": count(last), "store_tokens": count(last),
		"attention": layers, "store_kv": layers, "all_reduce": sums, "all_gather": count(last && b.Shard.World > 1),
	} {
		if n[op] != want {
			t.Errorf("stage %d of %d, %d ranks: %d × %s, want %d", b.Pipe.Rank, b.Pipe.World, b.Shard.World, n[op], op, want)
		}
	}
	if p.Classes[0].Plane != last {
		t.Errorf("stage %d of %d keeps tokens: %t", b.Pipe.Rank, b.Pipe.World, p.Classes[0].Plane)
	}
}

// TestStages cuts layers as vLLM does (distributed/utils.py, get_pp_indices).
func TestStages(t *testing.T) {
	for _, c := range []struct {
		layers int
		want   []int
	}{{16, []int{16}}, {16, []int{8, 8}}, {16, []int{5, 6, 5}}, {28, []int{4, 5, 5, 5, 5, 4}}, {7, []int{1, 2, 2, 2}[:0]}, {7, []int{2, 2, 2, 1}}, {4, []int{1, 1, 1, 1}}, {9, []int{2, 2, 3, 2}}} {
		var got []int
		next := 0
		for r := range c.want {
			s, err := Build{Pipe: backend.Shard{Rank: r, World: len(c.want)}}.stage(c.layers)
			if err != nil || s.layer0 != next || s.first != (r == 0) || s.last != (r == len(c.want)-1) {
				t.Errorf("%d layers, rank %d of %d: %+v, %v", c.layers, r, len(c.want), s, err)
			}
			got, next = append(got, s.layers), next+s.layers
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d layers on %d ranks: %v, want %v", c.layers, len(c.want), got, c.want)
		}
	}
}

// TestMistral checks that configs of Mistral 7B v0.3 and Nemo have the published number of weights,
// and that all layers of v0.1 have its window.
func TestMistral(t *testing.T) {
	config := func(hidden, inner, layers, vocab int, more string) (Model, error) {
		c, err := checkpoint.ParseConfig("config.json", fmt.Appendf(nil, `{"architectures":["MistralForCausalLM"],"model_type":"mistral","hidden_act":"silu","hidden_size":%d,
			"intermediate_size":%d,"num_hidden_layers":%d,"vocab_size":%d,"num_attention_heads":32,"num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_theta":1000000.0,
			"max_position_embeddings":32768,"tie_word_embeddings":false,"torch_dtype":"bfloat16"%s}`, hidden, inner, layers, vocab, more))
		if err != nil {
			t.Fatal(err)
		}
		return buildModel(c, Build{})
	}
	const freqs = 64
	for want, m := range map[int64]func() (Model, error){
		7_248_023_552:  func() (Model, error) { return config(4096, 14336, 32, 32768, `,"sliding_window":null`) },
		12_247_782_400: func() (Model, error) { return config(5120, 14336, 40, 131072, `,"head_dim":128`) },
	} {
		m, err := m()
		if err != nil {
			t.Fatal(err)
		}
		if got := elements(m) - freqs; got != want {
			t.Errorf("%d elements, published are %d", got, want)
		}
		if _, err := recordStep(m, kernels.BF16, bucket); err != nil {
			t.Error(err)
		}
	}
	m, err := config(4096, 14336, 32, 32000, `,"sliding_window":4096`)
	if err != nil {
		t.Fatal(err)
	}
	if c := m.Classes(16, kernels.BF16); len(c) != 2 || c[0].Layers != 0 || !c[0].Plane || c[1].Layers != 32 || c[1].Window != 4096 {
		t.Errorf("classes %+v", c)
	}
}

// TestQwenWindow checks that layers from max_window_layers on have a window if use_sliding_window is
// true.
func TestQwenWindow(t *testing.T) {
	for _, name := range []string{"Qwen/Qwen2-7B", "Qwen/Qwen3-8B"} {
		m, err := buildModel(alterConfig(t, name, map[string]any{"use_sliding_window": true, "sliding_window": 1024, "max_window_layers": 20}), Build{})
		if err != nil {
			t.Fatal(err)
		}
		if c := m.Classes(16, kernels.BF16); len(c) != 2 || c[0].Layers != 20 || c[1].Window != 1024 {
			t.Errorf("%s: classes %+v", name, c)
		}
	}
}

// TestYarn builds the extended context that Qwen's model cards describe.
func TestYarn(t *testing.T) {
	m, err := buildModel(alterConfig(t, "Qwen/Qwen3-8B", map[string]any{"rope_scaling": map[string]any{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}), Build{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := recordStep(m, kernels.BF16, bucket)
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range p.Ops {
		if a, ok := op.(backend.Angles); ok && math.Abs(float64(a.Scale)-(0.1*math.Log(4)+1)) > 1e-6 {
			t.Errorf("cos and sin are multiplied by %v", a.Scale)
		}
	}
}

// TestBuildRefusals checks that unsupported builds are refused with the numbers in the error.
func TestBuildRefusals(t *testing.T) {
	ranks := func(n int) Build { return Build{Shard: backend.Shard{World: n}} }
	stages := func(n int) Build { return Build{Pipe: backend.Shard{World: n}} }
	const llama, qwen2, qwen3 = "meta-llama/Llama-3.2-1B", "Qwen/Qwen2-7B", "Qwen/Qwen3-8B"
	fp8 := quantConfig(`{"quant_method":"fp8","weight_block_size":[128,128]}`)
	checkRefusals(t, []refusal{
		{qwen2, nil, ranks(8), "tensor parallel size 8 is not supported: it does not divide 28 attention heads"},
		{"HuggingFaceTB/SmolLM2-135M", nil, ranks(2), "it does not divide 9 attention heads; 3, 9 do"},
		{"HuggingFaceTB/SmolLM2-135M", nil, ranks(9), "49152 tokens (vocab_size); 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, … do"},
		{llama, map[string]any{"num_attention_heads": 30, "num_key_value_heads": 10, "hidden_size": 1920}, ranks(6), "it does not divide 10 key/value heads; 2, 5, 10, multiples of 10 do"},
		{llama, map[string]any{"vocab_size": 128257}, ranks(2), "128257 tokens"},
		{llama, map[string]any{"intermediate_size": 8190}, ranks(4), "8190 columns"},
		{llama, nil, ranks(-1), "rank 0 of tensor parallel size -1"},
		{llama, nil, ranks(1 << 20), "tensor parallel size 1048576"},
		{llama, nil, Build{Shard: backend.Shard{Rank: 2, World: 2}}, "rank 2 of tensor parallel size 2"},
		{llama, nil, stages(17), "pipeline parallel size 17 is not supported: the model has 16 layers"},
		{llama, fp8, ranks(16), "no whole blocks of 128"},
		{qwen2, nil, Build{Dtype: kernels.Q4_0}, "dtype q4_0"},
		{qwen2, nil, Build{Quantize: kernels.Q8_0}, "quantization to q8_0"},
		{qwen2, quantConfig(`{"quant_method":"mxfp4"}`), Build{Quantize: kernels.F8E4M3}, "quantized already, to mxfp4"},
		{qwen3, map[string]any{"layer_types": slices.Repeat([]string{"full_attention", "sliding_attention"}, 18)}, Build{}, "the config has no sliding_window"},
		{llama, map[string]any{"sliding_window": 4096}, Build{}, "sliding_window of LlamaForCausalLM"},
		{qwen3, map[string]any{"layer_types": slices.Repeat([]string{"full_attention", "chunked_attention"}, 18)}, Build{}, `layer_types[1] "chunked_attention"`},
		{qwen2, map[string]any{"torch_dtype": "float64"}, Build{}, "dtype float64"},
		{qwen2, map[string]any{"hidden_act": "relu2"}, Build{}, "hidden_act relu2 is not supported: Qwen2ForCausalLM runs with silu or gelu_pytorch_tanh"},
		{qwen2, map[string]any{"num_attention_heads": 1 << 14, "num_key_value_heads": 1 << 14, "head_dim": 1 << 14, "hidden_size": 1 << 20}, Build{}, "2^50 bytes"},
		{qwen2, nil, Build{Draft: 2}, "drafting"},
		{qwen2, quantConfig(`{"quant_method":"fp8","ignored_layers":["model.layers.3.self_attn.k_proj"]}`), Build{}, "layers.3.qkv is made of model.layers.3.self_attn.q_proj.weight in f8_e4m3 and model.layers.3.self_attn.k_proj.weight in bf16"},
		{llama, map[string]any{"partial_rotary_factor": 0.5}, Build{}, "rotates part of a head"},
		{qwen2, nil, Build{Rebuild: true}, "rebuilt"},
	})
}

package enginetest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// Llama describes a toy model of the Llama architecture. The comment of a field is its default,
// so Llama{} is a model.
type Llama struct {
	Layers       int // 2
	Hidden       int // 64
	Heads        int // 4
	KVHeads      int // 2
	HeadDim      int // 16
	Vocab        int // 320
	Intermediate int // 128
	MaxPos       int // 512

	Tied          bool
	AttentionBias bool
	MLPBias       bool
	RopeTheta     float64                 // 10000
	RopeScaling   *checkpoint.RopeScaling // none; llama3 or linear
	DType         kernels.Format          // F32; F16 or BF16
	Shards        int                     // 1; more makes an index
	Seed          uint64
}

// whole returns the toy with the defaults filled in.
func (o Llama) whole() Llama {
	or := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	or(&o.Layers, 2)
	or(&o.Hidden, 64)
	or(&o.Heads, 4)
	or(&o.KVHeads, 2)
	or(&o.HeadDim, 16)
	or(&o.Vocab, 320)
	or(&o.Intermediate, 128)
	or(&o.MaxPos, 512)
	or(&o.Shards, 1)
	if o.RopeTheta == 0 {
		o.RopeTheta = checkpoint.DefaultRopeTheta
	}
	if o.DType == kernels.Invalid {
		o.DType = kernels.F32
	}
	return o
}

// ConfigJSON returns the toy's config.json. BOS is the second last id, EOS the last.
func (o Llama) ConfigJSON() []byte {
	o = o.whole()
	m := map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama",
		"hidden_size": o.Hidden, "intermediate_size": o.Intermediate, "num_hidden_layers": o.Layers,
		"num_attention_heads": o.Heads, "num_key_value_heads": o.KVHeads, "head_dim": o.HeadDim,
		"vocab_size": o.Vocab, "max_position_embeddings": o.MaxPos, "rms_norm_eps": 1e-5, "rope_theta": o.RopeTheta,
		"tie_word_embeddings": o.Tied, "attention_bias": o.AttentionBias, "mlp_bias": o.MLPBias, "hidden_act": "silu",
		"bos_token_id": o.Vocab - 2, "eos_token_id": o.Vocab - 1,
		"torch_dtype": map[kernels.Format]string{kernels.F32: "float32", kernels.F16: "float16", kernels.BF16: "bfloat16"}[o.DType],
	}
	if s := o.RopeScaling; s != nil {
		scaling := map[string]any{"rope_type": s.Type, "factor": s.Factor}
		if s.Type == "llama3" {
			scaling["low_freq_factor"], scaling["high_freq_factor"] = s.LowFreqFactor, s.HighFreqFactor
			scaling["original_max_position_embeddings"] = s.OriginalMaxPositionEmbeddings
		}
		m["rope_scaling"] = scaling
	}
	return mustJSON(m)
}

// Config returns the Config that the engine reads from ConfigJSON.
func (o Llama) Config() (checkpoint.Config, error) {
	return checkpoint.ParseConfig("toy config.json", o.ConfigJSON())
}

// Layout lists the toy's tensors: Hugging Face names, shapes, DType.
func (o Llama) Layout() []checkpoint.TensorInfo {
	o = o.whole()
	var list []checkpoint.TensorInfo
	add := func(name string, shape ...int) {
		t := checkpoint.TensorInfo{Name: name, Format: o.DType}
		for _, d := range shape {
			t.Shape = append(t.Shape, int64(d))
		}
		list = append(list, t)
	}
	linear := func(name string, out, in int, bias bool) {
		add(name+".weight", out, in)
		if bias {
			add(name+".bias", out)
		}
	}
	q, kv := o.Heads*o.HeadDim, o.KVHeads*o.HeadDim
	add("model.embed_tokens.weight", o.Vocab, o.Hidden)
	for i := range o.Layers {
		p := fmt.Sprintf("model.layers.%d.", i)
		add(p+"input_layernorm.weight", o.Hidden)
		linear(p+"self_attn.q_proj", q, o.Hidden, o.AttentionBias)
		linear(p+"self_attn.k_proj", kv, o.Hidden, o.AttentionBias)
		linear(p+"self_attn.v_proj", kv, o.Hidden, o.AttentionBias)
		linear(p+"self_attn.o_proj", o.Hidden, q, o.AttentionBias)
		add(p+"post_attention_layernorm.weight", o.Hidden)
		linear(p+"mlp.gate_proj", o.Intermediate, o.Hidden, o.MLPBias)
		linear(p+"mlp.up_proj", o.Intermediate, o.Hidden, o.MLPBias)
		linear(p+"mlp.down_proj", o.Hidden, o.Intermediate, o.MLPBias)
	}
	add("model.norm.weight", o.Hidden)
	if !o.Tied {
		add("lm_head.weight", o.Vocab, o.Hidden)
	}
	return list
}

// Weights returns the float32 values of every tensor of Layout by name. They depend on the seed
// and not on DType. Matrices have a standard deviation of 1/√in, so that activations neither
// vanish nor grow; norms differ from 1.
func (o Llama) Weights() (map[string][]float32, error) {
	o = o.whole()
	cfg, err := o.Config()
	if err != nil {
		return nil, err
	}
	o.DType = kernels.F32
	layout := o.Layout()
	dummy, err := checkpoint.Dummy(cfg, layout, o.Seed)
	if err != nil {
		return nil, err
	}
	out := map[string][]float32{}
	for _, t := range layout {
		raw := make([]byte, kernels.F32.Bytes(t.Elements()))
		if err := dummy.ReadRows(t.Name, 0, int(t.Rows()), raw); err != nil {
			return nil, err
		}
		x := make([]float32, t.Elements())
		ref.Dequantize(kernels.F32, raw, x)
		scale := float32(1)
		if len(t.Shape) == 2 {
			scale = float32(50 / math.Sqrt(float64(t.Shape[1]))) // the dummy's standard deviation is 1/50
		}
		for i := range x {
			if len(t.Shape) == 1 && x[i] == 1 { // a norm
				x[i] = 1 + float32(i%7-3)/16
			}
			x[i] *= scale
		}
		out[t.Name] = x
	}
	return out, nil
}

// encode stores values as f.
func encode(f kernels.Format, x []float32) []byte {
	b := make([]byte, f.Bytes(int64(len(x))))
	ref.Quantize(f, x, b)
	return b
}

func mustJSON(v any) []byte {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(err) // only for values that JSON cannot encode, which are bugs here
	}
	return b
}

// safetensors encodes tensors as a file: {u64 length, header, bytes}.
func safetensors(list []checkpoint.TensorInfo, data map[string][]byte) ([]byte, error) {
	head := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	var body []byte
	for _, t := range list {
		dtype := map[kernels.Format]string{kernels.F32: "F32", kernels.F16: "F16", kernels.BF16: "BF16", kernels.F8E4M3: "F8_E4M3"}[t.Format]
		if dtype == "" {
			return nil, fmt.Errorf("safetensors has no %v", t.Format)
		}
		head[t.Name] = map[string]any{"dtype": dtype, "shape": t.Shape, "data_offsets": []int{len(body), len(body) + len(data[t.Name])}}
		body = append(body, data[t.Name]...)
	}
	j, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	for len(j)%8 != 0 {
		j = append(j, ' ')
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(j)))
	return append(append(out, j...), body...), nil
}

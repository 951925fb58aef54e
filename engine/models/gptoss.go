package models

import (
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// checkGptOss refuses configs that the recorded forward pass does not implement.
func checkGptOss(c checkpoint.Config) error {
	if c.HiddenAct != "silu" {
		return &UnsupportedError{"hidden_act " + short(c.HiddenAct), "gpt-oss uses silu"}
	}
	if c.MLPBias {
		return &UnsupportedError{"mlp_bias", "the experts of gpt-oss always have biases"}
	}
	if err := checkExperts(c); err != nil {
		return err
	}
	if err := checkLayerTypes(layerTypes(c, 2), c.SlidingWindow); err != nil {
		return err
	}
	q, err := quantOf(c)
	if err != nil {
		return err
	}
	if b := mxBlock; q.format == kernels.MXFP4 && (c.HiddenSize%b != 0 || c.IntermediateSize%b != 0) {
		return &UnsupportedError{fmt.Sprintf("mxfp4 experts of %d × %d", c.HiddenSize, c.IntermediateSize), "both must be multiples of 32, the block of the format"}
	}
	if q.format == kernels.F8E4M3 || q.format == kernels.I8 {
		return &UnsupportedError{"gpt-oss in 8-bit floats or int8", "its experts are read as mxfp4, bf16, f16 or f32"}
	}
	rope, err := c.Rope("")
	if err != nil || c.RopeByLayerType != nil || c.PartialRotaryFactor != 1 {
		return &UnsupportedError{"a rope that differs by layer or rotates part of a head", "gpt-oss has one for all"}
	}
	if _, err := rope.Angles(c.HeadDim); err != nil {
		return err
	}
	_, err = gptOssActivation(c)
	return err
}

// mxBlock is the number of MXFP4 weights that share an exponent.
const mxBlock = 32

// gptOssActivation reads swiglu_limit and swiglu_alpha.
func gptOssActivation(c checkpoint.Config) (backend.Activation, error) {
	s, err := c.Section("")
	if err != nil {
		return backend.Activation{}, err
	}
	a := backend.Activation{
		Limit: float32(s.RealOr("swiglu_limit", 1e-3, 1e6, 7)), Alpha: float32(s.RealOr("swiglu_alpha", 1e-3, 1e6, 1.702)),
		Shift: 1, Paired: !splitGateUp(c),
	}
	return a, s.Err()
}

// splitGateUp reports whether gate and up are two tensors, as in GGUF files. transformers stores
// them as one tensor with alternating rows.
func splitGateUp(c checkpoint.Config) bool { return c.Dialect == "gguf" }

// gptOssTensors lists a checkpoint's tensors: names and shapes of transformers'
// GptOssForCausalLM. Experts are MXFP4 blocks and exponents [E, out, in/32], or, in
// checkpoints that were dequantized, matrices [E, in, out].
func gptOssTensors(c checkpoint.Config) []checkpoint.TensorInfo {
	l := tensorsOf(c)
	h, m, e := c.HiddenSize, c.IntermediateSize, c.NumExperts
	q, kv := c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim
	l.add("model.embed_tokens.weight", c.VocabSize, h)
	for i := range c.NumLayers {
		p := fmt.Sprintf("model.layers.%d.", i)
		l.add(p+"input_layernorm.weight", h)
		l.linear(p+"self_attn.q_proj", c.AttentionBias, q, h)
		l.linear(p+"self_attn.k_proj", c.AttentionBias, kv, h)
		l.linear(p+"self_attn.v_proj", c.AttentionBias, kv, h)
		l.linear(p+"self_attn.o_proj", c.AttentionBias, h, q)
		l.add(p+"self_attn.sinks", c.NumHeads)
		l.add(p+"post_attention_layernorm.weight", h)
		l.linear(p+"mlp.router", true, e, h)
		if x := p + "mlp.experts."; splitGateUp(c) {
			l.add(x+"gate_proj", e, m, h)
			l.add(x+"up_proj", e, m, h)
			l.add(x+"gate_proj_bias", e, m)
			l.add(x+"up_proj_bias", e, m)
			l.add(x+"down_proj", e, h, m)
		} else {
			l.transposed(x+"gate_up_proj", e, 2*m, h)
			l.add(x+"gate_up_proj_bias", e, 2*m)
			l.transposed(x+"down_proj", e, h, m)
		}
		l.add(p+"mlp.experts.down_proj_bias", e, h)
	}
	l.add("model.norm.weight", h)
	if !c.TieWordEmbeddings {
		l.add("lm_head.weight", c.VocabSize, h)
	}
	return l.list
}

// transposed adds a stack of experts [rows, cols] in gpt-oss's layout: two MXFP4 tensors, or one
// tensor of transposed matrices.
func (l *tensorList) transposed(name string, experts, rows, cols int) {
	if l.quant.format != kernels.MXFP4 {
		l.add(name, experts, cols, rows)
		return
	}
	l.put(kernels.U8, name+mxBlocks, experts, rows, cols/mxBlock, mxBlock/2)
	l.put(kernels.U8, name+mxScales, experts, rows, cols/mxBlock)
}

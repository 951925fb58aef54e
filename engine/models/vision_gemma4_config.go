package models

import (
	"fmt"

	"vapp.dev/engine/checkpoint"
)

// gemmaVision holds Gemma 4's vision_config.
type gemmaVision struct {
	hidden, inner, layers         int
	heads, kvHeads, headDim       int
	patch, positions, pool, items int // items: soft tokens per image
	eps                           float64
	rope                          checkpoint.Rope
	standardize                   bool
}

// readGemmaVision reads vision_config; nil if there is none, or none that can be recorded: the
// model without a tower (12B), and those with per-layer embeddings (E2B and E4B). Absent keys have
// transformers' defaults.
func readGemmaVision(c checkpoint.Config) (*gemmaVision, error) {
	if g, err := readGemmaText(c); err != nil || g.perLayer > 0 || c.Architecture != gemmaConditional {
		return nil, err
	}
	s, err := c.Section("vision_config")
	if err != nil || s == nil {
		return nil, err
	}
	const most = 1 << 14
	v := &gemmaVision{
		hidden: s.CountOr("hidden_size", 1, 1<<20, 768), inner: s.CountOr("intermediate_size", 1, 1<<24, 3072),
		layers: s.CountOr("num_hidden_layers", 1, 1024, 16), heads: s.CountOr("num_attention_heads", 1, most, 12),
		headDim: s.CountOr("head_dim", 4, most, 64), patch: s.CountOr("patch_size", 1, 1024, 16),
		positions: s.CountOr("position_embedding_size", 1, 1<<24, 10240), pool: s.CountOr("pooling_kernel_size", 1, 64, 3),
		items: s.CountOr("default_output_length", 1, 1<<14, 280), eps: s.RealOr("rms_norm_eps", 1e-30, 1, 1e-6),
		rope:        checkpoint.Rope{Theta: 100, PartialRotaryFactor: 1},
		standardize: s.FlagOr("standardize", false),
	}
	v.kvHeads = s.CountOr("num_key_value_heads", 1, most, int64(v.heads))
	kind := "axial"
	if r := s.Section("rope_parameters"); r != nil {
		v.rope.Theta = r.RealOr("rope_theta", 1, 1e15, 100)
		kind = r.TextOr("rope_type", "axial")
	}
	switch act := s.TextOr("hidden_activation", "gelu_pytorch_tanh"); {
	case s.Err() != nil:
		return nil, s.Err()
	case act != "gelu_pytorch_tanh":
		return nil, &UnsupportedError{"vision_config.hidden_activation " + short(act), "Gemma 4 uses gelu_pytorch_tanh"}
	case kind != "axial" && kind != "default":
		return nil, &UnsupportedError{"vision_config.rope_parameters.rope_type " + short(kind), "axial is recorded (configs also call it default)"}
	case v.heads%v.kvHeads != 0 || v.headDim%4 != 0:
		return nil, &UnsupportedError{fmt.Sprintf("vision_config with %d heads of %d, %d key/value heads", v.heads, v.headDim, v.kvHeads), "heads must be a multiple of the key/value heads, and their size of 4"}
	case s.FlagOr("use_clipped_linears", false):
		return nil, &UnsupportedError{"vision_config.use_clipped_linears", "the tower is recorded without clipping"}
	case s.FlagOr("attention_bias", false):
		return nil, &UnsupportedError{"vision_config.attention_bias", "no published model has it"}
	}
	return v, s.Err()
}

const (
	gemmaTowerPrefix = "model.vision_tower."
	gemmaProjection  = "model.embed_vision.embedding_projection"
)

// gemmaTower lists the tensors of the tower and of the projection to the text
// model's width.
func (l *tensorList) gemmaTower(v *gemmaVision, width int) {
	h := v.hidden
	l.linear(gemmaTowerPrefix+"patch_embedder.input_proj", false, h, 3*v.patch*v.patch)
	l.add(gemmaTowerPrefix+"patch_embedder.position_embedding_table", 2, v.positions, h)
	for i := range v.layers {
		p := fmt.Sprintf("%sencoder.layers.%d.", gemmaTowerPrefix, i)
		l.linear(p+"self_attn.q_proj.linear", false, v.heads*v.headDim, h)
		l.linear(p+"self_attn.k_proj.linear", false, v.kvHeads*v.headDim, h)
		l.linear(p+"self_attn.v_proj.linear", false, v.kvHeads*v.headDim, h)
		l.linear(p+"self_attn.o_proj.linear", false, h, v.heads*v.headDim)
		l.add(p+"self_attn.q_norm.weight", v.headDim)
		l.add(p+"self_attn.k_norm.weight", v.headDim)
		l.linear(p+"mlp.gate_proj.linear", false, v.inner, h)
		l.linear(p+"mlp.up_proj.linear", false, v.inner, h)
		l.linear(p+"mlp.down_proj.linear", false, h, v.inner)
		for _, norm := range []string{"input", "post_attention", "pre_feedforward", "post_feedforward"} {
			l.add(p+norm+"_layernorm.weight", h)
		}
	}
	if v.standardize {
		l.add(gemmaTowerPrefix+"std_bias", h)
		l.add(gemmaTowerPrefix+"std_scale", h)
	}
	l.linear(gemmaProjection, false, width, h)
}

package models

import (
	"fmt"

	"vapp.dev/engine/checkpoint"
)

// style lists the differences between the dense architectures: which matrices have biases, and
// whether heads of Q and K are normalized before rotation.
type style struct {
	qkvBias, outBias, mlpBias bool
	headNorm                  bool
}

// Styles of transformers' modules, by architecture.
func llamaStyle(c checkpoint.Config) style {
	return style{qkvBias: c.AttentionBias, outBias: c.AttentionBias, mlpBias: c.MLPBias}
}

func qwen2Style(checkpoint.Config) style { return style{qkvBias: true} }

func qwen3Style(c checkpoint.Config) style {
	return style{qkvBias: c.AttentionBias, outBias: c.AttentionBias, headNorm: true}
}

func mistralStyle(checkpoint.Config) style { return style{} }

// denseFamily returns the table row of a dense architecture: pre-norm blocks of grouped-query
// attention with rotary positions over the whole context, and a SwiGLU MLP.
func denseFamily(architecture string, of func(checkpoint.Config) style) family {
	return family{
		architecture: architecture,
		tensors:      func(c checkpoint.Config) []checkpoint.TensorInfo { return denseTensors(c, of(c)) },
		build:        func(c checkpoint.Config, l *loader) (Model, error) { return newDense(c, of(c), l) },
		check:        checkDense,
		pipes:        true,
		drafts:       true,
	}
}

// checkDense refuses configs that the recorded forward pass does not implement.
func checkDense(c checkpoint.Config) error {
	if c.HiddenAct != "silu" {
		return &UnsupportedError{"hidden_act " + c.HiddenAct, c.Architecture + " has silu"}
	}
	if c.IntermediateSize == 0 {
		return &UnsupportedError{c.Architecture + " without intermediate_size", "its MLP is dense"}
	}
	window := c.SlidingWindow != 0
	if c.ModelType == "qwen2" || c.ModelType == "qwen3" { // these give a window's size even if use_sliding_window is false
		s, err := c.Section("")
		if err != nil {
			return err
		}
		window = s.FlagOr("use_sliding_window", false)
		if err := s.Err(); err != nil {
			return err
		}
	}
	if window {
		return &UnsupportedError{"sliding_window of " + c.Architecture, "its layers are recorded with full attention; set use_sliding_window to false, or sliding_window to null, where the checkpoint allows it"}
	}
	for i, kind := range c.LayerTypes {
		if kind != "full_attention" {
			return &UnsupportedError{fmt.Sprintf("layer_types %q of layer %d", kind, i), c.Architecture + " has full_attention"}
		}
	}
	_, err := denseRope(c)
	return err
}

// denseRope returns the rope that all layers share; it rotates whole heads.
func denseRope(c checkpoint.Config) (checkpoint.RopeAngles, error) {
	if c.RopeByLayerType != nil || c.PartialRotaryFactor != 1 {
		return checkpoint.RopeAngles{}, &UnsupportedError{"a rope that differs by layer or rotates part of a head", c.Architecture + " has one for all"}
	}
	r, err := c.Rope("")
	if err != nil {
		return checkpoint.RopeAngles{}, err
	}
	return r.Angles(c.HeadDim)
}

// denseTensors lists a checkpoint's tensors: names and shapes of transformers'
// modules.
func denseTensors(c checkpoint.Config, s style) []checkpoint.TensorInfo {
	l := tensorsOf(c)
	h, q, kv := c.HiddenSize, c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim
	l.add("model.embed_tokens.weight", c.VocabSize, h)
	for i := range c.NumLayers {
		p := fmt.Sprintf("model.layers.%d.", i)
		l.add(p+"input_layernorm.weight", h)
		l.linear(p+"self_attn.q_proj", s.qkvBias, q, h)
		l.linear(p+"self_attn.k_proj", s.qkvBias, kv, h)
		l.linear(p+"self_attn.v_proj", s.qkvBias, kv, h)
		l.linear(p+"self_attn.o_proj", s.outBias, h, q)
		if s.headNorm {
			l.add(p+"self_attn.q_norm.weight", c.HeadDim)
			l.add(p+"self_attn.k_norm.weight", c.HeadDim)
		}
		l.add(p+"post_attention_layernorm.weight", h)
		l.linear(p+"mlp.gate_proj", s.mlpBias, c.IntermediateSize, h)
		l.linear(p+"mlp.up_proj", s.mlpBias, c.IntermediateSize, h)
		l.linear(p+"mlp.down_proj", s.mlpBias, h, c.IntermediateSize)
	}
	l.add("model.norm.weight", h)
	if !c.TieWordEmbeddings {
		l.add("lm_head.weight", c.VocabSize, h)
	}
	return l.list
}

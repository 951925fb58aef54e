package compat

import "vapp.dev/engine/checkpoint"

func (s *shape) readGemma(text, outer *object) {
	s.prefix = "model.language_model."
	s.globalHeadDim = text.countOr("global_head_dim", 2, maxCount, s.headDim)
	s.kFromV = text.flag("attention_k_eq_v", false)
	s.globalKV = s.kvHeads
	if s.kFromV {
		s.globalKV = text.countOr("num_global_key_value_heads", 1, maxCount, s.kvHeads)
	}
	if s.heads%s.globalKV != 0 {
		text.fail("num_global_key_value_heads", "is %d, which does not divide num_attention_heads %d", s.globalKV, s.heads)
	}
	s.sharedKV = text.countOr("num_kv_shared_layers", 0, s.layers-1, 0)
	if n := text.countOr("hidden_size_per_layer_input", 0, maxWidth, 0); n != 0 {
		text.fail("hidden_size_per_layer_input", "is %d: the per-layer embeddings of the small Gemma 4 models are not known here", n)
	}
	if text.flag("use_double_wide_mlp", false) {
		text.fail("use_double_wide_mlp", "is true: no figure of a release with it is known here")
	}
	if text.flag("enable_moe_block", false) {
		s.experts = text.count("num_experts", 1, maxCount)
		s.topK = text.count("top_k_experts", 1, s.experts)
		s.expertInter = text.count("moe_intermediate_size", 1, maxWidth)
	}
	s.tied = text.flag("tie_word_embeddings", outer.flag("tie_word_embeddings", true))
	if v := outer.inner("vision_config"); v != nil {
		s.readGemmaVision(v, outer)
	}
	if a := outer.inner("audio_config"); a != nil {
		outer.fail("audio_config", "is an audio tower: not known here")
	}
}

func (s *shape) readGemmaVision(v, outer *object) {
	patch := v.countOr("patch_size", 1, 1024, 16)
	t := &vision{
		layers: v.count("num_hidden_layers", 1, 1024), hidden: v.count("hidden_size", 1, maxWidth),
		inter: v.count("intermediate_size", 1, maxWidth), heads: v.count("num_attention_heads", 1, maxCount),
		patch: 3 * patch * patch, positions: v.countOr("position_embedding_size", 1, maxWidth, 10240),
		// One video is the largest item: frames of at most 70 soft tokens, each pooled from
		// pooling_kernel_size² patches.
		frames: 32, itemTokens: 70,
	}
	pool := v.countOr("pooling_kernel_size", 1, 64, 3)
	t.headDim = v.countOr("head_dim", 1, maxCount, max(1, t.hidden/t.heads))
	t.pixelPatches = t.itemTokens * pool * pool
	t.pool, t.imageTokens = pool, v.countOr("default_output_length", 1, maxWidth, 280)
	s.vision = t
	if v.err != nil && outer.err == nil {
		outer.err = v.err
	}
}

// readQwen35 reads Qwen3.5, dense and with experts, and Qwen3-Next, whose states have the model's
// dtype.
func (s *shape) readQwen35(c checkpoint.Config, text, outer *object) {
	s.prefix = "model.language_model."
	next := c.Architecture == "Qwen3NextForCausalLM"
	if next {
		s.prefix = "model."
	}
	if next || c.Architecture == "Qwen3_5MoeForConditionalGeneration" {
		qwenMixture(s, text)
	}
	if !text.flag("attn_output_gate", true) {
		text.fail("attn_output_gate", "is false: no figure of a release with it is known here")
	}
	s.keyHeads = text.count("linear_num_key_heads", 1, maxCount)
	s.valueHeads = text.count("linear_num_value_heads", 1, maxCount)
	s.keyDim = text.count("linear_key_head_dim", 1, maxCount)
	s.valueDim = text.count("linear_value_head_dim", 1, maxCount)
	s.convKernel = text.count("linear_conv_kernel_dim", 1, 64)
	s.mtpLayers = text.countOr("mtp_num_hidden_layers", 0, 16, 0)
	switch d := text.text("mamba_ssm_dtype"); d {
	case "float32":
		s.stateBytes = 4
	case "":
		s.stateBytes = 4
		if next {
			s.stateBytes = 2
		}
	case "bfloat16", "float16":
		s.stateBytes = 2
	default:
		text.fail("mamba_ssm_dtype", "is %q", clip(d))
	}
	v := outer.inner("vision_config")
	if v == nil {
		return
	}
	merge := v.countOr("spatial_merge_size", 1, 16, 2)
	patch := v.countOr("patch_size", 1, 1024, 16)
	s.vision = &vision{
		layers: v.count("depth", 1, 1024), hidden: v.count("hidden_size", 1, maxWidth),
		inter: v.count("intermediate_size", 1, maxWidth), heads: v.countOr("num_heads", 1, maxCount, 16),
		patch:     v.countOr("in_channels", 1, 16, 3) * v.countOr("temporal_patch_size", 1, 16, 2) * patch * patch,
		positions: v.countOr("num_position_embeddings", 1, maxWidth, 2304),
	}
	s.vision.merged = s.vision.hidden * merge * merge
	s.vision.side, s.vision.merge = patch, merge
	if v.err != nil && outer.err == nil {
		outer.err = v.err
	}
}

// readRope finds the distinct cos/sin tables: memory-planning section 2.3.
func (s *shape) readRope(c checkpoint.Config) {
	s.rope = map[layerKind]rotary{}
	positions := func(r checkpoint.RopeScaling) int64 {
		if r.Type != "yarn" || r.OriginalMaxPositionEmbeddings <= 0 || !(r.Factor > 0) {
			return s.maxPositions
		}
		return int64(min(float64(r.OriginalMaxPositionEmbeddings)*r.Factor, 1<<28))
	}
	rotated := func(dim int64, partial float64) int64 { return max(2, int64(float64(dim)*partial)) }
	switch s.family {
	case gemma4: // "proportional" pads to the whole head
		s.rope[sliding] = rotary{positions: s.maxPositions, dims: s.headDim}
		s.rope[full] = rotary{positions: s.maxPositions, dims: s.globalHeadDim}
		s.rotatedDims = rotated(s.globalHeadDim, c.RopeByLayerType["full_attention"].PartialRotaryFactor)
	case qwen35:
		s.rope[full] = rotary{positions: 4 * s.maxPositions, dims: rotated(s.headDim, c.PartialRotaryFactor)}
	case gptOSS:
		r := rotary{positions: positions(c.RopeScaling), dims: s.headDim, float32: true}
		s.rope[full], s.rope[sliding] = r, r
	case designed:
		r := rotary{positions: positions(c.RopeScaling), dims: rotated(s.headDim, c.PartialRotaryFactor)}
		if c.RopeScaling.Type == "longrope" { // a table of short factors and one of long ones
			r.positions += int64(max(0, c.RopeScaling.OriginalMaxPositionEmbeddings))
		}
		s.rope[full], s.rope[sliding] = r, r
		if s.design.tables {
			s.rope[sliding] = rotary{positions: s.maxPositions, dims: r.dims, local: true}
		}
	default:
		s.rope[full] = rotary{positions: positions(c.RopeScaling), dims: rotated(s.headDim, c.PartialRotaryFactor)}
	}
}

// ropeOfLatent makes the table of latent attention, which rotates a part of its own.
func (s *shape) ropeOfLatent() {
	if s.latent == nil {
		return
	}
	r := s.rope[full]
	r.dims = s.latent.rope
	s.rope[full] = r
}

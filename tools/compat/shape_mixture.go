package compat

// mixture describes the experts of a design.
type mixture struct {
	layers     []bool // which layers have experts
	router     int64  // bytes of an element of the router's matrix, 0: the model's
	corrected  bool   // the router has a bias of each expert in float32
	shared     int64  // width of the shared experts, 0: none
	sharedGate bool   // the shared expert is gated
}

// latent has the sizes of attention with a compressed KV.
type latent struct {
	qRank, kvRank, nope, rope, value int64
}

// mix sets experts in every layer that of reports.
func (s *shape) mix(of func(layer int64) bool) *mixture {
	m := &mixture{layers: make([]bool, s.layers)}
	for i := range m.layers {
		m.layers[i] = of(int64(i))
	}
	s.mixture = m
	return m
}

func all(int64) bool { return true }

// ownWidth reads a mixture whose experts have intermediate_size.
func ownWidth(key string) func(*shape, *object) {
	return func(s *shape, text *object) {
		s.experts = text.count(key, 1, maxCount)
		s.topK = text.countOr("num_experts_per_tok", 1, s.experts, min(2, s.experts))
		s.expertInter = s.inter
		s.mix(all)
	}
}

// qwenMixture reads Qwen2-MoE's, Qwen3-MoE's, Qwen3-Next's and Qwen3.5-MoE's keys.
func qwenMixture(s *shape, text *object) {
	s.experts = text.count("num_experts", 1, maxCount)
	s.topK = text.count("num_experts_per_tok", 1, s.experts)
	s.expertInter = text.count("moe_intermediate_size", 1, maxWidth)
	step := text.countOr("decoder_sparse_step", 1, maxCount, 1)
	dense := text.counts("mlp_only_layers", s.layers)
	m := s.mix(func(i int64) bool { return (i+1)%step == 0 && !dense[i] })
	m.shared = text.countOr("shared_expert_intermediate_size", 0, maxWidth, 0)
	m.sharedGate = m.shared > 0
}

// routed reads the keys that DeepSeek's configs and GLM's share.
func routed(s *shape, text *object) *mixture {
	s.experts = text.count("n_routed_experts", 1, maxCount)
	s.topK = text.count("num_experts_per_tok", 1, s.experts)
	s.expertInter = text.count("moe_intermediate_size", 1, maxWidth)
	dense := text.countOr("first_k_dense_replace", 0, s.layers, 0)
	each := text.countOr("moe_layer_freq", 1, maxCount, 1)
	m := s.mix(func(i int64) bool { return i >= dense && i%each == 0 })
	m.shared = s.expertInter * text.countOr("n_shared_experts", 0, maxCount, 0)
	if m.shared > maxWidth<<4 {
		text.fail("n_shared_experts", "gives shared experts of %d", m.shared)
	}
	return m
}

func glmMixture(s *shape, text *object) {
	s.attnOutBias = false
	if text.flag("use_qk_norm", false) {
		s.headNorm = perHead
	}
	m := routed(s, text)
	m.router, m.corrected = 4, true
}

func ernieMixture(s *shape, text *object) {
	s.attnBias = text.flag("use_bias", false)
	s.attnOutBias, s.mlpBias = false, s.attnBias
	s.experts = text.count("moe_num_experts", 1, maxCount)
	s.topK = text.count("moe_k", 1, s.experts)
	s.expertInter = text.count("moe_intermediate_size", 1, maxWidth)
	first := text.countOr("moe_layer_start_index", 0, s.layers, 0)
	last := text.countOr("moe_layer_end_index", 0, s.layers, s.layers-1)
	each := text.countOr("moe_layer_interval", 1, maxCount, 1)
	m := s.mix(func(i int64) bool { return i >= first && i <= last && (i+1)%each == 0 })
	m.router, m.corrected = 4, true
	m.shared = s.expertInter * text.countOr("moe_num_shared_experts", 0, maxCount, 0)
	if m.shared > maxWidth<<4 {
		text.fail("moe_num_shared_experts", "gives shared experts of %d", m.shared)
	}
}

// llama4Layers reads which of Llama 4's layers have experts, and which attend within chunks.
func llama4Layers(s *shape, text *object) {
	s.experts = text.count("num_local_experts", 1, maxCount)
	s.topK = text.countOr("num_experts_per_tok", 1, s.experts, 1)
	s.expertInter = s.inter
	s.inter = text.count("intermediate_size_mlp", 1, maxWidth<<4)
	step := text.countOr("interleave_moe_layer_step", 1, maxCount, 1)
	s.mix(func(i int64) bool { return (i+1)%step == 0 }).shared = s.expertInter
	s.window = text.countOr("attention_chunk_size", 1, maxLength, 0)
	every := text.countOr("no_rope_layer_interval", 1, maxCount, 4)
	ropes := text.list("no_rope_layers", int(s.layers))
	for i := range s.kinds {
		rotates := (i+1)%int(every) != 0
		if len(ropes) == len(s.kinds) {
			rotates = ropes[i] == 1
		}
		if rotates && s.window > 0 {
			s.kinds[i] = chunked
		}
	}
	s.rope[chunked] = s.rope[full]
	if s.window > 0 {
		delete(s.rope, full)
	}
}

// deepseekLatent reads multi-head latent attention: one compressed row for a token and layer, which
// no rank shares.
func deepseekLatent(s *shape, text *object) {
	if _, sparse := text.raw("index_topk"); sparse {
		text.fail("index_topk", "is set: pages of sparse attention with an indexer are not known here")
	}
	s.attnBias, s.attnOutBias = false, false
	s.latent = &latent{
		qRank: text.countOr("q_lora_rank", 1, maxWidth, 0), kvRank: text.count("kv_lora_rank", 1, maxCount),
		nope: text.count("qk_nope_head_dim", 1, maxCount), rope: text.count("qk_rope_head_dim", 2, maxCount), value: text.count("v_head_dim", 1, maxCount),
	}
	s.headDim = s.latent.rope // of the cos/sin table
	if _, ok := text.raw("n_routed_experts"); ok {
		routed(s, text).corrected = text.text("topk_method") == "noaux_tc"
	}
}

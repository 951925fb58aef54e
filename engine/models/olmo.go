package models

import "vapp.dev/engine/checkpoint"

// olmo2 is OLMo 2: norms after attention and MLP instead of before them, and norms of all heads of Q
// and of K together.
func olmo2(c checkpoint.Config) (recipe, error) {
	d, err := olmoBlocks(c)
	if err != nil {
		return d, err
	}
	return d, d.wholeRope()
}

// olmo3 is OLMo 3: olmo2's blocks. One layer in four has full attention; only these have the
// config's rope scaling.
func olmo3(c checkpoint.Config) (recipe, error) {
	d, err := olmoBlocks(c)
	if err != nil {
		return d, err
	}
	s, err := c.Section("")
	if err != nil {
		return d, err
	}
	window := s.CountOr("sliding_window", 0, 1<<28, 4096)
	theta := s.RealOr("rope_theta", 1, 1e15, 5e5)
	if err := s.Err(); err != nil {
		return d, err
	}
	d.slide(window, func(layer int) bool { return (layer+1)%4 != 0 })
	return d, d.ropeByType(checkpoint.Rope{Theta: theta, PartialRotaryFactor: 1})
}

func olmoBlocks(c checkpoint.Config) (recipe, error) {
	d, err := llamaRecipe(c)
	d.qkvBias, d.outBias = c.AttentionBias, c.AttentionBias
	d.attnNorm, d.mlpNorm = "", ""
	d.attnPost, d.mlpPost = "post_attention_layernorm", "post_feedforward_layernorm"
	d.qNorm, d.kNorm, d.heads.Whole = "q_norm", "k_norm", true
	return d, err
}

// olmoe is OLMoE: norms before attention and MLP, olmo2's norms of Q and K, experts in every layer.
func olmoe(c checkpoint.Config) (recipe, error) {
	d, s, err := llamaSection(c)
	if err != nil {
		return d, err
	}
	if s.Has("clip_qkv") && !s.Null("clip_qkv") {
		return d, &UnsupportedError{"clip_qkv of " + c.Architecture, "Q, K and V are used as computed; published models have null"}
	}
	d.qkvBias, d.outBias = c.AttentionBias, c.AttentionBias
	d.qNorm, d.kNorm, d.heads.Whole = "q_norm", "k_norm", true
	m, err := newMixture(c, c.IntermediateSize)
	if err != nil {
		return d, err
	}
	m.softmax(s.FlagOr("norm_topk_prob", false))
	if err := s.Err(); err != nil {
		return d, err
	}
	d.mlp = sparse(m, func(int) bool { return true })
	return d, d.wholeRope()
}

package models

import (
	"math"

	"vapp.dev/engine/checkpoint"
)

// deepseekV2 is DeepSeek V2 and V2-Lite: latent attention, and experts whose weights are those of a
// softmax over all.
func deepseekV2(c checkpoint.Config) (recipe, error) {
	d, m, s, err := deepseek(c)
	if err != nil {
		return d, err
	}
	if s.FlagOr("norm_topk_prob", false) {
		return d, &UnsupportedError{"norm_topk_prob of " + c.Architecture, "its weights are not divided by their sum"}
	}
	m.softmax(false)
	m.score.Factor = float32(s.RealOr("routed_scaling_factor", 1e-3, 1e3, 1))
	switch method := s.TextOr("topk_method", "greedy"); method {
	case "greedy":
	case "group_limited_greedy":
		m.groups(s)
		m.score.GroupTop = 1
	default:
		return d, &UnsupportedError{"topk_method " + short(method) + " of " + c.Architecture, "it is greedy or group_limited_greedy"}
	}
	return d, d.finishDeepseek(m, s, "softmax")
}

// deepseekV3 is DeepSeek V3, R1 and Kimi K2: V2 with a router of sigmoids. Its layers for further
// tokens are not run.
func deepseekV3(c checkpoint.Config) (recipe, error) {
	d, m, s, err := deepseek(c)
	if err != nil {
		return d, err
	}
	if method := s.TextOr("topk_method", "noaux_tc"); method != "noaux_tc" {
		return d, &UnsupportedError{"topk_method " + short(method) + " of " + c.Architecture, "it is noaux_tc"}
	}
	d.latent.interleaved = s.FlagOr("rope_interleave", true)
	m.sigmoid(s)
	return d, d.finishDeepseek(m, s, "sigmoid")
}

// deepseek returns what the two have in common; the router is not set.
func deepseek(c checkpoint.Config) (recipe, mixture, *checkpoint.Section, error) {
	s, err := c.Section("")
	if err != nil {
		return recipe{}, mixture{}, nil, err
	}
	c.NumExperts = s.Count("n_routed_experts", 1, 1<<14)
	d, err := llamaRecipe(c)
	if err == nil {
		err = d.readLatent(s)
	}
	if err != nil {
		return d, mixture{}, s, err
	}
	m, err := newMixture(c, c.MoEIntermediateSize)
	m.plainRouter = true
	m.sharedExperts(s)
	return d, m, s, err
}

// finishDeepseek adds the experts, and checks what the router's keys say besides.
func (d *recipe) finishDeepseek(m mixture, s *checkpoint.Section, score string) error {
	if got := s.TextOr("scoring_func", score); got != score {
		return &UnsupportedError{"scoring_func " + short(got) + " of " + d.cfg.Architecture, "it is " + score}
	}
	first, every := s.CountOr("first_k_dense_replace", 0, 1<<10, 0), s.CountOr("moe_layer_freq", 1, 1<<10, 1)
	if err := s.Err(); err != nil {
		return err
	}
	if m.score.Groups > 0 {
		if err := m.checkGroups(); err != nil {
			return err
		}
	}
	d.mlp = sparse(m, func(layer int) bool { return layer >= first && layer%every == 0 })
	return d.checkDenseLayers()
}

// readLatent makes the recipe's attention a latent one: grouped queries of one key/value head, whose
// value is the latent.
func (d *recipe) readLatent(s *checkpoint.Section) error {
	const widest = 1 << 14
	a := &latentAttention{
		queryRank: s.CountOr("q_lora_rank", 0, 1<<20, 0), rank: s.Count("kv_lora_rank", 1, widest),
		nope: s.Count("qk_nope_head_dim", 1, widest), rotary: s.Count("qk_rope_head_dim", 2, widest), value: s.Count("v_head_dim", 1, widest),
		split: s.FlagOr("kv_b_split", false), interleaved: true,
	}
	if err := s.Err(); err != nil {
		return err
	}
	c := &d.cfg
	switch {
	case c.AttentionBias:
		return &UnsupportedError{"attention_bias of " + c.Architecture, "its projections run without biases"}
	case c.RopeByLayerType != nil || c.PartialRotaryFactor != 1:
		return &UnsupportedError{"a rope that differs by layer or rotates part of qk_rope_head_dim", c.Architecture + " has one for all"}
	}
	r, err := c.Rope("")
	if err != nil {
		return err
	}
	angles, err := r.Angles(a.rotary)
	if err != nil {
		return err
	}
	d.latent, d.ropes = a, []ropeKind{{angles: angles}}
	d.attnScale = float32(r.Scaling.ScoreScale() / math.Sqrt(float64(a.nope+a.rotary)))
	c.NumKVHeads, c.HeadDim = 1, a.rank
	return nil
}

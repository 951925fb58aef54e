package models

import (
	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
)

// glm4MoE is GLM-4.5, 4.6 and their Air models: a rope of the first half of each head, and experts in
// all layers but the first ones. Their layers for further tokens are not run.
func glm4MoE(c checkpoint.Config) (recipe, error) {
	s, err := c.Section("")
	if err != nil {
		return recipe{}, err
	}
	c.NumExperts = s.Count("n_routed_experts", 1, 1<<14)
	d, err := llamaRecipe(c)
	if err != nil {
		return d, err
	}
	d.qkvBias = c.AttentionBias
	if s.FlagOr("use_qk_norm", false) {
		d.qNorm, d.kNorm = "q_norm", "k_norm"
	}
	m, err := newMixture(c, c.MoEIntermediateSize)
	if err != nil {
		return d, err
	}
	m.sharedExperts(s)
	m.sigmoid(s)
	first := s.CountOr("first_k_dense_replace", 0, 1<<10, 1)
	if err := s.Err(); err != nil {
		return d, err
	}
	if err := m.checkGroups(); err != nil {
		return d, err
	}
	d.mlp = sparse(m, func(layer int) bool { return layer >= first })
	if err := d.checkDenseLayers(); err != nil {
		return d, err
	}
	return d, d.oneRope()
}

// sigmoid sets DeepSeek V3's router, which GLM has: sigmoids with a correction, groups of experts, a
// factor.
func (m *mixture) sigmoid(s *checkpoint.Section) {
	m.score = backend.Route{Score: backend.Sigmoid, Normalize: s.FlagOr("norm_topk_prob", true), Factor: float32(s.RealOr("routed_scaling_factor", 1e-3, 1e3, 1))}
	m.plainRouter = true
	m.groups(s)
	m.corrected("gate.e_score_correction_bias", m.experts)
}

// groups reads the groups of experts of a router.
func (m *mixture) groups(s *checkpoint.Section) {
	m.score.Groups, m.score.TopGroups = s.CountOr("n_group", 1, 1<<10, 1), s.CountOr("topk_group", 1, 1<<10, 1)
}

// sharedExperts reads the number of shared experts, which are one MLP.
func (m *mixture) sharedExperts(s *checkpoint.Section) {
	if n := s.CountOr("n_shared_experts", 0, 1<<10, 1); n > 0 {
		m.shared, m.sharedWidth = "shared_experts.", n*m.width
	}
}

package models

import "vapp.dev/engine/checkpoint"

// glm is GLM-4 of 2024: biases on Q, K and V, gate and up in one matrix, and a rope that turns
// neighbouring pairs of the first half of a head.
func glm(c checkpoint.Config) (recipe, error) {
	d, s, err := llamaSection(c)
	if err != nil {
		return d, err
	}
	d.qkvBias = s.FlagOr("attention_bias", true)
	d.dense.fused = "gate_up_proj"
	d.interleaved = true
	if err := s.Err(); err != nil {
		return d, err
	}
	return d, d.oneRope()
}

// glm4 is GLM-4 of 2025 (GLM-4-9B-0414, GLM-4-32B-0414, GLM-Z1): glm with norms after attention and MLP.
func glm4(c checkpoint.Config) (recipe, error) {
	d, err := glm(c)
	d.attnPost, d.mlpPost = "post_self_attn_layernorm", "post_mlp_layernorm"
	return d, err
}

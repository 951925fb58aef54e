package models

import "vapp.dev/engine/checkpoint"

// internlm3 is InternLM 3: Llama's blocks, its biases under names of their own.
func internlm3(c checkpoint.Config) (recipe, error) {
	d, s, err := llamaSection(c)
	if err != nil {
		return d, err
	}
	d.qkvBias = s.FlagOr("qkv_bias", c.AttentionBias)
	d.outBias = s.FlagOr("bias", c.MLPBias)
	d.dense.bias = d.outBias
	if err := s.Err(); err != nil {
		return d, err
	}
	return d, d.wholeRope()
}

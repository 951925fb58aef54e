package models

import "vapp.dev/engine/checkpoint"

// hunyuan is Hunyuan, dense: Llama's blocks with norms of the heads of Q and K after their rotation.
func hunyuan(c checkpoint.Config) (recipe, error) {
	d, s, err := llamaSection(c)
	if err != nil {
		return d, err
	}
	d.qkvBias, d.outBias = c.AttentionBias, c.AttentionBias
	if s.FlagOr("use_qk_norm", true) {
		d.qNorm, d.kNorm, d.heads.After = "query_layernorm", "key_layernorm", true
	}
	if s.FlagOr("use_cla", false) {
		return d, &UnsupportedError{"use_cla of " + c.Architecture, "every recorded layer has keys and values of its own"}
	}
	if err := s.Err(); err != nil {
		return d, err
	}
	return d, d.wholeRope()
}

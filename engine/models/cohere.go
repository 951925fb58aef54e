package models

import "vapp.dev/engine/checkpoint"

// cohere is Command-R: attention and MLP in parallel behind one LayerNorm, a rope of neighbouring
// pairs, and scaled logits.
func cohere(c checkpoint.Config) (recipe, error) {
	d, s, err := cohereBlocks(c)
	if err != nil {
		return d, err
	}
	if s.FlagOr("use_qk_norm", false) { // Command-R+
		d.qNorm, d.kNorm, d.heads.Each, d.heads.Plain = "q_norm", "k_norm", true, true
	}
	return d, s.Err()
}

// cohere2 is Command-R7B: cohere's blocks. Layers with a window have a rope, every fourth has full
// attention and none.
func cohere2(c checkpoint.Config) (recipe, error) {
	d, s, err := cohereBlocks(c)
	if err != nil {
		return d, err
	}
	period := s.CountOr("sliding_window_pattern", 1, 1<<10, 4)
	window := s.CountOr("sliding_window", 0, 1<<28, 4096)
	if err := s.Err(); err != nil {
		return d, err
	}
	d.slide(window, func(layer int) bool { return (layer+1)%period != 0 })
	d.someRope(func(layer int) bool { return d.types[layer] == slidingAttention })
	return d, nil
}

func cohereBlocks(c checkpoint.Config) (recipe, *checkpoint.Section, error) {
	d, s, err := llamaSection(c)
	if err != nil {
		return d, nil, err
	}
	d.layerNorm, d.parallel, d.interleaved, d.mlpNorm = true, true, true, ""
	d.qkvBias, d.outBias = c.AttentionBias, c.AttentionBias
	d.logitScale = float32(s.RealOr("logit_scale", 1e-4, 1e4, 0.0625))
	if err := d.tie(s, true); err != nil {
		return d, nil, err
	}
	return d, s, d.wholeRope()
}

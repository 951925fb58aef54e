package models

import "vapp.dev/engine/checkpoint"

// smollm3 is SmolLM3: Llama's blocks, every fourth layer without a rope.
func smollm3(c checkpoint.Config) (recipe, error) {
	d, s, err := llamaSection(c)
	if err != nil {
		return d, err
	}
	d.qkvBias, d.outBias, d.dense.bias = c.AttentionBias, c.AttentionBias, c.MLPBias
	every := s.CountOr("no_rope_layer_interval", 1, 1<<10, 4)
	rotates := s.Counts("no_rope_layers", c.NumLayers, 0, 1)
	window := c.SlidingWindow
	if !s.FlagOr("use_sliding_window", false) {
		window = 0
	}
	if err := d.tie(s, true); err != nil {
		return d, err
	}
	if err := d.wholeRope(); err != nil {
		return d, err
	}
	d.someRope(func(layer int) bool {
		if rotates != nil {
			return rotates[layer] == 1
		}
		return (layer+1)%every != 0
	})
	d.slideAlone(window, func(layer int) bool { return d.ropeAt(layer) > 0 })
	return d, nil
}

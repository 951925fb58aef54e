package models

import "vapp.dev/engine/checkpoint"

// qwen2 is Qwen2 and Qwen2.5: Llama's blocks with biases on Q, K and V.
func qwen2(c checkpoint.Config) (recipe, error) {
	d, err := llamaRecipe(c)
	if err != nil {
		return d, err
	}
	d.qkvBias = true
	return d, d.qwenRest()
}

// qwen3 is Qwen3: norms of the heads of Q and K.
func qwen3(c checkpoint.Config) (recipe, error) {
	d, err := llamaRecipe(c)
	if err != nil {
		return d, err
	}
	d.qkvBias, d.outBias = c.AttentionBias, c.AttentionBias
	d.qNorm, d.kNorm = "q_norm", "k_norm"
	return d, d.qwenRest()
}

// qwenRest sets rope and windows. Configs have a sliding_window even if use_sliding_window is
// false; if it is true, layers from max_window_layers on have it.
func (d *recipe) qwenRest() error {
	s, err := d.cfg.Section("")
	if err != nil {
		return err
	}
	window := d.cfg.SlidingWindow
	if !s.FlagOr("use_sliding_window", false) {
		window = 0
	}
	from := s.CountOr("max_window_layers", 0, 1<<10, 28)
	if err := s.Err(); err != nil {
		return err
	}
	d.slideAlone(window, func(layer int) bool { return layer >= from })
	return d.wholeRope()
}

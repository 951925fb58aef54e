package models

import "vapp.dev/engine/checkpoint"

// llama is Llama 2 and 3, and the many models that have their blocks: SmolLM2, Falcon 3, Yi.
func llama(c checkpoint.Config) (recipe, error) {
	d, err := llamaRecipe(c)
	if err != nil {
		return d, err
	}
	d.qkvBias, d.outBias, d.dense.bias = c.AttentionBias, c.AttentionBias, c.MLPBias
	if c.SlidingWindow != 0 {
		return d, &UnsupportedError{"sliding_window of " + c.Architecture, "Llama's layers have full attention; set sliding_window to null, or use MistralForCausalLM"}
	}
	return d, d.wholeRope()
}

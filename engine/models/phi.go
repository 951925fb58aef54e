package models

import "vapp.dev/engine/checkpoint"

// phi3 is Phi-3, Phi-3.5, Phi-4 and Phi-4-mini: Llama's blocks with fused matrices. Phi-4-mini
// rotates three quarters of each head.
func phi3(c checkpoint.Config) (recipe, error) {
	d, err := llamaRecipe(c)
	if err != nil {
		return d, err
	}
	d.fusedQKV, d.dense.fused = "qkv_proj", "gate_up_proj"
	d.slideAlone(c.SlidingWindow, func(int) bool { return true })
	return d, d.oneRope()
}

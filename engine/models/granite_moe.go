package models

import "vapp.dev/engine/checkpoint"

// graniteMoE is Granite 3's 1B-A400M and 3B-A800M: Granite with experts in every layer, stored as
// stacks.
func graniteMoE(c checkpoint.Config) (recipe, error) {
	d, err := granite(c)
	if err != nil {
		return d, err
	}
	m, err := newMixture(c, c.IntermediateSize)
	m.softmax(true)
	m.module = "block_sparse_moe."
	m.router = "router.layer"
	if c.Dialect != "gguf" {
		m.gate, m.up, m.down = "input_linear.weight", "", "output_linear.weight"
	}
	d.mlp = sparse(m, func(int) bool { return true })
	return d, err
}

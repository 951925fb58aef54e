package models

import "vapp.dev/engine/checkpoint"

// mixtral is Mixtral: Mistral's attention, experts in every layer.
func mixtral(c checkpoint.Config) (recipe, error) {
	d, err := mistral(c)
	if err != nil {
		return d, err
	}
	m, err := newMixture(c, c.IntermediateSize)
	m.softmax(true)
	m.module = "block_sparse_moe."
	if c.Dialect != "gguf" {
		m.gate, m.up, m.down = "experts.*.w1.weight", "experts.*.w3.weight", "experts.*.w2.weight"
	}
	d.mlp = sparse(m, func(int) bool { return true })
	return d, err
}

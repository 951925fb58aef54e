package models

import (
	"fmt"
	"slices"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
)

// graniteHybrid is Granite 4: Granite's blocks, with or without a rope. Most layers of its hybrid models
// have a Mamba-2 mixer in the place of attention. The MLP of a layer, shared_mlp, is beside experts in
// some models.
func graniteHybrid(c checkpoint.Config) (recipe, error) {
	d, s, err := llamaSection(c)
	if err != nil {
		return d, err
	}
	d.qkvBias, d.outBias = c.AttentionBias, c.AttentionBias
	width := s.CountOr("shared_intermediate_size", 1, 1<<24, 1024)
	position := s.TextOr("position_embedding_type", "nope")
	if err := s.Err(); err != nil {
		return d, err
	}
	if err := d.graniteMultipliers(); err != nil {
		return d, err
	}
	switch position {
	case "rope":
	case "nope":
		d.ropes = []ropeKind{{angles: noRope}}
	default:
		return d, &UnsupportedError{fmt.Sprintf("position_embedding_type %q", short(position)), `it is "rope" or "nope"`}
	}
	if d.types, err = graniteTypes(c); err != nil {
		return d, err
	}
	if slices.Contains(d.types, mambaLayer) {
		if d.mamba, err = readMamba2(c, s); err != nil {
			return d, err
		}
	}
	if c.NumExperts == 0 {
		d.dense = denseMLP{c: c, width: width, act: d.dense.act, module: "shared_mlp.", fused: "input_linear", down: "output_linear"}
		return d, nil
	}
	m, err := newMixture(c, c.IntermediateSize)
	m.score.Score = backend.SelectedSoftmax
	m.module, m.router, m.gate, m.up, m.down = "", "block_sparse_moe.router.layer", "block_sparse_moe.input_linear.weight", "", "block_sparse_moe.output_linear.weight"
	m.shared, m.sharedWidth, m.sharedFused, m.sharedDown = "shared_mlp.", width, "input_linear", "output_linear"
	d.mlp = sparse(m, func(int) bool { return true })
	return d, err
}

// graniteTypes returns the types of the layers, all with a mixer if the config has none.
func graniteTypes(c checkpoint.Config) ([]string, error) {
	if c.LayerTypes == nil {
		return slices.Repeat([]string{mambaLayer}, c.NumLayers), nil
	}
	out := make([]string, len(c.LayerTypes))
	for i, t := range c.LayerTypes {
		switch t {
		case "attention", fullAttention:
			out[i] = fullAttention
		case mambaLayer, linearAttention:
			out[i] = mambaLayer
		default:
			return nil, &UnsupportedError{fmt.Sprintf("layer_types[%d] %q", i, short(t)), "it is attention or mamba"}
		}
	}
	return out, nil
}

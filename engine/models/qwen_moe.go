package models

import (
	"slices"

	"vapp.dev/engine/checkpoint"
)

// qwen3MoE is Qwen3-30B-A3B and 235B-A22B: Qwen3's attention, experts in the layers that
// decoder_sparse_step and mlp_only_layers leave.
func qwen3MoE(c checkpoint.Config) (recipe, error) {
	d, err := qwen3(c)
	if err != nil {
		return d, err
	}
	return d, d.qwenExperts(false)
}

// qwen2MoE is Qwen1.5-MoE and Qwen2-57B-A14B: Qwen2's attention, experts and a gated MLP for all
// tokens.
func qwen2MoE(c checkpoint.Config) (recipe, error) {
	d, err := qwen2(c)
	if err != nil {
		return d, err
	}
	if d.slides() && c.LayerTypes == nil {
		return d, &UnsupportedError{"use_sliding_window of " + c.Architecture, "which layers have the window is not the same in all versions: set layer_types"}
	}
	return d, d.qwenExperts(true)
}

// qwenExperts sets the experts of Qwen's configs.
func (d *recipe) qwenExperts(shared bool) error {
	m, of, err := qwenMixture(d.cfg, shared)
	if err != nil {
		return err
	}
	d.mlp = sparse(m, of)
	return d.checkDenseLayers()
}

// qwenMixture reads the experts of Qwen's configs, and which layers have them.
func qwenMixture(c checkpoint.Config, shared bool) (m mixture, of func(layer int) bool, err error) {
	s, err := c.Section("")
	if err != nil {
		return m, nil, err
	}
	if m, err = newMixture(c, c.MoEIntermediateSize); err != nil {
		return m, nil, err
	}
	m.softmax(s.FlagOr("norm_topk_prob", false))
	if shared {
		m.shared, m.sharedGate = "shared_expert.", "shared_expert_gate"
		m.sharedWidth = s.Count("shared_expert_intermediate_size", 1, 1<<24)
	}
	step := s.CountOr("decoder_sparse_step", 1, 1<<10, 1)
	dense := s.List("mlp_only_layers", 0, int64(c.NumLayers)-1)
	return m, func(layer int) bool { return (layer+1)%step == 0 && !slices.Contains(dense, layer) }, s.Err()
}

package models

import (
	"fmt"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
)

// ernieMoE is ERNIE 4.5 with experts (21B-A3B, 300B-A47B): ERNIE's attention, and experts in a range
// of layers. Their router is a softmax with a correction.
func ernieMoE(c checkpoint.Config) (recipe, error) {
	s, err := c.Section("")
	if err != nil {
		return recipe{}, err
	}
	c.NumExperts, c.ExpertsPerToken = s.CountOr("moe_num_experts", 1, 1<<14, 64), s.CountOr("moe_k", 1, 1<<14, 6)
	shared := s.CountOr("moe_num_shared_experts", 0, 1<<10, 2)
	from, step := s.CountOr("moe_layer_start_index", 0, 1<<10, 1), s.CountOr("moe_layer_interval", 1, 1<<10, 1)
	to := c.NumLayers - 1
	if end := s.RealOr("moe_layer_end_index", -1, 1<<10, -1); end >= 0 {
		to = int(end)
	}
	gate := s.TextOr("moe_gate", "topk")
	if err := s.Err(); err != nil {
		return recipe{}, err
	}
	if !strings.HasPrefix(gate, "topk") {
		return recipe{}, &UnsupportedError{fmt.Sprintf("moe_gate %q", short(gate)), "ERNIE's router is topk"}
	}
	d, err := ernie(c)
	if err != nil {
		return d, err
	}
	m, err := newMixture(c, c.MoEIntermediateSize)
	if err != nil {
		return d, err
	}
	if d.dense.bias {
		return d, &UnsupportedError{"use_bias of " + c.Architecture, "its experts have none"}
	}
	m.score = backend.Route{Score: backend.Softmax, Normalize: true}
	m.corrected("moe_statics.e_score_correction_bias", 1, m.experts)
	if shared > 0 {
		m.shared, m.sharedWidth = "shared_experts.", shared*m.width
	}
	d.mlp = sparse(m, func(layer int) bool { return (layer+1)%step == 0 && layer >= from && layer <= to })
	return d, d.checkDenseLayers()
}

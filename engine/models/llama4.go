package models

import (
	"fmt"
	"slices"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// llama4 is the text model of Llama 4: Llama's blocks, most of them with chunked attention and a rope
// that pairs neighbours. The other layers have no rope, see every position and scale queries by their
// own. Experts and dense MLPs take turns.
func llama4(c checkpoint.Config) (recipe, error) {
	s, err := c.Section("")
	if err != nil {
		return recipe{}, err
	}
	c.NumExperts, c.ExpertsPerToken = s.CountOr("num_local_experts", 1, 1<<14, 16), s.CountOr("num_experts_per_tok", 1, 1<<14, 1)
	d, err := llamaRecipe(c)
	if err != nil {
		return d, err
	}
	d.interleaved, d.qkvBias, d.outBias = true, c.AttentionBias, c.AttentionBias
	d.unweighted = s.FlagOr("use_qk_norm", true)
	d.heads.After = d.unweighted
	d.dense.module, d.dense.width = "feed_forward.", s.CountOr("intermediate_size_mlp", 1, 1<<24, 16384)
	if err := d.llama4Layers(s); err != nil {
		return d, err
	}
	return d, d.llama4Experts(s)
}

// llama4Conditional is llama4 in files that have a vision tower too.
func llama4Conditional(c checkpoint.Config) (recipe, error) {
	d, err := llama4(c)
	d.insideOf("language_model.")
	return d, err
}

// llama4Layers sets the rope and the attention of each layer.
func (d *recipe) llama4Layers(s *checkpoint.Section) error {
	n := d.cfg.NumLayers
	every, listed := s.CountOr("no_rope_layer_interval", 1, 1<<10, 4), s.List("no_rope_layers", 0, 1)
	tuned, floor, scale := s.SwitchOr("attn_temperature_tuning", true), s.CountOr("floor_scale", 1, 1<<28, 8192), s.RealOr("attn_scale", 0, 1e3, 0.1)
	d.chunked = true
	if !s.Null("attention_chunk_size") {
		d.window = s.CountOr("attention_chunk_size", 1, 1<<28, 8192)
	}
	if err := s.Err(); err != nil {
		return err
	}
	if len(listed) > 0 && len(listed) < n {
		return &UnsupportedError{fmt.Sprintf("no_rope_layers of %d layers", len(listed)), fmt.Sprintf("the model has %d", n)}
	}
	rotates := func(layer int) bool {
		if len(listed) > 0 {
			return listed[layer] == 1
		}
		return (layer+1)%every != 0
	}
	if err := d.wholeRope(); err != nil {
		return err
	}
	d.someRope(rotates)
	if tuned {
		d.ropes[1].angles.InvFreq = make([]float32, d.cfg.HeadDim/2)
		d.ropes[1].temperature = backend.Temperature{Beta: float32(scale), Every: floor, Offset: 1}
	}
	if d.types = d.cfg.LayerTypes; d.types == nil {
		for i := range n {
			d.types = append(d.types, map[bool]string{true: chunkedAttention, false: fullAttention}[rotates(i)])
		}
	}
	return nil
}

// llama4Experts sets the layers with experts, of which the router selects one for each token. Its
// weight multiplies the expert's input.
func (d *recipe) llama4Experts(s *checkpoint.Section) error {
	c := d.cfg
	m, err := newMixture(c, c.IntermediateSize)
	if err != nil {
		return err
	}
	m.module, m.router, m.scalesInput = "feed_forward.", "router", true
	m.shared, m.sharedWidth = "shared_expert.", m.width
	q, err := quantOf(c)
	if err != nil {
		return err
	}
	if c.Dialect != "gguf" && q.format == kernels.Invalid { // quantized checkpoints have a tensor for each expert
		m.gate, m.up, m.down, m.transposed = "experts.gate_up_proj", "", "experts.down_proj", true
	}
	if m.top != 1 {
		return &UnsupportedError{fmt.Sprintf("num_experts_per_tok %d of %s", m.top, c.Architecture), "its router weighs the input of experts, which runs with one expert a token"}
	}
	layers, step := s.List("moe_layers", 0, int64(c.NumLayers-1)), s.CountOr("interleave_moe_layer_step", 1, 1<<10, 1)
	if err := s.Err(); err != nil {
		return err
	}
	d.mlp = sparse(m, func(layer int) bool {
		if layers != nil {
			return slices.Contains(layers, layer)
		}
		return (layer+1)%step == 0
	})
	return d.checkDenseLayers()
}

package models

import "vapp.dev/engine/checkpoint"

// granite is Granite 3, dense: Llama's blocks with multipliers of embeddings, residuals, scores and
// logits.
func granite(c checkpoint.Config) (recipe, error) {
	d, err := llamaRecipe(c)
	if err != nil {
		return d, err
	}
	d.qkvBias, d.outBias, d.dense.bias = c.AttentionBias, c.AttentionBias, c.MLPBias
	return d, d.graniteMultipliers()
}

// graniteMultipliers reads the multipliers and sets the rope.
func (d *recipe) graniteMultipliers() error {
	s, err := d.cfg.Section("")
	if err != nil {
		return err
	}
	const least, most = 1e-4, 1e4
	d.embedScale = float32(s.RealOr("embedding_multiplier", least, most, 1))
	d.residualScale = s.RealOr("residual_multiplier", least, most, 1)
	d.attnScale = float32(s.RealOr("attention_multiplier", least, most, 1))
	d.logitScale = float32(1 / s.RealOr("logits_scaling", least, most, 1))
	if err := s.Err(); err != nil {
		return err
	}
	return d.wholeRope()
}

package models

import "vapp.dev/engine/checkpoint"

// ernie is ERNIE 4.5, dense: Llama's blocks with a rope of neighbouring pairs.
func ernie(c checkpoint.Config) (recipe, error) {
	d, s, err := llamaSection(c)
	if err != nil {
		return d, err
	}
	bias := s.FlagOr("use_bias", false)
	d.qkvBias, d.outBias, d.dense.bias = bias, bias, bias
	d.interleaved = true
	if err := d.tie(s, true); err != nil {
		return d, err
	}
	return d, d.wholeRope()
}

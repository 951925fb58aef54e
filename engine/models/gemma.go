package models

import (
	"math"

	"vapp.dev/engine/checkpoint"
)

// gemma1 is the first Gemma: Llama's blocks with Gemma's embeddings, norms and activation. The first configs say
// "gelu" and mean its tanh approximation.
func gemma1(c checkpoint.Config) (recipe, error) {
	if c.HiddenAct == "gelu" {
		c.HiddenAct = "gelu_pytorch_tanh"
	}
	d, s, err := llamaSection(c)
	if err != nil {
		return d, err
	}
	if c.HiddenAct != "gelu_pytorch_tanh" {
		return d, &UnsupportedError{"hidden_act " + short(c.HiddenAct), "Gemma uses gelu_pytorch_tanh"}
	}
	d.qkvBias, d.outBias = c.AttentionBias, c.AttentionBias
	d.gemmaScales(c)
	if err := d.tie(s, true); err != nil {
		return d, err
	}
	return d, d.wholeRope()
}

// gemmaScales sets embeddings scaled by √hidden and norms with weights around 0. GGUF files store the
// norms' weights around 1.
func (d *recipe) gemmaScales(c checkpoint.Config) {
	d.embedRoot = true
	if c.Dialect != "gguf" {
		d.normOffset = 1
	}
}

// gemma2 is Gemma 2: Gemma's blocks, every second layer with a window, scores and logits capped.
func gemma2(c checkpoint.Config) (recipe, error) {
	d, s, err := gemmaBlocks(c)
	if err != nil {
		return d, err
	}
	if !s.Null("attn_logit_softcapping") { // null: none
		d.attnCap = float32(s.RealOr("attn_logit_softcapping", 0, 1e6, 50))
	}
	if !s.Null("final_logit_softcapping") {
		d.logitCap = s.RealOr("final_logit_softcapping", 0, 1e6, 30)
	}
	d.slideAlone(d.window, func(layer int) bool { return layer%2 == 0 })
	if err := s.Err(); err != nil {
		return d, err
	}
	return d, d.wholeRope()
}

// gemma3 is the text model of Gemma 3: Gemma's blocks with norms of the heads of Q and K. One layer
// in six has full attention and a rope of its own.
func gemma3(c checkpoint.Config) (recipe, error) {
	d, s, err := gemmaBlocks(c)
	if err != nil {
		return d, err
	}
	d.qNorm, d.kNorm = "q_norm", "k_norm"
	d.attnCap = float32(s.RealOr("attn_logit_softcapping", 0, 1e6, 0))
	d.logitCap = s.RealOr("final_logit_softcapping", 0, 1e6, 0)
	period := s.CountOr("sliding_window_pattern", 1, 1<<10, 6)
	local := checkpoint.Rope{Theta: s.RealOr("rope_local_base_freq", 1, 1e15, 1e4), PartialRotaryFactor: 1}
	if err := s.Err(); err != nil {
		return d, err
	}
	d.slide(d.window, func(layer int) bool { return (layer+1)%period != 0 })
	return d, d.ropeByType(local)
}

// gemma3Conditional is gemma3 in files that have a vision tower too.
func gemma3Conditional(c checkpoint.Config) (recipe, error) {
	d, err := gemma3(c)
	d.insideOf("language_model.")
	return d, err
}

// gemmaBlocks returns what Gemma 2 and 3 share: norms before and after attention and MLP, a scale of
// scores and a window.
func gemmaBlocks(c checkpoint.Config) (recipe, *checkpoint.Section, error) {
	d, s, err := llamaSection(c)
	if err != nil {
		return d, nil, err
	}
	if s.TextOr("hidden_activation", "gelu_pytorch_tanh") != "gelu_pytorch_tanh" {
		return d, nil, &UnsupportedError{"hidden_activation " + short(s.TextOr("hidden_activation", "")), "Gemma uses gelu_pytorch_tanh"}
	}
	if s.FlagOr("use_bidirectional_attention", false) {
		return d, nil, &UnsupportedError{"use_bidirectional_attention", "a model that generates is causal"}
	}
	d.attnPost, d.mlpNorm, d.mlpPost = "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
	d.qkvBias, d.outBias = c.AttentionBias, c.AttentionBias
	d.gemmaScales(c)
	d.attnScale = float32(1 / math.Sqrt(s.RealOr("query_pre_attn_scalar", 1, 1<<20, 256)))
	d.window = s.CountOr("sliding_window", 0, 1<<28, 4096)
	return d, s, d.tie(s, true)
}

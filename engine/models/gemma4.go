package models

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// gemmaText holds the fields of Gemma 4's text config that checkpoint.Config lacks.
type gemmaText struct {
	prefix      string // of its tensors
	types       []string
	headDim     int // of sliding layers; the next field is for full layers
	fullHeadDim int
	kvHeads     int
	fullKVHeads int
	// shared is true if full layers have one projection for K and V (attention_k_eq_v), tied if the
	// head is the embedding.
	shared, tied bool
	moe          bool
	// apart is true if each expert has matrices of its own, as in quantized checkpoints; others have stacks.
	apart bool
	// perLayer is the width of the embeddings that each layer has of its own; 0: there are none.
	perLayer int
	// firstReuse is the first of the last layers, which read keys and values of an earlier one
	// (num_kv_shared_layers). wide doubles the MLP of these layers (use_double_wide_mlp).
	firstReuse    int
	wide          bool
	seesItems     bool // use_bidirectional_attention "vision": in sliding layers a token of an image sees its later tokens too; the window bounds what is before it, also within the image
	sliding, full checkpoint.Rope
}

// Architectures of Gemma 4.
const (
	gemmaConditional = "Gemma4ForConditionalGeneration"
	gemmaCausal      = "Gemma4ForCausalLM" // the text model alone
	gemmaUnified     = "Gemma4UnifiedForConditionalGeneration"
)

// gemmaUnserved are the towers that no program reads.
var gemmaUnserved = []string{"model.vision_embedder.", "model.audio_tower.", "model.embed_audio."}

// gemmaFamily returns the table row of one of these architectures.
func gemmaFamily(architecture string) family {
	return family{
		architecture: architecture, tensors: gemmaTensors, build: newGemma, check: checkGemma, pipes: true,
		skipOf: func(c checkpoint.Config) func(tensor string) bool {
			g, err := readGemmaText(c)
			return func(tensor string) bool {
				return slices.ContainsFunc(append(gemmaUnserved, gemmaTowerPrefix, "model.embed_vision."), func(p string) bool {
					return strings.HasPrefix(tensor, p)
				}) || err == nil && g.unusedKV(tensor)
			}
		},
	}
}

// unusedKV reports the projections and norms of keys and values of layers that reuse those of an
// earlier one. Published checkpoints have them.
func (g gemmaText) unusedKV(tensor string) bool {
	name, ok := strings.CutPrefix(tensor, g.prefix+"layers.")
	layer, part, _ := strings.Cut(name, ".")
	i, err := strconv.Atoi(layer)
	return ok && err == nil && i >= g.firstReuse && (strings.HasPrefix(part, "self_attn.k_") || strings.HasPrefix(part, "self_attn.v_"))
}

// readGemmaText reads the text config with the strictness of package checkpoint. Absent keys have
// transformers' defaults.
func readGemmaText(c checkpoint.Config) (gemmaText, error) {
	s, err := c.Section("")
	if err != nil {
		return gemmaText{}, err
	}
	const most = 1 << 14
	g := gemmaText{
		prefix: "model.language_model.", headDim: c.HeadDim, kvHeads: c.NumKVHeads, fullKVHeads: c.NumKVHeads,
		fullHeadDim: s.CountOr("global_head_dim", 2, most, 512),
		shared:      s.FlagOr("attention_k_eq_v", false),
		tied:        s.FlagOr("tie_word_embeddings", true),
		moe:         s.FlagOr("enable_moe_block", false),
		seesItems:   s.TextOr("use_bidirectional_attention", "") == "vision",
		firstReuse:  c.NumLayers - s.CountOr("num_kv_shared_layers", 0, most, 0),
		wide:        s.FlagOr("use_double_wide_mlp", false),
	}
	switch c.Architecture {
	case gemmaCausal:
		g.prefix = "model."
		fallthrough
	case gemmaConditional:
		g.perLayer = s.CountOr("hidden_size_per_layer_input", 0, 1<<20, 256)
	case gemmaUnified: // without such embeddings by default
		g.perLayer = s.CountOr("hidden_size_per_layer_input", 0, 1<<20, 0)
	}
	if n := s.CountOr("vocab_size_per_layer_input", 1, 1<<24, 262144); s.Err() == nil && g.perLayer > 0 && n != c.VocabSize {
		return g, &UnsupportedError{fmt.Sprintf("vocab_size_per_layer_input %d", n), fmt.Sprintf("it must be vocab_size, %d", c.VocabSize)}
	}
	if g.shared {
		g.fullKVHeads = s.CountOr("num_global_key_value_heads", 1, most, int64(c.NumKVHeads))
	}
	if q, err := quantOf(c); err == nil {
		g.apart = q.format != kernels.Invalid
	}
	if err := checkGemmaText(s); err != nil {
		return g, err
	}
	if err := s.Err(); err != nil {
		return g, err
	}
	g.types = append(g.types, layerTypes(c, 6)...)
	g.types[len(g.types)-1] = fullAttention // as transformers does, whatever the config says
	if c.RopeByLayerType == nil {
		g.sliding = checkpoint.Rope{Theta: 1e4, PartialRotaryFactor: 1}
		g.full = checkpoint.Rope{Theta: 1e6, PartialRotaryFactor: 0.25, Scaling: checkpoint.RopeScaling{Type: "proportional"}}
		return g, nil
	}
	if g.full, err = c.Rope(fullAttention); err != nil {
		return g, err
	}
	if _, ok := c.RopeByLayerType[slidingAttention]; ok || !allFull(g.types) {
		g.sliding, err = c.Rope(slidingAttention)
	}
	return g, err
}

func allFull(types []string) bool {
	for _, t := range types {
		if t != fullAttention {
			return false
		}
	}
	return true
}

// checkGemmaText refuses settings that no published model has. Absent keys have transformers'
// defaults.
func checkGemmaText(s *checkpoint.Section) error {
	switch {
	case s.TextOr("use_bidirectional_attention", "") == "all":
		return &UnsupportedError{"use_bidirectional_attention all", "a model that generates is causal"}
	case s.FlagOr("attention_bias", false):
		return &UnsupportedError{"attention_bias of Gemma 4", "no published model has it"}
	}
	return nil
}

// checkGemma refuses configs that the recorded forward pass does not implement.
func checkGemma(c checkpoint.Config) error {
	if c.HiddenAct != "gelu_pytorch_tanh" {
		return &UnsupportedError{"hidden_activation " + short(c.HiddenAct), "Gemma 4 uses gelu_pytorch_tanh"}
	}
	if c.IntermediateSize == 0 {
		return &UnsupportedError{"Gemma 4 without intermediate_size", "each of its layers has a dense MLP"}
	}
	g, err := readGemmaText(c)
	if err != nil {
		return err
	}
	if err := checkLayerTypes(g.types, c.SlidingWindow); err != nil {
		return err
	}
	if err := g.checkReuse(); err != nil {
		return err
	}
	switch {
	case g.fullHeadDim%2 != 0:
		return &UnsupportedError{fmt.Sprintf("global_head_dim %d", g.fullHeadDim), "rotary embedding needs an even number"}
	case c.NumHeads%g.fullKVHeads != 0:
		return &UnsupportedError{fmt.Sprintf("num_global_key_value_heads %d", g.fullKVHeads), fmt.Sprintf("it must divide %d num_attention_heads", c.NumHeads)}
	case g.moe && c.MoEIntermediateSize == 0:
		return &UnsupportedError{"experts without moe_intermediate_size", "their width is not known"}
	}
	if g.moe {
		if err := checkExperts(c); err != nil {
			return err
		}
	}
	if _, err := g.full.Angles(g.fullHeadDim); err != nil {
		return err
	}
	if !allFull(g.types) {
		if _, err := g.sliding.Angles(g.headDim); err != nil {
			return err
		}
	}
	if q, err := quantOf(c); err != nil {
		return err
	} else if q.format == kernels.MXFP4 {
		return &UnsupportedError{"an mxfp4 checkpoint of Gemma 4", "its linear layers are read in int4, int8, fp8, nvfp4, bf16, f16 or f32"}
	}
	_, err = readGemmaVision(c)
	return err
}

// checkReuse refuses layers that reuse keys and values where no earlier layer of their type has any.
func (g gemmaText) checkReuse() error {
	n := len(g.types) - g.firstReuse
	if n >= len(g.types) {
		return &UnsupportedError{fmt.Sprintf("num_kv_shared_layers %d", n), fmt.Sprintf("it must be less than %d num_hidden_layers", len(g.types))}
	}
	for i := range g.types {
		if g.source(i) < 0 {
			return &UnsupportedError{fmt.Sprintf("num_kv_shared_layers %d", n), fmt.Sprintf("layer %d reuses keys and values of %s, and no layer before %d has them", i, g.types[i], g.firstReuse)}
		}
	}
	return nil
}

// source returns the layer whose keys and values a layer reads: itself, or the last one of its type
// before firstReuse; −1 if there is none.
func (g gemmaText) source(layer int) int {
	if layer < g.firstReuse {
		return layer
	}
	for i := g.firstReuse - 1; i >= 0; i-- {
		if g.types[i] == g.types[layer] {
			return i
		}
	}
	return -1
}

// width returns the width of a layer's dense MLP.
func (g gemmaText) width(c checkpoint.Config, layer int) int {
	if g.wide && layer >= g.firstReuse {
		return 2 * c.IntermediateSize
	}
	return c.IntermediateSize
}

// The tensors of per-layer embeddings that all layers share, behind the text model's prefix.
const (
	perLayerTable      = "embed_tokens_per_layer.weight"
	perLayerProjection = "per_layer_model_projection"
	perLayerNorm       = "per_layer_projection_norm.weight"
)

// gemmaTensors lists a checkpoint's tensors: names and shapes of transformers'
// Gemma4ForConditionalGeneration or Gemma4ForCausalLM. New has already checked the config.
func gemmaTensors(c checkpoint.Config) []checkpoint.TensorInfo {
	l := tensorsOf(c)
	g, err := readGemmaText(c)
	if err != nil {
		return nil
	}
	l.add(g.prefix+"embed_tokens.weight", c.VocabSize, c.HiddenSize)
	if g.perLayer > 0 {
		l.add(g.prefix+perLayerTable, c.VocabSize, c.NumLayers*g.perLayer)
		l.linear(g.prefix+perLayerProjection, false, c.NumLayers*g.perLayer, c.HiddenSize)
		l.add(g.prefix+perLayerNorm, g.perLayer)
	}
	for i := range c.NumLayers {
		l.gemmaLayer(c, g, i)
	}
	l.add(g.prefix+"norm.weight", c.HiddenSize)
	if !g.tied {
		l.add("lm_head.weight", c.VocabSize, c.HiddenSize)
	}
	if v, err := readGemmaVision(c); err == nil && v != nil {
		l.gemmaTower(v, c.HiddenSize)
	}
	return l.list
}

func (l *tensorList) gemmaLayer(c checkpoint.Config, g gemmaText, i int) {
	p, h, k, inner := fmt.Sprintf("%slayers.%d.", g.prefix, i), c.HiddenSize, g.kind(i), g.width(c, i)
	attn, mlp := p+"self_attn.", p+"mlp."
	l.linear(attn+"q_proj", false, c.NumHeads*k.headDim, h)
	if i < g.firstReuse {
		l.linear(attn+"k_proj", false, k.kvHeads*k.headDim, h)
		if !k.shared {
			l.linear(attn+"v_proj", false, k.kvHeads*k.headDim, h)
		}
		l.add(attn+"k_norm.weight", k.headDim)
	}
	l.linear(attn+"o_proj", false, h, c.NumHeads*k.headDim)
	l.add(attn+"q_norm.weight", k.headDim)
	l.linear(mlp+"gate_proj", false, inner, h)
	l.linear(mlp+"up_proj", false, inner, h)
	l.linear(mlp+"down_proj", false, h, inner)
	if g.perLayer > 0 {
		l.linear(p+"per_layer_input_gate", false, g.perLayer, h)
		l.linear(p+"per_layer_projection", false, h, g.perLayer)
		l.add(p+"post_per_layer_input_norm.weight", h)
	}
	for _, norm := range []string{"input", "post_attention", "pre_feedforward", "post_feedforward"} {
		l.add(p+norm+"_layernorm.weight", h)
	}
	l.add(p+"layer_scalar", 1)
	if !g.moe {
		return
	}
	e, m := c.NumExperts, c.MoEIntermediateSize
	if g.apart {
		for i := range e {
			one := fmt.Sprintf("%sexperts.%d.", p, i)
			l.linear(one+"gate_proj", false, m, h)
			l.linear(one+"up_proj", false, m, h)
			l.linear(one+"down_proj", false, h, m)
		}
	} else {
		l.add(p+"experts.gate_up_proj", e, 2*m, h)
		l.add(p+"experts.down_proj", e, h, m)
	}
	l.linear(p+"router.proj", false, e, h)
	l.add(p+"router.scale", h)
	l.add(p+"router.per_expert_scale", e)
	for _, norm := range []string{"post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"} {
		l.add(p+norm+".weight", h)
	}
}

// gemmaKind holds the properties of one kind of layer, full or sliding.
type gemmaKind struct {
	full, shared     bool
	headDim, kvHeads int
	rope             checkpoint.Rope
}

func (g gemmaText) kind(layer int) gemmaKind {
	if g.types[layer] == fullAttention {
		return gemmaKind{full: true, shared: g.shared, headDim: g.fullHeadDim, kvHeads: g.fullKVHeads, rope: g.full}
	}
	return gemmaKind{headDim: g.headDim, kvHeads: g.kvHeads, rope: g.sliding}
}

func (m *gemma) Weights() []backend.WeightSpec { return m.weights }
func (m *gemma) Vocab() int                    { return m.size }

// Classes returns the classes of the full layers and of the windows. With Build.Rebuild the full
// class stores only the rotated dimensions of each key.
func (m *gemma) Classes(blockSize int, f kernels.Format) []backend.KVClass {
	full := backend.KVClass{KVHeads: m.kv(m.text.fullKVHeads), HeadDim: m.text.fullHeadDim}
	if m.Rebuild {
		full.KeyDim = m.text.full.RotaryDim(m.text.fullHeadDim)
	}
	window := backend.KVClass{KVHeads: m.kv(m.text.kvHeads), HeadDim: m.text.headDim, Window: m.cfg.SlidingWindow}
	return m.paging.classes(full, window, blockSize, f)
}

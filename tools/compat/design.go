package compat

import (
	"maps"
	"slices"

	"vapp.dev/engine/checkpoint"
)

// headNorm is the norm of the heads of Q and K.
type headNorm int

const (
	noHeadNorm    headNorm = iota
	perHead                // one weight for each element of a head, shared by heads
	wholeRow               // one for each element of all heads
	everyHeadsOwn          // a matrix of heads x elements
)

// design describes a family whose layers are blocks of attention and an MLP or a mixture. Families
// with parts of their own (gpt-oss, Gemma 4, Qwen3.5) have code instead.
type design struct {
	since  Release
	norms  int64    // of the hidden size, in a block
	heads  headNorm // norms of Q and K
	tied   bool     // where tie_word_embeddings is absent
	tables bool     // full and sliding layers rotate differently
	// slides reports whether a layer slides where layer_types is absent and sliding_window is not; nil: none.
	slides func(layer, pattern int64) bool
	// pattern is sliding_window_pattern where that is absent.
	pattern int64
	// read sets what only the family's configs have.
	read func(s *shape, text *object)
	// image reports that its checkpoints have an image tower.
	image bool
}

func always(int64, int64) bool { return true }

func everyNthIsFull(layer, pattern int64) bool { return (layer+1)%pattern != 0 }

var plainBlocks = design{since: V019, norms: 2}

func (d design) with(change func(*design)) design {
	change(&d)
	return d
}

// mistralBlocks slide in every layer if the config has a window: vLLM gives it to all that have none
// of their own.
var mistralBlocks = plainBlocks.with(func(d *design) { d.slides = always })

var mixedBlocks = plainBlocks.with(func(d *design) { d.since = V2025Aug; d.slides = always })

// designs maps an architecture to its design.
var designs = map[string]design{
	"MistralForCausalLM":    mistralBlocks.with(func(d *design) { d.since = V2025Aug }),
	"Ministral3ForCausalLM": mistralBlocks,
	"Mistral3ForConditionalGeneration": mistralBlocks.with(func(d *design) {
		d.image, d.read = true, func(s *shape, _ *object) { s.prefix = "language_model.model." }
	}),
	"GemmaForCausalLM":  {since: V019, norms: 2, tied: true},
	"Gemma2ForCausalLM": {since: V019, norms: 4, tied: true, pattern: 2, slides: everyNthIsFull},
	"Gemma3ForCausalLM": gemma3Blocks,
	"Gemma3ForConditionalGeneration": gemma3Blocks.with(func(d *design) {
		d.image, d.read = true, func(s *shape, _ *object) { s.prefix = "language_model.model." }
	}),
	"Phi3ForCausalLM":    mistralBlocks,
	"GraniteForCausalLM": plainBlocks.with(func(d *design) { d.tied = true }),
	"SmolLM3ForCausalLM": plainBlocks.with(func(d *design) { d.tied = true }),
	"GlmForCausalLM":     plainBlocks.with(biasOfInputs),
	"Glm4ForCausalLM":    design{since: V019, norms: 4}.with(biasOfInputs),
	"CohereForCausalLM":  {since: V019, norms: 1, tied: true, read: cohereHeads},
	"Cohere2ForCausalLM": {since: V019, norms: 1, tied: true, pattern: 4, slides: everyNthIsFull, tables: true, read: func(s *shape, text *object) {
		cohereHeads(s, text)
		delete(s.rope, full)
	}},
	"Ernie4_5ForCausalLM": plainBlocks.with(func(d *design) {
		d.tied, d.read = true, func(s *shape, text *object) {
			s.attnBias = text.flag("use_bias", false)
			s.attnOutBias, s.mlpBias = s.attnBias, s.attnBias
		}
	}),
	"InternLM3ForCausalLM": plainBlocks.with(func(d *design) {
		d.read = func(s *shape, text *object) {
			s.attnBias, s.attnOutBias = text.flag("qkv_bias", false), text.flag("bias", false)
			s.mlpBias = s.attnOutBias
		}
	}),
	"Olmo2ForCausalLM":          {since: V019, norms: 2, heads: wholeRow},
	"Olmo3ForCausalLM":          {since: V019, norms: 2, heads: wholeRow, pattern: 4, slides: everyNthIsFull, tables: true},
	"HunYuanDenseV1ForCausalLM": {since: V019, norms: 2, heads: perHead},
	"OlmoeForCausalLM":          {since: V019, norms: 2, heads: wholeRow, read: ownWidth("num_experts")},
	"MixtralForCausalLM":        mixedBlocks.with(func(d *design) { d.read = ownWidth("num_local_experts") }),
	"GraniteMoeForCausalLM":     plainBlocks.with(func(d *design) { d.tied, d.read = true, ownWidth("num_local_experts") }),
	"Qwen3MoeForCausalLM":       {since: V2025Aug, norms: 2, heads: perHead, read: qwenMixture},
	"Qwen2MoeForCausalLM": {since: V2025Aug, norms: 2, read: func(s *shape, text *object) {
		s.attnBias, s.attnOutBias = true, false
		qwenMixture(s, text)
	}},
	"Glm4MoeForCausalLM":      {since: V019, norms: 2, read: glmMixture},
	"Ernie4_5_MoeForCausalLM": {since: V019, norms: 2, tied: true, read: ernieMixture},
	"Llama4ForCausalLM":       llama4Blocks,
	"Llama4ForConditionalGeneration": llama4Blocks.with(func(d *design) {
		d.image, d.read = true, func(s *shape, text *object) {
			s.prefix = "language_model.model."
			llama4Layers(s, text)
		}
	}),
	"DeepseekV2ForCausalLM": {since: V019, norms: 2, read: deepseekLatent},
	"DeepseekV3ForCausalLM": {since: V019, norms: 2, read: deepseekLatent},
}

// llama4Blocks have chunked attention in the layers with a rope.
var llama4Blocks = design{since: V019, norms: 2, read: llama4Layers}

var gemma3Blocks = design{since: V019, norms: 4, heads: perHead, tied: true, pattern: 6, slides: everyNthIsFull, tables: true}

// biasOfInputs gives attention_bias to Q, K and V alone.
func biasOfInputs(d *design) {
	d.read = func(s *shape, _ *object) { s.attnOutBias = false }
}

func cohereHeads(s *shape, text *object) {
	if text.flag("use_qk_norm", false) {
		s.headNorm = everyHeadsOwn
	}
}

// plannedOnly maps the architectures that vapp runs and this package refuses to the reason.
var plannedOnly = map[string]string{
	"Gemma4ForCausalLM":                     "vLLM's figures for it were not seen, only for Gemma4ForConditionalGeneration",
	"Gemma4UnifiedForConditionalGeneration": "what vLLM allocates for its inputs without a tower was not seen",
	"GraniteMoeHybridForCausalLM":           "states of Mamba-2 are not known here, only those of gated delta nets",
	"MinistralForCausalLM":                  "vLLM has no such architecture; name it MistralForCausalLM or Ministral3ForCausalLM",
	"Qwen3_5ForCausalLM":                    "vLLM's figures for it were not seen, only for Qwen3_5ForConditionalGeneration",
	"Qwen3_5MoeForCausalLM":                 "vLLM's figures for it were not seen, only for Qwen3_5MoeForConditionalGeneration",
}

// known returns the architectures that have a shape here.
func known() []string {
	return slices.Sorted(maps.Keys(mergedKeys()))
}

func mergedKeys() map[string]bool {
	all := map[string]bool{}
	for a := range architectures {
		all[a] = true
	}
	for a := range designs {
		all[a] = true
	}
	return all
}

// readDesign sets what the design says, and what the config says of it.
func (s *shape) readDesign(c checkpoint.Config, text, outer *object) {
	d := s.design
	s.headNorm, s.blockNorms = d.heads, d.norms
	s.tied = text.flag("tie_word_embeddings", outer.flag("tie_word_embeddings", d.tied))
	s.slide(c, text)
	s.image = d.image
}

// slide sets the kinds of layers: layer_types, else the design's rule for a config with a window.
func (s *shape) slide(c checkpoint.Config, text *object) {
	d := s.design
	s.window = int64(c.SlidingWindow)
	pattern := text.countOr("sliding_window_pattern", 1, maxCount, max(1, d.pattern))
	for i := range s.kinds {
		switch {
		case len(c.LayerTypes) > 0:
			k, ok := map[string]layerKind{"full_attention": full, "sliding_attention": sliding, "chunked_attention": chunked}[c.LayerTypes[i]]
			if !ok {
				text.fail("layer_types", "layer %d is %q", i, clip(c.LayerTypes[i]))
				return
			}
			s.kinds[i] = k
		case d.slides != nil && s.window > 0 && d.slides(int64(i), pattern):
			s.kinds[i] = sliding
		}
	}
	if slices.Contains(s.kinds, sliding) && s.window == 0 {
		text.fail("sliding_window", "is missing, and layers slide")
	}
}

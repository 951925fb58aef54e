package compat

import (
	"slices"

	"vapp.dev/engine/checkpoint"
)

type family int

const (
	llama family = iota
	qwen2
	gptOSS
	gemma4
	qwen35
	qwen3
	designed // by its design
)

// layerKind is the kind of KV or state of a layer.
type layerKind int

const (
	full layerKind = iota
	sliding
	linear  // recurrent state: Qwen3.5's gated delta net
	chunked // attention within chunks: Llama 4
)

// shape has the sizes of a model that the arithmetic needs. Every count is checked and bounded: a
// product of two never overflows 64 bits, longer products are checked where they are computed.
type shape struct {
	family                       family
	design                       design // of a designed family
	headNorm                     headNorm
	blockNorms                   int64
	mixture                      *mixture // nil: dense
	latent                       *latent  // nil: keys and values of each head
	image                        bool     // the checkpoint has an image tower that is not known here
	hidden, inter, layers        int64
	heads, kvHeads, headDim      int64
	vocab, maxPositions          int64
	tied, attnBias, attnOutBias  bool
	mlpBias                      bool
	kinds                        []layerKind // of each layer
	window                       int64
	rope                         map[layerKind]rotary
	experts, topK, expertInter   int64
	globalHeadDim, globalKV      int64 // of full layers
	kFromV                       bool  // K and V of full layers come from one projection
	sharedKV                     int64 // trailing layers that use the pages of earlier ones
	keyHeads, valueHeads         int64 // of linear layers
	keyDim, valueDim, convKernel int64
	stateBytes                   int64 // bytes per element of the recurrent state
	mtpLayers                    int64
	vision                       *vision
	modelDtype                   string // torch_dtype
	quant                        quantization
	prefix                       string // of module names in the checkpoint
	rotatedDims                  int64  // rotated elements of a head in full layers
}

// rotary identifies the cos/sin table of a layer kind.
type rotary struct {
	positions, dims int64
	float32, local  bool // local: of sliding layers
}

// vision is an image tower.
type vision struct {
	layers, hidden, inter, heads, headDim int64
	patch                                 int64 // elements per patch
	positions                             int64
	merged                                int64 // Qwen: width of the merger's input
	pixelPatches, frames, itemTokens      int64 // Gemma: sizes of a dummy video
	imageTokens, pool                     int64 // Gemma: tokens of an image; a token is pool² patches
	side, merge                           int64 // Qwen: pixels along a patch; a token is merge² patches
}

var architectures = map[string]family{
	"LlamaForCausalLM": llama, "Qwen2ForCausalLM": qwen2, "GptOssForCausalLM": gptOSS,
	"Qwen3ForCausalLM": qwen3, "Gemma4ForConditionalGeneration": gemma4, "Qwen3_5ForConditionalGeneration": qwen35,
	"Qwen3_5MoeForConditionalGeneration": qwen35, "Qwen3NextForCausalLM": qwen35,
}

// since maps a family to the first of these releases that supports it.
var since = map[family]Release{llama: V07, qwen2: V07, qwen3: V2025Aug, gptOSS: V017, gemma4: V019, qwen35: V017}

// Bounds of values that only this package reads from a config.json.
const (
	maxCount = 1 << 14
	maxWidth = 1 << 20
)

// readShape checks a config and returns the values that affect memory.
func readShape(c checkpoint.Config) (*shape, error) {
	f, ok := architectures[c.Architecture]
	d, drawn := designs[c.Architecture]
	switch why := plannedOnly[c.Architecture]; {
	case drawn:
		f = designed
	case why != "":
		return nil, fault("config.architectures", "%q is not known here: %s", c.Architecture, why)
	case !ok:
		return nil, fault("config.architectures", "%q is not a family whose memory is known here; known are %v", clip(c.Architecture), known())
	}
	if c.Dialect == "gguf" {
		return nil, fault("config", "the layouts that vLLM makes of GGUF files are not known here; name a Hugging Face directory")
	}
	if err := plausible(c); err != nil {
		return nil, err
	}
	outer := newObject("config.", c.Raw)
	text := outer
	if _, ok := outer.raw("text_config"); ok {
		text = outer.inner("text_config")
	}
	s := sizes(f, c)
	s.design = d
	s.readKinds(c, text)
	if drawn {
		s.readDesign(c, text, outer)
	}
	switch f {
	case qwen2:
		s.attnBias, s.attnOutBias = true, false
	case gptOSS:
		s.attnBias, s.attnOutBias = true, true
		s.experts = text.count("num_local_experts", 1, maxCount)
		s.topK = text.countOr("num_experts_per_tok", 1, s.experts, text.countOr("experts_per_token", 1, s.experts, 4))
		s.expertInter = s.inter
	case gemma4:
		s.readGemma(text, outer)
	case qwen35:
		s.readQwen35(c, text, outer)
	}
	s.readRope(c)
	if drawn && d.read != nil {
		d.read(s, text)
		s.ropeOfLatent()
	}
	s.quant = readQuantization(c, text)
	for _, o := range []*object{outer, text} {
		if o.err != nil {
			return nil, o.err
		}
	}
	if s.quant.err != nil {
		return nil, s.quant.err
	}
	return s, s.checkSize()
}

// sizes takes the values that checkpoint.Config has read and bounded.
func sizes(f family, c checkpoint.Config) *shape {
	return &shape{
		family: f, hidden: int64(c.HiddenSize), inter: int64(c.IntermediateSize), layers: int64(c.NumLayers),
		heads: int64(c.NumHeads), kvHeads: int64(c.NumKVHeads), headDim: int64(c.HeadDim),
		vocab: int64(c.VocabSize), maxPositions: int64(c.MaxPositionEmbeddings), tied: c.TieWordEmbeddings,
		attnBias: c.AttentionBias, attnOutBias: c.AttentionBias, mlpBias: c.MLPBias, modelDtype: c.TorchDtype, prefix: "model.",
	}
}

// plausible checks a Config that was not parsed from a file, with the bounds of ParseConfig.
func plausible(c checkpoint.Config) error {
	for _, b := range []struct {
		key    string
		n      int
		lo, hi int
	}{
		{"hidden_size", c.HiddenSize, 1, 1 << 20}, {"intermediate_size", c.IntermediateSize, 0, 1 << 24},
		{"num_hidden_layers", c.NumLayers, 1, 1024}, {"num_attention_heads", c.NumHeads, 1, maxCount},
		{"num_key_value_heads", c.NumKVHeads, 1, maxCount}, {"head_dim", c.HeadDim, 2, maxCount},
		{"vocab_size", c.VocabSize, 1, 1 << 24}, {"max_position_embeddings", c.MaxPositionEmbeddings, 1, 1 << 28},
		{"sliding_window", c.SlidingWindow, 0, 1 << 28},
	} {
		if b.n < b.lo || b.n > b.hi {
			return fault("config."+b.key, "is %d, allowed are %d to %d", b.n, b.lo, b.hi)
		}
	}
	if len(c.LayerTypes) != 0 && len(c.LayerTypes) != c.NumLayers {
		return fault("config.layer_types", "has %d entries for %d layers", len(c.LayerTypes), c.NumLayers)
	}
	return nil
}

// readKinds sets the kind of every layer.
func (s *shape) readKinds(c checkpoint.Config, text *object) {
	s.kinds = make([]layerKind, s.layers)
	if (s.family == qwen2 || s.family == qwen3) && text.flag("use_sliding_window", false) {
		text.fail("use_sliding_window", "is true: no figure of a release with it is known here")
	}
	if s.family == llama || s.family == qwen2 || s.family == qwen3 || s.family == designed {
		return
	}
	if every, ok := text.raw("full_attention_interval"); ok && s.family == qwen35 && len(c.LayerTypes) == 0 && every != nil {
		n := text.count("full_attention_interval", 1, maxCount)
		for i := range s.kinds {
			if (int64(i)+1)%n != 0 {
				s.kinds[i] = linear
			}
		}
		return
	}
	if len(c.LayerTypes) == 0 {
		text.fail("layer_types", "is missing")
		return
	}
	known := map[string]layerKind{"full_attention": full, "sliding_attention": sliding, "linear_attention": linear}
	for i, t := range c.LayerTypes {
		k, ok := known[t]
		if !ok || k == linear && s.family != qwen35 || k == sliding && s.family == qwen35 {
			text.fail("layer_types", "layer %d is %q", i, clip(t))
			return
		}
		s.kinds[i] = k
	}
	s.window = int64(c.SlidingWindow)
	if slices.Contains(s.kinds, sliding) && s.window == 0 {
		text.fail("sliding_window", "is missing, and layers slide")
	}
}

// checkSize bounds the size of a model, so that sums fit 64 bits.
func (s *shape) checkSize() error {
	per := s.hidden * (3*s.inter + (2*s.heads+2*s.kvHeads)*max(s.headDim, s.globalHeadDim))
	if l := s.latent; l != nil {
		per += s.heads*(l.nope+l.rope)*max(l.qRank, s.hidden) + s.heads*(l.nope+l.value)*l.kvRank + s.hidden*(l.qRank+l.kvRank+l.rope+s.heads*l.value)
	}
	shared := int64(0)
	if s.mixture != nil {
		shared = s.mixture.shared
	}
	if float64(s.layers)*(float64(per)+(float64(s.experts)*float64(s.expertInter)+float64(shared))*3*float64(s.hidden))+2*float64(s.hidden)*float64(s.vocab) > maxResident/8 {
		return fault("config", "describes more than %d TiB of weights", int64(maxResident/8)>>40)
	}
	return nil
}

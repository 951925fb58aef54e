package models

import (
	"fmt"
	"slices"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
)

// recipe describes a decoder: blocks of grouped-query or latent attention and an MLP, all of one width. A
// family's file returns it from a config; tensors, weights, KV classes and the recorded forward
// pass follow from it. llamaRecipe returns the plain one, which families alter. Zero fields mean
// that the family does without.
type recipe struct {
	cfg checkpoint.Config

	prefix string // of the decoder's tensors: "model."
	// headTensor is the matrix that computes logits; "": the embedding.
	headTensor string

	embedRoot     bool    // embeddings are scaled by √hidden, rounded to the table's format
	embedScale    float32 // of embeddings; 0: 1
	residualScale float64 // of what attention and MLP add to the residual; 0: 1
	logitScale    float32 // of logits; 0: 1
	logitCap      float64 // of logits, after their scale

	// Norms are RMSNorm, or LayerNorm without biases. normOffset is added to their weights. The
	// tensors, without ".weight", follow the layer's prefix; "": no norm there. Norms after a part
	// apply to its result, before that is added to the residual.
	layerNorm                            bool
	normOffset                           float32
	attnNorm, attnPost, mlpNorm, mlpPost string
	// parallel means that attention and MLP both read attnNorm's result and are added together.
	parallel bool

	types   []string // by layer: fullAttention, slidingAttention or, if chunked, chunkedAttention, or mambaLayer
	mamba   *mamba2  // the mixers of mambaLayer; nil: no layer has one
	window  int      // positions that a sliding layer sees, or that are a chunk
	chunked bool
	ropes   []ropeKind
	ropeOf  []int // by layer, index of ropes; nil: 0

	latent           *latentAttention // replaces grouped-query attention; nil: it does not
	fusedQKV         string           // module of Q, K and V in one matrix; "": q_proj, k_proj and v_proj
	qkvBias, outBias bool
	qNorm, kNorm     string           // norms of the heads of Q and K
	heads            backend.HeadNorm // the kind of these norms; weights and epsilon are not set
	unweighted       bool             // heads of Q and K are normalized without weights where the first rope turns them
	attnScale        float32          // of scores; 0: 1 / √headDim
	attnCap          float32          // of scores
	interleaved      bool             // rotation pairs neighbours (2i, 2i+1) instead of halves

	dense denseMLP
	// mlp returns what a layer has in the place of the dense MLP, nil for a dense layer; nil: all
	// layers are dense.
	mlp func(layer int) feedForward
}

// ropeKind is a rope that some layers share.
type ropeKind struct {
	name   string // "" if there is only one
	angles checkpoint.RopeAngles
	// temperature scales queries by their position; the zero value: not. Whole heads are rotated then.
	temperature backend.Temperature
}

// noRope is the rope of layers without one: its only pair turns by 0.
var noRope = checkpoint.RopeAngles{InvFreq: []float32{0}, Scale: 1}

// feedForward describes the part of a layer that follows attention: a dense MLP or a mixture.
type feedForward interface {
	// tensors adds the checkpoint's tensors; layer is the prefix of their names: "model.layers.0.".
	tensors(l *tensorList, layer string)
	// check refuses ranks that cannot share the weights.
	check(b Build) error
	// load adds the rank's weights; name is the prefix of their names: "layers.0.".
	load(l *loader, layer, name string) block
}

// block records a feedForward with its weights.
type block interface {
	// record consumes x and returns the block's result, summed over the ranks.
	record(r *backend.Recorder, x backend.Value) backend.Value
}

// recipeFamily returns the table row of an architecture that has a recipe.
func recipeFamily(architecture string, of func(checkpoint.Config) (recipe, error)) family {
	return family{
		architecture: architecture,
		tensors: func(c checkpoint.Config) []checkpoint.TensorInfo {
			d, err := of(c)
			if err != nil {
				return nil // findFamily has returned it
			}
			return d.tensors()
		},
		build: func(c checkpoint.Config, l *loader) (Model, error) {
			d, err := of(c)
			if err != nil {
				return nil, err
			}
			return newDecoder(d, l)
		},
		check: func(c checkpoint.Config) error {
			d, err := of(c)
			if err != nil {
				return err
			}
			return d.check()
		},
		pipes:  true,
		drafts: true,
	}
}

// llamaRecipe returns Llama's blocks with the config's sizes: RMSNorm before attention and MLP,
// one rope, full attention without biases, a gated MLP.
func llamaRecipe(c checkpoint.Config) (recipe, error) {
	d := recipe{
		cfg: c, prefix: "model.", headTensor: "lm_head.weight", attnNorm: "input_layernorm", mlpNorm: "post_attention_layernorm",
		types: slices.Repeat([]string{fullAttention}, c.NumLayers),
	}
	if c.TieWordEmbeddings {
		d.headTensor = ""
	}
	act, err := gateActivation(c)
	d.dense = denseMLP{c: c, width: c.IntermediateSize, act: act}
	return d, err
}

// llamaSection is llamaRecipe with the config's further keys.
func llamaSection(c checkpoint.Config) (recipe, *checkpoint.Section, error) {
	d, err := llamaRecipe(c)
	if err != nil {
		return d, nil, err
	}
	s, err := c.Section("")
	return d, s, err
}

// valueDim returns the width of a head's output.
func (d recipe) valueDim() int {
	if d.latent != nil {
		return d.latent.value
	}
	return d.cfg.HeadDim
}

// feedForward returns what follows attention in a layer.
func (d recipe) feedForward(layer int) feedForward {
	if d.mlp != nil {
		if f := d.mlp(layer); f != nil {
			return f
		}
	}
	dense := d.dense
	dense.keep = d.mlpNorm == "" && !d.parallel
	return dense
}

// gateActivation returns the activation that hidden_act names.
func gateActivation(c checkpoint.Config) (backend.Act, error) {
	switch c.HiddenAct {
	case "silu", "swish":
		return backend.SiLU, nil
	case "gelu_pytorch_tanh", "gelu_tanh":
		return backend.GELUTanh, nil
	}
	return 0, &UnsupportedError{"hidden_act " + short(c.HiddenAct), c.Architecture + " runs with silu or gelu_pytorch_tanh"}
}

// oneRope sets the rope that all layers share.
func (d *recipe) oneRope() error {
	if d.cfg.RopeByLayerType != nil {
		return &UnsupportedError{"a rope that differs by layer", d.cfg.Architecture + " has one for all"}
	}
	r, err := d.cfg.Rope("")
	if err != nil {
		return err
	}
	angles, err := r.Angles(d.cfg.HeadDim)
	d.ropes = []ropeKind{{angles: angles}}
	return err
}

// ropeByType sets the ropes of full and sliding layers: rope_parameters' if it has one for each
// type, else the config's for full layers and local for the others.
func (d *recipe) ropeByType(local checkpoint.Rope) error {
	d.ropeOf = make([]int, len(d.types))
	for i, t := range d.types {
		if t == slidingAttention {
			d.ropeOf[i] = 1
		}
	}
	for i, kind := range []string{fullAttention, slidingAttention} {
		r, err := d.cfg.Rope(kind)
		if d.cfg.RopeByLayerType == nil && i == 1 {
			r = local
		}
		if err != nil {
			return err
		}
		angles, err := r.Angles(d.cfg.HeadDim)
		if err != nil {
			return err
		}
		d.ropes = append(d.ropes, ropeKind{name: []string{"full", "sliding"}[i], angles: angles})
	}
	return nil
}

// someRope leaves the rope to the layers that rotates reports.
func (d *recipe) someRope(rotates func(layer int) bool) {
	d.ropes = append(d.ropes, ropeKind{name: "none", angles: noRope})
	d.ropeOf = make([]int, d.cfg.NumLayers)
	for i := range d.ropeOf {
		if !rotates(i) {
			d.ropeOf[i] = len(d.ropes) - 1
		}
	}
}

// tie reads tie_word_embeddings with a family's default.
func (d *recipe) tie(s *checkpoint.Section, absent bool) error {
	if d.headTensor = "lm_head.weight"; s.FlagOr("tie_word_embeddings", absent) {
		d.headTensor = ""
	}
	return s.Err()
}

// insideOf puts the decoder's tensors into a module of a multimodal model.
func (d *recipe) insideOf(module string) {
	d.prefix = module + d.prefix
	if d.headTensor != "" {
		d.headTensor = module + d.headTensor
	}
}

// wholeRope is oneRope for families that rotate whole heads.
func (d *recipe) wholeRope() error {
	if d.cfg.RopeByLayerType != nil || d.cfg.PartialRotaryFactor != 1 {
		return &UnsupportedError{"a rope that differs by layer or rotates part of a head", d.cfg.Architecture + " has one for all"}
	}
	return d.oneRope()
}

// slide gives layers a window: those that layer_types names, else those that sliding reports.
func (d *recipe) slide(window int, sliding func(layer int) bool) {
	d.window = window
	d.types = d.cfg.LayerTypes
	if d.types != nil {
		return
	}
	d.types = make([]string, d.cfg.NumLayers)
	for i := range d.types {
		d.types[i] = fullAttention
		if window > 0 && sliding(i) {
			d.types[i] = slidingAttention
		}
	}
}

// slideAlone is slide for families whose layers have the same rope with and without a window: there
// a window of the model's whole length is none.
func (d *recipe) slideAlone(window int, sliding func(layer int) bool) {
	if window >= max(d.cfg.MaxPositionEmbeddings, d.cfg.PlannedLength) && d.cfg.LayerTypes == nil {
		window = 0
	}
	d.slide(window, sliding)
}

// limited returns the type of layers that do not see every position.
func (d recipe) limited() string {
	if d.chunked {
		return chunkedAttention
	}
	return slidingAttention
}

// slides reports whether a layer has a window or a chunk.
func (d recipe) slides() bool { return slices.Contains(d.types, d.limited()) }

// check refuses configs that the recorded forward pass does not implement.
func (d recipe) check() error {
	c := d.cfg
	if d.mlp == nil && d.dense.width == 0 {
		return &UnsupportedError{c.Architecture + " without intermediate_size", "its MLP is dense"}
	}
	for i, t := range d.types {
		switch {
		case t == mambaLayer && d.mamba != nil:
		case t != fullAttention && t != d.limited():
			return &UnsupportedError{fmt.Sprintf("layer_types[%d] %q", i, short(t)), "it is " + fullAttention + " or " + d.limited()}
		case t == slidingAttention && d.window < 1:
			return &UnsupportedError{"layer_types with " + t, "the config has no sliding_window"}
		case t == chunkedAttention && d.window < 1:
			return &UnsupportedError{"layer_types with " + t, "the config has no attention_chunk_size"}
		}
	}
	return nil
}

// tensors lists a checkpoint's tensors: names and shapes of transformers' modules.
func (d recipe) tensors() []checkpoint.TensorInfo {
	c := d.cfg
	l := tensorsOf(c)
	h := c.HiddenSize
	l.add(d.prefix+"embed_tokens.weight", c.VocabSize, h)
	for i := range c.NumLayers {
		p := fmt.Sprintf("%slayers.%d.", d.prefix, i)
		if d.types[i] == mambaLayer {
			d.mamba.tensors(l, p+"mamba.")
		} else {
			d.attentionTensors(l, p+"self_attn.")
		}
		for _, norm := range []string{d.attnNorm, d.attnPost, d.mlpNorm, d.mlpPost} {
			if norm != "" {
				l.add(p+norm+".weight", h)
			}
		}
		d.feedForward(i).tensors(l, p)
	}
	l.add(d.prefix+"norm.weight", h)
	if d.headTensor != "" {
		l.add(d.headTensor, c.VocabSize, h)
	}
	return l.list
}

// attentionTensors adds the tensors of a layer's attention.
func (d recipe) attentionTensors(l *tensorList, attn string) {
	c := d.cfg
	h, q, kv := c.HiddenSize, c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim
	switch {
	case d.latent != nil:
		d.latent.tensors(l, attn, c)
	case d.fusedQKV != "":
		l.linear(attn+d.fusedQKV, d.qkvBias, q+2*kv, h)
	default:
		l.linear(attn+"q_proj", d.qkvBias, q, h)
		l.linear(attn+"k_proj", d.qkvBias, kv, h)
		l.linear(attn+"v_proj", d.qkvBias, kv, h)
	}
	l.linear(attn+"o_proj", d.outBias, h, c.NumHeads*d.valueDim())
	if d.qNorm != "" {
		ofQ, ofK := []int{c.HeadDim}, []int{c.HeadDim}
		switch {
		case d.heads.Whole:
			ofQ, ofK = []int{q}, []int{kv}
		case d.heads.Each:
			ofQ, ofK = []int{c.NumHeads, c.HeadDim}, []int{c.NumKVHeads, c.HeadDim}
		}
		l.add(attn+d.qNorm+".weight", ofQ...)
		l.add(attn+d.kNorm+".weight", ofK...)
	}
}

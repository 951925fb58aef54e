package models

import (
	"fmt"
	"math"
	"strconv"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// gemma is Gemma 4. Each block has norms before and after attention and MLP, and a learned scalar
// on its result. One layer in six has full attention, the others a window; the two kinds differ in
// head size. Keys and values are normalized; in full layers both come from one projection. The A4B
// model adds a mixture of experts to each dense MLP. In E2B and E4B each layer adds an embedding of
// its own, and the last layers read keys and values of earlier ones.
type gemma struct {
	vocabulary
	adaptable
	cfg     checkpoint.Config
	text    gemmaText
	stage   stage
	paging  paging
	weights []backend.WeightSpec
	layers  []gemmaLayer // of the stage
	vision  *gemmaTower  // nil without Build.Vision

	norm, perLayerNorm        backend.WeightID
	perLayerScale             float32 // of per-layer embeddings
	slidingAngles, fullAngles gemmaAngles
	// Of this rank.
	heads, expertWidth int
}

// gemmaAngles is the rope of one kind of layer.
type gemmaAngles struct {
	freqs  backend.WeightID
	scale  float32
	rotary int
}

type gemmaLayer struct {
	attnNorm, qkv, out, attnPost      backend.WeightID
	heads                             backend.HeadNorm
	mlpNorm, gateUp, down, mlpPost    backend.WeightID
	width                             int // of the MLP, on this rank
	perLayer                          perLayerInput
	scalar                            backend.WeightID
	router, routerScale, expertScale  backend.WeightID
	expertNorm, expertPost, densePost backend.WeightID
	expertGateUp, expertDown          backend.WeightID
}

// perLayerInput is the weights of a layer's own embedding.
type perLayerInput struct {
	table, project  backend.WeightID // by token id, and of the token's embedding
	gate, out, post backend.WeightID
}

func newGemma(c checkpoint.Config, l *loader) (Model, error) {
	g, err := readGemmaText(c)
	if err != nil {
		return nil, err
	}
	if l.Draft > 0 {
		return nil, &UnsupportedError{"drafting with " + c.Architecture, "it has no head of its own for that"}
	}
	st, err := l.stage(c.NumLayers)
	if err != nil {
		return nil, err
	}
	err = l.checkRanks(c, g.kvHeads, g.fullKVHeads)
	if err == nil {
		err = l.checkEven(c.IntermediateSize, "columns of the MLP (intermediate_size)")
	}
	if err == nil && g.moe {
		err = l.checkEven(c.MoEIntermediateSize, "columns of an expert (moe_intermediate_size)")
	}
	if err == nil {
		err = g.checkStage(st)
	}
	if err == nil && l.Rebuild {
		err = g.checkRebuild()
	}
	if err != nil {
		return nil, err
	}
	m := &gemma{cfg: c, text: g, stage: st, paging: pagingOf(g.types, g.source, st, l.Build)}
	_, m.heads = l.part(c.NumHeads)
	_, m.expertWidth = l.part(c.MoEIntermediateSize)
	head := ""
	if !g.tied {
		head = "lm_head.weight"
	}
	table := l.Dtype
	if table == kernels.Invalid {
		table = Dtype(c)
	}
	embeds := st
	if g.perLayer > 0 {
		embeds.first = true // each stage projects the embeddings to its layers
		m.perLayerScale = roundTo(math.Sqrt(float64(g.perLayer)), table) * perLayerShare
		m.perLayerNorm = l.vector("per_layer_norm", "norm", all(g.prefix+perLayerNorm))
	}
	m.vocabulary = l.addVocabulary(c, embeds, g.prefix+"embed_tokens.weight", head, roundTo(math.Sqrt(float64(c.HiddenSize)), table))
	if m.paging.window > 0 {
		if m.slidingAngles, err = l.gemmaAngles("rope.sliding", g.sliding, g.headDim); err != nil {
			return nil, err
		}
	}
	if m.paging.full > 0 {
		if m.fullAngles, err = l.gemmaAngles("rope.full", g.full, g.fullHeadDim); err != nil {
			return nil, err
		}
	}
	for i := range st.layers {
		w := newGemmaLayer(c, g, l, st.layer0+i)
		if g.moe {
			w.mixture(c, g, l, st.layer0+i)
		}
		m.layers = append(m.layers, w)
	}
	if st.last {
		m.norm = l.vector("norm", "norm", all(g.prefix+"norm.weight"))
	}
	if l.Vision && st.first {
		if m.vision, err = newGemmaTower(c, l); err != nil {
			return nil, err
		}
	}
	m.weights, m.adaptable = l.specs, l.adapters()
	return m, nil
}

// checkStage refuses a stage of which a layer reuses keys and values of another stage.
func (g gemmaText) checkStage(s stage) error {
	for i := s.layer0; i < s.layer0+s.layers; i++ {
		if at := g.source(i); at < s.layer0 {
			return &UnsupportedError{"a pipeline stage from layer " + strconv.Itoa(s.layer0), fmt.Sprintf("layer %d reuses keys and values of layer %d (num_kv_shared_layers), which must be on the same stage; take fewer stages", i, at)}
		}
	}
	return nil
}

// checkRebuild refuses models whose keys cannot be computed from their values and their rotated
// dimensions.
func (g gemmaText) checkRebuild() error {
	rotary := g.full.RotaryDim(g.fullHeadDim)
	if !g.shared || g.full.Scaling.Type != "proportional" || rotary < 2 || rotary >= g.fullHeadDim {
		return &UnsupportedError{"rebuilding keys from values", "the full layers must have attention_k_eq_v and a proportional rope that rotates a part of each head"}
	}
	return nil
}

// roundTo rounds x to the precision of f: transformers casts the scale of embeddings to the dtype
// of their table.
func roundTo(x float64, f kernels.Format) float32 {
	bits := map[kernels.Format]int{kernels.BF16: 8, kernels.F16: 11}[f]
	if bits == 0 {
		return float32(x)
	}
	frac, exp := math.Frexp(x)
	return float32(math.Ldexp(math.RoundToEven(math.Ldexp(frac, bits)), exp-bits))
}

func (l *loader) gemmaAngles(name string, r checkpoint.Rope, headDim int) (gemmaAngles, error) {
	a, err := r.Angles(headDim)
	if err != nil {
		return gemmaAngles{}, err
	}
	return gemmaAngles{l.literal(name+".inv_freq", "attention", a.InvFreq), a.Scale, 2 * len(a.InvFreq)}, nil
}

func newGemmaLayer(c checkpoint.Config, g gemmaText, l *loader, i int) gemmaLayer {
	p, n, k := fmt.Sprintf("%slayers.%d.", g.prefix, i), fmt.Sprintf("layers.%d.", i), g.kind(i)
	attn, mlp, inner := p+"self_attn.", p+"mlp.", g.width(c, i)
	norm := func(name, tensor string) backend.WeightID {
		return l.vector(n+name, "norm", all(p+tensor))
	}
	qkv, heads := []piece{l.rows(attn+"q_proj.weight", c.NumHeads, k.headDim)}, func() backend.HeadNorm {
		h := backend.HeadNorm{Q: norm("q_norm", "self_attn.q_norm.weight"), K: backend.NoWeight, Eps: float32(c.RMSNormEps)}
		if i < g.firstReuse {
			h.K, h.V = norm("k_norm", "self_attn.k_norm.weight"), true
		}
		return h
	}
	if i < g.firstReuse {
		qkv = append(qkv, l.rows(attn+"k_proj.weight", k.kvHeads, k.headDim))
		if !k.shared {
			qkv = append(qkv, l.rows(attn+"v_proj.weight", k.kvHeads, k.headDim))
		}
	}
	_, width := l.part(inner)
	return gemmaLayer{
		attnNorm: norm("attn_norm", "input_layernorm.weight"),
		qkv:      l.linear(n+"qkv", "attention", qkv...),
		heads:    heads(),
		out:      l.linear(n+"out", "attention", l.cols(attn+"o_proj.weight", c.NumHeads, k.headDim)),
		attnPost: norm("attn_post", "post_attention_layernorm.weight"),
		mlpNorm:  norm("mlp_norm", "pre_feedforward_layernorm.weight"),
		gateUp:   l.gateUp(l.linear(n+"gate_up", "mlp", l.rows(mlp+"gate_proj.weight", inner, 1), l.rows(mlp+"up_proj.weight", inner, 1))),
		down:     l.linear(n+"down", "mlp", l.cols(mlp+"down_proj.weight", inner, 1)),
		mlpPost:  norm("mlp_post", "post_feedforward_layernorm.weight"),
		width:    width,
		perLayer: newPerLayerInput(c, g, l, i),
		scalar:   norm("scalar", "layer_scalar"),
	}
}

// perLayerShare scales both parts of a per-layer embedding before they are added, so that the sum
// has the variance of each (transformers: per_layer_input_scale).
const perLayerShare = float32(math.Sqrt2 / 2)

// newPerLayerInput adds the embedding of layer i and its projections, which every rank holds whole:
// they are narrow. Of the table for all layers, whose rows are tokens, it takes the layer's columns.
func newPerLayerInput(c checkpoint.Config, g gemmaText, l *loader, i int) perLayerInput {
	if g.perLayer == 0 {
		return perLayerInput{}
	}
	p, n := fmt.Sprintf("%slayers.%d.", g.prefix, i), fmt.Sprintf("layers.%d.per_layer_", i)
	table := l.rows(g.prefix+perLayerTable, c.VocabSize, 1)
	table.col0, table.cols = i*g.perLayer, g.perLayer
	return perLayerInput{
		table:   l.matrix(matrix{name: n + "embed", group: "embedding", use: backend.Lookup}, table),
		project: l.linear(n+"project", "mlp", piece{tensor: g.prefix + perLayerProjection + ".weight", row0: i * g.perLayer, rows: g.perLayer}),
		gate:    l.linear(n+"gate", "mlp", all(p+"per_layer_input_gate.weight")),
		out:     l.linear(n+"out", "mlp", all(p+"per_layer_projection.weight")),
		post:    l.vector(n+"post", "norm", all(p+"post_per_layer_input_norm.weight")),
	}
}

// mixture adds the experts of layer i, which run in parallel with its MLP.
func (w *gemmaLayer) mixture(c checkpoint.Config, g gemmaText, l *loader, i int) {
	p, n, inner := fmt.Sprintf("%slayers.%d.", g.prefix, i), fmt.Sprintf("layers.%d.", i), c.MoEIntermediateSize
	stack := func(name string) matrix {
		return matrix{name: n + name, group: "experts", experts: c.NumExperts, linear: true}
	}
	w.router = l.matrix(matrix{name: n + "router", group: "router"}, all(p+"router.proj.weight"))
	w.routerScale = l.vector(n+"router_scale", "router", all(p+"router.scale"))
	w.expertScale = l.vector(n+"expert_scale", "router", all(p+"router.per_expert_scale"))
	up, down := []piece{all(p + "experts.gate_up_proj")}, "experts.down_proj"
	switch {
	case g.apart:
		up, down = []piece{l.rows(p+"experts.*.gate_proj.weight", inner, 1), l.rows(p+"experts.*.up_proj.weight", inner, 1)}, "experts.*.down_proj.weight"
	case l.Shard.World > 1: // the columns of gate, then those of up
		gate := l.rows(p+"experts.gate_up_proj", inner, 1)
		up = []piece{gate, gate.after(inner)}
	}
	w.expertGateUp = l.gateUp(l.matrix(stack("expert_gate_up"), up...))
	w.expertDown = l.matrix(stack("expert_down"), l.cols(p+down, inner, 1))
	w.densePost = l.vector(n+"dense_post", "norm", all(p+"post_feedforward_layernorm_1.weight"))
	w.expertNorm = l.vector(n+"expert_norm", "norm", all(p+"pre_feedforward_layernorm_2.weight"))
	w.expertPost = l.vector(n+"expert_post", "norm", all(p+"post_feedforward_layernorm_2.weight"))
}

package models

import (
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
)

// gptOss is the gpt-oss architecture: pre-norm blocks of grouped-query attention
// with a learned sink in each head's softmax, every second layer with a window,
// and a mixture of experts with a clamped SwiGLU. Linear layers have biases.
type gptOss struct {
	vocabulary
	adaptable
	cfg     checkpoint.Config
	stage   stage
	paging  paging
	weights []backend.WeightSpec
	layers  []gptOssLayer // of the stage

	freqs, norm backend.WeightID
	ropeScale   float32
	act         backend.Activation
	// Of this rank.
	heads, kvHeads, width int
}

type gptOssLayer struct {
	attnNorm, qkv, qkvBias, out, outBias, sinks backend.WeightID
	mlpNorm, router, routerBias                 backend.WeightID
	gateUp, gateUpBias, down, downBias          backend.WeightID
}

func newGptOss(c checkpoint.Config, l *loader) (Model, error) {
	if l.Draft > 0 {
		return nil, &UnsupportedError{"drafting with " + c.Architecture, "it has no head of its own for that"}
	}
	if l.Rebuild {
		return nil, &UnsupportedError{"rebuilding keys from values", "gpt-oss has two projections"}
	}
	if err := l.checkRanks(c, c.NumKVHeads); err != nil {
		return nil, err
	}
	st, err := l.stage(c.NumLayers)
	if err != nil {
		return nil, err
	}
	first, width, err := expertWidth(c.IntermediateSize, l.Shard)
	if err != nil {
		return nil, err
	}
	m := &gptOss{cfg: c, stage: st, paging: pagingOf(layerTypes(c, 2), nil, st, l.Build), width: width}
	if m.act, err = gptOssActivation(c); err != nil {
		return nil, err
	}
	rope, err := c.Rope("")
	if err != nil {
		return nil, err
	}
	angles, err := rope.Angles(c.HeadDim)
	if err != nil {
		return nil, err
	}
	m.ropeScale = angles.Scale
	_, m.heads = l.part(c.NumHeads)
	_, m.kvHeads = l.part(c.NumKVHeads)
	head := "lm_head.weight"
	if c.TieWordEmbeddings {
		head = ""
	}
	m.vocabulary = l.addVocabulary(c, st, "model.embed_tokens.weight", head, 1)
	m.freqs = l.literal("rope.inv_freq", "attention", angles.InvFreq)
	for i := range st.layers {
		w := gptOssAttention(c, l, st.layer0+i)
		w.experts(c, l, st.layer0+i, first, width)
		m.layers = append(m.layers, w)
	}
	if st.last {
		m.norm = l.vector("norm", "norm", all("model.norm.weight"))
	}
	m.weights, m.adaptable = l.specs, l.adapters()
	return m, nil
}

// expertWidth returns a rank's range of the width of every expert, in whole blocks of 32 if the
// width is a multiple of 32. If the blocks do not divide evenly, the first ranks have one more than
// the last.
func expertWidth(width int, s backend.Shard) (first, count int, err error) {
	unit := 1
	if width%mxBlock == 0 {
		unit = mxBlock
	}
	blocks := width / unit
	if blocks < s.World {
		return 0, 0, &UnsupportedError{fmt.Sprintf("tensor parallel size %d", s.World), fmt.Sprintf("an expert's width has %d blocks of %d, less than one for each rank", blocks, unit)}
	}
	each, more := blocks/s.World, blocks%s.World
	first, count = s.Rank*each+min(s.Rank, more), each
	if s.Rank < more {
		count++
	}
	return first * unit, count * unit, nil
}

func gptOssAttention(c checkpoint.Config, l *loader, i int) gptOssLayer {
	p, n, d := fmt.Sprintf("model.layers.%d.", i), fmt.Sprintf("layers.%d.", i), c.HeadDim
	attn := p + "self_attn."
	w := gptOssLayer{
		attnNorm: l.vector(n+"attn_norm", "norm", all(p+"input_layernorm.weight")),
		qkv: l.linear(n+"qkv", "attention", l.rows(attn+"q_proj.weight", c.NumHeads, d),
			l.rows(attn+"k_proj.weight", c.NumKVHeads, d), l.rows(attn+"v_proj.weight", c.NumKVHeads, d)),
		qkvBias: backend.NoWeight,
		out:     l.linear(n+"out", "attention", l.cols(attn+"o_proj.weight", c.NumHeads, d)),
		outBias: backend.NoWeight,
		sinks:   l.vector(n+"sinks", "attention", l.cols(attn+"sinks", c.NumHeads, 1)),
	}
	if c.AttentionBias {
		w.qkvBias = l.vector(n+"qkv_bias", "attention", l.cols(attn+"q_proj.bias", c.NumHeads, d),
			l.cols(attn+"k_proj.bias", c.NumKVHeads, d), l.cols(attn+"v_proj.bias", c.NumKVHeads, d))
		w.outBias = l.outBias(n+"out_bias", "attention", attn+"o_proj.bias")
	}
	return w
}

// experts adds the mixture of layer i. This rank has the columns [first, first+width) of each
// expert's inner dimension.
func (w *gptOssLayer) experts(c checkpoint.Config, l *loader, i, first, width int) {
	p, n, h := fmt.Sprintf("model.layers.%d.", i), fmt.Sprintf("layers.%d.", i), c.HiddenSize
	e := p + "mlp.experts."
	w.mlpNorm = l.vector(n+"mlp_norm", "norm", all(p+"post_attention_layernorm.weight"))
	w.router = l.matrix(matrix{name: n + "router", group: "router"}, all(p+"mlp.router.weight"))
	w.routerBias = l.vector(n+"router_bias", "router", all(p+"mlp.router.bias"))
	stack := func(name string) matrix {
		return matrix{name: n + name, group: "experts", experts: c.NumExperts, linear: true}
	}
	if splitGateUp(c) {
		part := func(tensor string) piece { return piece{tensor: e + tensor, row0: first, rows: width} }
		w.gateUp = l.gateUp(l.matrix(stack("gate_up"), part("gate_proj"), part("up_proj")))
		w.gateUpBias = l.perExpert(n+"gate_up_bias", c.NumExperts, first, width, e+"gate_proj_bias", e+"up_proj_bias")
		w.down = l.matrix(stack("down"), piece{tensor: e + "down_proj", rows: h, col0: first, cols: width})
	} else {
		_, mx := l.src.Tensor(e + "gate_up_proj" + mxBlocks)
		w.gateUp = l.matrix(stack("gate_up"), piece{tensor: e + "gate_up_proj", row0: 2 * first, rows: 2 * width, transposed: !mx})
		w.gateUpBias = l.perExpert(n+"gate_up_bias", c.NumExperts, 2*first, 2*width, e+"gate_up_proj_bias")
		w.down = l.matrix(stack("down"), piece{tensor: e + "down_proj", rows: h, col0: first, cols: width, transposed: !mx})
	}
	w.downBias = backend.NoWeight
	if l.Shard.Rank == 0 {
		w.downBias = l.perExpert(n+"down_bias", c.NumExperts, 0, h, e+"down_proj_bias")
	}
}

// perExpert adds a vector of n elements, starting at first, of each expert's row in tensors
// [experts, …]. The elements of one expert are contiguous.
func (l *loader) perExpert(name string, experts, first, n int, tensors ...string) backend.WeightID {
	spec := backend.WeightSpec{Name: name, Group: "experts", Rows: 1, Cols: experts * n * len(tensors), Use: backend.Vector}
	for e := range experts {
		for _, tensor := range tensors {
			t := l.tensor(tensor)
			spec.Source = t.Format
			if len(tensors) == 1 && int64(n) == t.RowElements() {
				spec.Parts = []backend.Part{{Tensor: tensor, Rows: experts, Elems: experts * n, Format: t.Format}}
				return l.add(spec)
			}
			spec.Parts = append(spec.Parts, backend.Part{Tensor: tensor, Row0: e, Rows: 1, Elems: n, Col0: first, Cols: n, Format: t.Format})
		}
	}
	return l.add(spec)
}

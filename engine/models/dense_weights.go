package models

import (
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// dense is an architecture of denseFamily applied to a checkpoint, for one rank.
type dense struct {
	vocabulary
	cfg     checkpoint.Config
	stage   stage
	weights []backend.WeightSpec
	layers  []denseLayer // of the stage

	freqs, norm backend.WeightID
	ropeScale   float32
	// Of this rank.
	heads, kvHeads, width int
	class                 int // KV class: 0, except for a draft model
}

type denseLayer struct {
	attnNorm, qkv, qkvBias, out, outBias        backend.WeightID
	mlpNorm, gateUp, gateUpBias, down, downBias backend.WeightID
	headNorm                                    *backend.HeadNorm
}

func newDense(c checkpoint.Config, s style, l *loader) (Model, error) {
	if l.Draft > 0 {
		return nil, &UnsupportedError{"drafting with " + c.Architecture, "it has no head of its own for that"}
	}
	if l.Rebuild {
		return nil, &UnsupportedError{"keys rebuilt from values in " + c.Architecture, "its keys and values are two projections"}
	}
	st, err := l.stage(c.NumLayers)
	if err == nil {
		err = l.checkRanks(c, c.NumKVHeads)
	}
	if err == nil {
		err = l.checkEven(c.IntermediateSize, "columns of the MLP (intermediate_size)")
	}
	if err != nil {
		return nil, err
	}
	rope, err := denseRope(c)
	if err != nil {
		return nil, err
	}
	m := &dense{cfg: c, stage: st, ropeScale: rope.Scale}
	_, m.heads = l.part(c.NumHeads)
	_, m.kvHeads = l.part(c.NumKVHeads)
	_, m.width = l.part(c.IntermediateSize)
	head := "lm_head.weight"
	if c.TieWordEmbeddings {
		head = ""
	}
	m.vocabulary = l.addVocabulary(c, st, "model.embed_tokens.weight", head, 1)
	m.freqs = l.literal("rope.inv_freq", "attention", rope.InvFreq)
	for i := range st.layers {
		m.layers = append(m.layers, newDenseLayer(c, s, l, st.layer0+i))
	}
	if st.last {
		m.norm = l.vector("norm", "norm", all("model.norm.weight"))
	}
	m.weights = l.specs
	return m, nil
}

func newDenseLayer(c checkpoint.Config, s style, l *loader, i int) denseLayer {
	p, n := fmt.Sprintf("model.layers.%d.", i), fmt.Sprintf("layers.%d.", i)
	d, inner := c.HeadDim, c.IntermediateSize
	attn, mlp := p+"self_attn.", p+"mlp."
	bias := func(yes bool, name, group string, of ...piece) backend.WeightID {
		if !yes {
			return backend.NoWeight
		}
		return l.vector(n+name, group, of...)
	}
	w := denseLayer{outBias: backend.NoWeight, downBias: backend.NoWeight}
	w.attnNorm = l.vector(n+"attn_norm", "norm", all(p+"input_layernorm.weight"))
	w.qkv = l.linear(n+"qkv", "attention", l.rows(attn+"q_proj.weight", c.NumHeads, d),
		l.rows(attn+"k_proj.weight", c.NumKVHeads, d), l.rows(attn+"v_proj.weight", c.NumKVHeads, d))
	w.qkvBias = bias(s.qkvBias, "qkv_bias", "attention", l.cols(attn+"q_proj.bias", c.NumHeads, d),
		l.cols(attn+"k_proj.bias", c.NumKVHeads, d), l.cols(attn+"v_proj.bias", c.NumKVHeads, d))
	if s.headNorm {
		w.headNorm = &backend.HeadNorm{Eps: float32(c.RMSNormEps),
			Q: l.vector(n+"q_norm", "norm", all(attn+"q_norm.weight")), K: l.vector(n+"k_norm", "norm", all(attn+"k_norm.weight"))}
	}
	w.out = l.linear(n+"out", "attention", l.cols(attn+"o_proj.weight", c.NumHeads, d))
	if s.outBias {
		w.outBias = l.outBias(n+"out_bias", "attention", attn+"o_proj.bias")
	}
	w.mlpNorm = l.vector(n+"mlp_norm", "norm", all(p+"post_attention_layernorm.weight"))
	w.gateUp = l.linear(n+"gate_up", "mlp", l.rows(mlp+"gate_proj.weight", inner, 1), l.rows(mlp+"up_proj.weight", inner, 1))
	w.gateUpBias = bias(s.mlpBias, "gate_up_bias", "mlp", l.cols(mlp+"gate_proj.bias", inner, 1), l.cols(mlp+"up_proj.bias", inner, 1))
	w.down = l.linear(n+"down", "mlp", l.cols(mlp+"down_proj.weight", inner, 1))
	if s.mlpBias {
		w.downBias = l.outBias(n+"down_bias", "mlp", mlp+"down_proj.bias")
	}
	return w
}

func (m *dense) Weights() []backend.WeightSpec { return m.weights }
func (m *dense) Vocab() int                    { return m.size }

// Classes returns one class: full attention over all layers of the stage. The rank that samples
// also stores the token ids.
func (m *dense) Classes(blockSize int, f kernels.Format) []backend.KVClass {
	return []backend.KVClass{{
		Name: "full", Format: f, BlockSize: blockSize, Layers: m.stage.layers,
		KVHeads: m.kvHeads, HeadDim: m.cfg.HeadDim, Plane: m.stage.last && !m.pools(),
	}}
}

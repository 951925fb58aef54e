package models

import (
	"fmt"
	"math"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// gptOss is the gpt-oss architecture: pre-norm blocks of grouped-query attention
// with a learned sink in each head's softmax, every second layer with a window,
// and a mixture of experts with a clamped SwiGLU. Linear layers have biases.
type gptOss struct {
	vocabulary
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

// checkGptOss refuses what the recorded forward does not do.
func checkGptOss(c checkpoint.Config) error {
	if c.HiddenAct != "silu" {
		return &UnsupportedError{"hidden_act " + short(c.HiddenAct), "gpt-oss uses silu"}
	}
	if c.MLPBias {
		return &UnsupportedError{"mlp_bias", "gpt-oss has biases in its experts always"}
	}
	if err := checkExperts(c); err != nil {
		return err
	}
	if err := checkLayerTypes(layerTypes(c, 2), c.SlidingWindow); err != nil {
		return err
	}
	q, err := quantOf(c)
	if err != nil {
		return err
	}
	if b := mxBlock; q.format == kernels.MXFP4 && (c.HiddenSize%b != 0 || c.IntermediateSize%b != 0) {
		return &UnsupportedError{fmt.Sprintf("mxfp4 experts of %d × %d", c.HiddenSize, c.IntermediateSize), "both must be multiples of 32, the block of the format"}
	}
	if q.format == kernels.F8E4M3 {
		return &UnsupportedError{"gpt-oss in 8-bit floats", "its experts are read as mxfp4, bf16, f16 or f32"}
	}
	rope, err := c.Rope("")
	if err != nil || c.RopeByLayerType != nil || c.PartialRotaryFactor != 1 {
		return &UnsupportedError{"a rope that differs by layer or turns part of a head", "gpt-oss has one for all"}
	}
	if _, err := rope.Angles(c.HeadDim); err != nil {
		return err
	}
	_, err = gptOssActivation(c)
	return err
}

// mxBlock is how many MXFP4 weights share an exponent.
const mxBlock = 32

// gptOssActivation reads swiglu_limit and swiglu_alpha.
func gptOssActivation(c checkpoint.Config) (backend.Activation, error) {
	s, err := c.Section("")
	if err != nil {
		return backend.Activation{}, err
	}
	a := backend.Activation{
		Limit: float32(s.RealOr("swiglu_limit", 1e-3, 1e6, 7)), Alpha: float32(s.RealOr("swiglu_alpha", 1e-3, 1e6, 1.702)),
		Shift: 1, Paired: true,
	}
	return a, s.Err()
}

// gptOssTensors lists a checkpoint's tensors: names and shapes of transformers'
// GptOssForCausalLM. Experts are MXFP4 blocks and exponents [E, out, in/32], or, in
// checkpoints that were dequantized, matrices [E, in, out].
func gptOssTensors(c checkpoint.Config) []checkpoint.TensorInfo {
	l := tensorsOf(c)
	h, m, e := c.HiddenSize, c.IntermediateSize, c.NumExperts
	q, kv := c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim
	l.add("model.embed_tokens.weight", c.VocabSize, h)
	for i := range c.NumLayers {
		p := fmt.Sprintf("model.layers.%d.", i)
		l.add(p+"input_layernorm.weight", h)
		l.linear(p+"self_attn.q_proj", c.AttentionBias, q, h)
		l.linear(p+"self_attn.k_proj", c.AttentionBias, kv, h)
		l.linear(p+"self_attn.v_proj", c.AttentionBias, kv, h)
		l.linear(p+"self_attn.o_proj", c.AttentionBias, h, q)
		l.add(p+"self_attn.sinks", c.NumHeads)
		l.add(p+"post_attention_layernorm.weight", h)
		l.linear(p+"mlp.router", true, e, h)
		l.transposed(p+"mlp.experts.gate_up_proj", e, 2*m, h)
		l.add(p+"mlp.experts.gate_up_proj_bias", e, 2*m)
		l.transposed(p+"mlp.experts.down_proj", e, h, m)
		l.add(p+"mlp.experts.down_proj_bias", e, h)
	}
	l.add("model.norm.weight", h)
	if !c.TieWordEmbeddings {
		l.add("lm_head.weight", c.VocabSize, h)
	}
	return l.list
}

// transposed adds a stack of experts [rows, cols] as gpt-oss keeps them: two
// tensors of MXFP4, or one whose matrices are transposed.
func (l *tensorList) transposed(name string, experts, rows, cols int) {
	if l.quant.format != kernels.MXFP4 {
		l.add(name, experts, cols, rows)
		return
	}
	l.put(kernels.U8, name+mxBlocks, experts, rows, cols/mxBlock, mxBlock/2)
	l.put(kernels.U8, name+mxScales, experts, rows, cols/mxBlock)
}

func newGptOss(c checkpoint.Config, l *loader) (Model, error) {
	if l.Rebuild {
		return nil, &UnsupportedError{"rebuilding keys from values", "gpt-oss projects them apart"}
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
	m := &gptOss{cfg: c, stage: st, paging: pagingOf(layerTypes(c, 2), st), width: width}
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
	m.vocabulary = l.ends(c, st, "model.embed_tokens.weight", head, 1)
	m.freqs = l.literal("rope.inv_freq", "attention", angles.InvFreq)
	for i := range st.layers {
		w := gptOssAttention(c, l, st.layer0+i)
		w.experts(c, l, st.layer0+i, first, width)
		m.layers = append(m.layers, w)
	}
	if st.last {
		m.norm = l.vector("norm", "norm", all("model.norm.weight"))
	}
	m.weights = l.specs
	return m, nil
}

// expertWidth is a rank's part of the width of every expert, in whole blocks of
// 32 where the width has those: where the ranks do not divide the blocks, the first
// have one more than the last.
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

// experts adds the mixture of a layer; this rank has the columns [first,
// first+width) of what is between the two matrices of an expert.
func (w *gptOssLayer) experts(c checkpoint.Config, l *loader, i, first, width int) {
	p, n, h := fmt.Sprintf("model.layers.%d.", i), fmt.Sprintf("layers.%d.", i), c.HiddenSize
	e := p + "mlp.experts."
	w.mlpNorm = l.vector(n+"mlp_norm", "norm", all(p+"post_attention_layernorm.weight"))
	w.router = l.matrix(matrix{name: n + "router", group: "router"}, all(p+"mlp.router.weight"))
	w.routerBias = l.vector(n+"router_bias", "router", all(p+"mlp.router.bias"))
	stack := func(name string) matrix {
		return matrix{name: n + name, group: "experts", experts: c.NumExperts, linear: true}
	}
	_, mx := l.src.Tensor(e + "gate_up_proj" + mxBlocks)
	up := piece{tensor: e + "gate_up_proj", row0: 2 * first, rows: 2 * width, transposed: !mx}
	down := piece{tensor: e + "down_proj", rows: h, col0: first, cols: width, transposed: !mx}
	w.gateUp = l.matrix(stack("gate_up"), up)
	w.gateUpBias = l.perExpert(n+"gate_up_bias", e+"gate_up_proj_bias", c.NumExperts, 2*first, 2*width)
	w.down = l.matrix(stack("down"), down)
	w.downBias = backend.NoWeight
	if l.Shard.Rank == 0 {
		w.downBias = l.perExpert(n+"down_bias", e+"down_proj_bias", c.NumExperts, 0, h)
	}
}

// perExpert is n elements from first on of each row of a tensor [experts, …].
func (l *loader) perExpert(name, tensor string, experts, first, n int) backend.WeightID {
	t, _ := l.src.Tensor(tensor)
	spec := backend.WeightSpec{Name: name, Group: "experts", Rows: 1, Cols: experts * n, Source: t.Format, Use: backend.Vector}
	if int64(n) == t.RowElements() {
		spec.Parts = []backend.Part{{Tensor: tensor, Rows: experts, Elems: experts * n, Format: t.Format}}
		return l.add(spec)
	}
	for e := range experts {
		spec.Parts = append(spec.Parts, backend.Part{Tensor: tensor, Row0: e, Rows: 1, Elems: n, Col0: first, Format: t.Format})
	}
	return l.add(spec)
}

func (m *gptOss) Weights() []backend.WeightSpec { return m.weights }
func (m *gptOss) Vocab() int                    { return m.size }

// Classes are the full layers' and the windows'.
func (m *gptOss) Classes(blockSize int, f kernels.Format) []backend.KVClass {
	k := backend.KVClass{KVHeads: m.kvHeads, HeadDim: m.cfg.HeadDim}
	window := k
	window.Window = m.cfg.SlidingWindow
	return m.paging.classes(k, window, blockSize, f)
}

// Record is the forward pass of the stage. The residual stream x stays F32; the
// last layer's mixture and the head run on sampled rows only.
func (m *gptOss) Record(p *backend.Program) (*backend.Program, error) {
	c := m.cfg
	p.Weights, p.Vocab, p.Shard = m.weights, m.size, m.Shard
	r := backend.Record(p)
	x := enter(r, m.vocabulary, m.stage)
	angles := r.New("angles", kernels.F32, backend.PerToken, c.HeadDim)
	r.Do(backend.Angles{InvFreq: m.freqs, Scale: m.ropeScale, Y: angles})
	delta := backend.NoValue
	for i, w := range m.layers {
		n := m.normed(r, x, delta, w.attnNorm)
		attn := m.attention(r, n, angles, i)
		if m.stage.last && i == len(m.layers)-1 {
			attn, x = sampled(r, attn), sampled(r, x)
		}
		delta = r.New("delta", kernels.F32, r.Info(attn).Rows, c.HiddenSize)
		r.Do(backend.Linear{X: attn, W: w.out, Bias: w.outBias, Y: delta})
		r.Do(backend.AllReduce{X: delta})
		r.Free(attn)
		delta = m.mixture(r, m.normed(r, x, delta, w.mlpNorm), w)
	}
	r.Free(angles)
	if !m.stage.last {
		r.Do(backend.Add{X: delta, Into: x, Scale: backend.NoWeight})
		r.Do(backend.Send{X: x})
		r.Free(delta, x)
		return r.Program()
	}
	last := m.normed(r, x, delta, m.norm)
	r.Free(x)
	logits := m.logits(r, last)
	r.Do(backend.Sample{Logits: logits})
	r.Free(last, logits)
	return r.Program()
}

// normed adds delta, which it consumes, into x and returns the norm of that.
func (m *gptOss) normed(r *backend.Recorder, x, delta backend.Value, w backend.WeightID) backend.Value {
	n := backend.Norm{X: x, Residual: backend.NoValue, W: w, Eps: float32(m.cfg.RMSNormEps)}
	if delta != backend.NoValue {
		n.X, n.Residual = delta, x
	}
	n.Y = r.New("normed", kernels.F32, r.Info(x).Rows, m.cfg.HiddenSize)
	r.Do(n)
	if delta != backend.NoValue {
		r.Free(delta)
	}
	return n.Y
}

// attention consumes n and returns the heads' outputs [T, heads·headDim].
func (m *gptOss) attention(r *backend.Recorder, n, angles backend.Value, layer int) backend.Value {
	at, w := m.paging.at[layer], m.layers[layer]
	k := r.Class(at.class)
	heads, kv, d := m.heads, m.kvHeads, m.cfg.HeadDim
	qkv := r.New("qkv", kernels.F32, backend.PerToken, (heads+2*kv)*d)
	r.Do(backend.Linear{X: n, W: w.qkv, Bias: w.qkvBias, Y: qkv})
	r.Free(n)
	q := r.New("q", kernels.F32, backend.PerToken, heads*d)
	keys := r.New("k", k.Format, backend.PerToken, kv*d)
	values := r.New("v", k.Format, backend.PerToken, kv*d)
	r.Do(backend.Rope{QKV: qkv, Angles: angles, Q: q, K: keys, V: values, Heads: heads, KVHeads: kv, HeadDim: d, Rotary: d})
	r.Free(qkv)
	y := r.New("attn", kernels.F32, backend.PerToken, heads*d)
	r.Do(backend.Attention{Q: q, K: keys, V: values, Y: y, Class: at.class, Layer: at.layer, Heads: heads, KVHeads: kv, HeadDim: d,
		Scale: float32(1 / math.Sqrt(float64(d))), Window: k.Window, Sinked: true, Sinks: w.sinks})
	r.Do(backend.StoreKV{K: keys, V: values, Class: at.class, Layer: at.layer})
	r.Free(q, keys, values)
	return y
}

// mixture consumes n and returns what the experts add to the residual.
func (m *gptOss) mixture(r *backend.Recorder, n backend.Value, w gptOssLayer) backend.Value {
	c, rows := m.cfg, r.Info(n).Rows
	logits := r.New("router", kernels.F32, rows, c.NumExperts)
	r.Do(backend.Linear{X: n, W: w.router, Bias: w.routerBias, Y: logits})
	ids := r.New("expert_ids", kernels.I32, rows, c.ExpertsPerToken)
	shares := r.New("expert_weights", kernels.F32, rows, c.ExpertsPerToken)
	r.Do(backend.Route{Logits: logits, Ids: ids, Weights: shares, Top: c.ExpertsPerToken, Scale: backend.NoWeight})
	r.Free(logits)
	d := r.New("delta", kernels.F32, rows, c.HiddenSize)
	r.Do(backend.Experts{X: n, Ids: ids, Weights: shares, Y: d, GateUp: w.gateUp, Down: w.down,
		GateUpBias: w.gateUpBias, DownBias: w.downBias, Top: c.ExpertsPerToken, Width: m.width, Activation: m.act})
	r.Do(backend.AllReduce{X: d})
	r.Free(n, ids, shares)
	return d
}

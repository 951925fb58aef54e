package models

import (
	"fmt"
	"math"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// llama is the Llama architecture: pre-norm blocks of grouped-query attention
// with rotary positions and a SwiGLU MLP. Llama 3.x and SmolLM2 are of it.
type llama struct {
	cfg     checkpoint.Config
	shard   backend.Shard
	weights []backend.WeightSpec
	layers  []llamaLayer

	embed, freqs, norm, head backend.WeightID
}

type llamaLayer struct {
	attnNorm, qkv, qkvBias, out, outBias        backend.WeightID
	mlpNorm, gateUp, gateUpBias, down, downBias backend.WeightID
}

// checkLlama refuses what the recorded forward does not do.
func checkLlama(c checkpoint.Config) error {
	switch {
	case c.HiddenAct != "silu":
		return &UnsupportedError{"hidden_act " + c.HiddenAct, "the Llama family uses silu"}
	case c.SlidingWindow != 0:
		return &UnsupportedError{"sliding_window", "the Llama family has full attention"}
	}
	_, err := c.RopeInvFreq()
	return err
}

// llamaTensors lists a checkpoint's tensors: names and shapes of
// transformers' LlamaForCausalLM.
func llamaTensors(c checkpoint.Config) []checkpoint.TensorInfo {
	l := tensorsOf(c)
	h, q, kv := c.HiddenSize, c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim
	l.add("model.embed_tokens.weight", c.VocabSize, h)
	for i := range c.NumLayers {
		p := fmt.Sprintf("model.layers.%d.", i)
		l.add(p+"input_layernorm.weight", h)
		l.linear(p+"self_attn.q_proj", c.AttentionBias, q, h)
		l.linear(p+"self_attn.k_proj", c.AttentionBias, kv, h)
		l.linear(p+"self_attn.v_proj", c.AttentionBias, kv, h)
		l.linear(p+"self_attn.o_proj", c.AttentionBias, h, q)
		l.add(p+"post_attention_layernorm.weight", h)
		l.linear(p+"mlp.gate_proj", c.MLPBias, c.IntermediateSize, h)
		l.linear(p+"mlp.up_proj", c.MLPBias, c.IntermediateSize, h)
		l.linear(p+"mlp.down_proj", c.MLPBias, h, c.IntermediateSize)
	}
	l.add("model.norm.weight", h)
	if !c.TieWordEmbeddings {
		l.add("lm_head.weight", c.VocabSize, h)
	}
	return l.list
}

func newLlama(c checkpoint.Config, l *loader) (Model, error) {
	if w := l.Shard.World; c.NumHeads%w != 0 || c.NumKVHeads%w != 0 || c.IntermediateSize%w != 0 {
		return nil, &UnsupportedError{fmt.Sprintf("tensor parallel size %d", w),
			fmt.Sprintf("it must divide %d heads, %d key/value heads and intermediate size %d", c.NumHeads, c.NumKVHeads, c.IntermediateSize)}
	}
	if l.Shard.World > 1 && (c.AttentionBias || c.MLPBias) {
		return nil, &UnsupportedError{"tensor parallelism of a Llama with biases", "its biases are not split over ranks"}
	}
	m := &llama{cfg: c, shard: l.Shard}
	freqs, err := c.RopeInvFreq()
	if err != nil {
		return nil, err
	}
	use := backend.Lookup
	if c.TieWordEmbeddings {
		use |= backend.Multiply
	}
	m.embed = l.matrix(matrix{name: "embed", group: "embedding", use: use}, all("model.embed_tokens.weight"))
	m.freqs = l.literal("rope.inv_freq", "attention", freqs)
	for i := range c.NumLayers {
		m.layers = append(m.layers, newLlamaLayer(c, l, i))
	}
	m.norm = l.vector("norm", "norm", all("model.norm.weight"))
	m.head = m.embed
	if !c.TieWordEmbeddings {
		m.head = l.matrix(matrix{name: "head", group: "head"}, all("lm_head.weight"))
	}
	m.weights = l.specs
	return m, nil
}

func newLlamaLayer(c checkpoint.Config, l *loader, i int) llamaLayer {
	p, n := fmt.Sprintf("model.layers.%d.", i), fmt.Sprintf("layers.%d.", i)
	d, inner := c.HeadDim, c.IntermediateSize
	attn, mlp := p+"self_attn.", p+"mlp."
	bias := func(yes bool, name, group string, of ...piece) backend.WeightID {
		if !yes {
			return backend.NoWeight
		}
		return l.vector(n+name, group, of...)
	}
	w := llamaLayer{
		attnNorm: l.vector(n+"attn_norm", "norm", all(p+"input_layernorm.weight")),
		qkv: l.linear(n+"qkv", "attention", l.rows(attn+"q_proj.weight", c.NumHeads, d),
			l.rows(attn+"k_proj.weight", c.NumKVHeads, d), l.rows(attn+"v_proj.weight", c.NumKVHeads, d)),
		qkvBias: bias(c.AttentionBias, "qkv_bias", "attention", l.cols(attn+"q_proj.bias", c.NumHeads, d),
			l.cols(attn+"k_proj.bias", c.NumKVHeads, d), l.cols(attn+"v_proj.bias", c.NumKVHeads, d)),
		out:        l.linear(n+"out", "attention", l.cols(attn+"o_proj.weight", c.NumHeads, d)),
		outBias:    bias(c.AttentionBias, "out_bias", "attention", all(attn+"o_proj.bias")),
		mlpNorm:    l.vector(n+"mlp_norm", "norm", all(p+"post_attention_layernorm.weight")),
		gateUp:     l.linear(n+"gate_up", "mlp", l.rows(mlp+"gate_proj.weight", inner, 1), l.rows(mlp+"up_proj.weight", inner, 1)),
		gateUpBias: bias(c.MLPBias, "gate_up_bias", "mlp", l.cols(mlp+"gate_proj.bias", inner, 1), l.cols(mlp+"up_proj.bias", inner, 1)),
		down:       l.linear(n+"down", "mlp", l.cols(mlp+"down_proj.weight", inner, 1)),
		downBias:   bias(c.MLPBias, "down_bias", "mlp", all(mlp+"down_proj.bias")),
	}
	return w
}

func (m *llama) Weights() []backend.WeightSpec { return m.weights }
func (m *llama) Vocab() int                    { return m.cfg.VocabSize }

// Classes is one class: full attention over all layers.
func (m *llama) Classes(blockSize int, f kernels.Format) []backend.KVClass {
	return []backend.KVClass{{
		Name: "full", Format: f, BlockSize: blockSize, Layers: m.cfg.NumLayers,
		KVHeads: m.cfg.NumKVHeads / m.shard.World, HeadDim: m.cfg.HeadDim, Plane: true,
	}}
}

// Record is the forward pass. The residual stream x stays F32; the last
// layer's MLP and the head run on sampled rows only.
func (m *llama) Record(p *backend.Program) (*backend.Program, error) {
	c := m.cfg
	p.Weights, p.Vocab, p.Shard = m.weights, c.VocabSize, m.shard
	r := backend.Record(p)
	ids := r.New("ids", kernels.I32, backend.PerToken, 1)
	r.Do(backend.Tokens{Out: ids})
	r.Do(backend.StoreTokens{Ids: ids})
	x := r.New("residual", kernels.F32, backend.PerToken, c.HiddenSize)
	r.Do(backend.Embed{Ids: ids, Table: m.embed, Y: x, Scale: 1})
	r.Free(ids)
	angles := r.New("angles", kernels.F32, backend.PerToken, c.HeadDim)
	r.Do(backend.Angles{InvFreq: m.freqs, Scale: 1, Y: angles})
	delta := backend.NoValue
	rows := backend.PerToken
	for i, w := range m.layers {
		n := r.New("normed", kernels.F32, rows, c.HiddenSize)
		r.Do(m.normed(x, delta, w.attnNorm, n))
		if delta != backend.NoValue {
			r.Free(delta)
		}
		attn := m.attention(r, n, angles, i)
		if i == len(m.layers)-1 {
			attn, x = sampled(r, attn), sampled(r, x)
			rows = backend.PerSample
		}
		delta = m.project(r, attn, rows, w)
		n = r.New("normed", kernels.F32, rows, c.HiddenSize)
		r.Do(m.normed(x, delta, w.mlpNorm, n))
		r.Free(delta)
		delta = m.mlp(r, n, rows, w)
	}
	last := r.New("normed", kernels.F32, rows, c.HiddenSize)
	r.Do(m.normed(x, delta, m.norm, last))
	r.Free(delta, x, angles)
	logits := r.New("logits", kernels.F32, rows, c.VocabSize)
	r.Do(backend.Linear{X: last, W: m.head, Bias: backend.NoWeight, Y: logits})
	r.Do(backend.Sample{Logits: logits})
	r.Free(last, logits)
	return r.Program()
}

func (m *llama) normed(x, delta backend.Value, w backend.WeightID, y backend.Value) backend.Norm {
	n := backend.Norm{X: x, Residual: backend.NoValue, W: w, Eps: float32(m.cfg.RMSNormEps), Y: y}
	if delta != backend.NoValue {
		n.X, n.Residual = delta, x
	}
	return n
}

// attention consumes n and returns the heads' outputs [T, heads·headDim].
func (m *llama) attention(r *backend.Recorder, n, angles backend.Value, layer int) backend.Value {
	c, f := m.cfg, m.classFormat(r)
	heads, kv, d := c.NumHeads/m.shard.World, c.NumKVHeads/m.shard.World, c.HeadDim
	w := m.layers[layer]
	qkv := r.New("qkv", kernels.F32, backend.PerToken, (heads+2*kv)*d)
	r.Do(backend.Linear{X: n, W: w.qkv, Bias: w.qkvBias, Y: qkv})
	r.Free(n)
	q := r.New("q", kernels.F32, backend.PerToken, heads*d)
	k := r.New("k", f, backend.PerToken, kv*d)
	v := r.New("v", f, backend.PerToken, kv*d)
	r.Do(backend.Rope{QKV: qkv, Angles: angles, Q: q, K: k, V: v, Heads: heads, KVHeads: kv, HeadDim: d, Rotary: d})
	r.Free(qkv)
	y := r.New("attn", kernels.F32, backend.PerToken, heads*d)
	r.Do(backend.Attention{Q: q, K: k, V: v, Y: y, Layer: layer, Heads: heads, KVHeads: kv, HeadDim: d,
		Scale: float32(1 / math.Sqrt(float64(d)))})
	r.Do(backend.StoreKV{K: k, V: v, Layer: layer})
	r.Free(q, k, v)
	return y
}

func (m *llama) classFormat(r *backend.Recorder) kernels.Format { return r.Class(0).Format }

// project consumes attn and returns attention's contribution to the residual.
func (m *llama) project(r *backend.Recorder, attn backend.Value, rows backend.Rows, w llamaLayer) backend.Value {
	d := r.New("delta", kernels.F32, rows, m.cfg.HiddenSize)
	r.Do(backend.Linear{X: attn, W: w.out, Bias: w.outBias, Y: d})
	r.Do(backend.AllReduce{X: d})
	r.Free(attn)
	return d
}

// mlp consumes n and returns the MLP's contribution to the residual.
func (m *llama) mlp(r *backend.Recorder, n backend.Value, rows backend.Rows, w llamaLayer) backend.Value {
	width := m.cfg.IntermediateSize / m.shard.World
	gu := r.New("gate_up", kernels.F32, rows, 2*width)
	r.Do(backend.Linear{X: n, W: w.gateUp, Bias: w.gateUpBias, Y: gu})
	r.Free(n)
	a := r.New("act", kernels.F32, rows, width)
	r.Do(backend.GLU{X: gu, Y: a})
	r.Free(gu)
	d := r.New("delta", kernels.F32, rows, m.cfg.HiddenSize)
	r.Do(backend.Linear{X: a, W: w.down, Bias: w.downBias, Y: d})
	r.Do(backend.AllReduce{X: d})
	r.Free(a)
	return d
}

// sampled consumes a value of all tokens and returns its sampled rows.
func sampled(r *backend.Recorder, v backend.Value) backend.Value {
	in := r.Info(v)
	y := r.New(in.Name+".sampled", in.Format, backend.PerSample, in.Cols)
	r.Do(backend.Gather{X: v, Y: y})
	r.Free(v)
	return y
}

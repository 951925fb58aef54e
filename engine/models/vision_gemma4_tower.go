package models

import (
	"fmt"
	"math"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// gemmaTower is the vision tower. Every tensor parallel rank holds all of it.
type gemmaTower struct {
	*gemmaVision
	layers                          []gemmaTowerLayer
	input, across, down, projection backend.WeightID
	mean, scale, freqs              backend.WeightID
}

type gemmaTowerLayer struct {
	attnNorm, qkv, out, attnPost   backend.WeightID
	norms                          backend.HeadNorm
	mlpNorm, gateUp, back, mlpPost backend.WeightID
}

func newGemmaTower(c checkpoint.Config, l *loader) (*gemmaTower, error) {
	v, err := readGemmaVision(c)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, &UnsupportedError{"a vision tower of " + c.Architecture, "the config has none of the kind that is recorded (that of 31B and 26B-A4B); without images the text model runs"}
	}
	angles, err := v.rope.Angles(v.headDim / 2)
	if err != nil {
		return nil, err
	}
	of := func(name string, use backend.Use, pieces ...piece) backend.WeightID {
		return l.matrix(matrix{name: "vision." + name, group: "vision", use: use}, pieces...)
	}
	table := gemmaTowerPrefix + "patch_embedder.position_embedding_table"
	t := &gemmaTower{gemmaVision: v, mean: backend.NoWeight, scale: backend.NoWeight}
	t.input = of("input", backend.Multiply, all(gemmaTowerPrefix+"patch_embedder.input_proj.weight"))
	t.across = of("across", backend.Lookup, piece{tensor: table, rows: v.positions})
	t.down = of("down", backend.Lookup, piece{tensor: table, row0: v.positions, rows: v.positions})
	t.freqs = l.literal("vision.inv_freq", "vision", angles.InvFreq)
	for i := range v.layers {
		p, n := fmt.Sprintf("%sencoder.layers.%d.", gemmaTowerPrefix, i), fmt.Sprintf("layers.%d.", i)
		norm := func(name, tensor string) backend.WeightID {
			return l.vector("vision."+n+name, "vision", all(p+tensor))
		}
		attn, mlp := p+"self_attn.", p+"mlp."
		t.layers = append(t.layers, gemmaTowerLayer{
			attnNorm: norm("attn_norm", "input_layernorm.weight"),
			qkv:      of(n+"qkv", backend.Multiply, all(attn+"q_proj.linear.weight"), all(attn+"k_proj.linear.weight"), all(attn+"v_proj.linear.weight")),
			norms:    backend.HeadNorm{Q: norm("q_norm", "self_attn.q_norm.weight"), K: norm("k_norm", "self_attn.k_norm.weight"), V: true, Eps: float32(v.eps)},
			out:      of(n+"out", backend.Multiply, all(attn+"o_proj.linear.weight")),
			attnPost: norm("attn_post", "post_attention_layernorm.weight"),
			mlpNorm:  norm("mlp_norm", "pre_feedforward_layernorm.weight"),
			gateUp:   l.gateUp(of(n+"gate_up", backend.Multiply, all(mlp+"gate_proj.linear.weight"), all(mlp+"up_proj.linear.weight"))),
			back:     of(n+"down", backend.Multiply, all(mlp+"down_proj.linear.weight")),
			mlpPost:  norm("mlp_post", "post_feedforward_layernorm.weight"),
		})
	}
	if v.standardize {
		t.mean = l.vector("vision.std_bias", "vision", all(gemmaTowerPrefix+"std_bias"))
		t.scale = l.vector("vision.std_scale", "vision", all(gemmaTowerPrefix+"std_scale"))
	}
	t.projection = of("projection", backend.Multiply, all(gemmaProjection+".weight"))
	return t, nil
}

// Patches returns the patches of an image at the processor's default size; a video frame has a
// quarter of them. It returns 0 without the tower.
func (m *gemma) Patches() int {
	if m.vision == nil {
		return 0
	}
	return m.vision.items * m.vision.pool * m.vision.pool
}

// Images implements Encoder.
func (m *gemma) Images() ImageShape {
	if m.vision == nil {
		return ImageShape{}
	}
	const frame = 70 // tokens (Gemma4VideoProcessor, max_soft_tokens)
	square := m.vision.pool * m.vision.pool
	return ImageShape{Side: m.vision.patch, Square: square, Budgets: true, Frames: 1, Frame: frame * square}
}

// RecordEncoder records the tower's pass over one item. Patches are projected, get position
// embeddings from two tables, pass through bidirectional attention blocks, and are pooled and
// projected to the text model's width. A stage without the tower records an empty program.
func (m *gemma) RecordEncoder(p *backend.Program) (*backend.Program, error) {
	p.Weights, p.Vocab, p.Shard = m.weights, m.size, backend.Whole
	if m.vision == nil {
		return backend.Record(p).Program()
	}
	square := m.vision.pool * m.vision.pool
	p.Bucket.Samples = (p.Bucket.Tokens + square - 1) / square
	r := backend.Record(p)
	m.vision.record(r, m.hidden)
	return r.Program()
}

func (t *gemmaTower) record(r *backend.Recorder, width int) {
	pixels := r.New("pixels", kernels.F32, backend.PerToken, 3*t.patch*t.patch)
	across, down := r.New("across", kernels.I32, backend.PerToken, 1), r.New("down", kernels.I32, backend.PerToken, 1)
	r.Do(backend.Patches{Pixels: pixels, Across: across, Down: down, Scale: 2, Shift: -1})
	x := r.New("residual", kernels.F32, backend.PerToken, t.hidden)
	r.Do(backend.Linear{X: pixels, W: t.input, Bias: backend.NoWeight, Y: x})
	r.Free(pixels)
	for _, at := range []struct {
		ids   backend.Value
		table backend.WeightID
	}{{across, t.across}, {down, t.down}} {
		e := r.New("place", kernels.F32, backend.PerToken, t.hidden)
		r.Do(backend.Embed{Ids: at.ids, Table: at.table, Y: e, Scale: 1})
		r.Do(backend.Add{X: e, Into: x, Scale: backend.NoWeight})
		r.Free(e)
	}
	angles := r.New("angles", kernels.F32, backend.PerToken, t.headDim)
	r.Do(backend.Angles{InvFreq: t.freqs, Scale: 1, Y: angles, Grid: true, Across: across, Down: down})
	for _, w := range t.layers {
		t.block(r, x, angles, w)
	}
	r.Free(angles)
	y := r.New("pooled", kernels.F32, backend.PerSample, t.hidden)
	r.Do(backend.AvgPool{X: x, Across: across, Down: down, Y: y, Size: t.pool, Scale: float32(math.Sqrt(float64(t.hidden)))})
	r.Free(x, across, down)
	if t.standardize {
		r.Do(backend.Standardize{X: y, Mean: t.mean, Scale: t.scale})
	}
	r.Do(backend.Norm{X: y, Residual: backend.NoValue, W: backend.NoWeight, Eps: float32(t.eps), Y: y})
	out := r.New("encoded", kernels.F32, backend.PerSample, width)
	r.Do(backend.Linear{X: y, W: t.projection, Bias: backend.NoWeight, Y: out})
	r.Do(backend.EncoderOutput{X: out})
	r.Free(y, out)
}

// block records one layer of the tower, which adds its result to x.
func (t *gemmaTower) block(r *backend.Recorder, x, angles backend.Value, w gemmaTowerLayer) {
	value := func(name string, cols int) backend.Value { return r.New(name, kernels.F32, backend.PerToken, cols) }
	norm := func(n backend.Norm) {
		n.Eps = float32(t.eps)
		r.Do(n)
	}
	linear := func(in backend.Value, w backend.WeightID, name string, cols int) backend.Value {
		y := value(name, cols)
		r.Do(backend.Linear{X: in, W: w, Bias: backend.NoWeight, Y: y})
		r.Free(in)
		return y
	}
	q, kv := t.heads*t.headDim, t.kvHeads*t.headDim
	n := value("normed", t.hidden)
	norm(backend.Norm{X: x, Residual: backend.NoValue, W: w.attnNorm, Y: n})
	qkv := linear(n, w.qkv, "qkv", q+2*kv)
	op := backend.Attention{Q: value("q", q), K: value("k", kv), V: value("v", kv), Heads: t.heads, KVHeads: t.kvHeads, HeadDim: t.headDim, Scale: 1, Bidirectional: true}
	r.Do(backend.Rope{QKV: qkv, Angles: angles, Q: op.Q, K: op.K, V: op.V, Heads: t.heads, KVHeads: t.kvHeads, HeadDim: t.headDim,
		Rotary: t.headDim, Norm: &w.norms, Grid: true})
	r.Free(qkv)
	op.Y = value("attn", q)
	r.Do(op)
	r.Free(op.Q, op.K, op.V)
	d := linear(op.Y, w.out, "delta", t.hidden)
	norm(backend.Norm{X: d, Residual: backend.NoValue, W: w.attnPost, Y: d})
	n = value("normed", t.hidden)
	norm(backend.Norm{X: d, Residual: x, W: w.mlpNorm, Y: n})
	r.Free(d)
	gu := linear(n, w.gateUp, "gate_up", 2*t.inner)
	a := value("act", t.inner)
	r.Do(backend.GLU{X: gu, Y: a, Activation: backend.Activation{Act: backend.GELUTanh}})
	r.Free(gu)
	d = linear(a, w.back, "delta", t.hidden)
	norm(backend.Norm{X: d, Residual: backend.NoValue, W: w.mlpPost, Y: d})
	r.Do(backend.Add{X: d, Into: x, Scale: backend.NoWeight})
	r.Free(d)
}

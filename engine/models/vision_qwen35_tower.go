package models

import (
	"fmt"
	"math"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// maxPixels is the maximum size of an image after the published processor's resizing
// (preprocessor_config.json, size.longest_edge).
const maxPixels = 1 << 24

// maxVideoPixels is that of all frames of a video (video_preprocessor_config.json).
const maxVideoPixels = 25165824

// qwen35Tower is the vision tower (transformers: Qwen3_5VisionModel): bidirectional attention
// blocks over the patches of an image, or of a pair of video frames; items do not attend to each
// other. Patches are ordered in squares of merge × merge; the merger turns each square into one
// token.
type qwen35Tower struct {
	qwen35Vision
	pixels, pixelsBias, places         backend.WeightID
	freqs                              backend.WeightID
	blocks                             []qwen35VisionBlock
	norm, normBias                     backend.WeightID
	up, upBias, down, downBias         backend.WeightID
	storeAs                            kernels.Format // of K and V
	rankHeads, rankInner, rankMergedUp int
}

type qwen35VisionBlock struct {
	norm1, norm1Bias, norm2, norm2Bias backend.WeightID
	qkv, qkvBias, proj, projBias       backend.WeightID
	fc1, fc1Bias, fc2, fc2Bias         backend.WeightID
}

const vision = "vision"

// newTower adds the tower's weights to a stage that reads encoded rows: the first one, and the one with the
// drafter. The ranks split attention heads and MLP columns; every rank holds the patch and position embeddings.
func (v *qwen35Vision) newTower(c checkpoint.Config, l *loader, reads bool) (*qwen35Tower, error) {
	if v == nil {
		return nil, &UnsupportedError{"a vision tower", c.Architecture + " without vision_config has none"}
	}
	if !reads {
		return nil, nil
	}
	merged := v.hidden * v.merge * v.merge
	for _, err := range []error{
		l.checkEven(v.heads, "heads of the vision tower"), l.checkEven(v.inner, "columns of the vision tower's MLP (intermediate_size)"),
		l.checkEven(merged, "columns of the vision tower's merger"),
	} {
		if err != nil {
			return nil, err
		}
	}
	const p = "model.visual."
	inv, err := checkpoint.Rope{Theta: v.theta, PartialRotaryFactor: 1}.Angles(v.hidden / v.heads / 2)
	if err != nil {
		return nil, err
	}
	t := &qwen35Tower{qwen35Vision: *v, storeAs: l.Activations(c)}
	_, t.rankHeads = l.part(v.heads)
	_, t.rankInner = l.part(v.inner)
	_, t.rankMergedUp = l.part(merged)
	t.pixels = l.add(v.patches(l, p+"patch_embed.proj.weight"))
	t.pixelsBias = l.vector("vision.patch_bias", vision, all(p+"patch_embed.proj.bias"))
	t.places = l.matrix(matrix{name: "vision.places", group: vision, use: backend.Lookup}, all(p+"pos_embed.weight"))
	t.freqs = l.literal("vision.inv_freq", vision, inv.InvFreq)
	for i := range v.depth {
		t.blocks = append(t.blocks, v.block(l, fmt.Sprintf("%sblocks.%d.", p, i), fmt.Sprintf("vision.%d.", i)))
	}
	t.norm = l.vector("vision.norm", vision, all(p+"merger.norm.weight"))
	t.normBias = l.vector("vision.norm_bias", vision, all(p+"merger.norm.bias"))
	t.up = l.matrix(matrix{name: "vision.up", group: vision}, l.rows(p+"merger.linear_fc1.weight", merged, 1))
	t.upBias = l.vector("vision.up_bias", vision, l.cols(p+"merger.linear_fc1.bias", merged, 1))
	t.down = l.matrix(matrix{name: "vision.down", group: vision}, l.cols(p+"merger.linear_fc2.weight", merged, 1))
	t.downBias = l.outBias("vision.down_bias", vision, p+"merger.linear_fc2.bias")
	return t, nil
}

// patches returns the patch convolution as a matrix: one row for each output, columns over
// channels, frames, rows and columns of the kernel.
func (v *qwen35Vision) patches(l *loader, tensor string) backend.WeightSpec {
	t := l.tensor(tensor)
	fold := v.channels * v.frames * v.patch
	w := backend.WeightSpec{Name: "vision.patch", Group: vision, Use: backend.Multiply, Rows: v.hidden, Cols: fold * v.patch, Source: t.Format,
		Parts: []backend.Part{{Tensor: tensor, Rows: v.hidden, Fold: fold, Format: t.Format}}}
	if l.Dtype != kernels.Invalid && l.Dtype != w.Source {
		w.Target = l.Dtype
	}
	return w
}

func (v *qwen35Vision) block(l *loader, p, n string) qwen35VisionBlock {
	d := v.hidden / v.heads
	plain := func(name string, pieces ...piece) backend.WeightID {
		return l.matrix(matrix{name: n + name, group: vision}, pieces...)
	}
	vec := func(name string, pieces ...piece) backend.WeightID { return l.vector(n+name, vision, pieces...) }
	var rows, cols []piece // of queries, keys, values
	for i := range 3 {
		r, c := l.rows(p+"attn.qkv.weight", v.heads, d), l.cols(p+"attn.qkv.bias", v.heads, d)
		r.row0 += i * v.hidden
		c.col0 += i * v.hidden
		rows, cols = append(rows, r), append(cols, c)
	}
	return qwen35VisionBlock{
		norm1: vec("norm1", all(p+"norm1.weight")), norm1Bias: vec("norm1_bias", all(p+"norm1.bias")),
		qkv: plain("qkv", rows...), qkvBias: vec("qkv_bias", cols...),
		proj: plain("proj", l.cols(p+"attn.proj.weight", v.heads, d)), projBias: l.outBias(n+"proj_bias", vision, p+"attn.proj.bias"),
		norm2: vec("norm2", all(p+"norm2.weight")), norm2Bias: vec("norm2_bias", all(p+"norm2.bias")),
		fc1: plain("fc1", l.rows(p+"mlp.linear_fc1.weight", v.inner, 1)), fc1Bias: vec("fc1_bias", l.cols(p+"mlp.linear_fc1.bias", v.inner, 1)),
		fc2: plain("fc2", l.cols(p+"mlp.linear_fc2.weight", v.inner, 1)), fc2Bias: l.outBias(n+"fc2_bias", vision, p+"mlp.linear_fc2.bias"),
	}
}

// Patches returns the patches of the largest image after the published processor's resizing; 0
// without the tower.
func (m *qwen35) Patches() int {
	if m.tower == nil {
		return 0
	}
	return m.tower.most(maxPixels)
}

// most returns the patches of that many pixels: whole tokens, at least one.
func (t *qwen35Tower) most(pixels int) int {
	n := t.merge * t.merge
	return max(n, pixels/(t.patch*t.patch)/n*n)
}

// Images implements Encoder.
func (m *qwen35) Images() ImageShape {
	if m.tower == nil {
		return ImageShape{}
	}
	t := m.tower
	return ImageShape{Side: t.patch, Square: t.merge * t.merge, Frames: t.frames, Frame: t.most(maxVideoPixels / t.frames)}
}

// RecordEncoder records the tower's pass over the patches of one item.
func (m *qwen35) RecordEncoder(p *backend.Program) (*backend.Program, error) {
	t := m.tower
	if t == nil {
		return nil, &UnsupportedError{"a pass of the vision tower", "the build has none on this rank"}
	}
	p.Weights, p.Shard = m.weights, m.Shard
	p.Bucket.Samples = p.Bucket.Tokens / (t.merge * t.merge)
	r := backend.Record(p)
	px := r.New("pixels", kernels.F32, backend.PerToken, t.channels*t.frames*t.patch*t.patch)
	across, down := r.New("across", kernels.I32, backend.PerToken, 1), r.New("down", kernels.I32, backend.PerToken, 1)
	r.Do(backend.Patches{Pixels: px, Across: across, Down: down, Scale: 2, Shift: -1, Frames: t.frames, Square: t.merge})
	s := &qwen35TowerPass{qwen35Tower: t, r: r, delta: backend.NoValue}
	s.x = s.linear(px, t.pixels, t.pixelsBias, backend.PerToken, t.hidden)
	r.Do(backend.Resample{X: s.x, Across: across, Down: down, Table: t.places, Side: t.side})
	d := t.hidden / t.heads
	angles := r.New("angles", kernels.F32, backend.PerToken, d)
	r.Do(backend.Angles{InvFreq: t.freqs, Scale: 1, Y: angles, Grid: true, Joined: true, Across: down, Down: across}) // the rope has rows first
	r.Free(across, down)
	for _, b := range t.blocks {
		s.delta = s.attend(s.normalize(b.norm1, b.norm1Bias), angles, b)
		s.delta = s.mlp(s.normalize(b.norm2, b.norm2Bias), b)
	}
	n := s.normalize(t.norm, t.normBias)
	r.Free(s.x, angles)
	joined := r.New("joined", kernels.F32, backend.PerSample, t.hidden*t.merge*t.merge)
	r.Do(backend.Join{X: n, Y: joined})
	r.Free(n)
	up := s.linear(joined, t.up, t.upBias, backend.PerSample, t.rankMergedUp)
	r.Do(backend.Activate{X: up, Act: backend.GELU})
	y := s.linear(up, t.down, t.downBias, backend.PerSample, t.out)
	r.Do(backend.AllReduce{X: y})
	r.Do(backend.EncoderOutput{X: y})
	r.Free(y)
	return r.Program()
}

// qwen35TowerPass records one pass of the tower.
type qwen35TowerPass struct {
	*qwen35Tower
	r        *backend.Recorder
	x, delta backend.Value // the residual stream, and the pending addition to it
}

// linear consumes x and returns W·x + bias.
func (s *qwen35TowerPass) linear(x backend.Value, w, bias backend.WeightID, rows backend.Rows, cols int) backend.Value {
	y := s.r.New("linear", kernels.F32, rows, cols)
	s.r.Do(backend.Linear{X: x, W: w, Bias: bias, Y: y})
	s.r.Free(x)
	return y
}

// normalize adds the pending delta to the residual stream and returns its layer norm.
func (s *qwen35TowerPass) normalize(w, bias backend.WeightID) backend.Value {
	const eps = 1e-6
	y := s.r.New("normed", kernels.F32, backend.PerToken, s.hidden)
	n := backend.Norm{X: s.x, Residual: backend.NoValue, W: w, Eps: eps, Y: y, Plain: true, Bias: bias}
	if s.delta != backend.NoValue {
		n.X, n.Residual = s.delta, s.x
	}
	s.r.Do(n)
	free(s.r, s.delta)
	s.delta = backend.NoValue
	return y
}

// attend consumes n and returns the attention block's contribution.
func (s *qwen35TowerPass) attend(n, angles backend.Value, b qwen35VisionBlock) backend.Value {
	r, heads, d := s.r, s.rankHeads, s.hidden/s.heads
	qkv := s.linear(n, b.qkv, b.qkvBias, backend.PerToken, 3*heads*d)
	q := r.New("q", kernels.F32, backend.PerToken, heads*d)
	k, v := r.New("k", s.storeAs, backend.PerToken, heads*d), r.New("v", s.storeAs, backend.PerToken, heads*d)
	r.Do(backend.Rope{QKV: qkv, Angles: angles, Q: q, K: k, V: v, Heads: heads, KVHeads: heads, HeadDim: d, Rotary: d})
	r.Free(qkv)
	y := r.New("attn", kernels.F32, backend.PerToken, heads*d)
	r.Do(backend.Attention{Q: q, K: k, V: v, Y: y, Heads: heads, KVHeads: heads, HeadDim: d, Scale: float32(1 / math.Sqrt(float64(d))), Bidirectional: true})
	r.Free(q, k, v)
	out := s.linear(y, b.proj, b.projBias, backend.PerToken, s.hidden)
	r.Do(backend.AllReduce{X: out})
	return out
}

// mlp consumes n and returns the MLP's contribution.
func (s *qwen35TowerPass) mlp(n backend.Value, b qwen35VisionBlock) backend.Value {
	up := s.linear(n, b.fc1, b.fc1Bias, backend.PerToken, s.rankInner)
	s.r.Do(backend.Activate{X: up, Act: backend.GELUTanh})
	out := s.linear(up, b.fc2, b.fc2Bias, backend.PerToken, s.hidden)
	s.r.Do(backend.AllReduce{X: out})
	return out
}

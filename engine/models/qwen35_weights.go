package models

import (
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
)

// qwen35Layer is a block: one of the two mixers, then the MLP.
type qwen35Layer struct {
	mixerNorm, mlpNorm backend.WeightID
	attention          *qwen35Attention
	delta              *qwen35Delta
	out                backend.WeightID
	mlp                block
	class, slot        int // KV class, and index of the layer in it
}

type qwen35Attention struct{ qkv, qNorm, kNorm backend.WeightID }

type qwen35Delta struct{ qkv, z, ba, conv, aLog, dtBias, norm backend.WeightID }

// newQwen35 splits the heads of both kinds and the MLP's columns over the ranks. Ranks share
// key/value heads if there are fewer heads than ranks.
func newQwen35(c checkpoint.Config, l *loader) (Model, error) {
	q, err := readQwen35(c)
	if err != nil {
		return nil, err
	}
	if l.Rebuild {
		return nil, &UnsupportedError{"keys rebuilt from values in " + c.Architecture, "its keys and values are two projections"}
	}
	st, err := l.stage(c.NumLayers)
	for _, e := range []error{
		l.checkEven(c.NumHeads, "attention heads"), l.checkShared(c.NumKVHeads, "key/value heads"),
		l.checkEven(q.keyHeads, "key heads of linear attention"), l.checkEven(q.valueHeads, "value heads of linear attention"),
		l.checkEven(c.VocabSize, "tokens (vocab_size)"),
		q.checkBuild(l.Build),
	} {
		if err == nil {
			err = e
		}
	}
	for i := 0; err == nil && i < c.NumLayers; i++ {
		err = q.feedForward(i).check(l.Build)
	}
	if err != nil {
		return nil, err
	}
	m := &qwen35{cfg: q, stage: st, convAs: l.Activations(c), freqs: backend.NoWeight}
	m.vocabulary = vocabulary{Build: l.Build, size: c.VocabSize, hidden: c.HiddenSize, scale: 1, embed: backend.NoWeight, head: backend.NoWeight}
	_, m.rank.heads = l.part(c.NumHeads)
	_, m.rank.kvHeads = l.part(c.NumKVHeads)
	_, m.rank.keyHeads = l.part(q.keyHeads)
	_, m.rank.valueHeads = l.part(q.valueHeads)
	if err := m.load(l); err != nil {
		return nil, err
	}
	m.weights, m.adaptable = l.specs, l.adapters()
	return m, nil
}

// load adds the stage's weights in arena order.
func (m *qwen35) load(l *loader) error {
	q := m.cfg
	table := q.prefix + "embed_tokens.weight"
	drafts := m.Draft > 0 && m.stage.last
	tied := q.TieWordEmbeddings && m.stage.last && !m.pools()
	if m.stage.first || drafts {
		m.embed = l.embedding(table, q.VocabSize, tied)
	}
	m.freqs = l.literal("rope.inv_freq", "attention", q.rope.InvFreq)
	var slots [2]int
	for i := range m.stage.layers {
		at := m.stage.layer0 + i
		w := m.block(l, fmt.Sprintf("%slayers.%d.", q.prefix, at), fmt.Sprintf("layers.%d.", at), q.types[at], q.feedForward(at))
		if w.delta != nil {
			w.class = 1
		}
		w.slot = slots[w.class]
		slots[w.class]++
		m.layers = append(m.layers, w)
	}
	switch full := slots[0] > 0; {
	case !full && m.stage.last && !drafts:
		return &UnsupportedError{fmt.Sprintf("pipeline parallel size %d", m.Pipe.World), "the last rank has no layer of " + fullAttention + ", whose pages hold the tokens of a sequence"}
	case !full && !drafts:
		for i := range m.layers {
			m.layers[i].class = 0
		}
	}
	if m.stage.last {
		m.norm = l.vector("norm", "norm", all(q.prefix+"norm.weight"))
		switch {
		case m.pools() && q.TieWordEmbeddings:
			m.setPoolingHead(l, table)
		case m.pools():
			m.setPoolingHead(l, "lm_head.weight")
		case !q.TieWordEmbeddings:
			m.head = l.head("lm_head.weight", q.VocabSize)
		case m.stage.first || drafts:
			m.head = m.embed
		default:
			m.head = l.head(table, q.VocabSize)
		}
	}
	if drafts {
		l.withoutAdapters(func() { m.drafter = m.newDrafter(l, slots[0]) })
	}
	if !m.Vision {
		return nil
	}
	tower, err := q.vision.newTower(q.Config, l, m.stage.first || drafts)
	m.tower = tower
	return err
}

// block adds a layer's weights: p is its module's prefix, n the prefix of its names.
func (m *qwen35) block(l *loader, p, n, kind string, mlp feedForward) qwen35Layer {
	w := qwen35Layer{mixerNorm: l.vector(n+"mixer_norm", "norm", all(p+"input_layernorm.weight"))}
	if kind == linearAttention {
		w.delta, w.out = m.newDelta(l, p+"linear_attn.", n)
	} else {
		w.attention, w.out = m.newAttention(l, p+"self_attn.", n)
	}
	w.mlpNorm = l.vector(n+"mlp_norm", "norm", all(p+"post_attention_layernorm.weight"))
	w.mlp = mlp.load(l, p, n)
	return w
}

// newAttention adds the weights of an attention layer. In q_proj, each head has the rows of its
// query, then those of its gate.
func (m *qwen35) newAttention(l *loader, p, n string) (*qwen35Attention, backend.WeightID) {
	q, d := m.cfg, m.cfg.HeadDim
	a := &qwen35Attention{
		qkv: l.linear(n+"qkv", "attention", l.rows(p+"q_proj.weight", q.NumHeads, 2*d),
			l.rows(p+"k_proj.weight", q.NumKVHeads, d), l.rows(p+"v_proj.weight", q.NumKVHeads, d)),
		qNorm: l.vector(n+"q_norm", "norm", all(p+"q_norm.weight")),
		kNorm: l.vector(n+"k_norm", "norm", all(p+"k_norm.weight")),
	}
	return a, l.linear(n+"out", "attention", l.cols(p+"o_proj.weight", q.NumHeads, d))
}

// shareOf returns the rank's channels of a tensor that stores all queries, then all keys, then all
// values.
func (q qwen35Config) shareOf(l *loader, tensor string) []piece {
	if l.Shard.World == 1 {
		return []piece{{tensor: tensor, rows: q.channels(q.keyHeads, q.valueHeads)}}
	}
	keys := q.keyHeads * q.keyDim
	query, key, value := l.rows(tensor, q.keyHeads, q.keyDim), l.rows(tensor, q.keyHeads, q.keyDim), l.rows(tensor, q.valueHeads, q.valueDim)
	key.row0 += keys
	value.row0 += 2 * keys
	return []piece{query, key, value}
}

// kernels returns the convolution kernels of these channels as a vector [channels, kernel].
func (q qwen35Config) kernels(l *loader, name, group, tensor string, channels []piece) backend.WeightSpec {
	t := l.tensor(tensor)
	spec := backend.WeightSpec{Name: name, Group: group, Rows: 1, Use: backend.Vector, Source: t.Format}
	for _, c := range channels {
		spec.Cols += c.rows * q.kernel
		spec.Parts = append(spec.Parts, backend.Part{Tensor: tensor, Row0: c.row0, Rows: c.rows, Elems: c.rows * q.kernel, Format: t.Format})
	}
	return spec
}

// deltaInputs are the rank's rows of a delta net's projections: all queries, then all keys, then all
// values; the gates of values; b, then a, of all value heads.
type deltaInputs struct{ qkv, z, ba []piece }

// projections returns the rank's projections of the delta net under the prefix p.
func (q qwen35Config) projections(l *loader, p string) deltaInputs {
	if q.Architecture == qwen3Next {
		return q.interleaved(l, p)
	}
	return deltaInputs{
		qkv: q.shareOf(l, p+"in_proj_qkv.weight"),
		z:   []piece{l.rows(p+"in_proj_z.weight", q.valueHeads, q.valueDim)},
		ba:  []piece{l.rows(p+"in_proj_b.weight", q.valueHeads, 1), l.rows(p+"in_proj_a.weight", q.valueHeads, 1)},
	}
}

// newDelta adds the weights of a delta net. The convolution stores all queries, then all keys, then
// all values; a rank has its heads of each.
func (m *qwen35) newDelta(l *loader, p, n string) (*qwen35Delta, backend.WeightID) {
	const group = "linear_attention"
	q := m.cfg
	in := q.projections(l, p)
	d := &qwen35Delta{
		qkv:    l.linear(n+"in_qkv", group, in.qkv...),
		z:      l.linear(n+"in_z", group, in.z...),
		ba:     l.matrix(matrix{name: n + "in_ba", group: group}, in.ba...),
		conv:   l.add(q.kernels(l, n+"conv", group, p+"conv1d.weight", q.shareOf(l, p+"conv1d.weight"))),
		aLog:   l.vector(n+"a_log", group, l.cols(p+"A_log", q.valueHeads, 1)),
		dtBias: l.vector(n+"dt_bias", group, l.cols(p+"dt_bias", q.valueHeads, 1)),
		norm:   l.vector(n+"delta_norm", "norm", all(p+"norm.weight")),
	}
	l.adapt(d.ba, in.ba)
	return d, m.deltaOut(l, p+"out_proj.weight", n+"delta_out", group)
}

// deltaOut adds the output projection of a delta net. In GGUF files its columns are in tiles, and its
// inputs are put into that order.
func (m *qwen35) deltaOut(l *loader, tensor, name, group string) backend.WeightID {
	q := m.cfg
	if !q.tiled {
		return l.linear(name, group, l.cols(tensor, q.valueHeads, q.valueDim))
	}
	order := l.literal(name+"_order", group, q.tiles())
	out := l.linear(name, group, l.cols(tensor, q.valueHeads, q.valueDim))
	l.specs[out].InputOrder = 1 + int(order)
	return out
}

// tiles returns which of the columns of a delta net's output each column of a tiled projection
// multiplies: those of the first value head of each key head, then those of the second of each.
func (q qwen35Config) tiles() []float32 {
	each := q.valueHeads / q.keyHeads
	out := make([]float32, 0, q.valueHeads*q.valueDim)
	for head := range q.valueHeads {
		from := head%q.keyHeads*each + head/q.keyHeads
		for i := range q.valueDim {
			out = append(out, float32(from*q.valueDim+i))
		}
	}
	return out
}

package models

import (
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// latentAttention is multi-head latent attention (DeepSeek-AI 2024, arXiv 2405.04434). A token has one
// latent, from which kv_b_proj would compute the keys and values of all heads, and one rotated key that
// all heads share. Pages hold these two.
//
// kv_b_proj is never applied to a latent: its rows for keys are multiplied into the queries, and those
// for values into attention's results ("absorbed"). A query of rank+rotary numbers then attends to one
// key/value head, whose key is the latent and the rotated key, and whose value is the latent.
// Prefill runs the same way, because a token's result must not depend on the batch. For V3 that takes
// (576+512)/(192+128) = 3.4 times the products of attention that expanded keys and values would take.
type latentAttention struct {
	queryRank   int // q_lora_rank: the width of the queries' own latent; 0: one projection
	rank        int // kv_lora_rank
	nope        int // qk_nope_head_dim: dimensions of a head's key that are not rotated
	rotary      int // qk_rope_head_dim
	value       int // v_head_dim
	interleaved bool
	// split means that the two parts of kv_b_proj are stored apart, by head: k_b_proj [heads, rank,
	// nope] and v_b_proj [heads, value, rank] (GGUF).
	split bool
}

// latentEps is the epsilon of the norms inside attention, whatever rms_norm_eps is.
const latentEps = 1e-6

// tensors adds the checkpoint's tensors, except o_proj; attn is the prefix of their names.
func (a latentAttention) tensors(l *tensorList, attn string, c checkpoint.Config) {
	h, head := c.HiddenSize, a.nope+a.rotary
	if a.queryRank == 0 {
		l.linear(attn+"q_proj", false, c.NumHeads*head, h)
	} else {
		l.linear(attn+"q_a_proj", false, a.queryRank, h)
		l.add(attn+"q_a_layernorm.weight", a.queryRank)
		l.linear(attn+"q_b_proj", false, c.NumHeads*head, a.queryRank)
	}
	l.linear(attn+"kv_a_proj_with_mqa", false, a.rank+a.rotary, h)
	l.add(attn+"kv_a_layernorm.weight", a.rank)
	if a.split {
		l.add(attn+"k_b_proj.weight", c.NumHeads, a.rank, a.nope)
		l.add(attn+"v_b_proj.weight", c.NumHeads, a.value, a.rank)
		return
	}
	l.linear(attn+"kv_b_proj", false, c.NumHeads*(a.nope+a.value), a.rank)
}

// latentWeights are the weights of a layer's latent attention, except o_proj.
type latentWeights struct {
	queryDown, queryNorm backend.WeightID // NoWeight: queries are one projection
	query                backend.WeightID
	down, norm           backend.WeightID // kv_a_proj_with_mqa, kv_a_layernorm
	keys, values         backend.WeightID // of kv_b_proj: [heads, rank, nope] and [heads, value, rank]
}

// load adds the rank's weights: its heads' part of queries, keys and values; every rank computes the
// latents.
func (a latentAttention) load(l *loader, attn, name string, heads int) latentWeights {
	w := latentWeights{queryDown: backend.NoWeight, queryNorm: backend.NoWeight}
	query := "q_proj.weight"
	if a.queryRank > 0 {
		query = "q_b_proj.weight"
		w.queryDown = l.linear(name+"q_down", "attention", all(attn+"q_a_proj.weight"))
		w.queryNorm = l.vector(name+"q_norm", "norm", all(attn+"q_a_layernorm.weight"))
	}
	w.query = l.linear(name+"q", "attention", l.rows(attn+query, heads, a.nope+a.rotary))
	w.down = l.linear(name+"kv_down", "attention", all(attn+"kv_a_proj_with_mqa.weight"))
	w.norm = l.vector(name+"kv_norm", "norm", all(attn+"kv_a_layernorm.weight"))
	keys := headStack{name: name + "keys", tensor: attn + "kv_b_proj.weight", rows: a.rank, cols: a.nope, stride: a.nope + a.value, transposed: true}
	values := headStack{name: name + "values", tensor: attn + "kv_b_proj.weight", rows: a.value, cols: a.rank, stride: a.nope + a.value, first: a.nope}
	if a.split {
		keys = headStack{name: name + "keys", tensor: attn + "k_b_proj.weight", rows: a.rank, cols: a.nope, stride: a.rank}
		values = headStack{name: name + "values", tensor: attn + "v_b_proj.weight", rows: a.value, cols: a.rank, stride: a.value}
	}
	w.keys, w.values = l.headStack(keys, heads), l.headStack(values, heads)
	return w
}

// headStack is a weight with a matrix [rows, cols] for each attention head. The matrix of a head begins
// in row first of the stride rows that the tensor has for the head.
type headStack struct {
	name, tensor  string
	rows, cols    int
	stride, first int
	transposed    bool
}

// headStack adds the rank's matrices. Quantized tensors are decoded to the activations' format.
func (l *loader) headStack(h headStack, heads int) backend.WeightID {
	t := l.tensor(h.tensor)
	target := l.Dtype
	if !plain(t.Format) {
		decoded, ok := l.src.Tensor(h.tensor + checkpoint.DecodedSuffix)
		if _, ordered := l.src.Tensor(h.tensor + checkpoint.OrderSuffix); !ok || ordered {
			l.fail(&UnsupportedError{fmt.Sprintf("%s stored as %v", h.tensor, t.Format), "kv_b_proj is read as floats, 8-bit floats with scales, and in blocks without an order of inputs (desc_act)"})
			return backend.NoWeight
		}
		t, target = decoded, l.activations
	}
	head, n := l.part(heads)
	spec := backend.WeightSpec{Name: h.name, Group: "attention", Use: backend.Multiply, Experts: n, Rows: h.rows, Cols: h.cols, Source: t.Format}
	part := backend.Part{Tensor: t.Name, Rows: h.rows, Stride: h.stride, Format: t.Format, Transposed: h.transposed}
	if first := head*h.stride + h.first; h.transposed {
		part.Col0, part.Cols = first, h.cols
	} else {
		part.Row0 = first
	}
	spec.Parts = []backend.Part{part}
	if target != kernels.Invalid && target != t.Format {
		spec.Target = target
	}
	return l.add(spec)
}

package models

import (
	"fmt"
	"strings"

	"vapp.dev/engine/checkpoint"
)

// qwen35Tensors lists a checkpoint's tensors: names and shapes of transformers' modules, then those
// of the MTP head (which transformers skips) and of the vision tower.
func qwen35Tensors(c checkpoint.Config) []checkpoint.TensorInfo {
	q, _ := readQwen35(c) // checkQwen35 has checked it
	l := tensorsOf(c)
	l.add(q.prefix+"embed_tokens.weight", c.VocabSize, c.HiddenSize)
	for i, kind := range q.types {
		p := fmt.Sprintf("%slayers.%d.", q.prefix, i)
		if kind == linearAttention {
			q.deltaTensors(l, p+"linear_attn.")
		} else {
			q.attentionTensors(l, p+"self_attn.")
		}
		q.blockTensors(l, p, q.feedForward(i))
	}
	l.add(q.prefix+"norm.weight", c.HiddenSize)
	if !c.TieWordEmbeddings {
		l.add("lm_head.weight", c.VocabSize, c.HiddenSize)
	}
	q.mtpTensors(l)
	q.vision.visionTensors(l)
	return l.list
}

func (q qwen35Config) deltaTensors(l *tensorList, p string) {
	h, values := q.HiddenSize, q.valueHeads*q.valueDim
	next := q.Architecture == qwen3Next
	if next && !q.splitQKVZ {
		l.linear(p+"in_proj_qkvz", false, q.channels(q.keyHeads, q.valueHeads)+values, h)
	} else {
		l.linear(p+"in_proj_qkv", false, q.channels(q.keyHeads, q.valueHeads), h)
		l.linear(p+"in_proj_z", false, values, h)
	}
	if next {
		l.linear(p+"in_proj_ba", false, 2*q.valueHeads, h)
	} else {
		l.linear(p+"in_proj_b", false, q.valueHeads, h)
		l.linear(p+"in_proj_a", false, q.valueHeads, h)
	}
	l.add(p+"conv1d.weight", q.channels(q.keyHeads, q.valueHeads), 1, q.kernel)
	l.add(p+"A_log", q.valueHeads)
	l.add(p+"dt_bias", q.valueHeads)
	l.add(p+"norm.weight", q.valueDim)
	l.linear(p+"out_proj", false, h, values)
}

func (q qwen35Config) attentionTensors(l *tensorList, p string) {
	h, d := q.HiddenSize, q.HeadDim
	l.linear(p+"q_proj", false, 2*q.NumHeads*d, h)
	l.linear(p+"k_proj", false, q.NumKVHeads*d, h)
	l.linear(p+"v_proj", false, q.NumKVHeads*d, h)
	l.linear(p+"o_proj", false, h, q.NumHeads*d)
	l.add(p+"q_norm.weight", d)
	l.add(p+"k_norm.weight", d)
}

// blockTensors adds the tensors that every layer has.
func (q qwen35Config) blockTensors(l *tensorList, p string, mlp feedForward) {
	l.add(p+"input_layernorm.weight", q.HiddenSize)
	l.add(p+"post_attention_layernorm.weight", q.HiddenSize)
	mlp.tensors(l, p)
}

// qwen35Skips reports tensors that a text build without proposals does not read.
func qwen35Skips(tensor string) bool {
	return strings.HasPrefix(tensor, "mtp.") || strings.HasPrefix(tensor, "model.visual.")
}

package models

import "vapp.dev/engine/checkpoint"

// Qwen3-Next is qwen35 with other tensors: the projections of a delta net are two matrices, in which
// each key head has the rows of its query, its key, its values and their gates, and a matrix for each
// expert. Its files have the MTP head's tensors, which are not run: the config has no layers of it.

// Its GGUF files have a matrix of queries, keys and values and one of gates, in the order of qwen35.

// qwen3NextExperts returns Qwen3-Next's experts and which layers have them.
func qwen3NextExperts(c checkpoint.Config) (*mixture, func(layer int) bool, error) {
	m, of, err := qwenMixture(c, true)
	if err != nil {
		return nil, nil, err
	}
	s, err := c.Section("")
	if err != nil {
		return nil, nil, err
	}
	m.softmax(s.FlagOr("norm_topk_prob", true))
	return &m, of, s.Err()
}

// interleaved returns the rank's rows of in_proj_qkvz, or its two parts, and in_proj_ba, whose order is
// that of key heads.
func (q qwen35Config) interleaved(l *loader, p string) (in deltaInputs) {
	first, n := l.part(q.keyHeads)
	each := q.valueHeads / q.keyHeads // value heads of a key head
	values := each * q.valueDim
	cut := func(tensor string, size, at, rows int) (out []piece) {
		for h := first; h < first+n; h++ {
			out = append(out, piece{tensor: p + tensor, row0: h*size + at, rows: rows})
		}
		return out
	}
	const qkvz, ba = "in_proj_qkvz.weight", "in_proj_ba.weight"
	in.ba = append(cut(ba, 2*each, 0, each), cut(ba, 2*each, each, each)...)
	if q.splitQKVZ {
		in.qkv, in.z = q.shareOf(l, p+"in_proj_qkv.weight"), []piece{l.rows(p+"in_proj_z.weight", q.valueHeads, q.valueDim)}
		return in
	}
	size := 2 * (q.keyDim + values)
	in.qkv = append(append(cut(qkvz, size, 0, q.keyDim), cut(qkvz, size, q.keyDim, q.keyDim)...), cut(qkvz, size, 2*q.keyDim, values)...)
	in.z = cut(qkvz, size, 2*q.keyDim+values, values)
	return in
}

// dense returns the first layer without experts, -1 if there is none.
func (q qwen35Config) dense() int {
	for i := range q.NumLayers {
		if !q.sparse(i) {
			return i
		}
	}
	return -1
}

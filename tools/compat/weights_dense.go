package compat

import "fmt"

// attention has the sizes of an attention layer: query heads, key/value heads and their dimension.
type attention struct {
	heads, kv, dim int64
	gate           int64 // 2 where q includes an output gate, else 1
	prefix         string
	kOnly          bool // the checkpoint has no v
}

// attention allocates the fused q, k, v matrix and the output matrix of a layer.
func (w *rank) attention(a attention) {
	shards := []string{a.prefix + "q_proj", a.prefix + "k_proj"}
	if !a.kOnly {
		shards = append(shards, a.prefix+"v_proj")
	}
	w.matrix((a.gate*w.share(a.heads)+2*w.kv(a.kv))*a.dim, w.hidden, w.attnBias, shards...)
	w.matrix(w.hidden, w.share(a.heads)*a.dim, w.attnOutBias, a.prefix+"o_proj")
}

func (w *rank) mlp(prefix string) {
	w.matrix(2*w.share(w.inter), w.hidden, w.mlpBias, prefix+"gate_proj", prefix+"up_proj")
	w.matrix(w.hidden, w.share(w.inter), w.mlpBias, prefix+"down_proj")
}

// embedding allocates the embedding: on the first stage, and on the last where the head is tied.
func (w *rank) embedding() {
	if w.first == 0 || w.tied && w.last == w.layers {
		w.param(w.vocabRows(), w.hidden)
	}
}

// head allocates the final norm and the output matrix.
func (w *rank) head() {
	if w.last != w.layers {
		return
	}
	w.param(w.hidden)
	if !w.tied {
		w.param(w.vocabRows(), w.hidden)
	}
}

// eachLayer calls f for the layers of this stage.
func (w *rank) eachLayer(f func(prefix string, k layerKind)) {
	for i := w.first; i < w.last && w.err == nil; i++ {
		w.layer = i
		f(fmt.Sprintf("%slayers.%d.", w.prefix, i), w.kinds[i])
	}
}

// makeLlama allocates Llama, Qwen2 with biases of q, k and v, and Qwen3 with norms of q and k.
func (w *rank) makeLlama() {
	w.embedding()
	w.eachLayer(func(p string, k layerKind) {
		w.attention(attention{w.heads, w.kvHeads, w.headDim, 1, p + "self_attn.", false})
		w.rotaryTable(k)
		w.scales()
		if w.family == qwen3 {
			w.norms(2, w.headDim)
		}
		w.mlp(p + "mlp.")
		w.norms(2, w.hidden)
	})
	w.head()
}

// makeGptOSS allocates gpt-oss. Its experts are in the Marlin layout of mxfp4, which pads the
// hidden size to a multiple of 256 and the experts' width to a multiple of 128.
func (w *rank) makeGptOSS() {
	w.embedding()
	w.eachLayer(func(p string, k layerKind) {
		w.rotaryTable(k)
		w.param(w.share(w.heads)) // attention sinks
		w.attention(attention{w.heads, w.kvHeads, w.headDim, 1, p + "self_attn.", false})
		w.scales()
		w.param(w.experts, w.hidden)
		w.param(w.experts)
		w.mxfp4Experts()
		w.norms(2, w.hidden)
	})
	w.head()
}

// mxfp4Padding returns the padded width and hidden size of the Marlin layout.
func (s *shape) mxfp4Padding(tp int64) (inter, hidden int64) {
	return roundUp(ceilDiv(s.expertInter, tp), 128), roundUp(s.hidden, 256)
}

func (w *rank) mxfp4Experts() {
	e := w.experts
	if w.quant.scheme != mxfp4 {
		w.param(e, 2*w.share(w.expertInter), w.hidden)
		w.param(e, 2*w.share(w.expertInter))
		w.param(e, w.hidden, w.share(w.expertInter))
		w.param(e, w.hidden)
		return
	}
	i, h := w.mxfp4Padding(w.tp)
	l := []*block{
		w.tensor(1, e, 2*i, h/2), w.tensor(1, e, 2*i, h/32), w.param(e, 2*i),
		w.tensor(1, e, h, i/2), w.tensor(1, e, h, i/32), w.param(e, h),
	}
	w.experts4 = append(w.experts4, []*block{l[0], l[3], l[1], l[4], l[2], l[5]})
}

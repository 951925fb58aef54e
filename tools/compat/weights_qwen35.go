package compat

import "fmt"

// makeQwen35 allocates the hybrid of gated delta nets and full attention.
func (w *rank) makeQwen35(textOnly bool) {
	if w.vision != nil && !textOnly && w.first == 0 {
		w.as(tower, w.qwenVision)
	}
	w.embedding()
	w.eachLayer(func(p string, k layerKind) {
		if k == linear {
			w.deltaNet(p + "linear_attn.")
		} else {
			w.gatedAttention(p + "self_attn.")
		}
		w.mlpOrExperts(p+"mlp.", w.mixture != nil && w.mixture.layers[w.layer])
		w.norms(2, w.hidden)
	})
	w.head()
}

func (w *rank) gatedAttention(p string) {
	w.attention(attention{w.shape.heads, w.kvHeads, w.headDim, 2, p, false})
	w.rotaryTable(full)
	w.scales()
	w.norms(2, w.headDim)
}

// deltaNet allocates one linear-attention layer.
func (w *rank) deltaNet(p string) {
	kd, vd := w.keyHeads*w.keyDim, w.valueHeads*w.valueDim
	w.param(w.share(2*kd+vd), w.convKernel)
	w.matrix(w.share(2*kd+2*vd), w.hidden, false, p+"in_proj_qkv", p+"in_proj_z")
	w.matrix(2*w.share(w.valueHeads), w.hidden, false, p+"in_proj_b", p+"in_proj_a")
	w.norms(1, w.share(w.valueHeads))
	w.tensor(4, w.share(w.valueHeads))
	w.norms(1, w.valueDim)
	w.matrix(w.hidden, w.share(vd), false, p+"out_proj")
}

// makeMTP allocates the drafter. Its embedding and head are loaded, then replaced by the target's
// and freed.
func (w *rank) makeMTP() {
	w.part = drafter
	embed := w.passing(w.dtype, w.vocabRows(), w.hidden)
	w.matrix(w.share(w.hidden), 2*w.hidden, false, "mtp.fc")
	for i := range w.mtpLayers {
		p := fmt.Sprintf("mtp.layers.%d.", i)
		w.gatedAttention(p + "self_attn.")
		w.mlpOrExperts(p+"mlp.", w.mixture != nil)
		w.norms(2, w.hidden)
	}
	w.norms(3, w.hidden)
	head := w.passing(w.dtype, w.vocabRows(), w.hidden)
	if w.err == nil {
		w.convert()
		w.repackLinear()
		w.a.release(embed, head)
	}
}

func (w *rank) qwenVision() {
	v := w.vision
	biased := func(n, k int64) {
		w.param(n, k)
		w.param(n)
	}
	biased(v.hidden, v.patch)
	w.param(v.positions, v.hidden)
	for range v.layers {
		w.norms(4, v.hidden)
		biased(w.share(3*v.hidden), v.hidden)
		biased(v.hidden, w.share(v.hidden))
		biased(w.share(v.inter), v.hidden)
		biased(v.hidden, w.share(v.inter))
	}
	w.norms(2, v.hidden)
	biased(w.share(v.merged), v.merged)
	biased(w.hidden, w.share(v.merged))
}

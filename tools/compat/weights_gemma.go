package compat

// makeGemma4 allocates the vision tower, unless it is off, then the language model.
func (w *rank) makeGemma4(textOnly bool) {
	if w.vision != nil && !textOnly && w.first == 0 {
		w.as(tower, w.gemmaVision)
	}
	w.embedding()
	w.eachLayer(func(p string, k layerKind) {
		a := attention{w.heads, w.kvHeads, w.headDim, 1, p + "self_attn.", false}
		if k == full {
			a.dim, a.kv, a.kOnly = w.globalHeadDim, w.globalKV, w.kFromV
		}
		w.attention(a)
		w.norms(2, a.dim)
		w.rotaryTable(k)
		w.scales()
		w.mlp(p + "mlp.")
		w.norms(4, w.hidden)
		if w.experts > 0 {
			w.param(w.hidden) // router scale
			w.as(scalars, func() { w.param(1) })
			w.param(w.experts, w.hidden)
			w.param(w.experts)
			w.gemmaExperts()
			w.norms(3, w.hidden)
		}
		w.param(1) // layer_scalar
	})
	w.head()
}

func (w *rank) gemmaExperts() {
	e, m := w.experts, w.share(w.expertInter)
	if w.online {
		w.pending = append(w.pending, pending{layer: w.layer, name: "experts", n: 2 * m, k: w.hidden, experts: e, inter: m})
		return
	}
	w.param(e, 2*m, w.hidden)
	w.param(e, w.hidden, m)
}

// gemmaVision allocates the tower and the projection to the language model. They are replicated on
// all ranks and keep the model's dtype.
func (w *rank) gemmaVision() {
	v := w.vision
	w.param(v.hidden, v.patch)
	w.param(2, v.positions, v.hidden)
	w.tensor(4, max(1, v.headDim/4)) // inverse frequencies
	for range v.layers {
		for range 4 {
			w.param(v.hidden, v.heads*v.headDim)
		}
		w.norms(2, v.headDim)
		w.param(v.inter, v.hidden)
		w.param(v.inter, v.hidden)
		w.param(v.hidden, v.inter)
		w.norms(4, v.hidden)
	}
	w.norms(2, v.hidden) // std_bias, std_scale
	w.param(w.hidden, v.hidden)
}

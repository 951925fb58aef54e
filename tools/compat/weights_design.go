package compat

// makeDesign allocates a family that a design describes.
func (w *rank) makeDesign() {
	w.embedding()
	w.eachLayer(func(p string, k layerKind) {
		if w.latent != nil {
			w.latentAttention(p + "self_attn.")
		} else {
			w.attention(attention{w.heads, w.kvHeads, w.headDim, 1, p + "self_attn.", false})
		}
		w.rotaryTable(k)
		w.scales()
		w.normsOfHeads()
		w.mlpOrExperts(p+"mlp.", w.mixture != nil && w.mixture.layers[w.layer])
		w.norms(int(w.blockNorms), w.hidden)
	})
	w.head()
}

func (w *rank) mlpOrExperts(p string, experts bool) {
	if experts {
		w.mixed(p)
		return
	}
	w.mlp(p)
}

func (w *rank) normsOfHeads() {
	switch w.headNorm {
	case perHead:
		w.norms(2, w.headDim)
	case wholeRow: // every rank holds them whole
		w.param(w.shape.heads * w.headDim)
		w.param(w.kvHeads * w.headDim)
	case everyHeadsOwn:
		w.param(w.share(w.shape.heads), w.headDim)
		w.param(w.kv(w.kvHeads), w.headDim)
	}
}

// mixed allocates a router, its experts and the shared experts.
func (w *rank) mixed(p string) {
	m := w.mixture
	size := w.dtype
	if m.router > 0 {
		size = m.router
	}
	w.tensor(size, w.experts, w.hidden)
	if m.corrected {
		w.tensor(4, w.experts)
	}
	if m.shared > 0 {
		w.matrix(2*w.share(m.shared), w.hidden, w.mlpBias, p+"shared_experts.gate_proj", p+"shared_experts.up_proj")
		w.matrix(w.hidden, w.share(m.shared), w.mlpBias, p+"shared_experts.down_proj")
		if m.sharedGate {
			w.param(1, w.hidden)
		}
	}
	w.expertMatrices(p + "experts.0.gate_proj")
}

// expertMatrices allocates the fused matrices of all experts. module names one of them, by which the
// quantization may leave them out.
func (w *rank) expertMatrices(module string) {
	e, m, q := w.experts, w.share(w.expertInter), &w.quant
	switch {
	case w.online:
		w.pending = append(w.pending, pending{layer: w.layer, name: "experts", n: 2 * m, k: w.hidden, experts: e, inter: m})
	case q.scheme == plain || q.skips(module):
		w.param(e, 2*m, w.hidden)
		w.param(e, w.hidden, m)
	case q.scheme == fp8Blocks:
		if m%q.blockN != 0 || m%q.blockK != 0 {
			w.failField("parallel.tensor", "%d leaves experts of width %d, which blocks of %d x %d do not divide", w.tp, m, q.blockN, q.blockK)
		}
		w.fp8Experts(2*m, w.hidden, ceilDiv(2*m, q.blockN)*ceilDiv(w.hidden, q.blockK))
		w.fp8Experts(w.hidden, m, ceilDiv(w.hidden, q.blockN)*ceilDiv(m, q.blockK))
	case q.scheme == packed:
		w.packedMatrix(e, 2*m, w.hidden, module)
		w.packedMatrix(e, w.hidden, m, module)
	case q.scheme == fp8Channel:
		w.fp8Experts(2*m, w.hidden, 2*m)
		w.fp8Experts(w.hidden, m, w.hidden)
	case q.scheme == fp8Tensor:
		w.fp8Experts(2*m, w.hidden, 2)
		w.fp8Experts(w.hidden, m, 1)
		if q.static {
			w.tensor(4, e)
			w.tensor(4, e)
		}
	default:
		w.fail("the layout of %s experts is known of gpt-oss alone", q.method)
	}
}

// fp8Experts allocates a matrix of every expert with its scales, which Marlin keeps in the model's
// dtype.
func (w *rank) fp8Experts(n, k, scales int64) {
	weight := w.tensor(1, w.experts, n, k)
	scale := w.tensor(4, w.experts, scales)
	if w.marlin {
		w.repacked = append(w.repacked, repacked{weight, scale, w.part, w.experts * max(n, scales)})
	}
}

// latentAttention allocates DeepSeek's attention. Down-projections are whole on every rank. Where the
// up-projection of K and V is quantized, a copy in the model's dtype stays for decoding.
func (w *rank) latentAttention(p string) {
	l := w.latent
	heads := w.share(w.shape.heads)
	if l.qRank > 0 {
		w.unsplitMatrix(l.qRank+l.kvRank+l.rope, w.hidden, p+"q_a_proj", p+"kv_a_proj_with_mqa")
		w.param(l.qRank)
		w.matrix(heads*(l.nope+l.rope), l.qRank, false, p+"q_b_proj")
	} else {
		w.unsplitMatrix(l.kvRank+l.rope, w.hidden, p+"kv_a_proj_with_mqa")
		w.matrix(heads*(l.nope+l.rope), w.hidden, false, p+"q_proj")
	}
	w.param(l.kvRank)
	w.matrix(heads*(l.nope+l.value), l.kvRank, false, p+"kv_b_proj")
	if w.online || w.quant.scheme != plain && !w.quant.skips(p+"kv_b_proj") {
		w.param(heads*(l.nope+l.value), l.kvRank)
	}
	w.matrix(w.hidden, heads*l.value, false, p+"o_proj")
}

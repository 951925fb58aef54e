package models

import (
	"cmp"
	"fmt"
	"math"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// decoder is a recipe applied to a checkpoint, for one rank.
type decoder struct {
	vocabulary
	recipe
	adaptable
	stage   stage
	paging  paging
	weights []backend.WeightSpec
	layers  []decoderLayer // of the stage

	freqs []backend.WeightID // by rope; NoWeight: no layer of the stage has it
	norm  backend.WeightID
	eps   float32
	// Of this rank.
	heads, kvHeads int
	own            [2]backend.WeightID // columns of Q and K among those of all ranks, of layers that gather them
	class          int                 // first KV class: 0, except for a draft model
}

// decoderLayer holds a layer's weights, NoWeight for those that the recipe lacks.
type decoderLayer struct {
	attnNorm, qkv, qkvBias, out, outBias, attnPost backend.WeightID
	headNorm                                       *backend.HeadNorm
	latent                                         latentWeights // of a recipe with latent attention, instead of qkv
	gathered                                       []projection  // of layers that gather Q and K of all ranks, instead of qkv
	mlpNorm, mlpPost                               backend.WeightID
	mlp                                            block
	mamba                                          *mambaMixer // nil: attention
}

func newDecoder(d recipe, l *loader) (Model, error) {
	c := d.cfg
	if l.Draft > 0 {
		return nil, &UnsupportedError{"drafting with " + c.Architecture, "it has no head of its own for that"}
	}
	if l.Rebuild {
		return nil, &UnsupportedError{"keys rebuilt from values in " + c.Architecture, "its keys and values are two projections"}
	}
	st, err := l.stage(c.NumLayers)
	if err == nil {
		err = l.checkRanks(c, c.NumKVHeads)
	}
	if err == nil && d.mamba != nil && l.Shard.World > 1 {
		err = &UnsupportedError{fmt.Sprintf("tensor parallel size %d of %s", l.Shard.World, c.Architecture), "the norms of its Mamba-2 layers run over the heads of all ranks; take pipeline stages instead (parallel.pipeline)"}
	}
	for i := 0; err == nil && i < c.NumLayers; i++ {
		err = d.feedForward(i).check(l.Build)
	}
	if err != nil {
		return nil, err
	}
	if d.mamba != nil {
		d.mamba.convAs = l.Activations(c)
	}
	m := &decoder{recipe: d, stage: st, paging: pagingOf(d.types, nil, st, l.Build)}
	_, m.heads = l.part(c.NumHeads)
	_, m.kvHeads = l.part(c.NumKVHeads)
	m.scaleResidual(l)
	m.vocabulary = l.addVocabulary(c, st, d.prefix+"embed_tokens.weight", d.headTensor, m.embedScale)
	m.addRopes(l)
	if d.gathers(l.Build) {
		m.own = [2]backend.WeightID{l.ownColumns("q_columns", m.heads*c.HeadDim), l.ownColumns("k_columns", m.kvHeads*c.HeadDim)}
	}
	for i := range st.layers {
		m.layers = append(m.layers, newDecoderLayer(d, l, st.layer0+i))
	}
	if st.last {
		m.norm = l.vector("norm", "norm", all(d.prefix+"norm.weight"))
	}
	m.weights, m.adaptable = l.specs, l.adapters()
	return m, nil
}

// scaleResidual sets the scale of embeddings and the epsilon of norms. With a residualScale s the
// residual stream is kept divided by s, so that what attention and MLP add needs no product: norms
// of x/s with epsilon/s² equal those of x.
func (m *decoder) scaleResidual(l *loader) {
	s := m.residualScale
	if s == 0 {
		s = 1
	}
	switch {
	case m.embedRoot:
		m.embedScale = roundTo(math.Sqrt(float64(m.cfg.HiddenSize)), l.Activations(m.cfg))
	case m.embedScale == 0:
		m.embedScale = 1
	}
	m.embedScale = float32(float64(m.embedScale) / s)
	m.eps = float32(m.cfg.RMSNormEps / (s * s))
}

// addRopes adds the frequencies of the ropes that the stage's layers have.
func (m *decoder) addRopes(l *loader) {
	for k, rope := range m.ropes {
		id := backend.NoWeight
		for i := range m.stage.layers {
			if id == backend.NoWeight && m.ropeAt(m.stage.layer0+i) == k {
				id = l.literal(dotted("rope", rope.name)+".inv_freq", "attention", rope.angles.InvFreq)
			}
		}
		m.freqs = append(m.freqs, id)
	}
}

// dotted joins two names; the second may be empty.
func dotted(a, b string) string {
	if b == "" {
		return a
	}
	return a + "." + b
}

// ropeAt returns the rope of a layer of the model.
func (d recipe) ropeAt(layer int) int {
	if d.ropeOf == nil {
		return 0
	}
	return d.ropeOf[layer]
}

func newDecoderLayer(d recipe, l *loader, i int) decoderLayer {
	p, n := fmt.Sprintf("%slayers.%d.", d.prefix, i), fmt.Sprintf("layers.%d.", i)
	norm := func(name, tensor string) backend.WeightID {
		if tensor == "" {
			return backend.NoWeight
		}
		return l.vector(n+name, "norm", all(p+tensor+".weight"))
	}
	w := decoderLayer{qkvBias: backend.NoWeight, outBias: backend.NoWeight}
	w.attnNorm = norm("attn_norm", d.attnNorm)
	if d.types[i] == mambaLayer {
		w.mamba, w.out = d.mamba.load(l, p+"mamba.", n)
	} else {
		d.loadAttention(l, &w, i, p, n)
	}
	w.attnPost = norm("attn_post", d.attnPost)
	w.mlpNorm = norm("mlp_norm", d.mlpNorm)
	w.mlp = d.feedForward(i).load(l, p, n)
	w.mlpPost = norm("mlp_post", d.mlpPost)
	return w
}

// loadAttention adds the rank's weights of the attention of layer i to w.
func (d recipe) loadAttention(l *loader, w *decoderLayer, i int, p, n string) {
	attn := p + "self_attn."
	switch {
	case d.latent != nil:
		w.latent = d.latent.load(l, attn, n, d.cfg.NumHeads)
	case d.gathers(l.Build):
		w.gathered = d.loadGathered(l, attn, n)
	default:
		d.loadQKV(l, w, i, attn, n)
	}
	w.out = l.linear(n+"out", "attention", l.cols(attn+"o_proj.weight", d.cfg.NumHeads, d.valueDim()))
	if d.outBias {
		w.outBias = l.outBias(n+"out_bias", "attention", attn+"o_proj.bias")
	}
}

// loadQKV adds the rank's fused projection of Q, K and V of layer i, and the norms of heads.
func (d recipe) loadQKV(l *loader, w *decoderLayer, i int, attn, n string) {
	w.qkv = l.linear(n+"qkv", "attention", d.qkv(l, attn, ".weight", l.rows)...)
	if d.qkvBias {
		w.qkvBias = l.vector(n+"qkv_bias", "attention", d.qkv(l, attn, ".bias", l.cols)...)
	}
	if d.qNorm != "" {
		h := d.heads
		h.Eps, h.Offset = float32(d.cfg.RMSNormEps), d.normOffset
		if h.Each {
			h.Q = l.vector(n+"q_norm", "norm", l.rows(attn+d.qNorm+".weight", d.cfg.NumHeads, 1))
			h.K = l.vector(n+"k_norm", "norm", l.rows(attn+d.kNorm+".weight", d.cfg.NumKVHeads, 1))
		} else {
			h.Q, h.K = l.vector(n+"q_norm", "norm", all(attn+d.qNorm+".weight")), l.vector(n+"k_norm", "norm", all(attn+d.kNorm+".weight"))
		}
		w.headNorm = &h
	}
	if d.unweighted && d.ropeAt(i) == 0 {
		h := d.heads
		h.Q, h.K, h.Eps = backend.NoWeight, backend.NoWeight, float32(d.cfg.RMSNormEps)
		w.headNorm = &h
	}
}

// qkv returns the rank's pieces of Q, K and V; part selects the rows of a matrix or the elements of
// a bias.
func (d recipe) qkv(l *loader, attn, suffix string, part func(tensor string, n, size int) piece) []piece {
	c, q, k, v := d.cfg, "q_proj", "k_proj", "v_proj"
	if d.fusedQKV != "" {
		q, k, v = d.fusedQKV, d.fusedQKV, d.fusedQKV
	}
	out := []piece{part(attn+q+suffix, c.NumHeads, c.HeadDim), part(attn+k+suffix, c.NumKVHeads, c.HeadDim), part(attn+v+suffix, c.NumKVHeads, c.HeadDim)}
	if d.fusedQKV != "" {
		out[1] = out[1].after(c.NumHeads * c.HeadDim)
		out[2] = out[2].after((c.NumHeads + c.NumKVHeads) * c.HeadDim)
	}
	return out
}

// after returns the piece n rows, or n elements of a vector, further on.
func (p piece) after(n int) piece {
	if p.rows > 0 {
		p.row0 += n
	} else {
		p.col0 += n
	}
	return p
}

func (m *decoder) Weights() []backend.WeightSpec { return m.weights }
func (m *decoder) Vocab() int                    { return m.size }

// Classes returns the classes of the full layers, of the windows or chunks and of states. The rank that samples
// stores the token ids in the first.
func (m *decoder) Classes(blockSize int, f kernels.Format) []backend.KVClass {
	full := backend.KVClass{KVHeads: m.kvHeads, HeadDim: m.cfg.HeadDim}
	if m.latent != nil {
		full.KeyDim = m.latent.rotary
	}
	window := full
	window.Window, window.Chunked = m.window, m.chunked
	out := m.paging.classes(full, window, blockSize, f)
	if m.paging.states > 0 {
		out = append(out, m.mamba.class(m.paging.states, m.numVerified(), f))
	}
	return out
}

// scores returns the scale of attention scores.
func (d recipe) scores() float32 {
	if d.attnScale != 0 {
		return d.attnScale
	}
	return float32(1 / math.Sqrt(float64(d.cfg.HeadDim)))
}

// denseMLP is a gated MLP: mlp.gate_proj, mlp.up_proj and mlp.down_proj, or a family's own names.
type denseMLP struct {
	c       checkpoint.Config
	width   int
	act     backend.Act
	bias    bool
	module  string // prefix of the names; "": "mlp."
	fused   string // module of gate and up in one matrix; "": gate_proj and up_proj
	down    string // "": down_proj
	keep    bool   // x is the residual, which the MLP must not overwrite
	partial bool   // the caller sums the result over the ranks
}

// gateUp returns the modules of gate and up: two, or the fused one.
func (d denseMLP) gateUp() []string {
	if d.fused != "" {
		return []string{d.fused}
	}
	return []string{"gate_proj", "up_proj"}
}

func (d denseMLP) tensors(l *tensorList, layer string) {
	h, mlp, gateUp := d.c.HiddenSize, layer+cmp.Or(d.module, "mlp."), d.gateUp()
	for _, name := range gateUp {
		l.linear(mlp+name, d.bias, 2*d.width/len(gateUp), h)
	}
	l.linear(mlp+cmp.Or(d.down, "down_proj"), d.bias, h, d.width)
}

func (d denseMLP) check(b Build) error {
	return b.checkEven(d.width, "columns of the MLP (intermediate_size)")
}

func (d denseMLP) load(l *loader, layer, name string) block {
	mlp := layer + cmp.Or(d.module, "mlp.")
	pieces := func(suffix string, part func(tensor string, n, size int) piece) (out []piece) {
		for _, module := range d.gateUp() {
			out = append(out, part(mlp+module+suffix, d.width, 1))
		}
		if d.fused != "" {
			out = append(out, out[0].after(d.width))
		}
		return out
	}
	w := gatedMLP{gateUpBias: backend.NoWeight, downBias: backend.NoWeight, act: backend.Activation{Act: d.act}, keep: d.keep, partial: d.partial}
	_, w.width = l.part(d.width)
	w.gateUp = l.gateUp(l.linear(name+"gate_up", "mlp", pieces(".weight", l.rows)...))
	if d.bias {
		w.gateUpBias = l.vector(name+"gate_up_bias", "mlp", pieces(".bias", l.cols)...)
	}
	down := mlp + cmp.Or(d.down, "down_proj")
	w.down = l.linear(name+"down", "mlp", l.cols(down+".weight", d.width, 1))
	if d.bias {
		w.downBias = l.outBias(name+"down_bias", "mlp", down+".bias")
	}
	return w
}

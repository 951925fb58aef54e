package compat

import (
	"math/bits"
	"slices"
)

// Bytes of the cuBLAS workspace, before Hopper and on Hopper.
const (
	cublas       = 8_519_680
	cublasHopper = 32 << 20
)

// piece is a named part of the activation peak.
type piece struct {
	Name  string
	Bytes int64
}

// activation is the peak of allocated bytes during the profiling step: memory-planning section 4.
type activation struct {
	sampler, text, kept []piece
	encoder             []piece // of vllm-0.33 on the first stage
}

func total(p []piece) int64 {
	var n int64
	for _, x := range p {
		n += x.Bytes
	}
	return n
}

// peak returns max(text step, sampler with hidden states, encoder) + kept.
func (a activation) peak() int64 {
	return max(total(a.text), total(a.sampler), total(a.encoder)) + total(a.kept)
}

// encodes reports whether the encoder's pass is the peak.
func (a activation) encodes() bool { return total(a.encoder) > max(total(a.text), total(a.sampler)) }

// pieces returns the pieces that make up the peak.
func (a activation) pieces() []piece {
	if a.encodes() {
		return append(append([]piece{}, a.encoder...), a.kept...)
	}
	if total(a.text) > total(a.sampler) {
		return append(append([]piece{}, a.text...), a.kept...)
	}
	return append(append([]piece{}, a.sampler...), a.kept...)
}

func (in *run) activation() activation {
	s, r := in.shape, in.r
	e, t, tp := in.dtype, int64(r.MaxNumBatchedTokens), int64(r.TensorParallel)
	rows := min(int64(r.MaxNumSeqs), t)
	hidden := t * s.hidden * e
	a := activation{sampler: []piece{{"sampler", in.samplerBytes(rows)}, {"hidden", hidden}}}
	if in.rel == V07 {
		a.sampler = append(a.sampler, piece{"pruned hidden", rows * s.hidden * e})
	}
	if s.family != gptOSS {
		width := s.denseWidth() / tp
		a.text = []piece{{"hidden+residual", 2 * hidden}, {"gate_up", 2 * t * width * e}, {"act", t * width * e}}
		if in.nativeFp8() {
			a.text = append(a.text, piece{"act fp8", t * width})
		}
	}
	if l := s.latent; l != nil {
		wide := []piece{{"hidden+residual", 2 * hidden}, {"q, k and v", t * (s.heads / tp) * (2*l.nope + l.rope + l.value) * e}}
		if total(wide) > total(a.text) {
			a.text = wide
		}
	}
	if in.drafts() {
		a.text = append(a.text, piece{"target hidden kept", hidden})
	}
	if d := in.dummy(); d != nil {
		if !in.rel.atLeast(V033) { // later ones free the pixels before the text step
			a.kept = append(a.kept, piece{d.modality + " pixels", d.frames * d.patches * s.vision.patch * 4})
		}
		a.kept = append(a.kept, piece{"encoder out", d.items * d.out * s.hidden * e})
	}
	if s.experts > 0 {
		m, h := s.expertInter/tp, s.hidden
		if s.quant.scheme == mxfp4 {
			m, h = s.mxfp4Padding(tp)
		}
		a.kept = append(a.kept, piece{"moe workspace", t * s.topK * (max(m, h) + max(2*m, h)) * e})
	}
	w := int64(cublas)
	if in.d.Major == 9 {
		w = cublasHopper
	}
	a.kept = append(a.kept, piece{"cublas", w})
	if in.rel.atLeast(V033) {
		v := s.vocab
		a.kept = append(a.kept, piece{"penalty counts", int64(r.MaxNumSeqs) * (v*4 + ceilDiv(v, 32)*4)})
	}
	return a
}

// denseWidth returns the width of the widest MLP that is no mixture.
func (s *shape) denseWidth() int64 {
	if s.mixture == nil || slices.Contains(s.mixture.layers, false) {
		return s.inter
	}
	return s.mixture.shared
}

// samplerBytes returns the sampler's peak for this number of rows of logits.
func (in *run) samplerBytes(rows int64) int64 {
	v, e := in.shape.vocab, in.dtype
	switch in.rel {
	case V07:
		return rows * v * (e + 4 + 4 + 8 + 8 + 4 + 8)
	case V2025Aug:
		return rows * v * (e + 4 + 4 + 4)
	case V033: // logits, their copy in float32, probabilities
		return rows * v * (e + 4 + 4)
	}
	sms := int64(in.d.SMs)
	p := min(int64(1)<<bits.Len64(uint64(min(sms, rows)-1)), sms)
	return rows*v*(e+4+4+4) + p*v*4
}

// largestItem returns the tokens of the largest image or video, 0 where a batch need not hold one
// whole.
func (in *run) largestItem() int64 {
	if in.shape.family != gemma4 {
		return 0
	}
	on := *in
	on.r.TextOnly, on.r.NoImages, on.r.NoVideo = false, false, false // limits do not matter here
	if d := on.dummy(); d != nil {
		return d.tokens
	}
	return 0
}

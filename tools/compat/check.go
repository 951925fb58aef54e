package compat

import (
	"slices"
	"strings"
)

// checkDevice checks that the release has an engine for the device.
func (in *run) checkDevice() error {
	c := in.d.capability()
	switch {
	case in.rel == V07 && (c < 70 || c > 90):
		return fault("device", "%v has kernels for compute capability 7.0 to 9.0, %s has %d.%d", in.rel, clip(in.d.Name), in.d.Major, in.d.Minor)
	case in.rel == V2025Aug && c < 80:
		return fault("device", "on compute capability %d.%d %v falls back to the V0 engine, whose figures there are not known", in.d.Major, in.d.Minor, in.rel)
	case c < 70:
		return fault("device", "%s has compute capability %d.%d, %v needs 7.0", clip(in.d.Name), in.d.Major, in.d.Minor, in.rel)
	}
	return nil
}

// checkRanks checks the parallel sizes against the model.
func (in *run) checkRanks() error {
	s, tp, pp := in.shape, int64(in.r.TensorParallel), int64(in.r.PipelineParallel)
	if pp > s.layers {
		return fault("parallel.pipeline", "is %d, the model has %d layers", pp, s.layers)
	}
	if tp == 1 {
		return nil
	}
	type divided struct {
		name string
		n    int64
	}
	divides := []divided{
		{"num_attention_heads", s.heads}, {"the padded vocabulary", roundUp(s.vocab, 64)},
		{"linear_num_key_heads", s.keyHeads}, {"linear_num_value_heads", s.valueHeads},
	}
	if s.family != gptOSS {
		divides = append(divides, divided{"intermediate_size", s.inter})
	}
	if s.mixture != nil {
		divides = append(divides, divided{"the width of the shared experts", s.mixture.shared})
	}
	if s.family == gemma4 || s.mixture != nil {
		divides = append(divides, divided{"moe_intermediate_size", s.expertInter})
	}
	if in.drafts() {
		divides = append(divides, divided{"hidden_size", s.hidden})
	}
	for _, d := range divides {
		if d.n%tp != 0 {
			return fault("parallel.tensor", "%d does not divide %s %d", tp, d.name, d.n)
		}
	}
	if s.latent != nil {
		return nil // its KV has one head, which every rank holds
	}
	for _, kv := range []int64{s.kvHeads, s.globalKV} {
		if kv > 0 && kv%tp != 0 && tp%kv != 0 {
			return fault("parallel.tensor", "%d and %d key/value heads: neither divides the other", tp, kv)
		}
	}
	return nil
}

func (in *run) checkSpeculation() error {
	sp, s := &in.r.Speculative, in.shape
	switch sp.Method {
	case "":
		if sp.Tokens != 0 {
			return fault("speculative.method", "is missing, and numTokens is %d", sp.Tokens)
		}
		return nil
	case "ngram", "mtp":
	default:
		return fault("speculative.method", "is %q: known here are mtp and ngram", clip(sp.Method))
	}
	if sp.Tokens == 0 {
		return fault("speculative.numTokens", "is missing")
	}
	if sp.Method == "mtp" && (s.family != qwen35 || s.mtpLayers == 0) {
		return fault("speculative.method", "mtp: the checkpoint has no MTP head")
	}
	if sp.Method == "mtp" && in.r.PipelineParallel > 1 {
		return fault("parallel.pipeline", "is %d: this release drafts on one stage alone", in.r.PipelineParallel)
	}
	return nil
}

// checkCache checks block size and cache mode against the release.
func (in *run) checkCache() error {
	b := in.r.BlockSize
	allowed := []int{1, 8, 16, 32, 64, 128}
	if in.rel == V07 {
		allowed = []int{8, 16, 32}
	}
	if in.rel.atLeast(V017) {
		if b%16 != 0 {
			return fault("memory.blockSize", "is %d, not a multiple of 16", b)
		}
	} else if !slices.Contains(allowed, b) {
		return fault("memory.blockSize", "is %d, %v allows %v", b, in.rel, allowed)
	}
	modes := []string{"none", "align", "all"}
	if in.rel.atLeast(V033) {
		modes = modes[:2]
	}
	if m := in.r.MambaCacheMode; m != "" && !slices.Contains(modes, m) {
		return fault("memory.mambaCacheMode", "is %q, allowed are %s", clip(m), strings.Join(modes, ", "))
	}
	if m := in.r.MambaCacheMode; in.rel.atLeast(V033) && m != "" && (m == "none") != (in.r.PrefixCaching == "off") {
		return fault("memory.mambaCacheMode", "is %s: in %v it is align with prefix caching and none without", m, in.rel)
	}
	if in.rel.Reconstructed() && !slices.Contains(in.shape.kinds, linear) {
		return fault("compat", "%v is known for models with linear-attention layers alone", in.rel)
	}
	return nil
}

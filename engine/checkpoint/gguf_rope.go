package checkpoint

import (
	"fmt"

	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// rope reads the rope that all layers share. Llama 3's scaling, which files have as a tensor of
// factors, is returned, for a config.json cannot say it so.
func (f *ggufFields) rope(arch string, h hfConfig) RopeScaling {
	if f.err != nil {
		return RopeScaling{}
	}
	h["rope_theta"] = f.real(arch+".rope.freq_base", 1, 1e15, DefaultRopeTheta)
	key := arch + ".rope.scaling."
	kind := f.text(key+"type", f.untypedRope(arch))
	switch kind {
	case "none":
	case "linear":
		h["rope_scaling"] = map[string]any{"rope_type": "linear", "factor": f.linearFactor(arch, -1)}
	case "yarn":
		// llama.cpp rounds the ends of the ramp. The published gpt-oss does not, so this does not.
		scaling := map[string]any{
			"rope_type": "yarn", "factor": f.real(key+"factor", 1, maxFactor, -1),
			"original_max_position_embeddings": f.count(key+"original_context_length", 1, maxPositions, -1),
			"beta_fast":                        f.real(key+"yarn_beta_fast", 1e-3, 1e6, 32), "beta_slow": f.real(key+"yarn_beta_slow", 1e-3, 1e6, 1),
			"truncate": arch != "gpt-oss",
		}
		if x := f.real(key+"yarn_attn_factor", 0, maxFactor, 0); x > 0 {
			scaling["attention_factor"] = x
		}
		h["rope_scaling"] = scaling
	case "longrope":
		if arch == "phi3" {
			break // phi3Config reads it
		}
		fallthrough
	default:
		f.fail(key+"type", "%s is not read (none, linear and yarn are; llama3 is the tensor %s, longrope belongs to phi3)", clip(kind), ropeFreqs)
	}
	if arch == "gemma4" {
		return RopeScaling{} // gemma4Config reads the factors
	}
	factors := f.factors(ropeFreqs, h["head_dim"].(int)/2, maxFactor)
	if factors == nil {
		return RopeScaling{}
	}
	if kind != "none" {
		f.fail(ropeFreqs, "comes with %s; one of the two is read", fmt.Sprintf("%stype %s", key, kind))
	}
	return RopeScaling{Type: "llama3", Factors: factors}
}

// linearFactor returns the factor of a linear scaling, which the first files have as rope.scale_linear.
func (f *ggufFields) linearFactor(arch string, absent float64) float64 {
	for _, key := range []string{".rope.scaling.factor", ".rope.scale_linear"} {
		if _, ok := f.g.values[arch+key]; ok {
			return f.real(arch+key, minFactor, maxFactor, -1)
		}
	}
	if absent < 0 {
		f.fail(arch+".rope.scaling.factor", "is missing")
	}
	return absent
}

// untypedRope returns the type of scaling of a file that names none: linear if it has a factor.
func (f *ggufFields) untypedRope(arch string) string {
	if _, ok := f.g.values[arch+".rope.scaling.type"]; ok || f.linearFactor(arch, 1) == 1 {
		return "none"
	}
	return "linear"
}

// factors returns the numbers of a tensor of n factors up to most; nil without the tensor.
func (f *ggufFields) factors(name string, n int, most float64) []float32 {
	t, ok := f.g.tensor(name)
	if !ok || f.err != nil {
		return nil
	}
	if t.Format != kernels.F32 || t.Elements() != int64(n) {
		f.fail(name, "is %v %v, not %d f32 factors", t.Format, t.Shape, n)
		return nil
	}
	factors := make([]float32, n)
	ref.Dequantize(t.Format, f.g.data[t.File][t.Offset:t.Offset+t.Bytes], factors)
	for i, x := range factors {
		if !(float64(x) >= minFactor && float64(x) <= most) {
			f.fail(name, "factor %d is %v, allowed are %v to %v", i, x, minFactor, most)
			return nil
		}
	}
	return factors
}

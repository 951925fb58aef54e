package compat

import (
	"cmp"
	"strings"
)

// setDtype resolves dtype "auto" for the device, as the release does.
func (in *run) setDtype() error {
	d := strings.TrimPrefix(in.r.Dtype, "torch.")
	bf16 := in.d.capability() >= 80
	if d == "" || d == "auto" {
		d = in.shape.modelDtype
		if d == "float32" || d == "" || d == "bfloat16" && !bf16 {
			d = "float16"
			if in.rel != V07 && bf16 {
				d = "bfloat16"
			}
		}
	}
	switch d {
	case "half":
		d = "float16"
	case "float":
		d = "float32"
	}
	switch d {
	case "float16", "bfloat16":
		in.dtype = 2
	case "float32":
		in.dtype = 4
	default:
		return fault("model.dtype", "is %q, allowed are auto, bfloat16, float16, float32", clip(d))
	}
	if d == "bfloat16" && !bf16 {
		return fault("model.dtype", "bfloat16 needs compute capability 8.0, %s has %d.%d; take float16", clip(in.d.Name), in.d.Major, in.d.Minor)
	}
	if d == "float32" && in.shape.quant.scheme != plain {
		return fault("model.dtype", "float32 is not allowed with %s", in.shape.quant.method)
	}
	in.r.Dtype = d
	return nil
}

func (in *run) setQuantization() error {
	q, have := strings.ToLower(in.r.Quantization), in.shape.quant
	c := in.d.capability()
	switch {
	case q == "" || q == "none" || q == "auto" || q == have.method:
		in.r.Quantization = ""
	case q == "fp8" && have.scheme == plain:
		if in.shape.family == gptOSS {
			return fault("quantization", "fp8 online of gpt-oss: its release has none")
		}
		if in.dtype == 4 {
			return fault("quantization", "fp8 needs bfloat16 or float16")
		}
		in.r.Quantization = "fp8"
	case have.method != "":
		return fault("quantization", "is %q, the checkpoint has %s", clip(q), have.method)
	default:
		return fault("quantization", "is %q: known here are fp8, and what a checkpoint names", clip(q))
	}
	if have.scheme == packed && !in.rel.atLeast(V019) {
		return fault("quantization", "what %v makes of %s weights is not known here; vllm-0.19 is the first whose layout is", in.rel, have.method)
	}
	if (in.r.Quantization == "fp8" || have.scheme != plain) && c < 80 {
		return fault("quantization", "%s needs compute capability 8.0, %s has %d.%d", cmp.Or(have.method, "fp8"), clip(in.d.Name), in.d.Major, in.d.Minor)
	}
	return nil
}

func (in *run) setKVDtype() error {
	in.elem = in.dtype
	d := in.r.KVCacheDtype
	switch d {
	case "", "auto", in.r.Dtype:
		return nil
	case "fp8", "fp8_e4m3", "fp8_e5m2":
	default:
		return fault("memory.kvCacheDtype", "is %q, allowed are auto, fp8, fp8_e4m3, fp8_e5m2", clip(d))
	}
	need, c := 89, in.d.capability()
	if in.rel == V07 || in.rel.atLeast(V033) { // vllm-0.33 reads it with FlashInfer or Triton there
		need = 80
	}
	if c < need {
		return fault("memory.kvCacheDtype", "%s needs compute capability %d.%d in %v, %s has %d.%d", d, need/10, need%10, in.rel, clip(in.d.Name), in.d.Major, in.d.Minor)
	}
	if in.shape.family == gptOSS && in.d.Major != 9 && in.d.Major != 10 {
		return fault("memory.kvCacheDtype", "%s with gpt-oss's attention sinks is in %v for compute capability 9 and 10 alone, %s has %d.%d", d, in.rel, clip(in.d.Name), in.d.Major, in.d.Minor)
	}
	if d == "fp8_e5m2" && in.shape.quant.scheme != plain && in.shape.quant.scheme != mxfp4 {
		return fault("memory.kvCacheDtype", "fp8_e5m2 is not supported with fp8 checkpoints")
	}
	in.elem = 1
	return nil
}

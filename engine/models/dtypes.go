package models

import (
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// torchDtypes maps the values of torch_dtype.
var torchDtypes = map[string]kernels.Format{"float32": kernels.F32, "bfloat16": kernels.BF16, "float16": kernels.F16}

// Dtype returns the number format of torch_dtype. Without one it is F32, as in transformers, and
// F16 for GGUF files, which name no activation format.
func Dtype(cfg checkpoint.Config) kernels.Format {
	if f, ok := torchDtypes[cfg.TorchDtype]; ok {
		return f
	}
	switch {
	case cfg.Dialect == "gguf":
		return kernels.F16
	case cfg.ModelType == "gpt_oss": // its configs omit torch_dtype
		return kernels.BF16
	}
	return kernels.F32
}

// Activations returns the activation format: the build's, or else the checkpoint's.
func (b Build) Activations(cfg checkpoint.Config) kernels.Format {
	if b.Dtype != kernels.Invalid {
		return b.Dtype
	}
	return Dtype(cfg)
}

// formats refuses number formats that weights cannot be converted to.
func (b Build) formats(q quant) error {
	if b.Dtype != kernels.Invalid && !plain(b.Dtype) {
		return &UnsupportedError{"dtype " + b.Dtype.String(), "supported are f32, f16 and bf16"}
	}
	if b.Quantize == kernels.Invalid {
		return nil
	}
	if b.Quantize != kernels.F8E4M3 {
		return &UnsupportedError{"quantization to " + b.Quantize.String(), "weights are quantized to f8_e4m3 at load"}
	}
	if q.format != kernels.Invalid && q.format != b.Quantize {
		return &UnsupportedError{"quantization to " + b.Quantize.String(), "the checkpoint is quantized already, to " + q.format.String()}
	}
	return nil
}

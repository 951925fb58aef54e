package models

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// quant is a checkpoint's quantization_config: how linear layers are stored, and
// which are not. The zero value: as torch_dtype says.
type quant struct {
	format  kernels.Format // F8E4M3, MXFP4, or Invalid
	scaling backend.Scaling
	suffix  string   // of the tensor of scales: "_scale_inv"
	skip    []string // patterns of modules that stay as torch_dtype says
}

// quantOf reads the dialects of Hugging Face checkpoints: "fp8" (scales per
// tensor or per 128 × 128 block), "fbgemm_fp8" (per channel), "compressed-tensors"
// (float-quantized: per tensor or channel) and "mxfp4". Others are refused by name.
func quantOf(c checkpoint.Config) (quant, error) {
	if len(c.QuantizationConfig) == 0 || string(c.QuantizationConfig) == "null" {
		return quant{}, nil
	}
	var q struct {
		Method  string                     `json:"quant_method"`
		Format  string                     `json:"fmt"`
		Block   []int                      `json:"weight_block_size"`
		Skip    []string                   `json:"modules_to_not_convert"`
		Ignored []string                   `json:"ignored_layers"`
		Ignore  []string                   `json:"ignore"`
		Groups  map[string]compressedGroup `json:"config_groups"`
	}
	if json.Unmarshal(c.QuantizationConfig, &q) != nil {
		return quant{}, &UnsupportedError{"quantization_config", "it is not an object of the known shape"}
	}
	out := quant{format: kernels.F8E4M3, suffix: "_scale", skip: append(append(q.Skip, q.Ignored...), q.Ignore...)}
	switch q.Method {
	case "mxfp4":
		out.format = kernels.MXFP4
		return out, nil
	case "fp8":
		if q.Format != "" && q.Format != "e4m3" {
			return quant{}, &UnsupportedError{"quantization_config fmt " + q.Format, "8-bit weights are read as e4m3"}
		}
		if len(q.Block) == 0 {
			out.scaling = backend.PerTensor
			return out, nil
		}
		if len(q.Block) != 2 || q.Block[0] != backend.ScaleBlock || q.Block[1] != backend.ScaleBlock {
			return quant{}, &UnsupportedError{fmt.Sprintf("weight_block_size %v", q.Block), "blocks of scales are 128 by 128"}
		}
		out.scaling, out.suffix = backend.PerBlock, "_scale_inv"
		return out, nil
	case "fbgemm_fp8":
		out.scaling = backend.PerChannel
		return out, nil
	case "compressed-tensors":
		return out.compressed(q.Groups)
	}
	return quant{}, &UnsupportedError{"quantization_config quant_method " + q.Method, "fp8, fbgemm_fp8, compressed-tensors (fp8) and mxfp4 are read"}
}

// compressedGroup is an entry of compressed-tensors' config_groups.
type compressedGroup struct {
	Weights struct {
		Bits     int    `json:"num_bits"`
		Type     string `json:"type"`
		Strategy string `json:"strategy"`
	} `json:"weights"`
}

func (q quant) compressed(groups map[string]compressedGroup) (quant, error) {
	if len(groups) != 1 {
		return quant{}, &UnsupportedError{fmt.Sprintf("compressed-tensors with %d config_groups", len(groups)), "one group is read"}
	}
	for _, g := range groups {
		w := g.Weights
		if w.Bits != 8 || w.Type != "float" {
			return quant{}, &UnsupportedError{fmt.Sprintf("compressed-tensors of %d-bit %s", w.Bits, w.Type), "8-bit floats are read"}
		}
		switch w.Strategy {
		case "tensor":
			q.scaling = backend.PerTensor
		case "channel":
			q.scaling = backend.PerChannel
		default:
			return quant{}, &UnsupportedError{"compressed-tensors strategy " + w.Strategy, "tensor and channel are read"}
		}
	}
	return q, nil
}

// converts says whether a module's weight is quantized in the checkpoint: its
// linear layers are, but those that a pattern names, itself or a module above it.
func (q quant) converts(module string) bool {
	if q.format == kernels.Invalid {
		return false
	}
	for _, p := range q.skip {
		if re, ok := strings.CutPrefix(p, "re:"); ok {
			p = strings.Trim(strings.NewReplacer(".*", "*", `\.`, ".", "^", "", "$", "").Replace(re), " ")
		}
		for m := module; m != ""; m = above(m) {
			if ok, _ := path.Match(p, m); ok || m == p {
				return false
			}
		}
	}
	return true
}

// above is the module that holds m: "a.b" for "a.b.c", "" for "a".
func above(m string) string {
	if i := strings.LastIndexByte(m, '.'); i >= 0 {
		return m[:i]
	}
	return ""
}

// scaleTensor finds the scales of an 8-bit tensor by name and shape.
func (q quant) scaleTensor(c *checkpoint.Checkpoint, tensor string) (string, backend.Scaling) {
	for _, suffix := range []string{q.suffix, "_scale_inv", "_scale"} {
		if _, ok := c.Tensor(tensor + suffix); ok && suffix != "" {
			return tensor + suffix, q.scaling
		}
	}
	return "", q.scaling
}

package models

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// quant describes a checkpoint's quantization_config: how linear layers are stored, and which are
// not quantized. The zero value: everything is stored in torch_dtype.
type quant struct {
	format  kernels.Format // F8E4M3, MXFP4, I8, or I4, Q8_0 or NVFP4 (joined by package checkpoint), or Invalid
	scaling backend.Scaling
	group   int      // columns that share a scale, for I8 with scaling PerGroup
	packed  bool     // I8: four codes, each plus 128, in an I32
	ordered bool     // I4, Q8_0: each matrix has an order of inputs
	round   bool     // I8: activations are rounded to int8 too (W8A8)
	dynamic bool     // F8E4M3: activations are to be rounded to it too, with scales of their own numbers
	suffix  string   // of the tensor of scales: "_scale_inv"; of NVFP4, of a matrix's scale
	skip    patterns // modules stored in torch_dtype
}

// quantization is the JSON of quantization_config in all dialects.
type quantization struct {
	Method   string                     `json:"quant_method"`
	Scheme   string                     `json:"activation_scheme"` // of the dialect fp8: "dynamic", "static"
	Fmt      string                     `json:"fmt"`               // of the dialect fp8
	Algo     string                     `json:"quant_algo"`        // of modelopt
	Block    []int                      `json:"weight_block_size"`
	Skip     []string                   `json:"modules_to_not_convert"`
	Ignored  []string                   `json:"ignored_layers"`
	Ignore   []string                   `json:"ignore"`
	Groups   map[string]compressedGroup `json:"config_groups"` // this and the following fields: compressed-tensors
	Format   string                     `json:"format"`
	Sparsity struct {
		Format string `json:"format"`
	} `json:"sparsity_config"`
}

// quantOf reads the dialects of Hugging Face checkpoints: "fp8" (scales per tensor or per 128 × 128
// block), "fbgemm_fp8" (per channel), "compressed-tensors" (8-bit floats: per tensor, channel or
// block; int8: per tensor, channel or group, as W8A16 or W8A8; int4: per channel or group; NVFP4),
// "gptq", "awq", "modelopt" (FP8, per tensor, and NVFP4) and "mxfp4". Activations stay in float except in W8A8 of int8; DynamicFP8 says whether
// those of 8-bit floats may be rounded. Other dialects are refused by name.
func quantOf(c checkpoint.Config) (quant, error) {
	if len(c.QuantizationConfig) == 0 || string(c.QuantizationConfig) == "null" {
		return quant{}, nil
	}
	if g, ok, err := checkpoint.GroupingOf(c.QuantizationConfig); ok || err != nil {
		return groupedQuant(g, err)
	}
	var q quantization
	if json.Unmarshal(c.QuantizationConfig, &q) != nil {
		return quant{}, &UnsupportedError{"quantization_config", "it is not an object of the known shape"}
	}
	skip, err := patternsOf(slices.Concat(q.Skip, q.Ignored, q.Ignore))
	if err != nil {
		return quant{}, err
	}
	out := quant{format: kernels.F8E4M3, suffix: scale, skip: skip}
	switch q.Method {
	case "mxfp4":
		out.format = kernels.MXFP4
		return out, nil
	case "fp8":
		return out.fp8(q)
	case "fbgemm_fp8":
		out.scaling = backend.PerChannel
		return out, nil
	case "compressed-tensors":
		return out.compressed(q)
	case "modelopt":
		if q.Algo != "FP8" {
			return quant{}, &UnsupportedError{"modelopt quant_algo " + strconv.Quote(clip(q.Algo)), "FP8 and NVFP4 are read"}
		}
		out.scaling = backend.PerTensor
		return out, nil
	}
	return quant{}, &UnsupportedError{"quantization_config quant_method " + strconv.Quote(clip(q.Method)), "gptq, awq, fp8, fbgemm_fp8, compressed-tensors (fp8, int8, int4, nvfp4), modelopt (FP8, NVFP4) and mxfp4 are read"}
}

// DynamicFP8 reports whether a checkpoint of 8-bit floats says that activations are to be rounded to
// them too, with scales that are computed from the activations: activation_scheme "dynamic" of
// "fp8", or input_activations with dynamic true of "compressed-tensors". vLLM rounds them then.
func DynamicFP8(c checkpoint.Config) bool {
	q, err := quantOf(c)
	return err == nil && q.format == kernels.F8E4M3 && q.dynamic
}

// groupedQuant returns the quant of four-bit weights in groups, or the refusal of their config.
func groupedQuant(g checkpoint.Grouping, err error) (quant, error) {
	var refused *checkpoint.GroupingError
	if errors.As(err, &refused) {
		return quant{}, &UnsupportedError{refused.What, refused.Why}
	}
	skip, err := patternsOf(g.Skip)
	out := quant{format: g.Format(), ordered: g.Ordered, skip: skip}
	if g.Float {
		out.scaling, out.suffix = backend.PerTensor, checkpoint.GlobalScaleSuffix
	}
	return out, err
}

func (out quant) fp8(q quantization) (quant, error) {
	if q.Fmt != "" && q.Fmt != "e4m3" {
		return quant{}, &UnsupportedError{"quantization_config fmt " + strconv.Quote(clip(q.Fmt)), "8-bit weights are read as e4m3"}
	}
	out.dynamic = q.Scheme == "dynamic"
	if len(q.Block) == 0 {
		out.scaling = backend.PerTensor
		return out, nil
	}
	if err := checkBlocks(q.Block); err != nil {
		return quant{}, err
	}
	out.scaling, out.suffix = backend.PerBlock, scaleInv
	return out, nil
}

// checkBlocks refuses blocks that are not ScaleBlock × ScaleBlock.
func checkBlocks(block []int) error {
	if len(block) == 2 && block[0] == backend.ScaleBlock && block[1] == backend.ScaleBlock {
		return nil
	}
	return &UnsupportedError{"quantization_config: scales of blocks " + clip(fmt.Sprint(block)), "blocks of 128 by 128 are read"}
}

// clip truncates a string of a config before it is printed.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

// converts reports whether the checkpoint quantizes a module's weight: every linear layer is
// quantized unless a pattern matches it.
func (q quant) converts(module string) bool {
	return q.format != kernels.Invalid && !q.skip.match(module)
}

// joins reports whether package checkpoint joins codes, scales and zero points.
func (q quant) joins() bool {
	return q.format == kernels.I4 || q.format == kernels.Q8_0 || q.format == kernels.NVFP4
}

// scaleTensor returns the name of an 8-bit tensor's scales, under either suffix, and their scaling.
func (q quant) scaleTensor(c *checkpoint.Checkpoint, tensor string) (string, backend.Scaling) {
	for _, suffix := range []string{q.suffix, otherSpelling(q.suffix)} {
		if _, ok := c.Tensor(tensor + suffix); ok && suffix != "" {
			return tensor + suffix, q.scaling
		}
	}
	return "", q.scaling
}

// KVScales refuses 8-bit float pages for a checkpoint that has scales for K and V, because pages
// are stored without scales. Other page formats do not need those scales.
func KVScales(c *checkpoint.Checkpoint, f kernels.Format) error {
	if f != kernels.F8E4M3 && f != kernels.F8E5M2 {
		return nil
	}
	for _, t := range c.Tensors() {
		for _, suffix := range []string{".k_scale", ".v_scale", ".kv_scale"} {
			if strings.HasSuffix(t.Name, suffix) {
				return &UnsupportedError{"KV cache in " + f.String() + " for a checkpoint with " + clip(t.Name),
					"8-bit pages are kept without scales; take bf16 for memory.kvCacheDtype"}
			}
		}
	}
	return nil
}

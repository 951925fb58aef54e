package models

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// compressedGroup is an entry of compressed-tensors' config_groups.
type compressedGroup struct {
	Targets []string        `json:"targets"`
	Weights *compressedArgs `json:"weights"`
	Inputs  *compressedArgs `json:"input_activations"`
	Outputs *compressedArgs `json:"output_activations"`
	Format  string          `json:"format"`
}

// compressedArgs describes how a tensor is quantized (QuantizationArgs of compressed-tensors).
type compressedArgs struct {
	Bits      int             `json:"num_bits"`
	Type      string          `json:"type"`
	Strategy  string          `json:"strategy"`
	Block     []int           `json:"block_structure"`
	Group     *int            `json:"group_size"`
	Symmetric *bool           `json:"symmetric"` // true where it is absent
	Order     json.RawMessage `json:"actorder"`
	Dynamic   json.RawMessage `json:"dynamic"`
}

func refuseCompressed(what, why string) (quant, error) {
	return quant{}, &UnsupportedError{"compressed-tensors " + what, why}
}

// compressed reads a config with one group: 8-bit floats or int8.
func (out quant) compressed(q quantization) (quant, error) {
	if f := q.Sparsity.Format; f != "" && f != "dense" {
		return refuseCompressed("sparsity "+strconv.Quote(clip(f)), "only dense weights are supported")
	}
	if len(q.Groups) != 1 {
		return refuseCompressed(fmt.Sprintf("with %d config_groups", len(q.Groups)), "one group is read")
	}
	for _, g := range q.Groups {
		w := g.Weights
		switch {
		case w == nil:
			return refuseCompressed("without weights in its group", "8-bit floats and int8 are read")
		case len(g.Targets) != 1 || g.Targets[0] != "Linear":
			return refuseCompressed("targets "+clip(fmt.Sprintf("%q", g.Targets)), `"Linear" is read`)
		case w.Bits == 8 && w.Type == "int":
			if g.Format == "" {
				g.Format = q.Format
			}
			return out.int8(g)
		case w.Bits != 8 || w.Type != "float":
			return refuseCompressed(fmt.Sprintf("of %d-bit %s", w.Bits, strconv.Quote(clip(w.Type))), "8-bit floats and int8 are read")
		}
		out.dynamic = g.Inputs.dynamicFP8()
		switch w.Strategy {
		case "tensor":
			out.scaling = backend.PerTensor
		case "channel":
			out.scaling = backend.PerChannel
		case "block":
			if err := checkBlocks(w.Block); err != nil {
				return quant{}, err
			}
			out.scaling = backend.PerBlock
		default:
			return refuseCompressed("strategy "+strconv.Quote(clip(w.Strategy)), "tensor, channel and block are read")
		}
	}
	return out, nil
}

// dynamicFP8 reports whether inputs are rounded to 8-bit floats with scales that are computed from
// them.
func (a *compressedArgs) dynamicFP8() bool {
	return a != nil && a.Bits == 8 && a.Type == "float" && string(a.Dynamic) == "true" && !asymmetric(a)
}

// int8Group divides every supported group_size.
const int8Group = 32

// int8 reads a group of int8 weights: W8A16, or W8A8 with dynamic int8 activations.
func (out quant) int8(g compressedGroup) (quant, error) {
	w := g.Weights
	out.format, out.suffix = kernels.I8, scale
	switch {
	case asymmetric(w):
		return refuseCompressed("int8 weights with symmetric false", "int8 is read without zero points")
	case isSet(w.Order, "null", "false"):
		return refuseCompressed("int8 weights with actorder "+clip(string(w.Order)), "columns are read in their own order")
	case isSet(w.Dynamic, "null", "false"):
		return refuseCompressed("int8 weights with dynamic "+clip(string(w.Dynamic)), "weights with stored scales are read")
	case g.Outputs != nil:
		return refuseCompressed("int8 with output_activations", "outputs stay in float")
	}
	switch g.Format {
	case "pack-quantized":
		out.packed = true
	case "int-quantized", "naive-quantized", "":
	default:
		return refuseCompressed("int8 in format "+strconv.Quote(clip(g.Format)), "int-quantized, naive-quantized and pack-quantized are read")
	}
	switch w.Strategy {
	case "tensor":
		out.scaling = backend.PerTensor
	case "channel":
		out.scaling = backend.PerChannel
	case "group":
		if w.Group == nil || *w.Group < int8Group || *w.Group > 1<<16 || *w.Group%int8Group != 0 {
			return refuseCompressed("int8 with group_size "+sizeOf(w.Group), "multiples of 32 up to 65536 are read")
		}
		out.scaling, out.group = backend.PerGroup, *w.Group
	default:
		return refuseCompressed("int8 strategy "+strconv.Quote(clip(w.Strategy)), "tensor, channel and group are read")
	}
	return out.int8Inputs(g.Inputs)
}

// int8Inputs reads the input_activations of an int8 group.
func (out quant) int8Inputs(a *compressedArgs) (quant, error) {
	const read = "int8, symmetric, strategy token and dynamic true are read, or null"
	switch {
	case a == nil:
		return out, nil
	case a.Bits != 8 || a.Type != "int":
		return refuseCompressed(fmt.Sprintf("int8 with input_activations of %d-bit %s", a.Bits, strconv.Quote(clip(a.Type))), read)
	case asymmetric(a):
		return refuseCompressed("int8 with input_activations of symmetric false", read)
	case string(a.Dynamic) != "true":
		return refuseCompressed("int8 with input_activations of dynamic "+clip(string(a.Dynamic))+" (static scales)", read)
	case a.Strategy != "token":
		return refuseCompressed("int8 with input_activations of strategy "+strconv.Quote(clip(a.Strategy)), read)
	case out.scaling == backend.PerGroup:
		return refuseCompressed("int8 weights in groups with input_activations", "groups are read with activations in float, and int8 activations with a scale for each tensor or channel")
	}
	out.round = true
	return out, nil
}

func asymmetric(a *compressedArgs) bool { return a.Symmetric != nil && !*a.Symmetric }

// isSet reports whether v is present and differs from every string in none.
func isSet(v json.RawMessage, none ...string) bool {
	for _, n := range none {
		if string(v) == n {
			return false
		}
	}
	return len(v) > 0
}

func sizeOf(n *int) string {
	if n == nil {
		return "null"
	}
	return strconv.Itoa(*n)
}

// Suffixes of int8 tensors: packed codes, the shape of the unpacked matrix, and two that are not
// supported.
const (
	int8Packed = "_packed"
	int8Shape  = "_shape"
	int8Zeros  = "_zero_point"
	int8Order  = "_g_idx"
)

// refuseInt8 refuses tensors that change the meaning of int8 codes.
func (q quant) refuseInt8(c *checkpoint.Checkpoint) error {
	if q.format != kernels.I8 {
		return nil
	}
	for _, t := range c.Tensors() {
		switch {
		case strings.HasSuffix(t.Name, ".weight"+int8Zeros):
			return &UnsupportedError{"int8 weights with zero points (" + clip(t.Name) + ")", "int8 is read without zero points"}
		case strings.HasSuffix(t.Name, ".weight"+int8Order):
			return &UnsupportedError{"int8 weights with reordered columns (" + clip(t.Name) + ")", "columns are read in their own order"}
		case strings.HasSuffix(t.Name, ".input_scale"), strings.HasSuffix(t.Name, ".input_zero_point"):
			return &UnsupportedError{"int8 with static activation scales (" + clip(t.Name) + ")", "activations stay in float or get dynamic scales"}
		}
	}
	return nil
}

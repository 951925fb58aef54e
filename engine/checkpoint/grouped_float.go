package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"

	"vapp.dev/kernels"
)

// nvfp4 is ModelOpt's quant_algo, and nvfp4Packed the format of compressed-tensors, for NVFP4: codes are
// E2M1, two in a byte, and 16 inputs share a scale in E4M3. A matrix has one more scale in float32. A weight
// is code · scale · global scale in ModelOpt, code · scale / global scale in compressed-tensors. The float32
// reciprocal of the latter is taken, so that both are a factor.
const (
	nvfp4       = "NVFP4"
	nvfp4Packed = "nvfp4-pack-quantized"
	floatElems  = 16 // inputs of a group
)

// compressedFloat reads a config of compressed-tensors with 4-bit floats. Activations stay in float, also
// where the config quantizes them.
func (q groupingJSON) compressedFloat() (Grouping, error) {
	const what = "compressed-tensors 4-bit floats"
	g, err := q.only(what, nvfp4Packed)
	if err != nil {
		return Grouping{}, err
	}
	switch w := g.Weights; {
	case w.Strategy != "tensor_group":
		return refuse(what+" with strategy "+strconv.Quote(clip(w.Strategy)), "tensor_group is read")
	case w.Group == nil || *w.Group != floatElems:
		return refuse(what+" with group_size "+sizeText(w.Group), "it is 16 in NVFP4")
	case w.Symmetric != nil && !*w.Symmetric:
		return refuse(what+" with symmetric false", "NVFP4 has no zero points")
	case !absent(w.Order, "false", `"weight"`, `"static"`):
		return refuse(what+" with actorder "+clip(string(w.Order)), "weight, static and null are read")
	}
	return Grouping{Dialect: Compressed, Bits: 4, Size: floatElems, NoZeros: true, Float: true, Skip: q.Ignore}, nil
}

// modelOpt reads a config of ModelOpt with quant_algo NVFP4. Activations stay in float.
func (q groupingJSON) modelOpt() (Grouping, error) {
	g := Grouping{Dialect: ModelOpt, Bits: 4, Size: floatElems, NoZeros: true, Float: true, Skip: slices.Concat(q.Ignore, q.Excluded, q.Skip)}
	if !absent(q.Group, strconv.Itoa(floatElems)) {
		return refuse("modelopt NVFP4 with group_size "+clip(string(q.Group)), "it is 16 in NVFP4")
	}
	if len(q.Groups) > 1 {
		return refuse(fmt.Sprintf("modelopt NVFP4 with %d config_groups", len(q.Groups)), "one group is read")
	}
	for _, one := range q.Groups {
		switch w := one.Weights; {
		case w == nil || w.Bits != 4 || w.Type != "float":
			return refuse("modelopt NVFP4 with weights of another type in config_groups", "4-bit floats are read")
		case w.Group != nil && *w.Group != floatElems:
			return refuse("modelopt NVFP4 with group_size "+sizeText(w.Group), "it is 16 in NVFP4")
		}
	}
	return g, nil
}

// sizeText returns a number of a config as text.
func sizeText(n *int) string {
	if n == nil {
		return "null"
	}
	return strconv.Itoa(*n)
}

// floatShape is shape for NVFP4.
func (j *joined) floatShape() (out, in int64, err error) {
	t := j.codes
	if t.Format != kernels.U8 || len(t.Shape) != 2 {
		return 0, 0, fault(t.File, t.Name, "has shape %v of %v; packed codes of NVFP4 are a matrix of u8", t.Shape, t.Format)
	}
	if out, in = t.Shape[0], t.Shape[1]*2; in%floatElems != 0 {
		return 0, 0, fault(t.File, t.Name, "has rows of %d inputs, which are no whole groups of %d", in, floatElems)
	}
	return out, in, nil
}

// checkFloat is check for NVFP4.
func (j *joined) checkFloat(out, in int64) error {
	if t, want := j.scales, []int64{out, in / floatElems}; t.Format != kernels.F8E4M3 || !slices.Equal(t.Shape, want) {
		return fault(t.File, t.Name, "has shape %v of %v instead of %v of f8_e4m3", t.Shape, t.Format, want)
	}
	if t := j.matrix; t.Format != kernels.F32 || t.Elements() != 1 {
		return fault(t.File, t.Name, "has shape %v of %v instead of one f32", t.Shape, t.Format)
	}
	return nil
}

// readFloat is readJoined for NVFP4.
func (c *Checkpoint) readFloat(t TensorInfo, row0, rows int, dst []byte) error {
	j := t.joined
	codes, err := c.bytesOf(j.codes)
	if err != nil {
		return err
	}
	scales, err := c.bytesOf(j.scales)
	if err != nil {
		return err
	}
	return catchFault(j.codes.File, func() error {
		first, groups := int64(row0)*t.Shape[1]/floatElems, int64(rows)*t.Shape[1]/floatElems
		scales = scales[first : first+groups]
		for _, s := range scales {
			if s&0x7f == 0x7f {
				return fault(j.scales.File, j.scales.Name, "has a NaN: the checkpoint is damaged")
			}
		}
		kernels.JoinBlocks(codes[first*floatElems/2:][:groups*floatElems/2], scales, dst)
		return nil
	})
}

// readGlobalScale writes the factor of all numbers of an NVFP4 matrix.
func (c *Checkpoint) readGlobalScale(j *joined, dst []byte) error {
	b, err := c.bytesOf(j.matrix)
	if err != nil {
		return err
	}
	return catchFault(j.matrix.File, func() error {
		scale := math.Float32frombits(binary.LittleEndian.Uint32(b))
		if j.grouping.Dialect != ModelOpt {
			scale = 1 / scale
		}
		if largest := 6 * 448 * scale; largest-largest != 0 {
			return fault(j.matrix.File, j.matrix.Name, "makes weights a NaN or an infinity: the checkpoint is damaged")
		}
		binary.LittleEndian.PutUint32(dst, math.Float32bits(scale))
		return nil
	})
}

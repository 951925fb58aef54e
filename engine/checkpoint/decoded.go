package checkpoint

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// DecodedSuffix ends the name of the numbers of a quantized tensor in F32, codes times scales, for
// weights that no kernel reads in their stored format (kv_b_proj of latent attention). Tensors in
// block formats have them, and 8-bit floats and NVFP4 with scales.
const DecodedSuffix = ".decoded"

// decoded returns the numbers of a quantized tensor; name has DecodedSuffix.
func (c *Checkpoint) decoded(name string) (TensorInfo, bool) {
	of, is := strings.CutSuffix(name, DecodedSuffix)
	i, ok := c.byName[of]
	if !is || !ok {
		return TensorInfo{}, false
	}
	t := c.tensors[i]
	switch t.Format {
	case kernels.F8E4M3, kernels.F8E5M2, kernels.NVFP4:
		if _, _, ok := c.scaleOf(t); !ok {
			return TensorInfo{}, false
		}
	case kernels.I8:
		return TensorInfo{}, false
	default:
		if !t.Format.Quantized() {
			return TensorInfo{}, false
		}
	}
	return TensorInfo{Name: name, Shape: t.Shape, Format: kernels.F32, File: t.File, Bytes: kernels.F32.Bytes(t.Elements())}, true
}

// scaleOf returns the tensor of the scales of 8-bit floats, or of NVFP4's matrix, and how many rows and columns share one.
func (c *Checkpoint) scaleOf(t TensorInfo) (scale TensorInfo, side [2]int64, ok bool) {
	const block = 128
	rows, cols := t.Rows(), t.RowElements()
	for _, suffix := range []string{"_scale_inv", "_scale", GlobalScaleSuffix} {
		i, there := c.byName[t.Name+suffix]
		if !there {
			continue
		}
		scale = c.tensors[i]
		switch {
		case scale.Format != kernels.F32 && scale.Format != kernels.F16 && scale.Format != kernels.BF16:
		case scale.Elements() == 1:
			return scale, [2]int64{rows, cols}, true
		case scale.Elements() == rows && scale.Shape[0] == rows:
			return scale, [2]int64{1, cols}, true
		case slices.Equal(scale.Shape, []int64{(rows + block - 1) / block, (cols + block - 1) / block}):
			return scale, [2]int64{block, block}, true
		}
	}
	return scale, side, false
}

// readDecoded is ReadRows for decoded numbers.
func (c *Checkpoint) readDecoded(name string, row0, rows int, dst []byte) error {
	info, ok := c.decoded(name)
	if !ok {
		return fault(c.path, name, "is not in the checkpoint")
	}
	cols := info.RowElements()
	if row0 < 0 || rows < 0 || int64(row0) > info.Rows()-int64(rows) || int64(len(dst)) != int64(rows)*info.RowBytes() {
		return fault(info.file(c), name, "%d bytes given for rows %d to %d of %d bytes; it has %d", len(dst), row0, row0+rows, info.RowBytes(), info.Rows())
	}
	t := c.tensors[c.byName[strings.TrimSuffix(name, DecodedSuffix)]]
	raw, numbers := make([]byte, int64(rows)*t.RowBytes()), make([]float32, int64(rows)*cols)
	if err := c.ReadRows(t.Name, row0, rows, raw); err != nil {
		return err
	}
	ref.Dequantize(t.Format, raw, numbers)
	if t.Format.Scaled() {
		if err := c.multiplyScales(t, row0, numbers); err != nil {
			return err
		}
	}
	for i, x := range numbers {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
	}
	return nil
}

// multiplyScales multiplies the codes of whole rows, from row0 on, by their scales.
func (c *Checkpoint) multiplyScales(t TensorInfo, row0 int, numbers []float32) error {
	scale, side, _ := c.scaleOf(t)
	cols := t.RowElements()
	across := (cols + side[1] - 1) / side[1]
	raw, line := make([]byte, scale.Format.Bytes(across)), make([]float32, across)
	loaded := int64(-1)
	for r := range int64(len(numbers)) / cols {
		at := (int64(row0) + r) / side[0]
		if at != loaded {
			if err := c.readScales(scale, at, across, raw); err != nil {
				return err
			}
			ref.Dequantize(scale.Format, raw, line)
			loaded = at
		}
		for i := range cols {
			numbers[r*cols+i] *= line[i/side[1]]
		}
	}
	return nil
}

// readScales reads n scales from n·line on, in whichever shape they are stored.
func (c *Checkpoint) readScales(scale TensorInfo, line, n int64, dst []byte) error {
	if n == scale.RowElements() {
		return c.ReadRows(scale.Name, int(line), 1, dst)
	}
	whole := make([]byte, scale.Bytes) // a vector with a scale for each row
	if err := c.ReadRows(scale.Name, 0, int(scale.Rows()), whole); err != nil {
		return err
	}
	copy(dst, whole[line*int64(len(dst)):])
	return nil
}

package checkpoint

import (
	"strings"

	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// Dummy is how the numbers of a dummy tensor are made up, where all follow from one table; ok is false
// where they do not, and of tensors that are read: ReadRows has those.
func (c *Checkpoint) Dummy(name string) (m kernels.Dummy, ok bool) {
	t, there := c.Tensor(name)
	if c.dummy == nil || !there || ofOnes(t) || ofScales(t) {
		return m, false
	}
	m.Key = c.dummy.key(t.Name)
	if m.Levels = tableOf(t); m.Levels == nil {
		return m, false
	}
	m.Size = len(m.Levels) / 256
	return m, true
}

// tableOf is the elements that the numbers of t are of; nil where they are blocks.
func tableOf(t TensorInfo) []byte {
	levels := dummyLevels()
	table := make([]byte, t.Format.Bytes(256))
	switch t.Format {
	case kernels.F32, kernels.F16, kernels.BF16:
		ref.Quantize(t.Format, levels[:], table)
	case kernels.F8E4M3, kernels.F8E5M2:
		copy(table, byteTable(levels, t.Format)[:])
	case kernels.U8, kernels.I8:
		for i := range table {
			table[i] = byte(i)
			if ofExponents(t) {
				table[i] = exponent(byte(i))
			}
		}
	default:
		return nil
	}
	return table
}

// ofExponents says that t holds those of MXFP4's blocks, ofScales that it holds scales.
func ofExponents(t TensorInfo) bool {
	return t.Format == kernels.U8 && strings.HasSuffix(t.Name, "_scales")
}

func ofScales(t TensorInfo) bool {
	return strings.HasSuffix(t.Name, ".weight_scale") || strings.HasSuffix(t.Name, ".weight_scale_inv")
}

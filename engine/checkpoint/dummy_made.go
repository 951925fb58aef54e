package checkpoint

import (
	"strings"

	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// Dummy describes how the numbers of a dummy tensor are generated, if they all come from one table.
// ok is false for other tensors, including those of a real checkpoint; use ReadRows for them.
func (c *Checkpoint) Dummy(name string) (m kernels.Dummy, ok bool) {
	i, there := c.byName[name]
	if c.dummy == nil || !there {
		return m, false
	}
	t := c.tensors[i]
	if isNorm(t) || isScales(t) || isOrder(t) {
		return m, false
	}
	m.Key = c.dummy.key(t.Name)
	if m.Levels = tableOf(t); m.Levels == nil {
		return m, false
	}
	m.Size = len(m.Levels) / 256
	return m, true
}

// tableOf returns the elements from which the numbers of t are picked; nil for block formats.
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
			if isExponents(t) {
				table[i] = exponent(byte(i))
			}
		}
	default:
		return nil
	}
	return table
}

// isExponents reports whether t holds the exponents of MXFP4 blocks.
func isExponents(t TensorInfo) bool {
	return t.Format == kernels.U8 && strings.HasSuffix(t.Name, "_scales")
}

// isOrder reports whether t holds an order of inputs.
func isOrder(t TensorInfo) bool {
	return t.Format == kernels.F32 && strings.HasSuffix(t.Name, OrderSuffix)
}

func isScales(t TensorInfo) bool {
	return strings.HasSuffix(t.Name, ".weight_scale") || strings.HasSuffix(t.Name, ".weight_scale_inv") || strings.HasSuffix(t.Name, ".weight"+GlobalScaleSuffix)
}

package cuda

import "vapp.dev/kernels"

// MadeArgs describes numbers that kernels generate: kernels.Dummy, with its levels on the
// device. Levels 0: rows are read instead.
type MadeArgs struct {
	Levels Ptr
	Key    uint64
	Size   int32
	_      int32
}

// PanelArgs: panels. A block for each panel and panelChunk bytes of its rows. With Half, Rows has Half rows of each half of
// GateUpRow, and generated ones have Made, Exponents and Row0 of their own.
type PanelArgs struct {
	Rows, Order, Panels, Bad         Ptr
	Made, Exponents                  [2]MadeArgs
	Row0                             [2]int64
	Count, RowBytes, UnitBytes, Bits int32
	Numberless                       Numberless
	Half, _                          int32
}

// QuantizeArgs: panels_quantize_ with the format of rows. A block for each panel.
type QuantizeArgs struct {
	PanelArgs
	Scales     Ptr
	ScalesHalf int64 // from the scale of a row to that of its other half
}

const (
	PanelThreads = 512  // of a block: a warp for each row of a panel
	panelChunk   = 1024 // most bytes of a row for a block
)

// PanelGrid returns the grid for rows of a matrix: panels, and chunks of units.
func (o PanelOrder) PanelGrid(count, rowBytes int) [3]int {
	units, each := (rowBytes+o.UnitBytes-1)/o.UnitBytes, panelChunk/o.UnitBytes
	return [3]int{(count + PanelRows - 1) / PanelRows, (units + each - 1) / each, 1}
}

// PanelOrder describes how Pack rearranges a unit of a panel, for a kernel that does the same.
// The unit is groups of Bits bits; From gives the source of each: row << 12 | index of the
// group in the row's UnitBytes bytes.
type PanelOrder struct {
	Bits, UnitBytes int
	From            []uint16
	Numberless      Numberless
}

// OrderOf finds the order of a format by packing numbered bits: for bit n of a unit, image i
// holds bit i of n.
func OrderOf(f kernels.Format) (PanelOrder, bool) {
	p, ok := packings(f)
	if !ok {
		return PanelOrder{}, false
	}
	size := int(f.Bytes(int64(p.unit * StepCols)))
	from := make([]int, PanelRows*size*8)
	for image := 0; 1<<image < len(from); image++ {
		unit, packed := make([]byte, PanelRows*size), make([]byte, PanelRows*size)
		for n := range from {
			unit[n/8] |= byte(n>>image&1) << (n % 8)
		}
		p.pack(packed, func(row, _ int) []byte { return unit[row*size:][:size] }, 0)
		for n := range from {
			from[n] |= int(packed[n/8]>>(n%8)&1) << image
		}
	}
	o := PanelOrder{Bits: together(from), UnitBytes: size, Numberless: p.numberless}
	for n := 0; n < len(from); n += o.Bits {
		row, bit := from[n]/(8*size), from[n]%(8*size)
		o.From = append(o.From, uint16(row<<12|bit/o.Bits))
	}
	return o, true
}

// together returns how many bits, at most a byte, always stay together.
func together(from []int) int {
	for bits := 8; bits > 1; bits /= 2 {
		whole := true
		for n := range from {
			whole = whole && from[n] == from[n/bits*bits]+n%bits && from[n/bits*bits]%bits == 0
		}
		if whole {
			return bits
		}
	}
	return 1
}

// QuantizeKernel returns the kernel that rounds rows of f to f8_e4m3, with a scale for each
// row, while it packs them; "" if there is none.
func QuantizeKernel(f kernels.Format) string {
	switch f {
	case kernels.F32, kernels.F16, kernels.BF16:
		return "panels_quantize_" + f.String()
	}
	return ""
}

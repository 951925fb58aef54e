package cpu

import (
	"fmt"
	"slices"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	kcpu "vapp.dev/kernels/cpu"
)

// weight is a packed weight and its offset in the Weights arena.
type weight struct {
	backend.Packed
	off int64
}

// Weight stores vectors as F32, and tables that are only looked up row by row in their own
// format. Matrices to multiply are packed for the variant: in their own format if Linear has
// a kernel for it, else converted to BF16. If parts have several formats, each is packed in
// its own (segments). A stack is the matrices of its experts in order.
func (l layout) Weight(w backend.WeightSpec) (backend.Packed, error) {
	if err := checkParts(w); err != nil {
		return backend.Packed{}, err
	}
	if w.Use&backend.Vector != 0 {
		return backend.Packed{Format: kernels.F32, Bytes: align(4 * w.Elems()), Kernel: "vector"}, nil
	}
	if list := w.Segments(); list != nil {
		return l.segmented(list)
	}
	p := backend.Packed{Format: w.Stored()}
	if p.Format == kernels.Invalid {
		p.Format, p.Note = kernels.BF16, "its parts have several formats: converted to bf16"
	}
	if w.Use&backend.Multiply == 0 {
		return rowsOf(w, p)
	}
	if !slices.Contains(kcpu.SupportedFormats(l.variant), p.Format) {
		p.Format, p.Note = kernels.BF16, fmt.Sprintf("no kernel multiplies %v: converted to bf16", w.Source)
	}
	if w.RoundInputs && (p.Format != kernels.I8 || w.Scaling == backend.PerGroup) {
		return p, backend.Unsupported(name, "weight "+w.Name+" with int8 inputs", "only matrices of int8 with a scale for each output have them")
	}
	if w.RoundInputs && w.Experts > 0 && w.Cols%kcpu.W8A8Inputs != 0 {
		return p, backend.Unsupported(name, fmt.Sprintf("weight %s with int8 inputs in rows of %d", w.Name, w.Cols), fmt.Sprintf("those of experts are whole blocks of %d", kcpu.W8A8Inputs))
	}
	if err := l.checkFavor(w.Name, p.Format); err != nil {
		return p, err
	}
	m := l.matrix(w, p.Format)
	each, kernel, ok := m.Layout()
	if !ok {
		return p, backend.Unsupported(name, "weight "+w.Name, fmt.Sprintf("no %s kernel multiplies %d×%d %v", l.variant, w.Rows, w.Cols, p.Format))
	}
	if err := checkTarget(w); err != nil {
		return p, err
	}
	p.Bytes, p.Kernel = each*int64(max(1, w.Experts)), kernel
	return p, nil
}

// checkParts rejects shapes and formats that no kernel reads.
func checkParts(w backend.WeightSpec) error {
	for _, p := range w.Parts {
		if !kcpu.Lookup(p.Format) {
			return backend.Unsupported(name, "weight "+w.Name, "a part is stored as "+p.Format.String())
		}
		n := w.Cols
		if p.Elems > 0 {
			n = p.Elems
		}
		block, _ := p.Format.Block()
		if n%block != 0 {
			return backend.Unsupported(name, "weight "+w.Name, fmt.Sprintf("rows of %d are no whole %v blocks", n, p.Format))
		}
		if p.Transposed && block > 1 {
			return backend.Unsupported(name, "weight "+w.Name, fmt.Sprintf("%v is stored as [in, out]: its blocks run along rows", p.Format))
		}
	}
	if w.Rows <= 0 || w.Cols <= 0 || w.Experts < 0 {
		return backend.Unsupported(name, "weight "+w.Name, fmt.Sprintf("its shape is %d×%d", w.Rows, w.Cols))
	}
	return nil
}

// rowsOf returns how a table is stored that is only looked up.
func rowsOf(w backend.WeightSpec, p backend.Packed) (backend.Packed, error) {
	if p.Format.Scaled() || p.Format == kernels.MXFP4 || w.Experts > 0 {
		return p, backend.Unsupported(name, "weight "+w.Name, "tables that are only looked up are not read as "+p.Format.String())
	}
	p.Bytes, p.Kernel = align(int64(w.Rows)*p.Format.Bytes(int64(w.Cols))), "rows"
	return p, nil
}

// checkTarget rejects formats that Pack cannot convert to. It converts to E4M3 with a scale
// for each row, and to plain numbers.
func checkTarget(w backend.WeightSpec) error {
	switch w.Target {
	case kernels.Invalid, w.Source, kernels.F32, kernels.F16, kernels.BF16:
		return nil
	case kernels.F8E4M3:
		if w.Scaling == backend.PerChannel || w.Scaling == backend.PerTensor {
			return nil
		}
		return backend.Unsupported(name, "weight "+w.Name+" quantized to "+w.Target.String(), "it gets a scale for each output")
	}
	return backend.Unsupported(name, "weight "+w.Name+" quantized to "+w.Target.String(), "weights are quantized to f8_e4m3, or converted to bf16, f16 or f32")
}

// matrix returns one matrix of w as packed in format f.
func (l layout) matrix(w backend.WeightSpec, f kernels.Format) kcpu.Matrix {
	m := kcpu.Matrix{Variant: l.linear(f), Format: f, Rows: w.Rows, Cols: w.Cols}
	if !f.Scaled() {
		return m
	}
	if w.RoundInputs {
		m.Variant = kcpu.W8A8(l.variant)
	}
	switch w.Scaling {
	case backend.PerGroup:
		if m.Scales = kcpu.GroupScales; w.GroupSize%kcpu.ScaleInputs == 0 {
			m.Scales = kcpu.BlockScales
		}
	case backend.PerTensor, backend.PerChannel:
		m.Scales = kcpu.ChannelScales
	case backend.PerBlock:
		m.Scales = kcpu.PanelScales
		row := 0
		for _, p := range w.Parts {
			if row%kcpu.PanelRows != 0 || p.Row0%kcpu.PanelRows != 0 {
				m.Scales = kcpu.BlockScales // a panel spans rows of several blocks
			}
			row += p.Rows
		}
	}
	return m
}

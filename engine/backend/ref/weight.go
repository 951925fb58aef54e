package ref

import (
	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// weight is a packed weight: its bytes in the arena, and the scales behind them.
type weight struct {
	backend.Packed
	data   []byte
	scales *ref.Scales // by expert; nil: none
	rows   int         // rows of an expert
	round  bool        // inputs are rounded first
	to     ref.Rounding
}

// newWeight returns a weight from its bytes. Scales begin at the next multiple of 64 after
// the elements. Each row has its own scales, even if the checkpoint shares them.
func newWeight(w backend.WeightSpec, p backend.Packed, data []byte) weight {
	out := weight{Packed: p, data: data, rows: w.Rows, round: w.RoundInputs, to: roundingOf(w)}
	if n := scalesOf(w, p.Format); n > 0 {
		at := align(matrixBytes(w, p.Format))
		out.scales = &ref.Scales{Values: floats(data[at:])[:n], Rows: 1, Cols: w.Cols, Across: 1}
		if w.Scaling == backend.PerBlock || w.Scaling == backend.PerGroup {
			out.scales.Cols, out.scales.Across = shared(w), across(w)
		}
	}
	return out
}

// roundingOf returns what inputs are rounded to for a weight with RoundInputs.
func roundingOf(w backend.WeightSpec) ref.Rounding {
	return ref.Rounding{Format: w.Stored(), Group: w.InputGroup()}
}

// expertScales returns the scales of one matrix of a stack.
func (w *weight) expertScales(expert int) *ref.Scales {
	if w.scales == nil {
		return nil
	}
	s := *w.scales
	s.Values = s.Values[expert*w.rows*s.Across:]
	return &s
}

// matrixBytes returns the size of the elements without scales.
func matrixBytes(w backend.WeightSpec, f kernels.Format) int64 {
	return int64(max(1, w.Experts)) * int64(w.Rows) * f.Bytes(int64(w.Cols))
}

// scalesOf returns the number of scales of a weight that is stored as f.
func scalesOf(w backend.WeightSpec, f kernels.Format) int64 {
	if w.Scaling == backend.NoScale || !f.Scaled() {
		return 0
	}
	return int64(max(1, w.Experts)) * int64(w.Rows) * int64(across(w))
}

// across returns how many scales a row has.
func across(w backend.WeightSpec) int {
	n := shared(w)
	return (w.Cols + n - 1) / n
}

// shared returns how many columns share a scale.
func shared(w backend.WeightSpec) int { return w.Scaling.Columns(w.Cols, w.GroupSize) }

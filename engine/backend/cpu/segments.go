package cpu

import (
	"slices"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// segments splits a matrix whose parts have several formats, as Q, K and V in GGUF files may
// have, into runs of parts of one format. Each segment is packed and multiplied separately,
// into its own outputs. It returns nil if all parts have one format, or if the matrix has
// other uses than Multiply.
func segments(w backend.WeightSpec) []backend.WeightSpec {
	if w.Stored() != kernels.Invalid || w.Use != backend.Multiply || w.Experts > 0 {
		return nil
	}
	var out []backend.WeightSpec
	for _, p := range w.Parts {
		if n := len(out); n == 0 || out[n-1].Source != p.Format {
			s := w
			s.Source, s.Rows, s.Parts = p.Format, 0, nil
			out = append(out, s)
		}
		s := &out[len(out)-1]
		s.Rows += p.Rows
		s.Parts = append(s.Parts, p)
	}
	return out
}

// segmented returns how a weight of several formats is stored: its segments in order.
func (l layout) segmented(list []backend.WeightSpec) (p backend.Packed, err error) {
	var kernels, notes []string
	for _, s := range list {
		one, err := l.Weight(s)
		if err != nil {
			return p, err
		}
		p.Bytes += one.Bytes
		if !slices.Contains(kernels, one.Kernel) {
			kernels = append(kernels, one.Kernel)
		}
		if one.Note != "" && !slices.Contains(notes, one.Note) {
			notes = append(notes, one.Note)
		}
	}
	p.Kernel, p.Note = strings.Join(kernels, ", "), strings.Join(notes, "; ")
	return p, nil
}

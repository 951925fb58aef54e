package cpu

import (
	"slices"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// segments are the runs of parts of one format of a matrix whose parts have several, as
// GGUF files have Q, K and V: each is packed and multiplied by itself, into its own
// outputs. nil where one format holds for all, or the matrix is more than multiplied.
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

// segmented is a weight of several formats: its segments one after the other.
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

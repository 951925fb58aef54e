package cpu

import (
	"slices"
	"strings"

	"vapp.dev/engine/backend"
)

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

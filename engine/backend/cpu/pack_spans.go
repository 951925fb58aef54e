//go:build cgo && linux

package cpu

import (
	"fmt"

	"vapp.dev/engine/backend"
	kcpu "vapp.dev/kernels/cpu"
)

// spanBytes is about how many bytes of a tensor one thread packs at a time.
const spanBytes = 8 << 20

// span is a run of rows of a part of a weight, within one matrix of a stack.
type span struct {
	part            backend.Part
	expert          int
	row, rows, cols int   // of the part
	at              int64 // elements of the matrix before the span
}

// spansOf splits a weight into spans of whole panels, so that two spans never write to one
// panel. It fails if the parts do not have the weight's number of elements.
func spansOf(spec backend.WeightSpec) ([]span, error) {
	var out []span
	elems := int64(spec.Rows) * int64(spec.Cols)
	for e := range max(1, spec.Experts) {
		var at int64
		for _, p := range spec.Parts {
			rows, cols := p.Rows, spec.Cols
			if p.Elems > 0 {
				rows = max(1, p.Rows)
				cols = p.Elems / rows
			}
			if at+int64(rows)*int64(cols) > elems {
				return nil, fmt.Errorf("its parts have more than %d×%d elements", spec.Rows, spec.Cols)
			}
			if p.Values != nil && (len(p.Values) != rows*cols || spec.Use&backend.Vector == 0) {
				return nil, fmt.Errorf("%d literal values for %d×%d elements of a vector", len(p.Values), rows, cols)
			}
			out = cut(out, span{part: p, expert: e, rows: rows, cols: cols, at: at})
			at += int64(rows) * int64(cols)
		}
		if at != elems {
			return nil, fmt.Errorf("its parts have %d elements, not %d×%d", at, spec.Rows, spec.Cols)
		}
	}
	return out, nil
}

// cut appends s in pieces. It does not split parts that are read as a whole: literals,
// vectors, and transposed matrices.
func cut(out []span, s span) []span {
	step := s.rows
	if s.part.Values == nil && !s.part.Transposed && s.part.Elems == 0 {
		chunk := chunkRows(s.part.Format.Bytes(int64(s.cols)))
		step = chunk * max(1, spanBytes/packChunk)
	}
	for row := 0; row < s.rows; {
		n := min(step, s.rows-row)
		if over := int((s.at/int64(s.cols) + int64(row+n)) % kcpu.PanelRows); row+n < s.rows && over < n {
			n -= over // the next span begins with a panel
		}
		piece := s
		piece.row, piece.rows, piece.at = row, n, s.at+int64(row)*int64(s.cols)
		out = append(out, piece)
		row += n
	}
	return out
}

// chunkRows returns how many rows of size bytes are read at a time: whole panels.
func chunkRows(size int64) int {
	return int(max(1, packChunk/(size*kcpu.PanelRows))) * kcpu.PanelRows
}

//go:build cgo && linux

package cpu

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	kcpu "vapp.dev/kernels/cpu"
)

// TestSpans splits weights whose parts do not begin at a panel. Every row occurs once, in
// order, and no panel belongs to two spans of a part.
func TestSpans(t *testing.T) {
	part := func(rows int) backend.Part { return backend.Part{Tensor: "w", Rows: rows, Format: kernels.BF16} }
	for _, spec := range []backend.WeightSpec{
		{Rows: 40000, Cols: 2048, Parts: []backend.Part{part(40000)}},
		{Rows: 9000, Cols: 4096, Parts: []backend.Part{part(4001), part(7), part(4992)}},
		{Rows: 2100, Cols: 8192, Experts: 3, Parts: []backend.Part{part(1050), part(1050)}},
		{Rows: 5, Cols: 8, Parts: []backend.Part{part(5)}},
	} {
		spec.Use = backend.Multiply
		spans, err := spansOf(spec)
		if err != nil {
			t.Fatal(err)
		}
		var at int64
		for i, s := range spans {
			if want := at % (int64(spec.Rows) * int64(spec.Cols)); s.at != want {
				t.Fatalf("%d×%d: span %d begins at element %d, the ones before end at %d", spec.Rows, spec.Cols, i, s.at, want)
			}
			if s.row > 0 && s.at/int64(spec.Cols)%kcpu.PanelRows != 0 {
				t.Errorf("%d×%d: span %d begins with row %d of the matrix, within a panel", spec.Rows, spec.Cols, i, s.at/int64(spec.Cols))
			}
			at += int64(s.rows) * int64(s.cols)
		}
		if want := spec.Elems(); at != want {
			t.Errorf("%d×%d: spans have %d elements, not %d", spec.Rows, spec.Cols, at, want)
		}
		if n := spec.Elems() * 2 / spanBytes; int64(len(spans)) < n {
			t.Errorf("%d×%d: %d spans for %d threads", spec.Rows, spec.Cols, len(spans), n)
		}
	}
	if _, err := spansOf(backend.WeightSpec{Rows: 4, Cols: 8, Parts: []backend.Part{part(3)}}); err == nil {
		t.Error("parts of three rows make a matrix of four")
	}
	if _, err := spansOf(backend.WeightSpec{Rows: 4, Cols: 8, Parts: []backend.Part{part(3), part(2)}}); err == nil {
		t.Error("parts of five rows make a matrix of four")
	}
}

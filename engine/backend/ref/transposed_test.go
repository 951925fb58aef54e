package ref

import (
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// TestTransposed packs experts that the checkpoint stores as [in, out].
func TestTransposed(t *testing.T) {
	stored := []float32{0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15} // [2 experts, 2 in, 3 out]
	raw := make([]byte, 48)
	copy(floats(raw), stored)
	spec := backend.WeightSpec{Rows: 3, Cols: 2, Experts: 2, Source: kernels.F32, Use: backend.Multiply, Parts: []backend.Part{
		{Tensor: "experts", Rows: 3, Stride: 2, Format: kernels.F32, Transposed: true},
	}}
	k := packing{spec: spec, w: &weight{Packed: backend.Packed{Format: kernels.F32}, data: make([]byte, 48), rows: 3}, src: backend.MatrixRows(raw)}
	for k.expert = range 2 {
		if err := k.matrix(); err != nil {
			t.Fatal(err)
		}
	}
	want := []float32{0, 3, 1, 4, 2, 5, 10, 13, 11, 14, 12, 15}
	if got := floats(k.w.data); !slices.Equal(got, want) {
		t.Errorf("packed %v, want %v", got, want)
	}
}

//go:build cgo

package cpu

import (
	"fmt"
	"testing"

	"vapp.dev/kernels"
)

// TestLinearBlocks multiplies so many rows that they are cut into blocks, and panels into groups. Each
// row has the bits of a product of a few rows, which is not cut.
func TestLinearBlocks(t *testing.T) {
	const few = 5
	k, ok := LinearFor(AVX512BF16, kernels.BF16)
	if !ok || !present(AVX512BF16) {
		t.Skip("not run: no avx512bf16")
	}
	for _, s := range []shape{{150, 3000, 800, 3, true}, {60, 8192, 330, 0, false}} {
		p := newProblem(t, k, s, 1)
		p.compute(k, 1)
		all, one := append([]float32(nil), p.Y...), p.LinearArgs
		for r := 0; r < s.rows; r += few {
			one.Rows, one.X, one.Y = few, p.X[r*p.LdX:], p.Y[r*p.LdY:]
			k.Prepare(&one, 0, 1)
			k.Run(&one, 0, 1)
		}
		rows := make([]float32, 0, s.rows*s.out)
		for r := range s.rows {
			rows = append(rows, p.Y[r*p.LdY:][:s.out]...)
		}
		copy(p.Y, all)
		sameBits(t, p, rows, fmt.Sprint(s))
	}
}

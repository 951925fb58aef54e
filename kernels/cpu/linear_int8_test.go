//go:build linux && cgo

package cpu

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// intRounded returns x rounded to integers up to full, with a scale for each group.
func intRounded(x []float32, full float32, group int) []float32 {
	out := make([]float32, len(x))
	for k := 0; k < len(x); k += group {
		var most float32
		for _, v := range x[k : k+group] {
			most = max(most, float32(math.Abs(float64(v))))
		}
		for i, v := range x[k : k+group] {
			if most >= 0x1p-100 {
				out[k+i] = float32(math.RoundToEven(float64(v*(full/most)))) * (most / full)
			}
		}
	}
	return out
}

// TestInt8SameBits checks that every instruction set gives the bits of portable C.
func TestInt8SameBits(t *testing.T) {
	for _, f := range int8Formats {
		plain, _ := LinearFor("generic"+int8Suffix, f)
		for _, s := range linearShapes(f) {
			want := newProblem(t, plain, s, 1)
			want.compute(plain, 1)
			alone := make([]float32, s.rows*s.out)
			for r := range s.rows {
				copy(alone[r*s.out:], want.Y[r*want.LdY:r*want.LdY+s.out])
			}
			for _, v := range append([]string{AVX2Pairs}, int8Variants[1:]...) {
				k, ok := LinearFor(v+int8Suffix, f)
				if v == AVX2Pairs {
					v, k.variant = AVX2, AVX2+int8Suffix
				}
				if !ok || !present(v) {
					continue
				}
				k = withWorkspace(k)
				p := newProblem(t, k, s, 3)
				p.compute(k, 3)
				sameBits(t, p, alone, fmt.Sprintf("%s %v %v", v, f, s))
			}
		}
	}
}

// TestInt8Edges checks that a NaN or infinity reaches all outputs of its row and no other row,
// and that a row of zeros or of almost zeros gives the bias.
func TestInt8Edges(t *testing.T) {
	for _, v := range append(withInt8(), int15Variants...) {
		for _, f := range int8Formats {
			k, ok := LinearFor(v, f)
			if !ok || !present(strings.TrimSuffix(v, int8Suffix)) {
				continue
			}
			edges(t, fmt.Sprintf("%s %v", v, f), k, shape{5, 256, 33, 1, true}, 40)
		}
	}
}

// edges multiplies rows with a NaN and an infinity at input `at`, and rows of zeros, of almost
// zeros and of ones.
func edges(t *testing.T, name string, k LinearKernel, s shape, at int) {
	t.Helper()
	p := newProblem(t, k, s, 1)
	for r, fill := range []float32{float32(math.NaN()), float32(math.Inf(-1)), 0, 0x1p-130, 1} {
		p.X[r*p.LdX+at] = fill
		for i := 0; r >= 2 && i < p.In; i++ {
			p.X[r*p.LdX+i] = fill
		}
	}
	p.compute(k, 1)
	for r := range p.Rows {
		for o := range p.Out {
			y := p.Y[r*p.LdY+o]
			switch bias := p.Bias[o]; {
			case r < 2 && y == y, r > 1 && y != y, (r == 2 || r == 3) && y != bias, r == 4 && y == bias:
				t.Fatalf("%s: row %d output %d is %v, bias %v", name, r, o, y, bias)
			}
		}
	}
}

//go:build linux && cgo

package cpu

import (
	"fmt"
	"strings"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cpu/native"
)

func w8a8For(t *testing.T, variant string) (LinearKernel, bool) {
	t.Helper()
	k, ok := LinearFor(W8A8(variant), kernels.I8)
	k.scales = ChannelScales
	return k, ok && present(variant)
}

// TestW8A8SameBits checks that every instruction set gives the bits of portable C, for any
// number of inputs.
func TestW8A8SameBits(t *testing.T) {
	plain, _ := w8a8For(t, "generic")
	shapes := append(linearShapes(kernels.I8), shape{1, 1, 1, 0, true}, shape{5, 70, 70, 3, false}, shape{17, 201, 33, 0, true})
	for _, s := range shapes {
		want := newProblem(t, plain, s, 1)
		want.compute(plain, 1)
		alone := make([]float32, s.rows*s.out)
		for r := range s.rows {
			copy(alone[r*s.out:], want.Y[r*want.LdY:r*want.LdY+s.out])
		}
		for _, v := range append([]string{SoftAMX}, linearVariants[1:]...) {
			if k, ok := w8a8For(t, v); ok {
				k = withWorkspace(k)
				p := newProblem(t, k, s, 3)
				p.compute(k, 3)
				sameBits(t, p, alone, fmt.Sprintf("%s %v", v, s))
			}
		}
	}
}

// TestW8A8Extremes checks that the largest number of codes and inputs at the ends of their
// ranges sum exactly; no intermediate 16-bit sum overflows.
func TestW8A8Extremes(t *testing.T) {
	const in = w8Most
	for _, v := range linearVariants {
		k, ok := w8a8For(t, v)
		if !ok {
			continue
		}
		m := k.matrix(2, in)
		packed, _, _ := m.Layout()
		shared, work := LinearWorkspace(k.variant, k.format, 3, in, 2, 1)
		a := LinearArgs{Rows: 3, In: in, Out: 2, LdX: in, LdY: 2, W: guarded(t, int(packed)), Shared: guarded(t, int(shared)),
			Work: guarded(t, int(work)), X: guardedFloats(t, 3*in), Y: guardedFloats(t, 6)}
		row := make([]byte, in)
		for o, code := range []int8{-128, 127} {
			for i := range row {
				row[i] = byte(code)
			}
			m.PackRows(a.W, o, row)
			m.PackScales(a.W, o, []float32{1})
		}
		for i := range in {
			a.X[i], a.X[in+i], a.X[2*in+i] = 127, -127, float32(i%2*254-127)
		}
		k.Prepare(&a, 0, 1)
		k.Run(&a, 0, 1)
		want := []float32{-128 * 127 * in, 127 * 127 * in, 128 * 127 * in, -127 * 127 * in, 0, 0}
		for i, y := range a.Y {
			if y != want[i] {
				t.Errorf("%s: result %d is %v, want %v", v, i, y, want[i])
			}
		}
	}
	if _, _, ok := (Matrix{Variant: W8A8("generic"), Format: kernels.I8, Scales: ChannelScales, Rows: 1, Cols: w8Most + 1}).Layout(); ok {
		t.Error("there is a layout for more inputs than fit in 32-bit sums")
	}
}

// TestW8A8Edges checks that a NaN or infinity reaches all outputs of its row and no other row,
// and that a row of zeros or of almost zeros gives the bias.
func TestW8A8Edges(t *testing.T) {
	for _, v := range linearVariants {
		k, ok := w8a8For(t, v)
		if !ok {
			continue
		}
		edges(t, v, k, shape{5, 250, 33, 1, true}, 249)
	}
}

// withWorkspace gives the kernels on tiles in memory the workspace of amx.
func withWorkspace(k LinearKernel) LinearKernel {
	k.variant = strings.Replace(k.variant, SoftAMX, "amx", 1)
	return k
}

// TestTileLoads checks that a large product with two row tiles and two halves of a panel at a
// time loads hardly more tiles than it multiplies.
func TestTileLoads(t *testing.T) {
	k, ok := w8a8For(t, SoftAMX)
	if !ok {
		t.Skip("not run: this CPU has no", SoftAMX)
	}
	k = withWorkspace(k)
	p := newProblem(t, k, shape{64, 4096, 64, 0, true}, 1)
	c := native.CountTiles(func() { p.compute(k, 1) })
	if want := int64(64 / 16 * 64 / 16 * 4096 / 64); c.Products != want {
		t.Errorf("%d products of tiles, want %d", c.Products, want)
	}
	if ratio := float64(c.Loads) / float64(c.Products); ratio > 1.05 {
		t.Errorf("%d tiles are loaded for %d products: %.3f", c.Loads, c.Products, ratio)
	}
}

//go:build linux && cgo

package cpu

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/kernels"
)

// quantKernels returns the kernels of amx for quantized weights on tiles in memory, in both
// definitions.
func quantKernels(t *testing.T) (all []LinearKernel) {
	t.Helper()
	if !present(softAMX) {
		t.Skip("not run: this CPU has no", softAMX)
	}
	for _, m := range linearMatrices() {
		if ok, _ := tiled(AMX, m.Format); !ok {
			continue
		}
		k, ok := softTiles(m.Format)
		if !ok {
			t.Fatal("no kernel for", m)
		}
		k.scales = m.Scales
		all = append(all, k)
		if k, ok = softOutside(m.Format); ok {
			all = append(all, k)
		}
	}
	return all
}

// TestQuantRows checks that vectors and tiles give a row the same bits, for every number of rows
// up to two row tiles, with inputs from the smallest denormals to numbers whose products overflow,
// zeros, infinities and NaNs.
func TestQuantRows(t *testing.T) {
	numbers := []float32{0x1p-149, 0x1p-126, -0x1p-120, 0x1.8p-64, 0, float32(math.Copysign(0, -1)), 1, -3, 0x1p40, -0x1p100, 0x1.fep127}
	for _, k := range quantKernels(t) {
		s := shape{33, 96, 65, 0, true}.whole(k.format)
		p := newProblem(t, k, s, 1)
		for r := range s.rows {
			for i := range s.in {
				if x := &p.X[r*p.LdX+i]; r%4 > 0 {
					*x *= numbers[(r*7+i)%(2*(r%4)+3)]
				}
			}
		}
		p.X[5*p.LdX+40], p.X[17*p.LdX+3] = float32(math.NaN()), float32(math.Inf(1))
		alone := make([]float32, s.rows*s.out)
		one := *p
		for r := range s.rows {
			one.Rows, one.X, one.Y = 1, p.X[r*p.LdX:], alone[r*s.out:(r+1)*s.out]
			one.compute(k, 1)
		}
		for rows := 1; rows <= s.rows; rows++ {
			if rows > 5 && rows < 15 {
				continue // as 5 and 15: part of a row tile
			}
			some := *p
			some.Rows = rows
			some.compute(k, 1)
			sameNumbers(t, &some, alone, fmt.Sprintf("%s %v: %d rows", k.variant, k.matrix(s.out, s.in), rows))
		}
	}
}

// sameNumbers is sameBits for results that may be NaNs, whose payload may differ.
func sameNumbers(t *testing.T, p *problem, want []float32, what string) {
	t.Helper()
	for r := range p.Rows {
		for o := range p.Out {
			got, want := p.Y[r*p.LdY+o], want[r*p.Out+o]
			if math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
				t.Fatalf("%s: row %d output %d is %v, alone %v", what, r, o, got, want)
			}
			if r == 5 && got == got {
				t.Fatalf("%s: row %d output %d is %v, although its input has a NaN", what, r, o, got)
			}
		}
	}
}

// TestQuantSpans checks that long rows, whose sums wait while other panels pass, and several
// chunks of rows have the bits of one row.
func TestQuantSpans(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	for _, f := range []kernels.Format{kernels.Q4_0, kernels.Q6_K, kernels.F8E4M3} {
		for _, outside := range []bool{false, true} {
			k, ok := softTiles(f)
			if outside {
				k, ok = softOutside(f)
			}
			if !ok || !present(softAMX) {
				continue
			}
			for _, s := range []shape{{50, 2560, 280, 0, true}, {290, 64, 40, 0, false}} {
				s = s.whole(f)
				p := newProblem(t, k, s, 2)
				alone := make([]float32, s.rows*s.out)
				one := *p
				for r := range s.rows {
					one.Rows, one.X, one.Y = 1, p.X[r*p.LdX:], alone[r*s.out:(r+1)*s.out]
					one.compute(k, 1)
				}
				p.compute(k, 2)
				sameBits(t, p, alone, fmt.Sprintf("%s %v: %v", k.variant, f, s))
			}
		}
	}
}

// TestOutside checks which formats have the second definition, and that their packed weights are
// those of amx.
func TestOutside(t *testing.T) {
	for _, f := range SupportedFormats(AMX) {
		v, ok := Outside(AMX, f)
		a, _, _ := LinearLayout(AMX, f, 64, 256)
		b, name, has := LinearLayout(v, f, 64, 256)
		switch {
		case ok != has && ok, a != b, ok && name != "linear.amx+outside."+f.String(), !ok && v != AMX:
			t.Errorf("Outside(%v) is %q, %v; its layout is %q of %d bytes, amx has %d", f, v, ok, name, b, a)
		}
	}
	if _, ok := Outside(AVX512BF16, kernels.Q4_0); ok {
		t.Error("avx512bf16 has no second definition")
	}
}

// TestQuantCounts holds what a thread of two reads from where for each product of tiles, of
// weights that are unpacked. A panel's weights are unpacked once for 256 rows, and the bytes from
// beyond the second cache are hardly more than theirs; up to 32 rows no sum leaves its tile
// before the end.
func TestQuantCounts(t *testing.T) {
	for _, want := range []struct {
		f                          kernels.Format
		outside                    bool
		rows, in, out              int
		loads, stores, far, beyond float64 // for each product
	}{
		{kernels.Q4_0, false, 512, 2048, 8192, 1.11, 0.126, 670, 22},
		{kernels.Q4_0, false, 512, 8192, 2048, 1.13, 0.126, 700, 70},
		{kernels.Q4_0, false, 16, 2048, 8192, 1.51, 0.016, 520, 312},
		{kernels.Q8_0, false, 16, 2048, 8192, 1.51, 0.016, 520, 570},
		{kernels.Q4_0, true, 512, 2048, 8192, 2.01, 1.01, 690, 22},
		{kernels.Q4_0, true, 16, 2048, 8192, 2.01, 1.01, 820, 312},
	} {
		k, ok := softTiles(want.f)
		if want.outside {
			k, ok = softOutside(want.f)
		}
		if !ok || !present(softAMX) {
			t.Skip("not run: this CPU has no", softAMX)
		}
		c := countedRun(t, k, want.rows, want.in, want.out)
		what := fmt.Sprintf("%s %v, %d rows, %d to %d", k.variant, want.f, want.rows, want.in, want.out)
		products := int64(want.in/amxK) * int64((want.rows+amxRows-1)/amxRows) * int64(want.out/amxRows/2)
		if c.Products != products {
			t.Errorf("%s: %d products, want %d", what, c.Products, products)
		}
		for _, n := range []struct {
			what       string
			got, bound float64
		}{
			{"loads of tiles", float64(c.Loads), want.loads},
			{"stores of tiles", float64(c.Stores), want.stores},
			{"bytes from the second cache", float64(c.Tile.L2 + c.Vector.L2 + c.FetchNear.L2), want.far},
			{"bytes from beyond it", float64(c.Beyond()), want.beyond},
		} {
			if each := n.got / float64(products); each > n.bound {
				t.Errorf("%s: %.4g %s for a product, want %.4g at most", what, each, n.what, n.bound)
			}
		}
	}
}

//go:build linux && cgo

package cpu

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cpu/native"
	"vapp.dev/kernels/ref"
)

// tilesOf returns Linear of a format on tiles in memory.
func tilesOf(t *testing.T, f kernels.Format) LinearKernel {
	t.Helper()
	k, ok := softTiles(f)
	if !ok || !present(softAMX) {
		t.Skip("not run: this CPU has no", softAMX)
	}
	return k
}

// fma32 returns a·b + c of floats whose product is exact in float64, rounded once: the sum is
// rounded to odd first.
func fma32(a, b, c float32) float32 {
	x, y := float64(a)*float64(b), float64(c)
	sum := x + y
	part := sum - x
	rest := (x - (sum - part)) + (y - part)
	if bits := math.Float64bits(sum); rest != 0 && bits%2 == 0 {
		if (rest > 0) == (sum > 0) {
			bits++
		} else {
			bits--
		}
		sum = math.Float64frombits(bits)
	}
	return float32(sum)
}

// tileSum returns output o of row r as tiles define it: of each 32 inputs the products of even
// ones and of odd ones are two chains from 0, whose sum is added to the sum before.
func (p *problem) tileSum(r, o int) (sum float32) {
	round := func(x float32) float32 { return ref.BFloatToFloat(ref.FloatToBFloat(x)) }
	for k := 0; k < p.In; k += amxK {
		var chains [2]float32
		for i := k; i < min(k+amxK, p.In); i++ {
			chains[i%2] = fma32(round(p.X[r*p.LdX+i]), round(p.weights[o*p.In+i]), chains[i%2])
		}
		sum += chains[0] + chains[1]
	}
	if len(p.Bias) > 0 {
		sum += p.Bias[o]
	}
	return sum
}

// TestTilesBF16Sums compares bits with the definition of a sum on tiles: one pair of row tiles,
// blocks of inputs, steps of inputs, and several chunks of rows, with padded ends.
func TestTilesBF16Sums(t *testing.T) {
	k := tilesOf(t, kernels.BF16)
	for _, s := range []shape{{1, 700, 33, 0, true}, {17, 301, 32, 1, false}, {50, 700, 40, 0, true}, {258, 2599, 33, 3, true}, {250, 6199, 320, 0, true}} {
		p := newProblem(t, k, s, 2)
		p.compute(k, 2)
		for r := 0; r < s.rows; r += 1 + s.rows/20 {
			for o := 0; o < s.out; o += 1 + s.out/50 {
				if got, want := p.Y[r*p.LdY+o], p.tileSum(r, o); math.Float32bits(got) != math.Float32bits(want) {
					t.Fatalf("%v: row %d output %d is %v, the definition gives %v", s, r, o, got, want)
				}
			}
		}
	}
}

// TestTilesBF16Batch checks that a row has the same bits in every batch, with fixed shares and
// with panels that parts take, also where parts outnumber panels and where k has several steps.
func TestTilesBF16Batch(t *testing.T) {
	k := tilesOf(t, kernels.BF16)
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	for _, s := range []shape{{70, 100, 65, 0, true}, {70, 257, 160, 0, false}, {300, 2600, 320, 0, true}, {300, 12300, 320, 0, false}} {
		all := newProblem(t, k, s, 1)
		all.compute(k, 1)
		want := append([]float32(nil), all.Y...)
		counts := []int{33, 65, 257, 300}
		if s.rows == 70 {
			counts = make([]int, 70)
			for i := range counts {
				counts[i] = i + 1
			}
		}
		for i, rows := range counts {
			parts := []int{1, 2, 3, 40}[i%4]
			some := *all
			some.Rows = rows
			some.X, some.Y = all.X[:(rows-1)*all.LdX+s.in], all.Y[:(rows-1)*all.LdY+s.out]
			what := fmt.Sprintf("%v: %d rows, %d parts", s, rows, parts)
			some.compute(k, parts)
			sameBits(t, &some, want[:len(some.Y)], what)
			runTaken(t, k, &some, parts)
			sameBits(t, &some, want[:len(some.Y)], what+" that take panels")
		}
	}
}

// runTaken runs parts on threads that take their panels from one counter.
func runTaken(t *testing.T, k LinearKernel, p *problem, parts int) {
	t.Helper()
	for i := range p.Y {
		p.Y[i] = float32(math.NaN())
	}
	k.Prepare(&p.LinearArgs, 0, 1)
	_, work := LinearWorkspace(k.variant, k.format, p.Rows, p.In, p.Out, parts)
	var taken int64
	var wg sync.WaitGroup
	for part := range parts {
		one := p.LinearArgs
		one.Taken, one.Work = &taken, guarded(t, int(work))
		wg.Go(func() { k.Run(&one, part, parts) })
	}
	wg.Wait()
}

// countedRun returns what the first of two parts does to multiply `rows` rows with a weight.
func countedRun(t *testing.T, k LinearKernel, rows, in, out int) native.TileCounts {
	t.Helper()
	packed, _, _ := k.matrix(out, in).Layout()
	shared, work := LinearWorkspace(k.variant, k.format, rows, in, out, 2)
	a := LinearArgs{Rows: rows, In: in, Out: out, LdX: in, LdY: out, W: guarded(t, int(packed)), Shared: guarded(t, int(shared)), Work: guarded(t, int(work)),
		X: guardedFloats(t, rows*in), Y: guardedFloats(t, rows*out)}
	return native.CountTiles(func() { k.Run(&a, 0, 2) })
}

// TestTilesBF16Counts holds what a thread of two reads from where for each product of tiles. At
// 512 rows weights come from beyond the second cache twice (64 bytes a product are once for 256
// rows), x and sums hardly do, and results go past the caches. At one row weights come once and
// nothing else does; no sum leaves its tile before the end.
func TestTilesBF16Counts(t *testing.T) {
	k := tilesOf(t, kernels.BF16)
	for _, want := range []struct {
		rows, in, out              int
		loads, stores, far, beyond float64 // for each product
	}{
		{512, 2048, 8192, 1.110, 0.1251, 702, 67},
		{512, 8192, 2048, 1.122, 0.1251, 678, 97},
		{1, 2048, 8192, 1.501, 0.0157, 35, 1028},
		{16, 2048, 8192, 1.501, 0.0157, 525, 1046},
	} {
		c := countedRun(t, k, want.rows, want.in, want.out)
		products := int64(want.in/amxK) * int64((want.rows+amxRows-1)/amxRows) * int64(want.out/amxRows/2)
		if c.Products != products {
			t.Errorf("%d rows, %d to %d: %d products, want %d", want.rows, want.in, want.out, c.Products, products)
		}
		if streamed := int64(want.rows * want.out / 2 * 4); want.rows > 64 && c.Streamed != streamed {
			t.Errorf("%d rows, %d to %d: %d bytes are stored past the caches, want %d", want.rows, want.in, want.out, c.Streamed, streamed)
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
				t.Errorf("%d rows, %d to %d: %.4g %s for a product, want %.4g at most", want.rows, want.in, want.out, each, n.what, n.bound)
			}
		}
	}
}

//go:build linux && cgo

package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cpu/isa"
	"vapp.dev/kernels/ref"
)

// present reports whether this process may run a variant: the processor has its instructions,
// and the system has granted the registers of AMX.
func present(variant string) bool {
	for _, suffix := range []string{int8Suffix, w8a8Suffix, outsideSuffix} {
		variant = strings.TrimSuffix(variant, suffix)
	}
	if variant == softAMX {
		variant = AVX512BF16
	}
	return isa.Has(variant)
}

// softAMX is the AMX kernel on tiles in memory.
const softAMX = SoftAMX

// eachKernel runs f for every variant and format. It skips, by name, what this machine or build
// does not have.
func eachKernel(t *testing.T, f func(t *testing.T, k LinearKernel)) {
	for _, variant := range testedVariants() {
		for _, m := range linearMatrices() {
			t.Run(variant+"/"+m.String(), func(t *testing.T) {
				k, ok := LinearFor(variant, m.Format)
				switch variant {
				case softAMX:
					k, ok = softTiles(m.Format)
				case softAMX + outsideSuffix:
					k, ok = softOutside(m.Format)
				}
				k.scales = m.Scales
				if _, _, has := k.matrix(1, 256).Layout(); ok && !has {
					t.Skip("not run: no layout of", variant)
				}
				switch {
				case !present(variant):
					t.Skip("not run: this CPU has no", variant)
				case !ok:
					t.Skip("not run: this build has no", variant)
				}
				f(t, k)
			})
		}
	}
}

// testedVariants returns the float variants, AMX on tiles in memory, and the int8 variants.
func testedVariants() []string {
	all := append([]string{softAMX, softAMX + outsideSuffix}, linearVariants...)
	all = append(all, "amx"+outsideSuffix)
	for _, v := range int8Variants {
		all = append(all, v+int8Suffix)
	}
	for _, v := range linearVariants {
		all = append(all, W8A8(v))
	}
	return all
}

// linearMatrices returns all formats, and 8-bit floats, I8 and NVFP4 with each kind of scales.
func linearMatrices() (all []Matrix) {
	for _, f := range SupportedFormats("generic") {
		all = append(all, Matrix{Format: f})
	}
	for _, s := range []Scales{ChannelScales, BlockScales, PanelScales} {
		all = append(all, Matrix{Format: kernels.F8E4M3, Scales: s})
	}
	for _, s := range []Scales{ChannelScales, BlockScales, GroupScales} {
		all = append(all, Matrix{Format: kernels.I8, Scales: s})
	}
	return append(all, Matrix{Format: kernels.F8E5M2, Scales: BlockScales}, Matrix{Format: kernels.NVFP4, Scales: ChannelScales})
}

// String returns the format and its scales.
func (m Matrix) String() string {
	return m.Format.String() + scaleNames[m.Scales]
}

// problem is a Linear with random operands in guarded memory.
type problem struct {
	LinearArgs
	weights []float32 // [Out,In], the values of the packed weight
	rounded []float32 // those that the variant multiplies
	bf16    bool      // whether x is rounded to BF16
	most    float32   // the largest integer that x is rounded to; 0: x is not rounded to integers
	sharing int       // how many x share that scale
}

// shape is the shape of a problem; rows of X and Y are pad floats longer than their data.
type shape struct {
	rows, in, out, pad int
	bias               bool
}

// whole returns s with inputs rounded up to whole blocks of f.
func (s shape) whole(f kernels.Format) shape {
	n, _ := f.Block()
	s.in = (s.in + n - 1) / n * n
	return s
}

func (s shape) String() string { return fmt.Sprintf("%dx%dx%d+%d", s.rows, s.in, s.out, s.pad) }

func newProblem(t testing.TB, k LinearKernel, s shape, parts int) *problem {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(s.in), uint64(s.out)))
	random := func(x []float32) []float32 {
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return x
	}
	m := k.matrix(s.out, s.in)
	packed, _, ok := m.Layout()
	if !ok {
		t.Fatalf("no layout for %v", s)
	}
	shared, work := LinearWorkspace(k.variant, k.format, s.rows, s.in, s.out, parts)
	stored := storedRandom(rng, k.format, s.in*s.out)
	base := strings.TrimSuffix(k.variant, outsideSuffix)
	rounds := (base == "amx" || base == "avx512bf16") && k.format != kernels.F32 && k.format != kernels.F16 || asBFMMLA(k.variant, k.format)
	most := [3]float32{0, 127, 127 * 128}[integers(k.variant, k.format)]
	sharing := int8Group
	if strings.HasSuffix(k.variant, w8a8Suffix) {
		most, sharing = 127, s.in
	}
	p := &problem{most: most, sharing: sharing, bf16: rounds && most == 0, weights: make([]float32, s.in*s.out), LinearArgs: LinearArgs{
		Rows: s.rows, In: s.in, Out: s.out, LdX: s.in + s.pad, LdY: s.out + s.pad,
		W: guarded(t, int(packed)), Shared: guarded(t, int(shared)), Work: guarded(t, int(work)),
		X: random(guardedFloats(t, s.rows*(s.in+s.pad)-s.pad)), Y: guardedFloats(t, s.rows*(s.out+s.pad)-s.pad),
	}}
	if s.bias {
		p.Bias = random(guardedFloats(t, s.out))
	}
	ref.Dequantize(k.format, stored, p.weights)
	// Padding has random content: it must not reach a result.
	for i := range p.W {
		p.W[i] = 0xff
	}
	m.PackRows(p.W, 0, stored)
	p.scale(m, rng)
	p.rounded = p.weights
	if ok, outside := tiled(k.variant, k.format); ok && !outside {
		p.rounded = roundedWeights(m, stored, p.weights)
	}
	return p
}

// storedRandom returns n random elements as a checkpoint stores them.
func storedRandom(rng *rand.Rand, f kernels.Format, n int) []byte {
	stored := make([]byte, f.Bytes(int64(n)))
	if f == kernels.MXFP4 {
		for i := range stored {
			if stored[i] = byte(rng.Uint32()); i%17 == 16 {
				stored[i] = byte(100 + rng.IntN(40))
			}
		}
		return stored
	}
	if f == kernels.NVFP4 {
		for i := range stored {
			if stored[i] = byte(rng.Uint32()); i%9 == 8 && stored[i]&0x7f == 0x7f {
				stored[i] = 1 // no NaN, but a subnormal
			}
		}
		return stored
	}
	if _, ok := blocksOf[f]; ok || f == kernels.I8 || f == kernels.I4 || slices.Contains(storedFormats, f) {
		return randomBlocks(rng, f, stored)
	}
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
		if f == kernels.F8E4M3 && i%3 == 0 {
			x[i] *= 0x1p-7 // includes subnormals
		}
	}
	ref.Quantize(f, x, stored)
	return stored
}

// headsOf lists the offsets of the halves of a block.
var headsOf = map[kernels.Format][]int{
	kernels.Q5_0: {0}, kernels.Q5_1: {0, 2}, kernels.IQ4_NL: {0}, kernels.Q2_K: {80, 82}, kernels.Q3_K: {108},
	kernels.Q4_K: {0, 2}, kernels.Q5_K: {0, 2}, kernels.Q6_K: {208},
	kernels.IQ4_XS: {0}, kernels.IQ3_XXS: {0}, kernels.IQ3_S: {0}, kernels.IQ2_XXS: {0}, kernels.IQ2_XS: {0}, kernels.IQ2_S: {0},
	kernels.IQ1_S: {0}, kernels.TQ1_0: {52}, kernels.TQ2_0: {64},
}

// randomBlocks fills stored with random bits, except for its halves, which get any sign and
// size.
func randomBlocks(rng *rand.Rand, f kernels.Format, stored []byte) []byte {
	for i := range stored {
		stored[i] = byte(rng.Uint32())
	}
	_, size := f.Block()
	for at := 0; at < len(stored); at += size {
		for _, h := range headsOf[f] {
			binary.LittleEndian.PutUint16(stored[at+h:], ref.FloatToHalf(float32(rng.NormFloat64()/64)))
		}
		if f == kernels.I4 {
			head := math.Float32bits(float32(rng.NormFloat64()/64))&^ref.ZeroBits | uint32(rng.IntN(17))
			binary.LittleEndian.PutUint32(stored[at:], head)
		}
		if f == kernels.IQ1_M { // four bits of the half in each word
			h := ref.FloatToHalf(float32(rng.NormFloat64() / 64))
			for i := range 4 {
				stored[at+49+2*i] = stored[at+49+2*i]&15 | byte(h>>(4*i))<<4
			}
		}
	}
	return stored
}

// scale gives the weights random scales of all sizes, some negative.
func (p *problem) scale(m Matrix, rng *rand.Rand) {
	if m.Scales == NoScales {
		return
	}
	scales := make([]float32, m.Across())
	for r := range m.Rows {
		if m.Scales != PanelScales || r%panelRows == 0 {
			for i := range scales {
				scales[i] = float32(math.Ldexp(rng.Float64()-0.2, rng.IntN(12)-6))
			}
		}
		m.PackScales(p.W, r, scales)
		for i := range m.Cols {
			p.weights[r*m.Cols+i] *= scales[i/m.sharing()]
		}
	}
}

// sharing returns how many inputs share a scale.
func (m Matrix) sharing() int {
	switch m.Scales {
	case ChannelScales:
		return m.Cols
	case GroupScales:
		return mxK
	}
	return scaleK
}

// compute runs all parts, the last first, after filling workspaces and results with garbage.
func (p *problem) compute(k LinearKernel, parts int) {
	for i := range p.Y {
		p.Y[i] = float32(math.NaN())
	}
	for i := range p.Shared {
		p.Shared[i] = 0xff
	}
	for part := parts - 1; part >= 0; part-- {
		k.Prepare(&p.LinearArgs, part, parts)
	}
	if p.Taken != nil {
		*p.Taken = 0
	}
	for part := parts - 1; part >= 0; part-- {
		for i := range p.Work {
			p.Work[i] = 0xff
		}
		k.Run(&p.LinearArgs, part, parts)
	}
}

// exact returns output o of row r in float64, and the sum of its terms' magnitudes.
func (p *problem) exact(r, o int) (sum, size float64) {
	row := p.X[r*p.LdX : r*p.LdX+p.In]
	if p.most > 0 {
		row = intRounded(row, p.most, p.sharing)
	}
	for i, x := range row {
		w := p.rounded[o*p.In+i]
		if p.bf16 {
			x = ref.BFloatToFloat(ref.FloatToBFloat(x))
		}
		term := float64(x) * float64(w)
		sum, size = sum+term, size+math.Abs(term)
	}
	if len(p.Bias) > 0 {
		sum, size = sum+float64(p.Bias[o]), size+math.Abs(float64(p.Bias[o]))
	}
	return sum, size
}

// linearShapes returns odd shapes: single, partial and several panels and tiles.
func linearShapes(f kernels.Format) []shape {
	shapes := []shape{
		{1, 32, 1, 0, true}, {1, 64, 33, 3, false}, {1, 672, 64, 0, true}, {2, 32, 31, 0, false}, {3, 160, 64, 1, true}, {11, 96, 40, 5, false},
		{12, 256, 32, 0, true}, {13, 288, 65, 2, true}, {25, 416, 97, 0, false}, {40, 128, 5, 7, true},
	}
	if f == kernels.I8 {
		for i := range shapes {
			shapes[i].in = shapes[i].in / 32 * 32
		}
		return shapes
	}
	if f == kernels.NVFP4 { // an odd number of groups
		shapes = append(shapes, shape{1, 16, 1, 0, true}, shape{1, 48, 70, 0, false}, shape{5, 144, 34, 1, true}, shape{14, 272, 66, 3, true}, shape{30, 656, 33, 0, false})
	}
	if f.Quantized() && !float8(f) {
		for i := range shapes {
			shapes[i] = shapes[i].whole(f)
		}
		return shapes
	}
	return append(shapes, shape{1, 1, 1, 0, true}, shape{1, 33, 70, 0, false}, shape{5, 3, 2, 1, false},
		shape{4, 129, 34, 0, true}, shape{1, 385, 40, 0, true}, shape{14, 255, 66, 3, false}, shape{30, 257, 16, 1, true})
}

// TestLinear compares with float64. The rounding errors of a chain of n fused sums grow like a
// random walk, so (8 + √n)·2⁻²⁴ of the sum of the terms' magnitudes bounds them in every
// format. The scaled sums of 8-bit floats, MXFP4 and NVFP4 add no error. AMX also rounds x to bf16,
// and weights except 8-bit floats with one scale for each output.
func TestLinear(t *testing.T) {
	eachKernel(t, func(t *testing.T, k LinearKernel) {
		for _, s := range linearShapes(k.format) {
			p := newProblem(t, k, s, 3)
			p.compute(k, 3)
			p.compare(t, s, (8+math.Sqrt(float64(s.in)))*0x1p-24)
		}
	})
}

// compare checks each result against a relative bound, and that the gaps between the rows of Y
// are unchanged.
func (p *problem) compare(t *testing.T, s shape, bound float64) {
	t.Helper()
	for i, got := range p.Y {
		r, o := i/p.LdY, i%p.LdY
		if o >= p.Out {
			if !math.IsNaN(float64(got)) {
				t.Errorf("%v: row %d: wrote %d floats past its end", s, r, o-p.Out+1)
			}
			continue
		}
		want, size := p.exact(r, o)
		if diff := math.Abs(float64(got) - want); !(diff <= bound*size) {
			t.Fatalf("%v: row %d output %d is %v, want %v: off by %.3g of %.3g", s, r, o, got, want, diff, bound*size)
		}
	}
}

// TestLinearBatch checks that the bits of a row depend neither on other rows nor on the number
// of parts.
func TestLinearBatch(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	eachKernel(t, func(t *testing.T, k LinearKernel) {
		for _, s := range []shape{{40, 288, 97, 3, true}, {55, 64, 97, 0, false}} {
			s = s.whole(k.format)
			p := newProblem(t, k, s, 1)
			alone := make([]float32, s.rows*s.out)
			one := *p
			for r := range s.rows {
				one.Rows, one.X, one.Y = 1, p.X[r*p.LdX:r*p.LdX+p.In], alone[r*s.out:(r+1)*s.out]
				one.compute(k, 1)
			}
			for _, rows := range []int{1, 2, 5, 12, 13, 24, 26, s.rows} {
				for _, parts := range []int{1, 2, 3, 17} {
					some := *p
					some.Rows = min(rows, s.rows)
					if parts == 3 {
						some.Taken = new(int64)
					}
					some.compute(k, parts)
					sameBits(t, &some, alone, fmt.Sprintf("%v: %d rows in %d parts", s, rows, parts))
				}
			}
		}
	})
}

func sameBits(t *testing.T, p *problem, want []float32, what string) {
	t.Helper()
	for r := range p.Rows {
		for o := range p.Out {
			got, want := p.Y[r*p.LdY+o], want[r*p.Out+o]
			if math.Float32bits(got) != math.Float32bits(want) {
				t.Fatalf("%s: row %d output %d is %v, alone %v", what, r, o, got, want)
			}
		}
	}
}

// TestLinearRow checks that a packed row unpacks to the format's values, bit for bit.
func TestLinearRow(t *testing.T) {
	eachKernel(t, func(t *testing.T, k LinearKernel) {
		for _, s := range linearShapes(k.format) {
			p := newProblem(t, k, s, 1)
			got := guardedFloats(t, s.in)
			for r := range s.out {
				k.Row(p.W, s.in, s.out, r, got)
				for i := range got {
					if want := p.weights[r*s.in+i]; math.Float32bits(got[i]) != math.Float32bits(want) {
						t.Fatalf("%v: row %d element %d is %v, want %v", s, r, i, got[i], want)
					}
				}
			}
		}
	})
}

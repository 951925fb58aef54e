//go:build linux && cgo

package cpu

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// roundedWeights returns the weights that amx multiplies, as native/linear/amx_quant.h defines
// them, of a matrix whose stored blocks mean `weights`.
func roundedWeights(m Matrix, stored []byte, weights []float32) []float32 {
	out := append([]float32(nil), weights...)
	switch {
	case m.Format == kernels.MXFP4, m.Format == kernels.NVFP4, (float8(m.Format) || m.Format == kernels.I8) && m.Scales <= ChannelScales:
	case slices.Contains(storedFormats, m.Format):
		storedOnGrid(m.Format, stored, out)
	case gridded(m.Format):
		onGrid(m.Format, stored, out)
	default:
		for i, w := range out {
			out[i] = halfAway(w)
		}
	}
	return out
}

func gridded(f kernels.Format) bool {
	switch f {
	case kernels.Q4_0, kernels.IQ4_NL, kernels.IQ4_XS, kernels.Q3_K:
		return true
	}
	return false
}

// halfAway rounds to bf16, half away from 0.
func halfAway(w float32) float32 {
	return math.Float32frombits((math.Float32bits(w) + 0x8000) & 0xffff0000)
}

// group is the codes of weights that share a scale, counted from the one that means 0.
type group struct {
	codes      []float32
	d          float32
	low, high  float32 // the smallest and the largest code
	firstIndex int
}

// weights stores the group's weights on their grid: fma(code, d, B) − B.
func (g group) weights(dst []float32) {
	largest := max(abs(g.d*g.low), abs(g.d*g.high))
	b := math.Float32frombits(math.Float32bits(largest)&0x7f800000 + 16<<23 + 0x400000)
	for i, c := range g.codes {
		dst[g.firstIndex+i] = float32(float64(c)*float64(g.d)+float64(b)) - b // exact in float64: one rounding
	}
}

func abs(x float32) float32 { return float32(math.Abs(float64(x))) }

func onGrid(f kernels.Format, stored []byte, dst []float32) {
	elems, size := f.Block()
	for at := 0; len(stored) > 0; at, stored = at+elems, stored[size:] {
		if f != kernels.Q4_0 {
			ofBlock(f, stored[:size], at, dst)
			continue
		}
		codes := make([]byte, 32)
		nibbles(stored[2:], codes)
		g := group{d: ref.HalfToFloat(binary.LittleEndian.Uint16(stored)), low: -8, high: 7, firstIndex: at}
		for _, c := range codes {
			g.codes = append(g.codes, float32(c)+g.low)
		}
		g.weights(dst)
	}
}

// iq4 lists the numbers of IQ4_NL's codes.
var iq4 = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

func ofBlock(f kernels.Format, src []byte, at int, dst []float32) {
	b := blocksOf[f]
	var x block
	b.read(src, &x)
	elems, _ := f.Block()
	subs := max(b.subs, 1)
	for k := 0; k < elems; k += 32 / subs {
		g := group{d: ref.HalfToFloat(x.d), firstIndex: at + k}
		if b.subs > 0 {
			g.d *= float32(int8(x.scales[k*subs/32]))
		}
		if f == kernels.Q3_K {
			g.low, g.high = -4, 3
		}
		for _, c := range x.codes[k : k+32/subs] {
			v := g.low + float32(c)
			if f == kernels.IQ4_NL || f == kernels.IQ4_XS {
				v, g.low, g.high = iq4[c], -127, 113
			}
			g.codes = append(g.codes, v)
		}
		g.weights(dst)
	}
}

// storedOnGrid is onGrid for blocks that a panel keeps: dst has their exact weights. The grid is
// that of the largest number of the format's table.
func storedOnGrid(f kernels.Format, stored []byte, dst []float32) {
	_, size := f.Block()
	for ; len(stored) > 0; stored, dst = stored[size:], dst[256:] {
		scales, most := storedScales(f, stored[:size])
		for j, d := range scales {
			g := group{d: 1, low: -abs(d) * most, high: abs(d) * most, codes: slices.Clone(dst[16*j:][:16])}
			g.weights(dst[16*j:])
		}
	}
}

// storedScales returns the scale of each 16 elements, and the largest number that it is multiplied
// with.
func storedScales(f kernels.Format, b []byte) (scales [16]float32, most float32) {
	var at, sub, nibble int
	d := binary.LittleEndian.Uint16(b)
	switch f {
	case kernels.TQ1_0:
		d, most = binary.LittleEndian.Uint16(b[52:]), 2
	case kernels.TQ2_0:
		d, most = binary.LittleEndian.Uint16(b[64:]), 2
	case kernels.IQ1_S, kernels.IQ1_M:
		most = 1.125
	case kernels.IQ3_S:
		at, sub, most = 106, 32, 15
	case kernels.IQ3_XXS:
		nibble, most = 69, 15.5
	case kernels.IQ2_XXS:
		nibble, most = 9, 5.375
	case kernels.IQ2_XS:
		at, sub, most = 66, 16, 5.375
	case kernels.IQ2_S:
		at, sub, most = 74, 16, 5.375
	}
	if f == kernels.IQ1_M {
		d = 0
		for i := range 4 {
			d |= uint16(b[49+2*i]>>4) << (4 * i)
		}
	}
	for j := range scales {
		s := 0 // twice this plus 1
		switch {
		case sub > 0:
			i := 16 * j / sub
			s = int(b[at+i/2]>>(i%2*4)) & 15
		case f == kernels.IQ3_XXS:
			s = int(b[nibble+j/2*4] >> 4)
		case f == kernels.IQ2_XXS:
			s = int(b[nibble+j/2*8] >> 4)
		case f == kernels.IQ1_S:
			s = int(b[35+j/2*2]>>4) & 7
		case f == kernels.IQ1_M:
			s = int(binary.LittleEndian.Uint16(b[48+j/4*2:])>>(j%4*3)) & 7
		}
		scales[j] = ref.HalfToFloat(d) * float32(2*s+1)
	}
	return scales, most
}

// TestRoundedWeights states what the roundings of amx lose: the relative RMS of each format's
// weights, of blocks that quantize normal numbers. It is far below what the formats lose.
func TestRoundedWeights(t *testing.T) {
	for _, c := range []struct {
		f    kernels.Format
		most float64
	}{{kernels.Q8_0, 0.0018}, {kernels.Q4_0, 0.0042}, {kernels.Q4_1, 0.0018}} {
		x, stored := make([]float32, 1<<16), make([]byte, c.f.Bytes(1<<16))
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		ref.Quantize(c.f, x, stored)
		ref.Dequantize(c.f, stored, x)
		var lost, size float64
		for i, w := range roundedWeights(Matrix{Format: c.f}, stored, x) {
			lost, size = lost+sq(w-x[i]), size+sq(x[i])
		}
		if rms := math.Sqrt(lost / size); rms > c.most || rms < c.most/2 {
			t.Errorf("%v: rounding loses %.4f of the weights, want at most %.4f", c.f, rms, c.most)
		}
	}
}

func sq(x float32) float64 { return float64(x) * float64(x) }

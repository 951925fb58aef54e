package ref

import (
	"encoding/binary"
	"fmt"
	"math"

	"vapp.dev/kernels"
)

// Dequantize writes the value of every element of src, stored as f, to dst in order. len(dst)
// is a multiple of f's block, and src has at least f.Bytes(len(dst)) bytes. Integer formats
// are converted to numbers. The block formulas are GGUF's (ggml-quants.c, dequantize_row_*),
// in float32.
func Dequantize(f kernels.Format, src []byte, dst []float32) {
	elems, size := f.Block()
	if size == 0 || len(dst)%elems != 0 || int64(len(src)) < f.Bytes(int64(len(dst))) {
		panic(fmt.Sprintf("ref: Dequantize %d bytes of %v to %d elements", len(src), f, len(dst)))
	}
	if t := float8Values(f); t != nil {
		for i := range dst {
			dst[i] = t[src[i]]
		}
		return
	}
	if !f.Quantized() || f == kernels.I8 {
		dequantizePlain(f, src, dst)
		return
	}
	block := blockDecoder(f)
	for i := 0; i < len(dst); i += elems {
		block(src[:size], dst[i:i+elems])
		src = src[size:]
	}
}

func dequantizePlain(f kernels.Format, src []byte, dst []float32) {
	le := binary.LittleEndian
	switch f {
	case kernels.F32:
		for i := range dst {
			dst[i] = math.Float32frombits(le.Uint32(src[4*i:]))
		}
	case kernels.F16:
		for i := range dst {
			dst[i] = HalfToFloat(le.Uint16(src[2*i:]))
		}
	case kernels.BF16:
		for i := range dst {
			dst[i] = BFloatToFloat(le.Uint16(src[2*i:]))
		}
	case kernels.I32:
		for i := range dst {
			dst[i] = float32(int32(le.Uint32(src[4*i:])))
		}
	case kernels.I8:
		for i := range dst {
			dst[i] = float32(int8(src[i]))
		}
	case kernels.U32:
		for i := range dst {
			dst[i] = float32(le.Uint32(src[4*i:]))
		}
	default:
		panic(fmt.Sprintf("ref: Dequantize has no rule for %v", f))
	}
}

func blockDecoder(f kernels.Format) func(src []byte, dst []float32) {
	switch f {
	case kernels.MXFP4:
		return mxfp4
	case kernels.Q8_0:
		return decodeQ8_0
	case kernels.Q4_0:
		return decodeQ4_0
	case kernels.Q4_1:
		return decodeQ4_1
	case kernels.I4:
		return decodeI4
	case kernels.Q4_K:
		return decodeQ4_K
	case kernels.Q6_K:
		return decodeQ6_K
	case kernels.Q5_0:
		return decodeQ5_0
	case kernels.Q5_1:
		return decodeQ5_1
	case kernels.Q2_K:
		return decodeQ2_K
	case kernels.Q3_K:
		return decodeQ3_K
	case kernels.Q5_K:
		return decodeQ5_K
	case kernels.IQ4_NL:
		return decodeIQ4_NL
	case kernels.IQ4_XS:
		return decodeIQ4_XS
	case kernels.IQ3_XXS:
		return decodeIQ3_XXS
	case kernels.IQ3_S:
		return decodeIQ3_S
	case kernels.IQ2_XXS:
		return decodeIQ2_XXS
	case kernels.IQ2_XS:
		return decodeIQ2_XS
	case kernels.IQ2_S:
		return decodeIQ2_S
	case kernels.IQ1_S:
		return decodeIQ1_S
	case kernels.IQ1_M:
		return decodeIQ1_M
	case kernels.TQ1_0:
		return decodeTQ1_0
	case kernels.TQ2_0:
		return decodeTQ2_0
	case kernels.NVFP4:
		return decodeNVFP4
	}
	panic(fmt.Sprintf("ref: Dequantize has no rule for %v", f))
}

func halfAt(b []byte) float32 { return HalfToFloat(binary.LittleEndian.Uint16(b)) }

// decodeQ8_0 reads {d half, q [32]int8}: x = d·q.
func decodeQ8_0(src []byte, dst []float32) {
	d := halfAt(src)
	for i := range dst {
		dst[i] = float32(int8(src[2+i])) * d
	}
}

// decodeQ4_0 reads {d half, q [16]byte}: x = d·(q−8). Byte i holds element i in
// its low half and element i+16 in its high half.
func decodeQ4_0(src []byte, dst []float32) {
	d := halfAt(src)
	for i := range 16 {
		q := src[2+i]
		dst[i] = float32(int(q&15)-8) * d
		dst[i+16] = float32(int(q>>4)-8) * d
	}
}

// decodeQ4_1 reads {d half, m half, q [16]byte}: x = d·q + m, nibbles as in Q4_0.
// The product is rounded before the sum, as everywhere here.
func decodeQ4_1(src []byte, dst []float32) {
	d, m := halfAt(src), halfAt(src[2:])
	for i := range 16 {
		q := src[4+i]
		dst[i] = float32(float32(q&15)*d) + m
		dst[i+16] = float32(float32(q>>4)*d) + m
	}
}

// ZeroBits are the bits of an I4 head that hold the zero point; the others are those of the scale.
const ZeroBits = 0xff

// decodeI4 reads {head uint32, q [16]byte}: x = s·q − s·z, nibbles as in Q4_0. Products and
// difference are exact, and a zero is +0.
func decodeI4(src []byte, dst []float32) {
	head := binary.LittleEndian.Uint32(src)
	s := math.Float32frombits(head &^ ZeroBits)
	z := s * float32(head&ZeroBits)
	for i := range 16 {
		q := src[4+i]
		dst[i] = float32(q&15)*s - z
		dst[i+16] = float32(q>>4)*s - z
	}
}

// ScaleMinQ4_K unpacks the six-bit scale and minimum of sub-block j (0 to 7)
// from the 12 packed bytes of a Q4_K block.
func ScaleMinQ4_K(j int, packed []byte) (scale, min byte) {
	if j < 4 {
		return packed[j] & 63, packed[j+4] & 63
	}
	return packed[j+4]&15 | packed[j-4]>>6<<4, packed[j+4]>>4 | packed[j]>>6<<4
}

// decodeQ4_K reads {d half, dmin half, scales [12]byte, q [128]byte}: eight
// sub-blocks of 32, x = (d·scale)·q − dmin·min. Sub-blocks 2k and 2k+1 share
// the bytes 32k to 32k+31, low halves first.
func decodeQ4_K(src []byte, dst []float32) {
	d, dmin := halfAt(src), halfAt(src[2:])
	packed, qs := src[4:16], src[16:144]
	for j := range 8 {
		sc, mn := ScaleMinQ4_K(j, packed)
		scale, min := d*float32(sc), dmin*float32(mn)
		for i := range 32 {
			q := qs[j/2*32+i] >> (j % 2 * 4) & 15
			dst[j*32+i] = float32(scale*float32(q)) - min
		}
	}
}

// decodeQ6_K reads {ql [128]byte, qh [64]byte, scales [16]int8, d half}:
// sixteen sub-blocks of 16, x = (d·scale)·(q−32); q has its low four bits in ql
// and its high two in qh, interleaved over each half of 128 elements.
func decodeQ6_K(src []byte, dst []float32) {
	d := halfAt(src[208:])
	for h := range 2 {
		ql, qh, sc := src[64*h:64*h+64], src[128+32*h:128+32*h+32], src[192+8*h:192+8*h+8]
		for quarter := range 4 {
			for i := range 32 {
				low := ql[quarter%2*32+i] >> (quarter / 2 * 4) & 15
				high := qh[i] >> (2 * quarter) & 3
				scale := d * float32(int8(sc[quarter*2+i/16]))
				dst[128*h+32*quarter+i] = scale * float32(int(low|high<<4)-32)
			}
		}
	}
}

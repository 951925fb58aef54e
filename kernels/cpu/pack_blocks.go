package cpu

import (
	"encoding/binary"

	"vapp.dev/kernels"
)

// blocks is the struct blocks of native/linear/blocks.h; read decodes a block of a file.
type blocks struct {
	low, high, subs int
	least           bool
	read            func(src []byte, to *block)
}

// block is 32 or 256 codes, with a scale and a minimum for each sub-block of 16 or 32.
type block struct {
	d, least     uint16 // halves
	codes        [256]byte
	scales, mins [16]byte
}

var blocksOf = map[kernels.Format]blocks{
	kernels.Q5_0:   {4, 1, 0, false, readQ5_0},
	kernels.Q5_1:   {4, 1, 0, true, readQ5_1},
	kernels.IQ4_NL: {4, 0, 0, false, readIQ4_NL},
	kernels.IQ4_XS: {4, 0, 1, false, readIQ4_XS},
	kernels.Q2_K:   {2, 0, 2, true, readQ2_K},
	kernels.Q3_K:   {2, 1, 2, false, readQ3_K},
	kernels.Q4_K:   {4, 0, 1, true, readQ4_K},
	kernels.Q5_K:   {4, 1, 1, true, readQ5_K},
	kernels.Q6_K:   {4, 2, 2, false, readQ6_K},
}

// kinds returns how many numbers a head, or a sub-block, has.
func (b blocks) kinds() int {
	if b.least {
		return 2
	}
	return 1
}

func (b blocks) heads() int { return 2 * panelRows * b.kinds() }
func (b blocks) each() int  { return panelRows * (b.subs*b.kinds() + 4*(b.low+b.high)) }

// span returns the k's that share heads, and their bytes in a panel.
func (b blocks) span() (k, bytes int) {
	if b.subs == 0 {
		return 32, b.heads() + b.each()
	}
	return 128, b.heads() + 4*b.each()
}

// bytes returns the bytes of cols k's of a panel.
func (b blocks) bytes(cols int64) int64 {
	k, n := b.span()
	return cols / int64(k) * int64(n)
}

// packBlocks stores a row of f's blocks as a lane of a panel; high stores the high bits.
func packBlocks(f kernels.Format, panel []byte, lane int, src []byte, high func(dst, codes []byte, bits, from int)) {
	b := blocksOf[f]
	elems, size := f.Block()
	span, bytes := b.span()
	var x block
	for ; len(src) > 0; src = src[size:] {
		b.read(src[:size], &x)
		for k := 0; k < elems; k += span {
			b.pack(&x, k, span, panel[:bytes], lane, high)
			panel = panel[bytes:]
		}
	}
}

// pack stores n codes from k on.
func (b blocks) pack(x *block, k, n int, dst []byte, lane int, high func(dst, codes []byte, bits, from int)) {
	le := binary.LittleEndian
	le.PutUint16(dst[2*lane:], x.d)
	if b.least {
		le.PutUint16(dst[2*panelRows+2*lane:], x.least)
	}
	dst = dst[b.heads():]
	for end := k + n; k < end; k += 32 {
		at := dst[lane:]
		for i := range b.subs {
			sub := k*b.subs/32 + i
			at[i*panelRows] = x.scales[sub]
			if b.least {
				at[(b.subs+i)*panelRows] = x.mins[sub]
			}
		}
		at = dst[b.subs*b.kinds()*panelRows+4*lane:]
		fields(at, x.codes[k:k+32], b.low, 0)
		if b.high > 0 {
			high(at[4*b.low*panelRows:], x.codes[k:k+32], b.high, b.low)
		}
		dst = dst[b.each():]
	}
}

// fields stores bits of 32 codes, from bit `from` on, in dwords one panel row apart.
func fields(dst, codes []byte, bits, from int) {
	per := 32 / bits
	for w := range bits {
		var word uint32
		for i, c := range codes[w*per:][:per] {
			word |= uint32(c) >> from & (1<<bits - 1) << (i * bits)
		}
		binary.LittleEndian.PutUint32(dst[4*panelRows*w:], word)
	}
}

// byteFields is fields in the order of native/linear/int8/int8.h: a byte has bits of one code
// of each of several vectors of four.
func byteFields(dst, codes []byte, bits, from int) {
	per := 8 / bits
	for k, c := range codes {
		vector := k/8*2 + k%2
		at := vector/per*4*panelRows + k%8/2
		if vector%per == 0 {
			dst[at] = 0
		}
		dst[at] |= c >> from & (1<<bits - 1) << (vector % per * bits)
	}
}

// nibbles unpacks the low halves of 16 bytes, then the high halves.
func nibbles(src []byte, codes []byte) {
	for i, q := range src[:16] {
		codes[i], codes[i+16] = q&15, q>>4
	}
}

func readQ5_0(src []byte, x *block) {
	x.d = binary.LittleEndian.Uint16(src)
	nibbles(src[6:], x.codes[:])
	fifths(binary.LittleEndian.Uint32(src[2:]), x.codes[:32])
}

func readQ5_1(src []byte, x *block) {
	x.d, x.least = binary.LittleEndian.Uint16(src), binary.LittleEndian.Uint16(src[2:])
	nibbles(src[8:], x.codes[:])
	fifths(binary.LittleEndian.Uint32(src[4:]), x.codes[:32])
}

func fifths(high uint32, codes []byte) {
	for i := range codes {
		codes[i] |= byte(high>>i&1) << 4
	}
}

func readIQ4_NL(src []byte, x *block) {
	x.d = binary.LittleEndian.Uint16(src)
	nibbles(src[2:], x.codes[:])
}

func readIQ4_XS(src []byte, x *block) {
	x.d = binary.LittleEndian.Uint16(src)
	high := binary.LittleEndian.Uint16(src[2:])
	for j := range 8 {
		x.scales[j] = src[4+j/2]>>(j%2*4)&15 | byte(high>>(2*j)&3)<<4 - 32
		nibbles(src[8+16*j:], x.codes[32*j:])
	}
}

func readQ2_K(src []byte, x *block) {
	x.d, x.least = binary.LittleEndian.Uint16(src[80:]), binary.LittleEndian.Uint16(src[82:])
	for j, s := range src[:16] {
		x.scales[j], x.mins[j] = s&15, s>>4
	}
	pairs(src[16:80], x.codes[:])
}

// pairs unpacks the 2-bit codes of Q2_K and Q3_K.
func pairs(src, codes []byte) {
	for i := range codes {
		codes[i] = src[i/128*32+i%32] >> (i % 128 / 32 * 2) & 3
	}
}

func readQ3_K(src []byte, x *block) {
	x.d = binary.LittleEndian.Uint16(src[108:])
	for j := range 16 {
		x.scales[j] = src[96+j%8]>>(j/8*4)&15 | src[104+j%4]>>(j/4*2)&3<<4
		x.scales[j] -= 32
	}
	pairs(src[32:96], x.codes[:])
	for i := range x.codes {
		x.codes[i] |= src[i%32] >> (i / 32) & 1 << 2
	}
}

// sixBits unpacks the scales and minima of Q4_K and Q5_K.
func sixBits(src []byte, x *block) {
	x.d, x.least = binary.LittleEndian.Uint16(src), binary.LittleEndian.Uint16(src[2:])
	for j, p := range src[4:8] {
		m, both := src[8+j], src[12+j]
		x.scales[j], x.mins[j] = p&63, m&63
		x.scales[j+4], x.mins[j+4] = both&15|p>>6<<4, both>>4|m>>6<<4
	}
}

func readQ4_K(src []byte, x *block) {
	sixBits(src, x)
	for i := range x.codes {
		x.codes[i] = src[16+i/64*32+i%32] >> (i / 32 % 2 * 4) & 15
	}
}

func readQ5_K(src []byte, x *block) {
	sixBits(src, x)
	for i := range x.codes {
		x.codes[i] = src[48+i/64*32+i%32]>>(i/32%2*4)&15 | src[16+i%32]>>(i/32)&1<<4
	}
}

func readQ6_K(src []byte, x *block) {
	x.d = binary.LittleEndian.Uint16(src[208:])
	copy(x.scales[:], src[192:208])
	for i := range x.codes {
		h, quarter := i/128, i%128/32
		low := src[64*h+quarter%2*32+i%32] >> (quarter / 2 * 4) & 15
		x.codes[i] = low | src[128+32*h+i%32]>>(2*quarter)&3<<4
	}
}

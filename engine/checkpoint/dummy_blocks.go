package checkpoint

import (
	"encoding/binary"

	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// fillBlocks writes random blocks of a quantized format: all bits random, then
// scales put in that give the values a deviation near dummyDeviation and a mean
// near 0.
func fillBlocks(at uint64, row []byte, size int, scale func(block []byte)) {
	fillRandom(at, row)
	for ; len(row) > 0; row = row[size:] {
		scale(row[:size])
	}
}

func fillRandom(at uint64, row []byte) {
	for ; len(row) >= 8; row = row[8:] {
		binary.LittleEndian.PutUint64(row, mix(at))
		at += golden
	}
	for r := mix(at); len(row) > 0; row, r = row[1:], r>>8 {
		row[0] = byte(r)
	}
}

// blockScale overwrites the scales of a random block. A uniform whole number
// of n values deviates by √((n²−1)/12): 73.9 for 256, 18.5 for 64, 4.61 for 16.
func blockScale(f kernels.Format) func(block []byte) {
	put := func(b []byte, h uint16) { binary.LittleEndian.PutUint16(b, h) }
	half := func(x float32) (t [4]uint16) { // four sizes near x, picked by two random bits
		for i := range t {
			t[i] = ref.FloatToHalf(x * (0.85 + 0.1*float32(i)))
		}
		return t
	}
	switch f {
	case kernels.Q8_0:
		d := half(dummyDeviation / 73.9)
		return func(b []byte) { put(b, d[b[0]&3]) }
	case kernels.Q4_0:
		d := half(dummyDeviation / 4.61)
		return func(b []byte) { put(b, d[b[0]&3]) }
	case kernels.Q4_1:
		d, m := half(dummyDeviation/4.61), half(-7.5*dummyDeviation/4.61)
		return func(b []byte) { i := b[0] & 3; put(b, d[i]); put(b[2:], m[i]) }
	case kernels.Q4_K:
		const typical = 32 // of the six-bit scales
		d, m := half(dummyDeviation/4.61/typical), half(7.5*dummyDeviation/4.61/typical)
		return func(b []byte) {
			i := b[0] & 3
			put(b, d[i])
			put(b[2:], m[i])
			packQ4_K(b[4:16])
		}
	case kernels.Q6_K:
		const typical = 32
		d := half(dummyDeviation / 18.5 / typical)
		return func(b []byte) {
			for i, r := range b[192:208] {
				b[192+i] = 24 + r&15
			}
			put(b[208:], d[b[208]&3])
		}
	}
	return nil
}

// packQ4_K turns 12 random bytes into eight scales of 24 to 39, each equal to
// its minimum, packed as ref.ScaleMinQ4_K unpacks them.
func packQ4_K(b []byte) {
	var v [8]byte
	for j := range v {
		v[j] = 24 + b[j]&15
	}
	for j := range 4 {
		hi := v[j+4]
		b[j] = v[j] | hi>>4<<6
		b[j+4] = v[j] | hi>>4<<6
		b[j+8] = hi&15 | hi&15<<4
	}
}

package cuda

// How the blocks of the formats become the steps of a panel: see weights.cuh.

// place returns the lane that holds an element of a step, and the element's index among the
// lane's sixteen.
func place(row, col int) (lane, number int) {
	t, k := col/16, col%16
	r, h, q := row/8+k/8*2, k%2, k%8/2
	return row%8*4 + q, t*8 + 2*r + h
}

// pack16: two halves, by t, of 16 bytes for each lane.
func pack16(dst []byte, block func(int, int) []byte, unit int) {
	for row := range PanelRows {
		b := block(row, unit)
		for col := range StepCols {
			lane, n := place(row, col)
			at := n/8*512 + lane*16 + n%8*2
			copy(dst[at:at+2], b[2*col:])
		}
	}
}

// pack8: 16 bytes for each lane, then the heads of the blocks, by row.
func pack8(head int) func([]byte, func(int, int) []byte, int) {
	return func(dst []byte, block func(int, int) []byte, unit int) {
		for row := range PanelRows {
			b := block(row, unit)
			copy(dst[512+head*row:][:head], b)
			for col := range StepCols {
				lane, n := place(row, col)
				dst[lane*16+n] = b[head+col]
			}
		}
	}
}

// put4 sets the 4-bit code of an element of a step with 8 bytes for each lane.
func put4(dst []byte, row, col int, code byte) {
	lane, n := place(row, col)
	nibble := n%8/2 + n%2*4 // in the lane's word n/8
	dst[lane*8+n/8*4+nibble/2] |= code << (nibble % 2 * 4)
}

// code4 returns element col of 16 bytes whose low halves are the first 16 elements.
func code4(b []byte, col int) byte { return b[col%16] >> (col / 16 * 4) & 15 }

// pack4: 8 bytes for each lane, then the heads of the blocks, by row.
func pack4(head int) func([]byte, func(int, int) []byte, int) {
	return func(dst []byte, block func(int, int) []byte, unit int) {
		clear(dst[:256])
		for row := range PanelRows {
			b := block(row, unit)
			copy(dst[256+head*row:][:head], b)
			for col := range StepCols {
				put4(dst, row, col, code4(b[head:], col))
			}
		}
	}
}

// put1 and put2 set an element's bit, or two bits, of a step with 2 or 4 bytes for each lane;
// those of h = 0 are in the lower half.
func put1(dst []byte, row, col int, bit byte) {
	lane, n := place(row, col)
	dst[lane*2+n%2] |= bit << (n / 2)
}

func put2(dst []byte, row, col int, bits byte) {
	lane, n := place(row, col)
	at := n%2*16 + n/2*2
	dst[lane*4+at/8] |= bits << (at % 8)
}

// pack5: like pack4, with 2 bytes of upper bits for each lane between.
func pack5(head int) func([]byte, func(int, int) []byte, int) {
	return func(dst []byte, block func(int, int) []byte, unit int) {
		clear(dst[:320])
		for row := range PanelRows {
			b := block(row, unit)
			copy(dst[320+head*row:][:head], b)
			for col := range StepCols {
				put4(dst, row, col, code4(b[head+4:], col))
				put1(dst[256:], row, col, b[head+col/8]>>(col%8)&1)
			}
		}
	}
}

// putE2M1 sets an element's code of E2M1 in a step with 8 bytes for each lane. Rotated up by a number of bits that depends
// on r, a lane's word has the sign in bit 15, where bf16 has it, and the others in bits 8 to 6, in its lower half (h = 0) and
// in its upper half; so most fragments are a rotation and a mask (WeightsMXFP4::code).
func putE2M1(dst []byte, row, col int, code byte) {
	up := [4][4]int{{0, 0, 0, 0}, {4, 4, 4, 4}, {10, 10, 10, 10}, {6, 14, 14, 14}} // of the code's bits, the lowest first
	lane, n := place(row, col)
	word := dst[lane*8+n/8*4:]
	for i, bit := range []int{6, 7, 8, 15} {
		at := (bit + n%2*16 + 32 - up[n%8/2][i]) % 32
		word[at/8] |= code >> i & 1 << (at % 8)
	}
}

// packMXFP4: two neighbouring codes share a byte; the exponent is the last byte.
func packMXFP4(dst []byte, block func(int, int) []byte, unit int) {
	clear(dst[:256])
	for row := range PanelRows {
		b := block(row, unit)
		dst[256+row] = b[16]
		for col := range StepCols {
			putE2M1(dst, row, col, b[col/2]>>(col%2*4)&15)
		}
	}
}

// packNVFP4: two blocks of 16 features for each row, in which two neighbouring codes share a byte; the
// two scales follow the step's codes, by row.
func packNVFP4(dst []byte, block func(int, int) []byte, unit int) {
	clear(dst[:256])
	for row := range PanelRows {
		b := block(row, unit)
		dst[256+2*row], dst[257+2*row] = b[8], b[17]
		for col := range StepCols {
			putE2M1(dst, row, col, b[col/16*9+col%16/2]>>(col%2*4)&15)
		}
	}
}

// packQ2_K: eight steps, then 16 bytes of scales by row, then d and dmin by row.
func packQ2_K(dst []byte, block func(int, int) []byte, unit int) {
	clear(dst[:1024])
	for row := range PanelRows {
		b := block(row, unit)
		copy(dst[1024+16*row:][:16], b)
		copy(dst[1280+4*row:][:4], b[80:])
		for step := range 8 {
			for col := range StepCols {
				put2(dst[128*step:], row, col, b[16+step/4*32+col]>>(step%4*2)&3)
			}
		}
	}
}

// packQ3_K: eight steps of 2-bit codes, each followed by 2 bytes of upper bits for each lane;
// then 12 bytes of scales by row, then d by row.
func packQ3_K(dst []byte, block func(int, int) []byte, unit int) {
	clear(dst[:1536])
	for row := range PanelRows {
		b := block(row, unit)
		copy(dst[1536+12*row:][:12], b[96:])
		copy(dst[1728+2*row:][:2], b[108:])
		for step := range 8 {
			out := dst[192*step:]
			for col := range StepCols {
				put2(out, row, col, b[32+step/4*32+col]>>(step%4*2)&3)
				put1(out[128:], row, col, b[col]>>step&1)
			}
		}
	}
}

// packQ5_K: eight steps of 4-bit codes, each followed by 2 bytes of upper bits for each lane;
// then 16 bytes of scales by row.
func packQ5_K(dst []byte, block func(int, int) []byte, unit int) {
	clear(dst[:2560])
	for row := range PanelRows {
		b := block(row, unit)
		copy(dst[2560+16*row:][:16], b)
		for step := range 8 {
			out := dst[320*step:]
			for col := range StepCols {
				put4(out, row, col, b[48+step/2*32+col]>>(step%2*4)&15)
				put1(out[256:], row, col, b[16+col]>>step&1)
			}
		}
	}
}

// packQ4_K: eight steps, then 16 bytes of scales by row.
func packQ4_K(dst []byte, block func(int, int) []byte, unit int) {
	clear(dst[:2048])
	for row := range PanelRows {
		b := block(row, unit)
		copy(dst[2048+16*row:][:16], b)
		for step := range 8 {
			for col := range StepCols {
				put4(dst[256*step:], row, col, b[16+step/2*32+col]>>(step%2*4)&15)
			}
		}
	}
}

// packQ6_K: eight steps of 4-bit codes, each followed by 4 bytes of upper bits for each lane;
// then 16 scales by row, then d by row.
func packQ6_K(dst []byte, block func(int, int) []byte, unit int) {
	clear(dst[:3072])
	for row := range PanelRows {
		b := block(row, unit)
		copy(dst[3072+16*row:][:16], b[192:208])
		copy(dst[3072+256+2*row:][:2], b[208:210])
		for step := range 8 {
			half, quarter, out := step/4, step%4, dst[384*step:]
			for col := range StepCols {
				put4(out, row, col, b[64*half+quarter%2*32+col]>>(quarter/2*4)&15)
				lane, n := place(row, col)
				bit := 2*(n/2) + n%2*16
				out[256+4*lane+bit/8] |= b[128+32*half+col] >> (2 * quarter) & 3 << (bit % 8)
			}
		}
	}
}

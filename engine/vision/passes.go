package vision

import "encoding/binary"

// Two sums of 32 bits share a register of 64: the sum of byte · weight of one line plus 2³² times
// that of another. A sum fits in its half and multiplication by a weight is exact modulo 2⁶⁴, so the
// halves can be separated at the end.
const (
	// pair selects a byte of each half.
	pair = 0x000000ff000000ff
	// lanes is the number of rows that a rowPass resamples at once.
	lanes = 8
)

// half returns one half of the last bit of a result, in both sums: they are rounded by cutting.
func (f *filter) half() uint64 { return 1<<(f.bits-1) | 1<<(f.bits+31) }

// halves returns the two sums of s as bytes.
func halves(s uint64, bits uint) (low, high byte) {
	a := int32(s)
	return toByte(a, bits), toByte(int32((s-uint64(int64(a)))>>32), bits)
}

// toByte clamps a sum, to which half was added, to a byte.
func toByte(sum int32, bits uint) byte {
	v := sum >> (bits & 31)
	if uint32(v) > 255 {
		v = ^(v >> 31)
	}
	return byte(v)
}

// mix sets out to line i of the result, of which rows are the lines that it reads.
func (f *filter) mix(out []byte, i int, rows [][]byte) {
	weights, half, bits, n := f.weights(i), f.half(), f.bits, len(out)
	for x := 0; x < n && n < 8; x++ {
		s := half
		for i, w := range weights {
			s += uint64(rows[i][x]) * w
		}
		out[x], _ = halves(s, bits)
	}
	for x := 0; x < n && n >= 8; x += 8 {
		x := min(x, n-8) // the last eight bytes may be computed twice
		a, b, c, d := half, half, half, half
		for i, w := range weights {
			v := binary.LittleEndian.Uint64(rows[i][x:])
			a += (v & pair) * w
			b += (v >> 8 & pair) * w
			c += (v >> 16 & pair) * w
			d += (v >> 24 & pair) * w
		}
		o := out[x : x+8]
		o[0], o[4] = halves(a, bits)
		o[1], o[5] = halves(b, bits)
		o[2], o[6] = halves(c, bits)
		o[3], o[7] = halves(d, bits)
	}
}

// rowPass resamples rows, eight at a time.
type rowPass struct {
	*filter        // nil: rows keep their width
	tile    []tall // pixels of the source
}

// tall is a pixel of eight rows: numbers 4·c to 4·c+3 are of channel c, and have rows 0 and 4, 1 and
// 5, 2 and 6, 3 and 7 in their halves.
type tall [12]uint64

// span is the number of pixels of a tile, so that it stays in the first cache.
const span = 256

func newRowPass(f *filter) *rowPass {
	p := &rowPass{filter: f}
	if f != nil {
		p.tile = make([]tall, max(span, 4*f.most))
	}
	return p
}

// run resamples the rows in to the rows out.
func (p *rowPass) run(out, in *[lanes][]byte) {
	if p.filter == nil {
		for i := range lanes {
			copy(out[i], in[i])
		}
		return
	}
	for x, n := 0, len(p.first); x < n; {
		from, to := p.lines(x)
		end := x + 1 // of the pixels that read only this tile
		for ; end < n; end++ {
			_, b := p.lines(end)
			if b-from > len(p.tile) {
				break
			}
			to = b
		}
		separate(p.tile[:to-from], in, from)
		for ; x < end; x++ {
			a, b := p.lines(x)
			p.pixel(out, x, p.tile[a-from:b-from])
		}
	}
}

// separate fills tile with the pixels of the rows from pixel from on.
func separate(tile []tall, in *[lanes][]byte, from int) {
	four := binary.LittleEndian.Uint32
	for j := range lanes / 2 {
		low, high := in[j][3*from:3*(from+len(tile))], in[j+4][3*from:3*(from+len(tile))]
		t := tile
		for ; len(t) >= 4 && len(low) >= 12 && len(high) >= 12; t, low, high = t[4:], low[12:], high[12:] {
			a := uint64(four(low)) | uint64(four(high))<<32
			b := uint64(four(low[4:])) | uint64(four(high[4:]))<<32
			c := uint64(four(low[8:])) | uint64(four(high[8:]))<<32
			p := &t[0]
			p[j], p[4+j], p[8+j] = a&pair, a>>8&pair, a>>16&pair
			p = &t[1]
			p[j], p[4+j], p[8+j] = a>>24&pair, b&pair, b>>8&pair
			p = &t[2]
			p[j], p[4+j], p[8+j] = b>>16&pair, b>>24&pair, c&pair
			p = &t[3]
			p[j], p[4+j], p[8+j] = c>>8&pair, c>>16&pair, c>>24&pair
		}
		for i := range t {
			for c := range 3 {
				t[i][4*c+j] = uint64(low[3*i+c]) | uint64(high[3*i+c])<<32
			}
		}
	}
}

// pixel sets pixel x of eight rows, of which tile has the pixels that it reads.
func (p *rowPass) pixel(out *[lanes][]byte, x int, tile []tall) {
	weights, half, bits := p.weights(x), p.half(), p.bits
	tile = tile[:len(weights)]
	for c := range 3 {
		s0, s1, s2, s3 := half, half, half, half
		switch c {
		case 0:
			for i, w := range weights {
				t := &tile[i]
				s0, s1, s2, s3 = s0+t[0]*w, s1+t[1]*w, s2+t[2]*w, s3+t[3]*w
			}
		case 1:
			for i, w := range weights {
				t := &tile[i]
				s0, s1, s2, s3 = s0+t[4]*w, s1+t[5]*w, s2+t[6]*w, s3+t[7]*w
			}
		case 2:
			for i, w := range weights {
				t := &tile[i]
				s0, s1, s2, s3 = s0+t[8]*w, s1+t[9]*w, s2+t[10]*w, s3+t[11]*w
			}
		}
		at := 3*x + c
		out[0][at], out[4][at] = halves(s0, bits)
		out[1][at], out[5][at] = halves(s1, bits)
		out[2][at], out[6][at] = halves(s2, bits)
		out[3][at], out[7][at] = halves(s3, bits)
	}
}

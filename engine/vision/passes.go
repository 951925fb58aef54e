package vision

import (
	"encoding/binary"

	"vapp.dev/kernels/cpu/pixels"
)

// Two sums of 32 bits share a register of 64: the sum of byte · weight of one line plus 2³² times
// that of another. A sum fits in its half and multiplication by a weight is exact modulo 2⁶⁴, so the
// halves can be separated at the end.
const (
	// pair selects a byte of each half.
	pair = 0x000000ff000000ff
	// half of the rows that are resampled at once are resampled together.
	lanes = pixels.Together / 2
)

// half returns one half of the last bit of a result, in both sums: they are rounded by cutting.
func (f *filter) half() uint64 { return 1<<(f.Bits-1) | 1<<(f.Bits+31) }

// outside selects the bits of two sums that are set if one of them is no byte: it is negative or
// more than 255.
func (f *filter) outside() uint64 {
	one := uint64(1<<32 - 1<<(f.Bits+8))
	return one | one<<32
}

// clamped returns the bytes of eight sums, to which half was added, in the order of a's low sum, b's,
// c's, d's, a's high sum, and so on.
func clamped(a, b, c, d uint64, bits uint) uint64 {
	var out uint64
	for i, s := range [4]uint64{a, b, c, d} {
		low := int32(s)
		high := int32((s - uint64(int64(low))) >> 32)
		out |= uint64(min(max(low>>bits, 0), 255))<<(8*i) | uint64(min(max(high>>bits, 0), 255))<<(8*i+32)
	}
	return out
}

// passes are the two passes over an image.
type passes interface {
	// mix sets out to line i of f's result, on the lines of in.
	mix(out []byte, i int, f *filter, in pixels.Lines)
	// rows resamples pixels.Together rows of in, from row from on, to the rows of out from row to on.
	// Row last of in stands for those behind it.
	rows(out pixels.Lines, to int, in pixels.Lines, from, last, width int, f *filter)
}

// native runs the passes in C.
type native struct {
	pixels.Kernel
	tile []byte
}

func (n *native) mix(out []byte, i int, f *filter, in pixels.Lines) { n.Mix(out, i, &f.Weights, in) }

func (n *native) rows(out pixels.Lines, to int, in pixels.Lines, from, last, width int, f *filter) {
	if n.tile == nil {
		n.tile = make([]byte, pixels.TileBytes(f.most))
	}
	n.Rows(out, to, in, from, last, width, &f.Weights, n.tile)
}

// portable runs the passes in Go.
type portable struct {
	window [][]byte
	pass   *rowPass
}

func (p *portable) mix(out []byte, i int, f *filter, in pixels.Lines) {
	p.window = p.window[:0]
	from, to := f.lines(i)
	for s := from; s < to; s++ {
		p.window = append(p.window, in.Line(s, len(out)))
	}
	f.mix(out, i, p.window)
}

func (p *portable) rows(out pixels.Lines, to int, in pixels.Lines, from, last, width int, f *filter) {
	if p.pass == nil {
		p.pass = newRowPass(f)
	}
	for half := 0; half < pixels.Together; half += lanes {
		var a, b [lanes][]byte
		for i := range lanes {
			a[i], b[i] = in.Line(min(from+half+i, last), 3*width), out.Line(to+half+i, 3*len(f.First))
		}
		p.pass.run(&b, &a)
	}
}

// mix sets out to line i of the result, of which rows are the lines that it reads.
func (f *filter) mix(out []byte, i int, rows [][]byte) {
	weights, half, outside, bits, n := f.Of(i), f.half(), f.outside(), f.Bits&31, len(out)
	for x := 0; x < n && n < 8; x++ {
		s := half
		for i, w := range weights {
			s += uint64(rows[i][x]) * uint64(int64(w))
		}
		out[x] = byte(clamped(s, 0, 0, 0, bits))
	}
	for x := 0; x < n && n >= 8; x += 8 {
		x := min(x, n-8) // the last eight bytes may be computed twice
		a, b, c, d := half, half, half, half
		for i, w := range weights {
			w := uint64(int64(w))
			v := binary.LittleEndian.Uint64(rows[i][x:])
			a += (v & pair) * w
			b += (v >> 8 & pair) * w
			c += (v >> 16 & pair) * w
			d += (v >> 24 & pair) * w
		}
		var v uint64
		if (a|b|c|d)&outside == 0 {
			v = a>>bits&pair | b>>bits&pair<<8 | c>>bits&pair<<16 | d>>bits&pair<<24
		} else {
			v = clamped(a, b, c, d, bits)
		}
		binary.LittleEndian.PutUint64(out[x:], v)
	}
}

// rowPass resamples rows, eight at a time.
type rowPass struct {
	*filter
	tile [3]plane // of red, green and blue
}

// plane is one colour of the pixels of eight rows. The four numbers of a pixel have rows 0 and 4, 1
// and 5, 2 and 6, 3 and 7 in their halves.
type plane [][4]uint64

// span is the number of pixels of a tile, so that it stays in the first cache.
const span = 192

func newRowPass(f *filter) *rowPass {
	n := max(span, 4*f.most)
	all := make(plane, 3*n)
	return &rowPass{f, [3]plane{all[:n:n], all[n : 2*n : 2*n], all[2*n:]}}
}

// run resamples the rows in to the rows out.
func (p *rowPass) run(out, in *[lanes][]byte) {
	half, outside, bits := p.half(), p.outside(), p.Bits&31
	for x, n := 0, len(p.First); x < n; {
		from, to := p.lines(x)
		end := x + 1 // of the pixels that read only this tile
		for ; end < n; end++ {
			_, b := p.lines(end)
			if b-from > len(p.tile[0]) {
				break
			}
			to = b
		}
		p.separate(in, from, to)
		for ; x < end; x++ {
			weights, a := p.Of(x), int(p.First[x])-from
			for c := range 3 {
				s0, s1, s2, s3 := p.tile[c][a : a+len(weights)].dot(weights)
				s0, s1, s2, s3 = s0+half, s1+half, s2+half, s3+half
				var v uint64
				if (s0|s1|s2|s3)&outside == 0 {
					v = s0>>bits&pair | s1>>bits&pair<<8 | s2>>bits&pair<<16 | s3>>bits&pair<<24
				} else {
					v = clamped(s0, s1, s2, s3, bits)
				}
				for r := range lanes {
					out[r][3*x+c] = byte(v >> (8 * r))
				}
			}
		}
	}
}

// dot returns the sums of pixels times weights. It is a function of its own so that the compiler
// keeps its sums in registers.
//
//go:noinline
func (p plane) dot(weights []int32) (s0, s1, s2, s3 uint64) {
	p = p[:len(weights)]
	for i, w := range weights {
		t, w := &p[i], uint64(int64(w))
		s0 += t[0] * w
		s1 += t[1] * w
		s2 += t[2] * w
		s3 += t[3] * w
	}
	return s0, s1, s2, s3
}

// separate fills the tile with pixels from to to of the rows.
func (p *rowPass) separate(in *[lanes][]byte, from, to int) {
	eight := binary.LittleEndian.Uint64
	n := to - from
	r, g, b := p.tile[0][:n], p.tile[1][:n], p.tile[2][:n]
	for j := range lanes / 2 {
		low, high := in[j][3*from:3*to], in[j+4][3*from:3*to]
		i := 0
		for ; i+8 <= n; i += 8 {
			r, g, b := (*[8][4]uint64)(r[i:]), (*[8][4]uint64)(g[i:]), (*[8][4]uint64)(b[i:])
			l, h := (*[24]byte)(low[3*i:]), (*[24]byte)(high[3*i:])
			u, v := pairs(eight(l[0:]), eight(h[0:]))
			w, x := pairs(eight(l[8:]), eight(h[8:]))
			y, z := pairs(eight(l[16:]), eight(h[16:]))
			r[0][j], g[0][j], b[0][j] = u&pair, u>>8&pair, u>>16&pair
			r[1][j], g[1][j], b[1][j] = u>>24&pair, v&pair, v>>8&pair
			r[2][j], g[2][j], b[2][j] = v>>16&pair, v>>24&pair, w&pair
			r[3][j], g[3][j], b[3][j] = w>>8&pair, w>>16&pair, w>>24&pair
			r[4][j], g[4][j], b[4][j] = x&pair, x>>8&pair, x>>16&pair
			r[5][j], g[5][j], b[5][j] = x>>24&pair, y&pair, y>>8&pair
			r[6][j], g[6][j], b[6][j] = y>>16&pair, y>>24&pair, z&pair
			r[7][j], g[7][j], b[7][j] = z>>8&pair, z>>16&pair, z>>24&pair
		}
		for ; i < n; i++ {
			for c := range 3 {
				p.tile[c][i][j] = uint64(low[3*i+c]) | uint64(high[3*i+c])<<32
			}
		}
	}
}

// pairs returns the first four bytes of two words in the halves of u, and the others in v.
func pairs(low, high uint64) (u, v uint64) {
	return low&(1<<32-1) | high<<32, low>>32 | high&^(1<<32-1)
}

package media

// over255 returns x / 255 to the nearest, for the product of two bytes: Pillow's DIV255.
func over255(x uint32) uint8 {
	x += 128
	return uint8((x>>8 + x) >> 8)
}

// overWhite returns a value with that alpha over white, as Pillow's paste blends.
func overWhite(v, alpha uint8) uint8 {
	switch alpha {
	case 255:
		return v
	case 0:
		return 255
	}
	return over255(255*uint32(255-alpha) + uint32(v)*uint32(alpha))
}

// inks returns a value of red, green or blue for an ink and black, as Pillow's cmyk2rgb does.
func inks(ink, black uint8) uint8 {
	light := 255 - black
	return light - over255(uint32(ink)*uint32(light))
}

// clip8 returns a value of 16 bits as Pillow converts its mode I;16: not scaled, at most 255.
func clip8(v uint16) uint8 { return uint8(min(v, 255)) }

// fill writes a pixel of one value.
func fill(to []byte, v uint8) { to[0], to[1], to[2] = v, v, v }

// palette has the colors of indexes, as they are over white; those that a file lacks are black.
type palette [256][3]byte

// readPalette returns the palette of entries of size bytes whose red, green and blue are at the
// offsets.
func readPalette(b []byte, size, red, green, blue int) *palette {
	p := new(palette)
	for i := range min(len(b)/size, len(p)) {
		e := b[i*size:]
		p[i] = [3]byte{e[red], e[green], e[blue]}
	}
	return p
}

// setAlpha puts an index over white.
func (p *palette) setAlpha(index int, alpha uint8) {
	for c := range p[index] {
		p[index][c] = overWhite(p[index][c], alpha)
	}
}

// paint writes the colors of indexes.
func (p *palette) paint(to, indexes []byte) {
	for i, v := range indexes {
		copy(to[3*i:3*i+3], p[v][:])
	}
}

// hide makes the pixels of that color white.
func hide(pix []byte, color [3]byte) {
	for i := 0; i+3 <= len(pix); i += 3 {
		if [3]byte(pix[i:i+3]) == color {
			fill(pix[i:], 255)
		}
	}
}

package media

// runs returns the indexes that run lengths describe, as Pillow's BmpRleDecoder reads them: rows
// from the first stored one, without the pixels behind the end of the data.
func (p *bmpFile) runs() []byte {
	d := &runDecoder{width: p.Width, most: p.Width * p.Height, rle4: p.rle == 4, in: p.data}
	d.out = make([]byte, 0, d.most)
	for len(d.out) < d.most && d.step() {
	}
	return d.out[:min(len(d.out), d.most)]
}

type runDecoder struct {
	width, most int
	rle4        bool
	in, out     []byte
	at, x       int
}

// step reads one instruction of two bytes and returns false at the end.
func (d *runDecoder) step() bool {
	if d.at+2 > len(d.in) {
		return false
	}
	n, v := int(d.in[d.at]), d.in[d.at+1]
	d.at += 2
	if n == 0 {
		return d.escape(v)
	}
	n = max(0, min(n, d.width-d.x))
	for i := range n {
		switch {
		case !d.rle4:
			d.out = append(d.out, v)
		case i%2 == 0:
			d.out = append(d.out, v>>4)
		default:
			d.out = append(d.out, v&15)
		}
	}
	d.x += n
	return true
}

func (d *runDecoder) escape(v byte) bool {
	const endOfLine, endOfBitmap, delta = 0, 1, 2
	switch v {
	case endOfLine:
		d.zeros((d.width - len(d.out)%d.width) % d.width)
		d.x = 0
		return true
	case endOfBitmap:
		return false
	case delta:
		if d.at+2 > len(d.in) {
			return false
		}
		right, up := int(d.in[d.at]), int(d.in[d.at+1])
		d.at += 2
		d.zeros(min(right+up*d.width, d.most-len(d.out)))
		d.x = len(d.out) % d.width
		return true
	}
	return d.literal(int(v))
}

func (d *runDecoder) zeros(n int) { d.out = append(d.out, make([]byte, n)...) }

// literal reads n indexes, padded to a whole number of words.
func (d *runDecoder) literal(n int) bool {
	count := min(n, d.most-len(d.out))
	size := count
	if d.rle4 {
		size = (count + 1) / 2
	}
	from := d.in[d.at:min(d.at+size, len(d.in))]
	d.at += len(from)
	for i, v := range from {
		if !d.rle4 {
			d.out = append(d.out, v)
			continue
		}
		d.out = append(d.out, v>>4)
		if 2*i+1 < count {
			d.out = append(d.out, v&15)
		}
	}
	if len(from) < size || len(d.out) == d.most {
		return false
	}
	d.x += n
	// Pillow aligns to a word of the file, and pixels begin at an even position.
	d.at += d.at % 2
	return true
}

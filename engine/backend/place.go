package backend

import "vapp.dev/kernels"

// life is an event of a recording: a value begins, as a part of another or by itself, or ends.
type life struct {
	v, of Value // of: NoValue if v is no part
	ends  bool
}

// scratch is the arena of values while they are placed in it.
type scratch struct {
	live []span // sorted by offset
	peak int64
}

type span struct{ off, end int64 }

// take returns the offset of size bytes, by first fit.
func (s *scratch) take(size int64) int64 {
	off, i := int64(0), 0
	for ; i < len(s.live); i++ {
		if s.live[i].off-off >= size {
			break
		}
		off = s.live[i].end
	}
	s.live = append(s.live, span{})
	copy(s.live[i+1:], s.live[i:])
	s.live[i] = span{off, off + size}
	s.peak = max(s.peak, off+size)
	return off
}

// give ends the life of a value.
func (s *scratch) give(v ValueInfo) {
	for i, l := range s.live {
		if l.off == v.Offset && l.end == v.Offset+v.Bytes {
			s.live = append(s.live[:i], s.live[i+1:]...)
			return
		}
	}
}

// place gives a value its bytes.
func (p *Program) place(v Value, in *scratch) {
	i := &p.Values[v]
	n := i.Format.Bytes(int64(p.Rows(i.Rows)) * int64(i.Cols))
	i.Bytes = (n + ValueAlign - 1) / ValueAlign * ValueAlign
	i.Offset = in.take(i.Bytes)
}

// placePart gives a chunk of a value's rows its place.
func (p *Program) placePart(v, of Value) {
	part, whole := &p.Values[v], p.Values[of]
	row := whole.Format.Bytes(int64(whole.Cols))
	part.Format = whole.Format
	part.Offset = whole.Offset + int64(int(part.Rows-perChunk)*p.Bucket.Chunk)*row
	part.Bytes = int64(p.Bucket.Rows(part.Rows)) * row
}

// Store gives the values the formats of a list, one for each, and places all anew by their lives. A
// part of a value has the format of the value.
func (p *Program) Store(formats []kernels.Format) {
	var in scratch
	for _, l := range p.lives {
		switch {
		case l.ends:
			in.give(p.Values[l.v])
		case l.of != NoValue:
			p.placePart(l.v, l.of)
		default:
			p.Values[l.v].Format = formats[l.v]
			p.place(l.v, &in)
		}
	}
	p.Scratch = in.peak
}

// StoreActivations stores p's values in the formats that l wants for them: those of an ActivationLayout.
func StoreActivations(l Layout, p *Program) {
	if a, ok := l.(ActivationLayout); ok {
		p.Store(a.Activations(p))
	}
}

package backend

import (
	"math/rand/v2"
	"slices"
	"testing"

	"vapp.dev/kernels"
)

// TestStore: with the formats of the recording nothing moves; with others, values that live at the same time do not overlap, chunks
// stay parts of their value, and less scratch is needed.
func TestStore(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 1))
	for range 50 {
		p := &Program{Bucket: Bucket{Tokens: 300, Seqs: 7, Samples: 5, Chunk: 128}}
		r := Record(p)
		var live []Value
		for range 40 {
			if len(live) > 0 && random.IntN(3) == 0 {
				i := random.IntN(len(live))
				r.Free(live[i])
				live = slices.Delete(live, i, i+1)
				continue
			}
			v := r.New("v", kernels.F32, Rows(random.IntN(3)), 1+random.IntN(200))
			if live = append(live, v); random.IntN(4) == 0 && r.Info(v).Rows == PerToken {
				r.Chunks(v)
			}
		}
		r.Free(live...)
		formats := make([]kernels.Format, len(p.Values))
		for i, v := range p.Values {
			formats[i] = v.Format
		}
		before, scratch := slices.Clone(p.Values), p.Scratch
		if p.Store(formats); !slices.Equal(p.Values, before) || p.Scratch != scratch {
			t.Fatalf("%+v became %+v", before, p.Values)
		}
		for i := range formats {
			if random.IntN(2) == 0 {
				formats[i] = kernels.BF16
			}
		}
		p.Store(formats)
		if p.Scratch > scratch {
			t.Errorf("%d bytes of scratch became %d", scratch, p.Scratch)
		}
		var now []ValueInfo
		for _, l := range p.lives {
			v := p.Values[l.v]
			switch {
			case l.of != NoValue:
				of := p.Values[l.of]
				if v.Format != of.Format || v.Offset < of.Offset || v.Offset+v.Bytes > of.Offset+of.Bytes {
					t.Errorf("chunk %+v of %+v", v, of)
				}
			case l.ends:
				now = slices.DeleteFunc(now, func(w ValueInfo) bool { return w == v })
			default:
				if v.Format != formats[l.v] || v.Bytes < v.Format.Bytes(int64(p.Rows(v.Rows)*v.Cols)) || v.Offset+v.Bytes > p.Scratch {
					t.Errorf("%+v in %d bytes, to be stored as %v", v, p.Scratch, formats[l.v])
				}
				for _, w := range now {
					if v.Offset < w.Offset+w.Bytes && w.Offset < v.Offset+v.Bytes {
						t.Errorf("%+v overlaps %+v", v, w)
					}
				}
				now = append(now, v)
			}
		}
	}
}

// TestHalves: a program with values in 16 bits is valid, but only on layouts that ask for them.
func TestHalves(t *testing.T) {
	p := &Program{Bucket: Bucket{Tokens: 4, Seqs: 1, Samples: 1}}
	r := Record(p)
	x, y := r.New("x", kernels.BF16, PerToken, 8), r.New("y", kernels.F32, PerToken, 8)
	r.Do(Add{X: x, Into: y, Scale: NoWeight})
	r.Free(x, y)
	if err := p.Check(); err != nil {
		t.Error(err)
	}
	if err := p.check(false); err == nil {
		t.Error("float32 was expected")
	}
	p.Values[x].Format = kernels.F16
	if err := p.Check(); err == nil {
		t.Error("a sum reads no fp16")
	}
}

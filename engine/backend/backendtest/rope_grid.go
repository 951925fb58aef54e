package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// ropeGrid tests Angles and Rope of patches, which have two positions: half of the rotated dimensions
// each (Grid), or the pairs of whole heads (Joined).
func (s *subject) ropeGrid(t *testing.T) {
	for _, f := range kvFormats {
		for _, joined := range []bool{false, true} {
			for _, dims := range [][2]int{{64, 64}, {72, 72}, {16, 8}} {
				s.run(t, fmt.Sprintf("%v, joined %v, %d of %d", f, joined, dims[1], dims[0]), func(t *testing.T) { s.ropeGridOf(t, f, joined, dims[0], dims[1]) })
			}
		}
	}
}

func (s *subject) ropeGridOf(t *testing.T, f kernels.Format, together bool, dim, rotary int) {
	const heads, most, scale = 3, 64, 1.25
	cols, m, freqs := 3*heads*dim, &tensors{}, ropeFreqs(rotary/2)
	pixels, inv := shades(rng(uint64(dim)), most*cols), m.literal("freqs", freqs)
	var angles, q, k, v backend.Value
	o := s.towerOf(t, m, backend.Bucket{Tokens: most, Seqs: 1, Samples: most / 4}, cols, 0, func(rec *backend.Recorder, px, across, down backend.Value) backend.Value {
		angles = rec.New("angles", kernels.F32, backend.PerToken, rotary)
		rec.Do(backend.Angles{InvFreq: inv, Scale: scale, Y: angles, Grid: true, Across: across, Down: down, Joined: together})
		q = rec.New("q", kernels.F32, backend.PerToken, heads*dim)
		k, v = rec.New("k", f, backend.PerToken, heads*dim), rec.New("v", f, backend.PerToken, heads*dim)
		rec.Do(backend.Rope{QKV: px, Angles: angles, Q: q, K: k, V: v, Heads: heads, KVHeads: heads, HeadDim: dim, Rotary: rotary, Grid: !together})
		return joined(rec, px, cols)
	})
	x := pixels.values()
	for _, g := range []grid{{8, 8, 0}, {1, 4, 0}, {32, 2, 0}} {
		n, half := g.wide*g.high, rotary/4
		o.encode(g, pixels, n/4)
		got := o.values(angles, n)
		for i, y := range got {
			// In Grid the cosines of a position are before its sines; joined, all cosines are before all sines.
			at := i % rotary
			down, sine, freq := at/(2*half) == 1, at/half%2 == 1, freqs[at%half]
			if together {
				down, sine = sine, down
			}
			position, row := 0, 0
			if position, row = g.place(i / rotary); down {
				position = row
			}
			want := math.Cos(float64(float32(position) * freq))
			if sine {
				want = math.Sin(float64(float32(position) * freq))
			}
			if !(math.Abs(float64(y)-want*scale) <= 2.4e-7*scale) {
				t.Fatalf("angle %d of patch %d of %+v: %v, want %v", at, i/rotary, g, y, want*scale)
			}
		}
		queries, keys := o.values(q, n), o.values(k, n)
		if want := encode(f, valuesOfHeads(x, n, cols)); string(encode(f, o.values(v, n))) != string(want) {
			t.Error("V is not the input rounded to its format")
		}
		round := map[kernels.Format]float64{kernels.F16: 1.0 / 2048, kernels.BF16: 1.0 / 256}[f]
		for row := range n {
			a := got[row*rotary:][:rotary]
			for h := range 2 * heads {
				in, y, off := x[row*cols+h*dim:][:dim], queries, 0.0
				if h >= heads {
					y, off = keys, round
				}
				y = y[(row*heads+h%heads)*dim:][:dim]
				if together {
					checkRotated(t, row, h, y, in, a, off)
					continue
				}
				checkRotated(t, row, h, y[:2*half], in[:2*half], a[:2*half], off)
				checkRotated(t, row, h, y[2*half:], in[2*half:], a[2*half:], off)
			}
		}
	}
}

// valuesOfHeads returns V of each row: the last third of its columns.
func valuesOfHeads(x []float32, rows, cols int) (v []float32) {
	for i := range rows {
		v = append(v, x[i*cols+cols/3*2:(i+1)*cols]...)
	}
	return v
}

// ropeSections tests Angles of tokens with three positions: frequency i takes the axis i mod 3 below
// three times the axis' section, else time.
func (s *subject) ropeSections(t *testing.T) {
	const most, scale = 9, 1.25
	for _, c := range []struct {
		half     int
		sections [3]int
	}{{32, [3]int{11, 11, 10}}, {8, [3]int{4, 2, 2}}, {4, [3]int{0, 1, 0}}} {
		s.run(t, fmt.Sprint(c.sections), func(t *testing.T) {
			m, freqs := &tensors{}, ropeFreqs(2*c.half)
			inv := m.literal("freqs", freqs)
			var y backend.Value
			r := s.rig(t, plan{tensors: m, vocab: 4, axes: 3, bucket: backend.Bucket{Tokens: most, Seqs: 2, Samples: 1}, record: func(rec *backend.Recorder) {
				rec.Do(backend.Tokens{Out: rec.New("ids", kernels.I32, backend.PerToken, 1)})
				y = rec.New("angles", kernels.F32, backend.PerToken, 2*c.half)
				rec.Do(backend.Angles{InvFreq: inv, Scale: scale, Y: y, Sections: c.sections})
			}})
			axes := [][3]int32{{0, 0, 0}, {1, 1, 3}, {1, 2, 1}, {7, 5, 6}, {90000, 90003, 130007}, {90000, 90004, 4}, {2, 0, 1}, {12, 13, 14}, {3, 3, 3}}
			r.run(feed{tokens: make([]int32, 5), axes: axes[:5]}, feed{tokens: make([]int32, 4), at: 40, axes: axes[5:]})
			for i, got := range r.floats(y, most) {
				row, at := i/(2*c.half), i%(2*c.half)
				k, axis := at%c.half, 0
				if k < 3*c.sections[k%3] {
					axis = k % 3
				}
				want := math.Cos(float64(float32(axes[row][axis]) * freqs[k]))
				if at >= c.half {
					want = math.Sin(float64(float32(axes[row][axis]) * freqs[k]))
				}
				if !(math.Abs(float64(got)-want*scale) <= 2.4e-7*scale) {
					t.Fatalf("angle %d of token %d: %v, want %v", at, row, got, want*scale)
				}
			}
		})
	}
}

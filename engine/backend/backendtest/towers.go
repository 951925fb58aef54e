package backendtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// grid is an item: its patches' columns and rows, and their order.
type grid struct{ wide, high, square int }

// place returns the column and row of patch t.
func (g grid) place(t int) (across, down int) {
	if g.square == 0 {
		return t % g.wide, t / g.wide
	}
	n, i, squares := t/(g.square*g.square), t%(g.square*g.square), g.wide/g.square
	return n%squares*g.square + i%g.square, n/squares*g.square + i/g.square
}

// tower is a device with an encoder program, whose patches are the inputs of its ops.
type tower struct {
	*rig
	p    *backend.Program
	exe  backend.Executable
	cols int
}

// towerOf opens a device with an encoder program. record adds ops to patches of cols numbers, and
// returns what the program ends with.
func (s *subject) towerOf(t *testing.T, m *tensors, b backend.Bucket, cols, square int, record func(rec *backend.Recorder, px, across, down backend.Value) backend.Value) *tower {
	o := &tower{cols: cols, p: &backend.Program{Name: t.Name(), Bucket: b, Weights: m.specs, Shard: backend.Whole}}
	rec := backend.Record(o.p)
	px := rec.New("pixels", kernels.F32, backend.PerToken, cols)
	across, down := rec.New("across", kernels.I32, backend.PerToken, 1), rec.New("down", kernels.I32, backend.PerToken, 1)
	rec.Do(backend.Patches{Pixels: px, Across: across, Down: down, Scale: 1, Square: square})
	rec.Do(backend.EncoderOutput{X: record(rec, px, across, down)})
	o.rig = s.rig(t, plan{tensors: m, vocab: 4, tower: o.p, cache: b.Samples, bucket: backend.Bucket{Tokens: 1, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		rec.Do(backend.Tokens{Out: rec.New("ids", kernels.I32, backend.PerToken, 1)})
	}})
	var err error
	o.exe, err = o.dev.Compile(o.p)
	check(t, err)
	return o
}

// joined records what ends a program whose result a test reads before: squares of four patches.
func joined(rec *backend.Recorder, px backend.Value, cols int) backend.Value {
	y := rec.New("joined", kernels.F32, backend.PerSample, 4*cols)
	rec.Do(backend.Join{X: px, Y: y})
	return y
}

// shaded is random numbers of patches as an item has them: bytes, and what each stands for.
type shaded struct {
	colours []float32
	bytes   []byte
}

// shades returns n random numbers.
func shades(r *rand.Rand, n int) shaded {
	s := shaded{normal(r, backend.Shades, 1), make([]byte, n)}
	for i := range s.bytes {
		s.bytes[i] = byte(r.Uint32())
	}
	return s
}

// at returns number i.
func (s shaded) at(i int) float32 { return s.colours[s.bytes[i]] }

// values returns all numbers.
func (s shaded) values() []float32 {
	out := make([]float32, len(s.bytes))
	for i := range out {
		out[i] = s.at(i)
	}
	return out
}

// fill writes the first n numbers to an item.
func (s shaded) fill(in *backend.ItemInput, n int) {
	copy(in.Colours, s.colours)
	copy(in.Pixels, s.bytes[:n])
}

// encode runs the program on an item of a grid.
func (o *tower) encode(g grid, pixels shaded, rows int) {
	o.t.Helper()
	enc := o.dev.(backend.Encoder)
	in, n := enc.Item(), g.wide*g.high
	pixels.fill(in, n*o.cols)
	for i := range n {
		across, down := g.place(i)
		in.Across[i], in.Down[i] = int32(across), int32(down)
	}
	check(o.t, enc.Encode(o.exe, backend.EncodeBinding{Patches: n, Rows: rows}))
	check(o.t, enc.WaitItem())
}

// values copies the first rows of a value of the encoder program.
func (o *tower) values(v backend.Value, rows int) []float32 {
	in := o.p.Values[v]
	b := o.dev.(backend.Inspector).Scratch(v, o.p)
	return decode(in.Format, append([]byte(nil), b[:in.Format.Bytes(int64(rows*in.Cols))]...))
}

// pooling: AvgPool is the mean of squares, Standardize moves and scales columns, of patches and of
// encoded rows.
func (s *subject) pooling(t *testing.T) {
	const cols, most, scale = 37, 36, 1.5
	for _, c := range []struct {
		size, square int
		items        []grid
	}{
		{1, 0, []grid{{3, 1, 0}, {6, 6, 0}}},
		{2, 0, []grid{{2, 2, 0}, {6, 4, 0}, {2, 18, 0}}},
		{2, 2, []grid{{4, 6, 2}, {2, 2, 2}}},
		{3, 0, []grid{{9, 3, 0}, {3, 3, 0}, {6, 6, 0}}},
	} {
		s.run(t, fmt.Sprintf("squares of %d in the order of %d", c.size, c.square), func(t *testing.T) {
			m, r := &tensors{}, rng(uint64(c.size))
			x, means, factors := shades(r, most*cols), normal(r, cols, 1), normal(r, cols, 1)
			mean, factor := m.vector("mean", kernels.F32, means), m.vector("factor", kernels.F32, factors)
			var moved, y backend.Value
			o := s.towerOf(t, m, backend.Bucket{Tokens: most, Seqs: 1, Samples: most / (c.size * c.size)}, cols, c.square, func(rec *backend.Recorder, px, across, down backend.Value) backend.Value {
				moved = px
				rec.Do(backend.Standardize{X: px, Mean: mean, Scale: factor})
				y = rec.New("y", kernels.F32, backend.PerSample, cols)
				rec.Do(backend.AvgPool{X: px, Across: across, Down: down, Y: y, Size: c.size, Scale: scale})
				rec.Do(backend.Standardize{X: y, Mean: mean, Scale: factor})
				return y
			})
			for _, g := range c.items {
				n := g.wide * g.high
				rows := n / (c.size * c.size)
				o.encode(g, x, rows)
				in, size, want := make([]float64, n*cols), make([]float64, rows*cols), make([]float64, rows*cols)
				for i, got := range o.values(moved, n) {
					k := i % cols
					in[i] = (float64(x.at(i)) - float64(means[k])) * float64(factors[k])
					bound := (math.Abs(float64(x.at(i))) + math.Abs(float64(means[k]))) * math.Abs(float64(factors[k])) / (1 << 22)
					if !(math.Abs(float64(got)-in[i]) <= bound) {
						t.Fatalf("%+v: number %d of patch %d is %v, want %v", g, k, i/cols, got, in[i])
					}
					across, down := g.place(i / cols)
					at := (down/c.size*(g.wide/c.size)+across/c.size)*cols + k
					want[at] += float64(got) / float64(c.size*c.size) * scale
					size[at] += math.Abs(float64(got)) / float64(c.size*c.size) * scale
				}
				for i, got := range o.values(y, rows) {
					mean, factor := float64(means[i%cols]), float64(factors[i%cols])
					if want := (want[i] - mean) * factor; !(math.Abs(float64(got)-want) <= (size[i]+math.Abs(mean))*math.Abs(factor)/(1<<20)) {
						t.Fatalf("%+v: number %d of row %d is %v, want %v", g, i%cols, i/cols, got, want)
					}
				}
			}
		})
	}
}

// resampling: a square table is stretched over the item, corner to corner, and interpolated between four
// entries.
func (s *subject) resampling(t *testing.T) {
	const cols, most = 35, 48
	for _, f := range []kernels.Format{kernels.F32, kernels.F16, kernels.BF16} {
		for _, c := range []struct {
			side, square int
			items        []grid
		}{
			{4, 0, []grid{{4, 4, 0}, {8, 6, 0}, {1, 4, 0}, {6, 2, 0}}},
			{5, 2, []grid{{6, 4, 2}, {2, 2, 2}, {2, 24, 2}}},
			{1, 0, []grid{{4, 2, 0}}},
		} {
			s.run(t, fmt.Sprintf("%v, a side of %d", f, c.side), func(t *testing.T) {
				m, r := &tensors{}, rng(uint64(c.side))
				x, stored := shades(r, most*cols), encode(f, normal(r, c.side*c.side*cols, 1))
				entries := decode(f, stored)
				table := m.matrix("table", backend.Lookup, f, c.side*c.side, cols, stored)
				var y backend.Value
				o := s.towerOf(t, m, backend.Bucket{Tokens: most, Seqs: 1, Samples: most / 4}, cols, c.square, func(rec *backend.Recorder, px, across, down backend.Value) backend.Value {
					y = px
					rec.Do(backend.Resample{X: px, Across: across, Down: down, Table: table, Side: c.side})
					return joined(rec, px, cols)
				})
				for _, g := range c.items {
					n := g.wide * g.high
					o.encode(g, x, n/4)
					for i, got := range o.values(y, n) {
						across, down := g.place(i / cols)
						want, size := float64(x.at(i)), math.Abs(float64(x.at(i)))
						for e := range c.side * c.side {
							v := shareOf(across, g.wide, c.side, e%c.side) * shareOf(down, g.high, c.side, e/c.side) * float64(entries[e*cols+i%cols])
							want, size = want+v, size+math.Abs(v)
						}
						if !(math.Abs(float64(got)-want) <= size/(1<<20)) {
							t.Fatalf("%+v: number %d at %d, %d is %v, want %v", g, i%cols, across, down, got, want)
						}
					}
				}
			})
		}
	}
}

// shareOf returns the share of entry i of side entries in place at of n: it falls from 1 to 0 over the
// distance of two entries.
func shareOf(at, n, side, i int) float64 {
	u := 0.0
	if n > 1 {
		u = float64(at) * float64(side-1) / float64(n-1)
	}
	return max(0, 1-math.Abs(u-float64(i)))
}

package backendtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// scaledFormat is the storage of a weight of 8- or 4-bit floats, in a checkpoint or after it
// was quantized while packing.
type scaledFormat struct {
	name           string
	source, target kernels.Format
	scaling        backend.Scaling
	transposed     bool
	group          int
	round          bool
}

var scaledFormats = []scaledFormat{
	{"f8", kernels.F8E4M3, 0, backend.NoScale, false, 0, false},
	{"f8 per tensor", kernels.F8E4M3, 0, backend.PerTensor, false, 0, false},
	{"f8 per channel", kernels.F8E4M3, 0, backend.PerChannel, false, 0, false},
	{"f8 per block", kernels.F8E4M3, 0, backend.PerBlock, false, 0, false},
	{"f8 e5m2 per channel", kernels.F8E5M2, 0, backend.PerChannel, false, 0, false},
	{"mxfp4", kernels.MXFP4, 0, backend.NoScale, false, 0, false},
	{"nvfp4", kernels.NVFP4, 0, backend.NoScale, false, 0, false},
	{"nvfp4 per tensor", kernels.NVFP4, 0, backend.PerTensor, false, 0, false},
	{"i8 per tensor", kernels.I8, 0, backend.PerTensor, false, 0, false},
	{"i8 per channel", kernels.I8, 0, backend.PerChannel, false, 0, false},
	{"i8 per group of 32", kernels.I8, 0, backend.PerGroup, false, 32, false},
	{"i8 per group of 64", kernels.I8, 0, backend.PerGroup, false, 64, false},
	{"i8 per group of 128", kernels.I8, 0, backend.PerGroup, false, 128, false},
	{"i8 per group of 256", kernels.I8, 0, backend.PerGroup, false, 256, false},
	{"w8a8 per tensor", kernels.I8, 0, backend.PerTensor, false, 0, true},
	{"w8a8 per channel", kernels.I8, 0, backend.PerChannel, false, 0, true},
	{"bf16 to f8", kernels.BF16, kernels.F8E4M3, backend.PerChannel, false, 0, false},
	{"bf16 to f16", kernels.BF16, kernels.F16, backend.NoScale, false, 0, false},
	{"bf16 stored as [in, out]", kernels.BF16, 0, backend.NoScale, true, 0, false},
}

// whole reports whether rows of n elements are whole blocks, or groups, of the format.
func (f scaledFormat) whole(n int) bool {
	block, _ := f.source.Block()
	if f.source == kernels.I8 && !f.round {
		block = max(32, f.group)
	}
	return n%block == 0
}

// blockFormats returns the block formats of a list, for mixtures.
func blockFormats(list []kernels.Format) (all []scaledFormat) {
	for _, f := range list {
		if f.Quantized() {
			all = append(all, scaledFormat{name: f.String(), source: f})
		}
	}
	return all
}

// matrices are n of [rows,cols].
type matrices struct{ n, rows, cols int }

// formats returns the formats of all that the subject's settings affect.
func (s *subject) formats(all []scaledFormat) []scaledFormat {
	if s.settings.Activations != backend.FP8Activations {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(f scaledFormat) bool { return !f.eight() })
}

// eight reports whether the weight is stored in 8-bit floats.
func (f scaledFormat) eight() bool {
	return f.stored() == kernels.F8E4M3 || f.stored() == kernels.F8E5M2
}

// stored returns the format that kernels read.
func (f scaledFormat) stored() kernels.Format {
	if f.target != kernels.Invalid {
		return f.target
	}
	return f.source
}

// stack adds a weight of shape.n experts' matrices (0: one) with shape.cols columns, in parts
// of these rows, each from its own tensor. It returns the weight's values in float32:
// [experts][rows][cols].
func (f scaledFormat) stack(m *tensors, r *rand.Rand, name string, shape matrices, parts ...int) (backend.WeightID, []float32) {
	cols := shape.cols
	spec := backend.WeightSpec{
		Name: name, Group: "test", Cols: cols, Source: f.source, Target: f.target, Scaling: f.scaling, Experts: shape.n,
		GroupSize: f.group, RoundInputs: f.round,
		Use: backend.Multiply,
	}
	n := max(1, shape.n)
	values := make([][]float32, n)
	for i, rows := range parts {
		p := backend.Part{Tensor: fmt.Sprintf("%s.%d", name, i), Rows: rows, Format: f.source, Transposed: f.transposed}
		if p.Stride = rows; f.transposed {
			p.Stride = cols
		}
		x := f.tensor(m, r, &p, matrices{n, rows, cols})
		for e := range values {
			values[e] = append(values[e], x[e*rows*cols:(e+1)*rows*cols]...)
		}
		spec.Rows += rows
		spec.Parts = append(spec.Parts, p)
	}
	m.specs = append(m.specs, spec)
	var all []float32
	for _, v := range values {
		all = append(all, v...)
	}
	return backend.WeightID(len(m.specs) - 1), all
}

// tensor stores the matrices of a part, and its scales.
func (f scaledFormat) tensor(m *tensors, r *rand.Rand, p *backend.Part, shape matrices) []float32 {
	if f.source == kernels.MXFP4 {
		return mxfp4Tensor(m, r, p, shape)
	}
	n, rows, cols := shape.n, shape.rows, shape.cols
	b := random(r, f.source, n*rows*cols, 1)
	x := decode(f.source, b)
	switch {
	case f.transposed:
		x = turn(x, n, cols, rows)
		m.stored(p.Tensor, f.source, n*cols, rows, b)
		return x
	case f.target == kernels.F8E4M3:
		quantizeRows(x, cols)
	case f.target != kernels.Invalid:
		x = decode(f.target, encode(f.target, x))
	case f.scaling != backend.NoScale:
		f.scale(m, r, p, x, shape)
	}
	m.stored(p.Tensor, f.source, n*rows, cols, b)
	return x
}

// scale stores a part's scales and applies them.
func (f scaledFormat) scale(m *tensors, r *rand.Rand, p *backend.Part, x []float32, shape matrices) {
	n, rows, cols := shape.n, shape.rows, shape.cols
	high, wide := rows, cols // of a block
	switch f.scaling {
	case backend.PerChannel:
		high = 1
	case backend.PerBlock:
		high, wide = backend.ScaleBlock, backend.ScaleBlock
	case backend.PerGroup:
		high, wide = 1, f.group
	}
	down, across := (rows+high-1)/high, (cols+wide-1)/wide
	scales := normal(r, n*down*across, 0.02)
	p.Scale, p.ScaleFormat = p.Tensor+".scale", kernels.F32
	m.stored(p.Scale, kernels.F32, n*down, across, encode(kernels.F32, scales))
	for i := range x {
		e, row, col := i/(rows*cols), i/cols%rows, i%cols
		x[i] *= scales[(e*down+row/high)*across+col/wide]
	}
}

func mxfp4Tensor(m *tensors, r *rand.Rand, p *backend.Part, shape matrices) []float32 {
	n, rows, cols := shape.n, shape.rows, shape.cols
	blocks := n * rows * cols / 32
	halves, exponents, joined := make([]byte, 16*blocks), make([]byte, blocks), make([]byte, 17*blocks)
	for i := range halves {
		halves[i] = byte(r.Uint32())
	}
	for i := range exponents {
		exponents[i] = byte(118 + r.IntN(6))
	}
	p.Scale, p.ScaleFormat = p.Tensor+".scales", kernels.U8
	m.stored(p.Tensor, kernels.U8, blocks, 16, halves)
	m.stored(p.Scale, kernels.U8, n*rows, cols/32, exponents)
	kernels.JoinBlocks(halves, exponents, joined)
	return decode(kernels.MXFP4, joined)
}

// turn transposes n matrices [cols,rows] to [rows,cols].
func turn(x []float32, n, cols, rows int) []float32 {
	out := make([]float32, len(x))
	for i := range out {
		e, r, c := i/(rows*cols), i/cols%rows, i%cols
		out[i] = x[(e*cols+c)*rows+r]
	}
	return out
}

// quantizeRows rounds rows to F8E4M3, with each row's largest number scaled to 448.
func quantizeRows(x []float32, cols int) {
	for ; len(x) > 0; x = x[cols:] {
		top := float32(0)
		for _, v := range x[:cols] {
			top = max(top, v, -v)
		}
		scale := top / 448
		for i, v := range x[:cols] {
			x[i] = decode(kernels.F8E4M3, encode(kernels.F8E4M3, []float32{v / scale}))[0] * scale
		}
	}
}

// eight reports whether inputs of a product with a weight of the format are rounded to E4M3.
func (s *subject) eight(f scaledFormat) bool {
	return s.settings.Activations == backend.FP8Activations && f.stored() == kernels.F8E4M3
}

// inputs rounds each row of x as the subject does for a weight of the format: to int8 if the
// weight's format requires it, to E4M3 if the settings do. exact means that the subject
// multiplies exactly these codes.
func (s *subject) inputs(f scaledFormat, x []float32, cols int) (exact bool) {
	eight, group := s.eight(f), cols
	if !f.round && !eight {
		return false
	}
	if eight && f.scaling == backend.PerBlock {
		group = backend.ScaleBlock
	}
	codes := make([]float32, group)
	for ; len(x) > 0; x = x[cols:] {
		for from := 0; from < cols; from += group {
			part, scale := x[from:min(from+group, cols)], float32(0)
			if eight {
				scale = ref.RoundRowE4M3(part, codes)
			} else {
				scale = ref.RoundRow(part, codes)
			}
			for i := range part {
				part[i] = codes[i] * scale
			}
		}
	}
	return eight
}

// scaled compares Linear with the weights' values for each way of storing them: parts that do
// or do not begin at a block, and columns that are no whole blocks.
func (s *subject) scaled(t *testing.T) {
	for _, f := range s.formats(scaledFormats) {
		for i, shape := range [][3]int{{128, 40, 160}, {7, 33, 416}, {256, 0, 96}, {50, 17, 129}, {40, 0, 256}, {128, 48, 384}, {24, 9, 112}} {
			if f.whole(shape[2]) {
				s.run(t, fmt.Sprintf("%s/%v", f.name, shape), func(t *testing.T) { s.scaledShape(t, f, shape, i, 64, 3, 1) })
			}
		}
	}
}

// scaledShape runs steps of each number of rows; the first is the largest.
func (s *subject) scaledShape(t *testing.T, f scaledFormat, shape [3]int, seed int, rows ...int) {
	most := rows[0]
	r, m := rng(uint64(100+seed)), &tensors{}
	parts, in := []int{shape[0]}, shape[2]
	if shape[1] > 0 {
		parts = append(parts, shape[1])
	}
	out := shape[0] + shape[1]
	x := normal(r, most*in, 1)
	table := m.table("x", x, in)
	weight, w := f.stack(m, r, "w", matrices{cols: in}, parts...)
	var y backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		v := input(rec, table, in)
		y = rec.New("y", kernels.F32, backend.PerToken, out)
		rec.Do(backend.Linear{X: v, W: weight, Bias: backend.NoWeight, Y: y})
	}})
	want, unit, order := make([]float32, most*out), make([]float64, most*out), make([]float64, most*out)
	exact := s.inputs(f, x, in)
	for i := range want {
		sum, square := 0.0, 0.0
		for k := range in {
			term := float64(x[i/out*in+k]) * float64(w[i%out*in+k])
			sum, square = sum+term, square+term*term
		}
		// float32 sums in any order; x and weights rounded to bf16
		order[i] = math.Sqrt(square)*math.Sqrt(float64(in))/(1<<24) + 1e-30
		if exact && s.cutSums {
			cut, _ := ref.SumErrorE4M3(x[i/out*in:][:in], w[i%out*in:][:in])
			order[i] += cut
		}
		want[i], unit[i] = float32(sum), order[i]
		if !exact {
			unit[i] += math.Sqrt(square) * 2 / 512
		}
	}
	var all []float32
	for _, rows := range rows {
		rig.run(feed{tokens: upTo(rows)})
		got := rig.floats(y, rows)
		compareUnits(t, fmt.Sprintf("%d rows", rows), got, want[:rows*out], unit[:rows*out])
		if all == nil {
			all = got
		} else if s.matrixTolerance {
			compareUnits(t, fmt.Sprintf("%d rows, among %d", rows, most), got, all[:rows*out], order)
		} else if at := bits(got, all); at >= 0 {
			t.Errorf("%d rows: element %d is %v, among %d rows %v", rows, at, got[at], most, all[at])
		}
	}
}

// unrounded returns the formats whose inputs stay in float.
func unrounded() []scaledFormat {
	return slices.DeleteFunc(slices.Clone(scaledFormats), func(f scaledFormat) bool { return f.round })
}

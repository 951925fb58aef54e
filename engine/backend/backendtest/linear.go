package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// linearShapes are pairs of inputs and outputs. K-quants use those with whole blocks of 256.
var linearShapes = [][2]int{{32, 1}, {64, 48}, {96, 33}, {576, 65}, {1536, 17}, {256, 7}, {512, 130}}

// linear compares Linear with kernels/ref in every format, at odd shapes.
func (s *subject) linear(t *testing.T) {
	for _, f := range weightFormats {
		s.run(t, f.String(), func(t *testing.T) {
			for i, shape := range linearShapes {
				if block, _ := f.Block(); shape[0]%block == 0 {
					t.Run(fmt.Sprintf("%dx%d", shape[0], shape[1]), func(t *testing.T) { s.linearShape(t, f, shape[0], shape[1], i%2 == 1, 1, 3, 17, 33) })
				}
			}
		})
	}
}

// linearLong multiplies rows of the lengths of real models: of a hidden state, and of what a gated MLP has between its
// products. Kernels whose weights pass through a ring of stages begin it anew many times. Steps of 137 rows are computed by other kernels
// than those of 33 and of 3. Without the tag soak there are two formats.
func (s *subject) linearLong(t *testing.T) {
	shapes, rows := [][2]int{{4096, 40}, {14336, 17}}, []int{137, 33, 3}
	plain, scaled := weightFormats, s.formats(unrounded())
	if !soak {
		shapes, rows, plain, scaled = shapes[:1], rows[:2], []kernels.Format{kernels.BF16, kernels.Q4_K}, nil
		if s.settings.Activations == backend.FP8Activations {
			scaled = []scaledFormat{{name: "f8 per block", source: kernels.F8E4M3, scaling: backend.PerBlock}}
		}
	}
	if s.settings.Activations == backend.FP8Activations {
		plain = nil
	}
	for _, shape := range shapes {
		name := func(f string) string { return fmt.Sprintf("%s/%dx%d", f, shape[0], shape[1]) }
		for _, f := range plain {
			s.run(t, name(f.String()), func(t *testing.T) { s.linearShape(t, f, shape[0], shape[1], true, rows...) })
		}
		for i, f := range scaled {
			s.run(t, name(f.name), func(t *testing.T) { s.scaledShape(t, f, [3]int{shape[1], 0, shape[0]}, i, rows...) })
		}
	}
}

// linearShape runs steps of each number of rows; the largest is the first or the last.
func (s *subject) linearShape(t *testing.T, f kernels.Format, in, out int, bias bool, rows ...int) {
	most := max(rows[0], rows[len(rows)-1])
	r, m := rng(uint64(in*out)), &tensors{}
	x := normal(r, most*in, 1)
	for i := range x { // rows of different magnitude, with a few large elements
		x[i] *= float32(i/in%5 + 1)
		if r.IntN(100) == 0 {
			x[i] *= 20
		}
	}
	w := random(r, f, in*out, 1/math.Sqrt(float64(in)))
	b := normal(r, out, 1)
	table := m.table("x", x, in)
	weight := m.matrix("w", backend.Multiply, f, out, in, w)
	biasID := m.vector("b", kernels.F32, b)
	if !bias {
		biasID, b = backend.NoWeight, nil
	}
	var y backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		v := input(rec, table, in)
		y = rec.New("y", kernels.F32, backend.PerToken, out)
		rec.Do(backend.Linear{X: v, W: weight, Bias: biasID, Y: y})
	}})
	want := make([]float32, most*out)
	ref.Linear(ref.LinearArgs{Rows: most, In: in, Out: out, X: x, W: w, Format: f, Bias: b, Y: want, To: out, Row: make([]float32, in)})
	unit := linearUnits(x, decode(f, w), most, in, out, f, rig.res.Packed[weight].Format)
	for _, rows := range rows {
		rig.run(feed{tokens: upTo(rows)})
		compareUnits(t, fmt.Sprintf("%d rows", rows), rig.floats(y, rows), want[:rows*out], unit[:rows*out])
	}
}

// linearUnits returns, for each element of Y, the standard error of the arithmetic that is
// allowed for a stored format, rounded up:
//
//   - every format: float32 sums, 2⁻²⁴·√in·√Σ(x·w)²;
//   - F16, BF16: activations rounded to bf16, at most 2⁻⁸/√3 of each: 2⁻⁸·⁵·√Σ(x·w)²;
//   - blocks: activations rounded to int8 in blocks of 32, √Σ(max|x|/254·w)²;
//   - converted to BF16 at load: as much again for the weights.
func linearUnits(x, w []float32, rows, in, out int, source, stored kernels.Format) []float64 {
	step := 0.0 // rounding error of an activation, relative to its size
	if stored == kernels.BF16 || stored == kernels.F16 {
		step = 1.0 / 362
	}
	if stored == kernels.BF16 && source != kernels.BF16 {
		step *= 2
	}
	unit := make([]float64, rows*out)
	for r := range rows {
		row := x[r*in : (r+1)*in]
		tops := blockTops(row)
		for o := range out {
			var square, blocks float64
			for i, xi := range row {
				wi := float64(w[o*in+i])
				square += float64(xi) * float64(xi) * wi * wi
				if stored.Quantized() {
					d := tops[i/32] / 254
					blocks += d * d * wi * wi
				}
			}
			root := math.Sqrt(square)
			unit[r*out+o] = root*math.Sqrt(float64(in))/(1<<24) + root*step + math.Sqrt(blocks) + 1e-30
		}
	}
	return unit
}

// blockTops returns the largest |x| of every block of 32.
func blockTops(x []float32) []float64 {
	tops := make([]float64, (len(x)+31)/32)
	for i, v := range x {
		tops[i/32] = max(tops[i/32], math.Abs(float64(v)))
	}
	return tops
}

// compareUnits bounds differences measured in units: 1 in the root mean
// square, 8 at most.
func compareUnits(t *testing.T, what string, got, want []float32, unit []float64) {
	t.Helper()
	var square, worst float64
	at := 0
	for i := range want {
		d := math.Abs(float64(got[i])-float64(want[i])) / unit[i]
		if !(d <= math.MaxFloat64) {
			t.Errorf("%s: element %d is %v, want %v", what, i, got[i], want[i])
			return
		}
		square += d * d
		if d > worst {
			worst, at = d, i
		}
	}
	if rms := math.Sqrt(square / float64(len(want))); rms > 1 || worst > 8 {
		t.Errorf("%s: differs by %.3g units (rms, bound 1), at most %.3g (bound 8) in element %d: %v, want %v", what, rms, worst, at, got[at], want[at])
	}
}

package backendtest

import (
	"math"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// mixture is a case of Experts.
type mixture struct {
	format              scaledFormat
	experts, top        int
	cols, width         int
	biases              bool
	activation          backend.Activation
	x, gateUp, down     []float32
	upBias, downBias    []float32
	logits              []float32
	ids, shares, result backend.Value
}

// mixtureRows is the number of rows in a test: probably more than any backend computes at
// once.
const mixtureRows = 530

// mixtures checks Experts: formats, biases, activations, many and few rows.
func (s *subject) mixtures(t *testing.T) {
	clamped := backend.Activation{Limit: 7, Alpha: 1.702, Shift: 1, Paired: true}
	for i, f := range s.formats(slices.Concat(scaledFormats, []scaledFormat{
		{name: "q8_0", source: kernels.Q8_0}, {name: "q4_k", source: kernels.Q4_K}, {name: "f16", source: kernels.F16}, {name: "f32", source: kernels.F32},
	})) {
		m := mixture{format: f, experts: 8, top: 2 + i%3, cols: 160, width: 96, biases: i%2 == 1}
		switch {
		case f.round:
			m.cols, m.width = 128, 64
		case !f.whole(m.cols) || !f.whole(m.width):
			m.cols, m.width = 256, 256
		}
		switch i % 3 {
		case 0:
			m.activation = clamped
		case 1:
			m.activation.Act = backend.GELUTanh
		}
		s.run(t, f.name, func(t *testing.T) { s.mixture(t, &m) })
		if f.scaling == backend.PerBlock { // parts begin with a block of scales, as in published models
			whole := m
			whole.width = 2 * backend.ScaleBlock
			s.run(t, f.name+", whole", func(t *testing.T) { s.mixture(t, &whole) })
		}
	}
}

func (s *subject) mixture(t *testing.T, m *mixture) {
	r := m.rig(t, s)
	r.run(feed{tokens: upTo(mixtureRows)})
	all := r.floats(m.result, mixtureRows)
	ids, shares := r.ints(m.ids, mixtureRows), r.floats(m.shares, mixtureRows)
	var square, off float64
	for row := range 40 {
		for i, want := range m.row(s, row, ids[row*m.top:][:m.top], shares[row*m.top:][:m.top]) {
			d := want - float64(all[row*m.cols+i])
			square, off = square+want*want, off+d*d
		}
	}
	bound := 0.01 // bound if x, weights and intermediate values are rounded to bf16
	switch {
	case s.eight(m.format), m.format.round:
		bound = 0.001  // exact codes are multiplied; a few intermediate values may be rounded the other way
		if s.cutSums { // a sum is off by a hundred times as much: as many more are rounded to another code
			bound = 0.01
		}
	case s.settings.Activations == backend.Int8Activations:
		bound = 0.02
	}
	if m.format.source == kernels.F32 {
		bound = 1e-5 // nothing is rounded
	}
	if !(off <= square*bound*bound) {
		t.Errorf("differs by %.3g of the results' size", math.Sqrt(off/square))
	}
	m.same(t, s, r, all, mixtureRows, 17, 3, 1)
	for _, threads := range []int{1, 3} {
		sub := s.withThreads(t, threads)
		other := *m
		other.same(t, s, other.rig(t, sub), all, 70, 1)
	}
}

// same runs the last rows, in groups of each count, and expects the results of the full run.
// An intermediate value that is rounded to bf16 the other way changes a result by 2⁻⁸ of one
// of its terms.
func (m *mixture) same(t *testing.T, s *subject, r *rig, all []float32, counts ...int) {
	t.Helper()
	tolerance := 1.0 / 512
	if s.cutSums && s.eight(m.format) { // to E4M3: by 2⁻⁴ of a term, and more of them
		tolerance = 1.0 / 32
	}
	for _, rows := range counts {
		first := mixtureRows - rows
		r.run(feed{tokens: upTo(mixtureRows)[first:]})
		got := r.floats(m.result, rows)
		if at := s.alike(got, all[first*m.cols:][:len(got)], tolerance); at >= 0 {
			t.Errorf("%d rows: row %d, column %d is %v, among all %v", rows, first+at/m.cols, at%m.cols, got[at], all[first*m.cols+at])
		}
	}
}

// rig opens a device with the case; its numbers are the same every time.
func (m *mixture) rig(t testing.TB, s *subject) *rig {
	r, all := rng(uint64(m.top)), &tensors{}
	m.x, m.logits = normal(r, mixtureRows*m.cols, 1), normal(r, mixtureRows*m.experts, 1)
	for i := range m.logits { // the last expert has only one row
		if i%m.experts == m.experts-1 && i/m.experts != 5 {
			m.logits[i] = -9
		}
	}
	x, logits := all.table("x", m.x, m.cols), all.table("logits", m.logits, m.experts)
	op := backend.Experts{Top: m.top, Width: m.width, Activation: m.activation, GateUpBias: backend.NoWeight, DownBias: backend.NoWeight}
	op.GateUp, m.gateUp = m.format.stack(all, r, "gate_up", matrices{n: m.experts, cols: m.cols}, m.width, m.width)
	all.specs[op.GateUp].GateUp = !m.activation.Paired
	op.Down, m.down = m.format.stack(all, r, "down", matrices{n: m.experts, cols: m.width}, m.cols)
	if m.biases {
		m.upBias, m.downBias = normal(r, m.experts*2*m.width, 1), normal(r, m.experts*m.cols, 1)
		op.GateUpBias, op.DownBias = all.vector("up_bias", kernels.F32, m.upBias), all.vector("down_bias", kernels.F32, m.downBias)
	}
	return s.rig(t, plan{tensors: all, vocab: mixtureRows, bucket: backend.Bucket{Tokens: mixtureRows, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		op.X = input(rec, x, m.cols)
		l := input(rec, logits, m.experts)
		m.ids, m.shares = rec.New("picks", kernels.I32, backend.PerToken, m.top), rec.New("shares", kernels.F32, backend.PerToken, m.top)
		m.result = rec.New("result", kernels.F32, backend.PerToken, m.cols)
		rec.Do(backend.Route{Logits: l, Ids: m.ids, Weights: m.shares, Top: m.top, Scale: backend.NoWeight})
		op.Ids, op.Weights, op.Y = m.ids, m.shares, m.result
		rec.Do(op)
	}})
}

// row returns one row's result for the selected experts.
func (m *mixture) row(s *subject, row int, ids []int32, shares []float32) []float64 {
	sum := make([]float64, m.cols)
	up, act := make([]float32, 2*m.width), make([]float32, m.width)
	out, x := make([]float32, m.cols), slices.Clone(m.x[row*m.cols:][:m.cols])
	s.inputs(m.format, x, m.cols)
	for k, e := range ids {
		product(m.gateUp[int(e)*len(up)*m.cols:], m.upBias, int(e), x, up)
		m.activate(up, act)
		s.inputs(m.format, act, m.width)
		product(m.down[int(e)*m.cols*m.width:], m.downBias, int(e), act, out)
		for i, v := range out {
			sum[i] += float64(shares[k]) * float64(v)
		}
	}
	return sum
}

func product(w, bias []float32, expert int, x, y []float32) {
	for o := range y {
		s := 0.0
		if bias != nil {
			s = float64(bias[expert*len(y)+o])
		}
		for i, v := range x {
			s += float64(v) * float64(w[o*len(x)+i])
		}
		y[o] = float32(s)
	}
}

func (m *mixture) activate(x, y []float32) {
	gate, up := x[:m.width], x[m.width:]
	if m.activation.Paired {
		gate, up = make([]float32, m.width), make([]float32, m.width)
		for i := range gate {
			gate[i], up[i] = x[2*i], x[2*i+1]
		}
	}
	switch a := m.activation; {
	case a.Alpha != 0:
		ref.ClampedGLU(gate, up, a.Limit, a.Alpha, a.Shift, y)
	case a.Act == backend.GELUTanh:
		ref.GeGLU(gate, up, y)
	default:
		ref.SwiGLU(gate, up, y)
	}
}

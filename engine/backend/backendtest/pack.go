package backendtest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// pack tests how weights are assembled: parts, rows from the middle of tensors, several
// formats, concatenated vectors, readers that fail, many goroutines.
func (s *subject) pack(t *testing.T) {
	t.Run("parts", s.packParts)
	t.Run("failing reader", s.packFails)
}

// packParts reads the packed weights back: matrices by Embed, vectors as the bias of
// a product with zeros.
func (s *subject) packParts(t *testing.T) {
	const cols = 256
	r, m := rng(11), &tensors{}
	part := func(name string, f kernels.Format, row0, rows int) (backend.Part, []float32) {
		b := random(r, f, (row0+rows+3)*cols, 1)
		m.stored(name, f, row0+rows+3, cols, b)
		return backend.Part{Tensor: name, Row0: row0, Rows: rows, Format: f}, decode(f, b)[row0*cols : (row0+rows)*cols]
	}
	var tables []backend.WeightID
	var want [][]float32
	for _, formats := range [][]kernels.Format{ // of three parts, and the format they are converted to
		{kernels.F32, kernels.F32, kernels.F32, 0}, {kernels.Q8_0, kernels.Q8_0, kernels.Q8_0, 0}, {kernels.BF16, kernels.BF16, kernels.BF16, 0}, {kernels.Q4_1, kernels.F32, kernels.Q6_K, 0},
		{kernels.BF16, kernels.BF16, kernels.BF16, kernels.F32}, {kernels.F32, kernels.F32, kernels.F32, kernels.BF16}, {kernels.F16, kernels.F32, kernels.BF16, kernels.F32},
	} {
		spec := backend.WeightSpec{Name: fmt.Sprint(formats), Group: "test", Cols: cols, Use: backend.Lookup | backend.Multiply, Source: formats[0], Target: formats[3]}
		formats = formats[:3]
		if formats[0] != formats[1] {
			spec.Source = kernels.Invalid
		}
		var values []float32
		for i, f := range formats {
			p, v := part(fmt.Sprintf("%s%d", spec.Name, i), f, 5*i, 4+7*i)
			spec.Rows, spec.Parts, values = spec.Rows+p.Rows, append(spec.Parts, p), append(values, v...)
		}
		m.specs = append(m.specs, spec)
		tables, want = append(tables, backend.WeightID(len(m.specs)-1)), append(want, values)
	}
	bias, joined := s.joined(m)
	zeros := m.matrix("zeros", backend.Multiply, kernels.F32, len(joined), cols, make([]byte, 4*len(joined)*cols))
	const rows = 33 // in every table: 4 + 11 + 18
	var ys []backend.Value
	var y backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: rows, bucket: backend.Bucket{Tokens: rows, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		for _, table := range tables {
			ys = append(ys, input(rec, table, cols))
		}
		y = rec.New("y", kernels.F32, backend.PerToken, len(joined))
		rec.Do(backend.Linear{X: ys[0], W: zeros, Bias: bias, Y: y})
	}})
	rig.run(feed{tokens: upTo(rows)})
	for i, v := range ys {
		f := rig.res.Packed[tables[i]].Format
		if to := m.specs[tables[i]].Target; to != kernels.Invalid && f != to {
			t.Errorf("weight %s: stored as %v", m.specs[tables[i]].Name, f)
		}
		if f != m.specs[tables[i]].Source { // converted at load
			want[i] = decode(f, encode(f, want[i]))
		}
		if at := bits(rig.floats(v, rows), want[i]); at >= 0 {
			t.Errorf("weight %s: row %d, column %d is %v, want %v", m.specs[tables[i]].Name, at/cols, at%cols, rig.floats(v, rows)[at], want[i][at])
		}
	}
	if at := bits(rig.floats(y, 1), joined); at >= 0 {
		t.Errorf("vector of three parts: element %d is %v, want %v", at, rig.floats(y, 1)[at], joined[at])
	}
}

// joined adds a vector of three parts: bf16, f16 and literal values.
func (s *subject) joined(m *tensors) (backend.WeightID, []float32) {
	r := rng(12)
	spec := backend.WeightSpec{Name: "joined", Group: "test", Rows: 1, Use: backend.Vector, Source: kernels.BF16}
	var want []float32
	for i, f := range []kernels.Format{kernels.BF16, kernels.F16, kernels.F32} {
		n := 5 + 8*i
		p := backend.Part{Rows: 1, Elems: n, Format: f}
		if x := normal(r, n, 1); f == kernels.F32 {
			p.Values, want = x, append(want, x...)
		} else {
			p.Tensor = fmt.Sprintf("joined%d", i)
			m.stored(p.Tensor, f, 1, n, encode(f, x))
			want = append(want, decode(f, encode(f, x))...)
		}
		spec.Cols, spec.Parts = spec.Cols+n, append(spec.Parts, p)
	}
	m.specs = append(m.specs, spec)
	return backend.WeightID(len(m.specs) - 1), want
}

// errRead is what the failing reader returns.
var errRead = errors.New("the disk is on fire")

type failing struct{}

func (failing) ReadRows(string, int, int, []byte) error { return errRead }

// packFails: Pack returns the reader's error and may be called again, from several goroutines
// at once.
func (s *subject) packFails(t *testing.T) {
	n := net{weights: kernels.Q8_0, pages: kernels.F32, block: 16, rows: 8, seqs: 1}
	m := &tensors{}
	w := n.add(m)
	r := s.rig(t, plan{tensors: m, vocab: netVocab, bucket: backend.Bucket{Tokens: 8, Seqs: 1, Samples: 8},
		classes: []backend.KVClass{class(n.pages, n.block, netLayers, netKV, netDim, 6)}, pages: 6, record: func(rec *backend.Recorder) { n.record(rec, w) }})
	ids := [][]int32{{1, 2, 3, 4, 5}}
	want := n.runs(r, ids, [][]int32{upTo(6)}, []int{5})
	for i, spec := range m.specs {
		if spec.Parts[0].Values == nil {
			if err := r.dev.Pack(i, failing{}); !errors.Is(err, errRead) {
				t.Errorf("Pack of %s from a failing reader: %v", spec.Name, err)
			}
		}
	}
	var wg sync.WaitGroup
	for i := range m.specs {
		wg.Go(func() {
			if err := r.dev.Pack(i, m); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s.sameLogits(t, &n, "packed again", n.runs(r, ids, [][]int32{upTo(6)}, []int{5}), want)
	for _, i := range []int{-1, len(m.specs)} {
		if r.dev.Pack(i, m) == nil {
			t.Errorf("Pack of weight %d of %d: no error", i, len(m.specs))
		}
	}
}

package backendtest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// tensors is a checkpoint in memory, and the weights of programs made of it.
type tensors struct {
	specs []backend.WeightSpec
	data  map[string]tensor
}

type tensor struct {
	format     kernels.Format
	rows, cols int
	bytes      []byte
}

// ReadRows implements backend.RowReader.
func (m *tensors) ReadRows(name string, row0, rows int, dst []byte) error {
	t, ok := m.data[name]
	size := t.format.Bytes(int64(t.cols))
	if !ok || row0 < 0 || rows < 0 || row0+rows > t.rows || int64(len(dst)) != int64(rows)*size {
		return fmt.Errorf("tensor %q, rows %d to %d into %d bytes: there are %d rows of %d", name, row0, row0+rows, len(dst), t.rows, size)
	}
	copy(dst, t.bytes[int64(row0)*size:])
	return nil
}

// stored adds a tensor's bytes.
func (m *tensors) stored(name string, f kernels.Format, rows, cols int, b []byte) {
	if m.data == nil {
		m.data = map[string]tensor{}
	}
	m.data[name] = tensor{f, rows, cols, b}
}

// matrix adds a weight of one tensor with these bytes.
func (m *tensors) matrix(name string, use backend.Use, f kernels.Format, rows, cols int, b []byte) backend.WeightID {
	m.stored(name, f, rows, cols, b)
	m.specs = append(m.specs, backend.WeightSpec{
		Name: name, Group: "test", Rows: rows, Cols: cols, Source: f, Use: use,
		Parts: []backend.Part{{Tensor: name, Rows: rows, Format: f}},
	})
	return backend.WeightID(len(m.specs) - 1)
}

// stack adds a stack of matrices of one tensor, an expert after the other; with transposed the
// tensor has each matrix as [cols, rows].
func (m *tensors) stack(name string, f kernels.Format, experts, rows, cols int, b []byte, transposed bool) backend.WeightID {
	p := backend.Part{Tensor: name, Rows: rows, Format: f, Stride: rows, Transposed: transposed}
	if transposed {
		p.Stride = cols
		m.stored(name, f, experts*cols, rows, b)
	} else {
		m.stored(name, f, experts*rows, cols, b)
	}
	m.specs = append(m.specs, backend.WeightSpec{Name: name, Group: "test", Rows: rows, Cols: cols, Source: f, Use: backend.Multiply, Experts: experts, Parts: []backend.Part{p}})
	return backend.WeightID(len(m.specs) - 1)
}

// table adds an F32 lookup table, which tests use for a program's inputs.
func (m *tensors) table(name string, x []float32, cols int) backend.WeightID {
	return m.matrix(name, backend.Lookup, kernels.F32, len(x)/cols, cols, encode(kernels.F32, x))
}

// vector adds a vector that the checkpoint stores as f.
func (m *tensors) vector(name string, f kernels.Format, x []float32) backend.WeightID {
	m.stored(name, f, 1, len(x), encode(f, x))
	m.specs = append(m.specs, backend.WeightSpec{
		Name: name, Group: "test", Rows: 1, Cols: len(x), Source: f, Use: backend.Vector,
		Parts: []backend.Part{{Tensor: name, Rows: 1, Elems: len(x), Format: f}},
	})
	return backend.WeightID(len(m.specs) - 1)
}

// literal adds a vector of values.
func (m *tensors) literal(name string, x []float32) backend.WeightID {
	m.specs = append(m.specs, backend.WeightSpec{
		Name: name, Group: "test", Rows: 1, Cols: len(x), Source: kernels.F32, Use: backend.Vector,
		Parts: []backend.Part{{Rows: 1, Elems: len(x), Format: kernels.F32, Values: x}},
	})
	return backend.WeightID(len(m.specs) - 1)
}

// encode returns values in a format that Quantize supports.
func encode(f kernels.Format, x []float32) []byte {
	b := make([]byte, f.Bytes(int64(len(x))))
	ref.Quantize(f, x, b)
	return b
}

// decode returns the values of bytes in a format.
func decode(f kernels.Format, b []byte) []float32 {
	elems, size := f.Block()
	x := make([]float32, len(b)/size*elems)
	ref.Dequantize(f, b, x)
	return x
}

// normal returns n seeded numbers with a standard deviation.
func normal(r *rand.Rand, n int, deviation float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * deviation)
	}
	return x
}

// random returns the bytes of n elements of any format, with about the given deviation; I8
// has any codes, and I4 zero points in the middle of its codes.
func random(r *rand.Rand, f kernels.Format, n int, deviation float64) []byte {
	heads, ok := blockHeads[f]
	if !ok && f != kernels.I8 && f != kernels.I4 && f != kernels.NVFP4 {
		return encode(f, normal(r, n, deviation))
	}
	b := make([]byte, f.Bytes(int64(n)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	_, size := f.Block()
	for at := 0; at < len(b); at += size {
		for _, h := range heads {
			binary.LittleEndian.PutUint16(b[at+h.at:], ref.FloatToHalf(float32(h.times*deviation)))
		}
		if f == kernels.I4 {
			zero := 7 + r.Uint32()%2
			binary.LittleEndian.PutUint32(b[at:], math.Float32bits(float32(deviation/4.6))&^ref.ZeroBits|zero)
		}
		if f == kernels.NVFP4 {
			b[at+8] = 0x08 + byte(r.Uint32()%16) // a scale of 2⁻⁶ to 2⁻⁴·0.94
		}
		if f == kernels.IQ1_M { // four bits of the half are the upper bits of each of four words
			h := ref.FloatToHalf(float32(deviation / 7.2))
			for i := range 4 {
				b[at+49+2*i] = b[at+49+2*i]&15 | byte(h>>(4*i))<<4
			}
		}
	}
	return b
}

// head is a binary16 of a block: its offset, and the factor from the deviation to its value
// that gives random codes and scales this deviation.
type head struct {
	at    int
	times float64
}

// blockHeads has the formats that Quantize lacks. Codes and scales are about uniform: one of
// n values deviates by n/√12. A minimum is d times the mean of a code.
var blockHeads = map[kernels.Format][]head{
	kernels.Q5_0:   {{0, 1 / 9.2}},
	kernels.Q5_1:   {{0, 1 / 9.2}, {2, -15.5 / 9.2}},
	kernels.IQ4_NL: {{0, 1 / 70.}},
	kernels.Q2_K:   {{80, 1 / 12.}, {82, 1.5 / 12}},
	kernels.Q3_K:   {{108, 1 / 43.}},
	kernels.Q4_K:   {{0, 1 / 160.}, {2, 7.5 / 160}},
	kernels.Q5_K:   {{0, 1 / 330.}, {2, 15.5 / 330}},
	kernels.Q6_K:   {{208, 1 / (74 * 18.5)}},

	kernels.IQ4_XS:  {{0, 1 / (67.4 * 18.5)}},
	kernels.IQ3_XXS: {{0, 1 / 142.}},
	kernels.IQ3_S:   {{0, 1 / 140.}},
	kernels.IQ2_XXS: {{0, 1 / 53.}},
	kernels.IQ2_XS:  {{0, 1 / 56.}},
	kernels.IQ2_S:   {{0, 1 / 56.}},
	kernels.IQ1_S:   {{0, 1 / 7.2}},
	kernels.IQ1_M:   nil, // see random
	kernels.TQ1_0:   {{52, 1 / 0.82}},
	kernels.TQ2_0:   {{64, 1 / 1.12}},
}

// rng returns the random numbers of one test, the same in every run.
func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)) }

// bits compares the bits of two rows, except for the sign of zeros, and returns the first
// index that differs, or −1.
func bits(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) && (a[i] != 0 || b[i] != 0) {
			return i
		}
	}
	return -1
}

// alike compares results of the same rows in different steps: with bits if the backend's sums
// do not depend on the step, else within a fraction of want's largest number. It returns the
// first index that differs, or −1.
func (s *subject) alike(got, want []float32, within float64) int {
	if !s.matrixTolerance {
		return bits(got, want)
	}
	var most float64
	for _, v := range want {
		most = max(most, math.Abs(float64(v)))
	}
	for i := range got {
		if got[i] != want[i] && !(math.Abs(float64(got[i])-float64(want[i])) <= within*most) {
			return i
		}
	}
	return -1
}

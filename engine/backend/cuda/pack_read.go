//go:build linux && cgo && cuda

package cuda

import (
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// reader reads rows of a weight's parts.
type reader struct {
	src     backend.RowReader
	spec    backend.WeightSpec
	scaling backend.Scaling // in the checkpoint
	group   int
	raw     []byte
	wide    []float32
	line    []float32 // the scales of a row
	lineOf  string    // identifies the row of line

	second       []byte
	transposedOf string // identifies the matrix in second; "": none
}

// errNaN is the error for damaged weights.
var errNaN = fmt.Errorf("it has a NaN or an infinity: the checkpoint is damaged")

// vector returns a part of a vector in F32.
func (r *reader) vector(p backend.Part, expert, rows, cols int) ([]float32, error) {
	if p.Values != nil {
		if len(p.Values) != rows*cols {
			return nil, fmt.Errorf("%d literal values for %d×%d elements", len(p.Values), rows, cols)
		}
		return p.Values, nil
	}
	r.raw = grow(r.raw, rows*int(p.Format.Bytes(int64(cols))))
	if err := backend.ReadPart(r.src, p, p.Row0+expert*p.Stride, rows, r.raw); err != nil {
		return nil, err
	}
	out := make([]float32, rows*cols)
	ref.Dequantize(p.Format, r.raw, out)
	return out, nil
}

// read fills dst with n rows of a part in its own format, row counting within the part and
// the expert.
func (r *reader) read(p backend.Part, expert, row, n int, dst []byte) error {
	first := p.Row0 + expert*p.Stride + row
	switch {
	case p.Transposed:
		return r.transposed(p, expert, row, n, dst)
	case p.Format == kernels.MXFP4 && p.Scale != "":
		return r.joined(p, first, n, dst)
	}
	return backend.ReadPart(r.src, p, first, n, dst)
}

// joined reads MXFP4 from its two tensors.
func (r *reader) joined(p backend.Part, row, n int, dst []byte) error {
	const elems, block, code = 32, 17, 16
	blocks := n * r.spec.Cols / elems
	r.second = grow(r.second, block*blocks)
	halves, exponents := r.second[:code*blocks], r.second[code*blocks:block*blocks]
	if err := backend.ReadMXFP4(r.src, p, row, n, r.spec.Cols, halves, exponents); err != nil {
		return err
	}
	for i, e := range exponents {
		b := (*[block]byte)(dst[block*i:])
		*(*[code]byte)(b[:]), b[code] = [code]byte(halves[code*i:]), e
	}
	return nil
}

// transposed reads rows of a matrix whose tensor is [in, out]. The first call for a matrix
// reads all of it.
func (r *reader) transposed(p backend.Part, expert, row, n int, dst []byte) error {
	size, cols := int(p.Format.Bytes(1)), r.spec.Cols
	if of := fmt.Sprint(p.Tensor, expert, p.Row0); r.transposedOf != of {
		r.second, r.transposedOf = grow(r.second, p.Rows*cols*size), ""
		if err := backend.ReadTransposed(r.src, p, expert, cols, r.second); err != nil {
			return err
		}
		r.transposedOf = of
	}
	for i := range n {
		to := dst[i*cols*size:][:cols*size]
		for c := range cols {
			copy(to[c*size:(c+1)*size], r.second[(c*p.Rows+row+i)*size:])
		}
	}
	return nil
}

// widen returns n rows of a part in float32, multiplied by their scales.
func (r *reader) widen(p backend.Part, expert, row, n int) ([]float32, error) {
	cols := r.spec.Cols
	r.raw = grow(r.raw, n*int(p.Format.Bytes(int64(cols))))
	if err := r.read(p, expert, row, n, r.raw); err != nil {
		return nil, err
	}
	r.wide = grow(r.wide, n*cols)
	ref.Dequantize(p.Format, r.raw, r.wide)
	if p.Scale == "" || !p.Format.Scaled() {
		return r.wide, nil
	}
	shared := r.scaling.Columns(cols, r.group)
	for i := range n {
		scales, err := r.scalesOf(p, expert, row+i)
		if err != nil {
			return nil, err
		}
		for c, line := 0, r.wide[i*cols:(i+1)*cols]; c < cols; c++ {
			line[c] *= scales[c/shared]
		}
	}
	return r.wide, nil
}

// scalesOf returns the scales of a row of a part; ones if the part has none.
func (r *reader) scalesOf(p backend.Part, expert, row int) ([]float32, error) {
	cols := r.spec.Cols
	shared := r.scaling.Columns(cols, r.group)
	n, at := (cols+shared-1)/shared, expert
	switch r.scaling {
	case backend.PerChannel, backend.PerGroup:
		at = p.Row0 + expert*p.Stride + row
	case backend.PerBlock:
		at = (p.Row0+row)/backend.ScaleBlock + expert*blocks(p.Stride)
	}
	of := fmt.Sprint(p.Scale, at)
	if r.lineOf == of {
		return r.line, nil
	}
	r.line = grow(r.line, n)
	if p.Scale == "" {
		for i := range r.line {
			r.line[i] = 1
		}
	} else {
		raw := make([]byte, p.ScaleFormat.Bytes(int64(n)))
		if err := backend.ReadScales(r.src, p, r.scaling, r.group, at, raw); err != nil {
			return nil, err
		}
		ref.Dequantize(p.ScaleFormat, raw, r.line)
	}
	for _, v := range r.line {
		if v-v != 0 {
			return nil, fmt.Errorf("scales in %s: %w", p.Scale, errNaN)
		}
	}
	r.lineOf = of
	return r.line, nil
}

// scales fills out with the scales of a weight that is not converted, in the order in which
// kernels read them. There may be zeros between rows of blocks.
func (r *reader) scales(m matrix, out []float32) error {
	for e := range max(1, m.Experts) {
		for _, p := range m.Parts {
			step := 1
			switch {
			case m.scaling == backend.PerBlock:
				step = backend.ScaleBlock
			case m.scaling == backend.PerTensor:
				step = max(1, p.Rows)
			}
			for row := 0; row < p.Rows; row += step {
				x, err := r.scalesOf(p, e, row)
				if err != nil {
					return err
				}
				n := len(x)
				if m.scaling == backend.PerBlock {
					n = m.across
				}
				if len(out) < n {
					return fmt.Errorf("its parts have more scales than %d×%d has", m.Rows, m.Cols)
				}
				copy(out, x)
				out = out[n:]
			}
		}
	}
	if len(out) > 0 {
		return fmt.Errorf("its parts have %d scales fewer than %d×%d has", len(out), m.Rows, m.Cols)
	}
	return nil
}

// round stores x in a plain format.
func round(f kernels.Format, x []float32, dst []byte) error {
	if !plain(f) {
		return backend.Unsupported(name, "packing as "+f.String(), "weights are converted to plain formats")
	}
	ref.Quantize(f, x, dst)
	return nil
}

// quantizeE4M3 stores a row with a scale from its largest number; ok is false if that is NaN
// or infinite.
func quantizeE4M3(x []float32, dst []byte) (scale float32, ok bool) {
	const most = 448
	var largest float32
	for _, v := range x {
		if v-v != 0 {
			return 0, false
		}
		largest = max(largest, v, -v)
	}
	if scale = largest / most; scale == 0 {
		scale = 1
	}
	for i := range x {
		x[i] /= scale
	}
	ref.Quantize(kernels.F8E4M3, x, dst)
	return scale, true
}

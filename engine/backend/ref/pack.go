package ref

import (
	"fmt"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// packChunk is about how many bytes of a tensor are read at a time.
const packChunk = 1 << 20

// Pack reads weight i part by part, expert by expert. A part that keeps its format is read
// directly into the arena; other parts go through a buffer of packChunk bytes.
func (d *device) Pack(i int, src backend.RowReader) error {
	if i < 0 || i >= len(d.weights) {
		return fmt.Errorf("backend %s: Pack of weight %d, there are %d", name, i, len(d.weights))
	}
	if d.shared.joined {
		return fmt.Errorf("backend %s: Pack of weight %d: the weights are those of another device", name, i)
	}
	k := packing{spec: d.r.Weights[i], w: &d.weights[i], src: src}
	for k.expert = range max(1, k.spec.Experts) {
		if err := k.matrix(); err != nil {
			return fmt.Errorf("backend %s: weight %s: %w", name, k.spec.Name, err)
		}
	}
	return nil
}

// packing is a weight that is being packed into the arena.
type packing struct {
	spec   backend.WeightSpec
	w      *weight
	src    backend.RowReader
	expert int
}

// matrix packs the parts of one matrix, or of a vector.
func (k *packing) matrix() error {
	row, at := 0, int64(0)
	size := matrixBytes(k.spec, k.w.Format) / int64(max(1, k.spec.Experts))
	out := k.w.data[int64(k.expert)*size:][:size]
	for _, p := range k.spec.Parts {
		rows, cols := p.Rows, k.spec.Cols
		if p.Elems > 0 {
			rows = max(1, p.Rows)
			cols = p.Elems / rows
		}
		n := int64(rows) * k.w.Format.Bytes(int64(cols))
		if at+n > size {
			return fmt.Errorf("its parts have more than %d×%d elements", k.spec.Rows, k.spec.Cols)
		}
		if err := k.part(p, rows, cols, row, out[at:at+n]); err != nil {
			return err
		}
		at += n
		row += rows
	}
	if at != size {
		return fmt.Errorf("its parts have fewer than %d×%d elements", k.spec.Rows, k.spec.Cols)
	}
	return nil
}

// part packs one part, whose first row is row of its matrix.
func (k *packing) part(p backend.Part, rows, cols, row int, out []byte) error {
	if p.Transposed {
		return k.transposed(p, rows, cols, row, out)
	}
	p.Row0 += k.expert * p.Stride
	switch {
	case p.Format == kernels.MXFP4 && p.Scale != "":
		return k.mxfp4(p, rows, cols, out)
	case k.w.scales != nil && plain(p.Format):
		return k.quantize(p, rows, cols, row, out)
	}
	if err := packPart(p, rows, cols, k.w.Format, out, k.src); err != nil || k.w.scales == nil {
		return err
	}
	return k.scales(p, rows, row)
}

// transposed packs a matrix whose tensor is [in, out]. It reads all of it, transposes it, and
// packs the rows.
func (k *packing) transposed(p backend.Part, rows, cols, row int, out []byte) error {
	turned, err := backend.Transpose(k.src, p, k.expert, rows, cols)
	if err != nil {
		return err
	}
	in := *k
	in.src, p.Transposed, p.Row0, p.Col0, p.Cols, p.Stride = turned, false, 0, 0, 0, 0
	return in.part(p, rows, cols, row, out)
}

func plain(f kernels.Format) bool {
	return f == kernels.F32 || f == kernels.F16 || f == kernels.BF16
}

// mxfp4 joins the two tensors of a part.
func (k *packing) mxfp4(p backend.Part, rows, cols int, out []byte) error {
	per := cols / 32
	halves, exponents := make([]byte, 16*per), make([]byte, per)
	for r := range rows {
		if err := backend.ReadMXFP4(k.src, p, p.Row0+r, 1, cols, halves, exponents); err != nil {
			return err
		}
		block := out[17*per*r:][:17*per]
		kernels.JoinBlocks(halves, exponents, block)
	}
	return nil
}

// most is the largest finite number of E4M3: quantize maps a row's largest weight to it.
const most = 448

// quantize scales each row by its largest weight.
func (k *packing) quantize(p backend.Part, rows, cols, row int, out []byte) error {
	raw, x := make([]byte, p.Format.Bytes(int64(cols))), make([]float32, cols)
	size := k.w.Format.Bytes(int64(cols))
	scales := k.w.expertScales(k.expert)
	for r := range rows {
		if err := backend.ReadPart(k.src, p, p.Row0+r, 1, raw); err != nil {
			return err
		}
		ref.Dequantize(p.Format, raw, x)
		largest := float32(0)
		for _, v := range x {
			largest = max(largest, v, -v)
		}
		scale := largest / most
		if scale == 0 {
			scale = 1
		}
		for i := range x {
			x[i] /= scale
		}
		ref.Quantize(k.w.Format, x, out[int64(r)*size:][:size])
		scales.Values[row+r] = scale
	}
	return nil
}

// scales copies a part's scales to every row that shares them.
func (k *packing) scales(p backend.Part, rows, row int) error {
	s, one := k.w.expertScales(k.expert), 1
	first, n := p.Row0, rows
	switch k.spec.Scaling {
	case backend.PerTensor:
		first, n, one = k.expert, 1, rows
	case backend.PerBlock:
		one = backend.ScaleBlock
		first = (p.Row0-k.expert*p.Stride)/one + k.expert*((p.Stride+one-1)/one) // each expert begins with a new block
		n = (rows + one - 1) / one
	}
	size := p.ScaleFormat.Bytes(int64(s.Across))
	raw, x := make([]byte, size), make([]float32, s.Across)
	for i := range n {
		if err := backend.ReadScales(k.src, p, k.spec.Scaling, k.spec.GroupSize, first+i, raw); err != nil {
			return err
		}
		ref.Dequantize(p.ScaleFormat, raw, x)
		for r := i * one; r < min((i+1)*one, rows); r++ {
			copy(s.Values[(row+r)*s.Across:][:s.Across], x)
		}
	}
	return nil
}

// packPart fills out with rows of cols elements stored as f.
func packPart(p backend.Part, rows, cols int, f kernels.Format, out []byte, src backend.RowReader) error {
	if p.Values != nil {
		ref.Quantize(f, p.Values[:cols], out)
		return nil
	}
	from := p.Format.Bytes(int64(cols))
	step := int(max(1, packChunk/from))
	var buf []byte
	if p.Format != f {
		buf = make([]byte, int64(min(step, rows))*from)
	}
	for row := 0; row < rows; row += step {
		n := min(step, rows-row)
		dst := out[int64(row)*f.Bytes(int64(cols)):][:int64(n)*f.Bytes(int64(cols))]
		if p.Format == f {
			if err := backend.ReadPart(src, p, p.Row0+row, n, dst); err != nil {
				return err
			}
			continue
		}
		b := buf[:int64(n)*from]
		if err := backend.ReadPart(src, p, p.Row0+row, n, b); err != nil {
			return err
		}
		if f == kernels.F32 {
			ref.Dequantize(p.Format, b, floats(dst))
			continue
		}
		wide := make([]float32, n*cols)
		ref.Dequantize(p.Format, b, wide)
		ref.Quantize(f, wide, dst)
	}
	return nil
}

// floats returns b as float32; b is aligned to 4.
func floats(b []byte) []float32 { return view[float32](b) }

func view[T any](b []byte) []T {
	var z T
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(z)))
}

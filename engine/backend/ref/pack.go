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

// Pack reads weight i part by part. What keeps its format is read straight into
// the arena; the rest goes through a buffer of packChunk bytes.
func (d *device) Pack(i int, src backend.RowReader) error {
	if i < 0 || i >= len(d.weights) {
		return fmt.Errorf("backend %s: Pack of weight %d, there are %d", name, i, len(d.weights))
	}
	spec, w := d.r.Weights[i], d.weights[i]
	out := w.data
	for _, p := range spec.Parts {
		rows, cols := p.Rows, spec.Cols
		if p.Elems > 0 {
			rows, cols = 1, p.Elems
		}
		n := int64(rows) * w.Format.Bytes(int64(cols))
		if n > int64(len(out)) {
			return fmt.Errorf("backend %s: weight %s: its parts have more than %d×%d elements", name, spec.Name, spec.Rows, spec.Cols)
		}
		if err := packPart(p, rows, cols, w.Format, out[:n], src); err != nil {
			return fmt.Errorf("weight %s: %w", spec.Name, err)
		}
		out = out[n:]
	}
	if left := int64(len(out)) - (int64(len(w.data)) - int64(spec.Rows)*w.Format.Bytes(int64(spec.Cols))); left != 0 {
		return fmt.Errorf("backend %s: weight %s: its parts have fewer than %d×%d elements", name, spec.Name, spec.Rows, spec.Cols)
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
			if err := src.ReadRows(p.Tensor, p.Row0+row, n, dst); err != nil {
				return err
			}
			continue
		}
		b := buf[:int64(n)*from]
		if err := src.ReadRows(p.Tensor, p.Row0+row, n, b); err != nil {
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

// floats is b as float32; b is aligned to 4.
func floats(b []byte) []float32 { return view[float32](b) }

func view[T any](b []byte) []T {
	var z T
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(z)))
}

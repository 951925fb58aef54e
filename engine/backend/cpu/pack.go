//go:build cgo && linux

package cpu

import (
	"fmt"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	kcpu "vapp.dev/kernels/cpu"
)

// packChunk is about how many bytes of a tensor are read at a time; a call of
// Pack uses a few times as much.
const packChunk = 1 << 20

// Pack reads weight i part by part, a chunk of rows at a time, and stores it as
// Layout.Weight says. Several weights may be packed at once.
func (d *device) Pack(i int, src backend.RowReader) error {
	if d.pool == nil {
		return errClosed
	}
	if i < 0 || i >= len(d.weights) {
		return fmt.Errorf("backend %s: Pack of weight %d, there are %d", name, i, len(d.weights))
	}
	spec, w := d.r.Weights[i], d.weights[i]
	k := packer{spec: spec, to: w.Format, out: d.arenas[backend.Weights].slice(w.off, w.Bytes), src: src, variant: d.layout.variant}
	for _, p := range spec.Parts {
		if err := k.part(p); err != nil {
			return fmt.Errorf("backend %s: weight %s: %w", name, spec.Name, err)
		}
	}
	if k.done != spec.Elems() {
		return fmt.Errorf("backend %s: weight %s: its parts have %d elements, not %d×%d", name, spec.Name, k.done, spec.Rows, spec.Cols)
	}
	return nil
}

// packer stores a weight, in the order of its elements.
type packer struct {
	spec    backend.WeightSpec
	variant string
	to      kernels.Format
	out     []byte
	src     backend.RowReader
	done    int64 // elements stored
	raw     []byte
	wide    []float32
	narrow  []byte
}

func (k *packer) part(p backend.Part) error {
	rows, cols := p.Rows, k.spec.Cols
	if p.Elems > 0 {
		rows = max(1, p.Rows)
		cols = p.Elems / rows
	}
	if k.done+int64(rows)*int64(cols) > k.spec.Elems() {
		return fmt.Errorf("its parts have more than %d×%d elements", k.spec.Rows, k.spec.Cols)
	}
	if p.Values != nil {
		if len(p.Values) != rows*cols || k.spec.Use&backend.Vector == 0 {
			return fmt.Errorf("%d literal values for %d×%d elements of a vector", len(p.Values), rows, cols)
		}
		copy(floats(k.out[4*k.done:]), p.Values)
		k.done += int64(len(p.Values))
		return nil
	}
	size := p.Format.Bytes(int64(cols))
	step, fold := int(max(1, packChunk/size)), max(1, p.Fold)
	k.raw = grow(k.raw, int(size)*min(step, rows))
	for row := 0; row < rows; row += step {
		n := min(step, rows-row)
		b := k.raw[:int64(n)*size]
		if err := k.src.ReadRows(p.Tensor, (p.Row0+row)*fold, n*fold, b); err != nil {
			return err
		}
		k.store(p.Format, b, n*cols)
	}
	return nil
}

// store takes n elements stored as from.
func (k *packer) store(from kernels.Format, b []byte, n int) {
	if k.spec.Use&backend.Vector != 0 {
		kcpu.Dequantize(from, b, floats(k.out[4*k.done:])[:n])
		k.done += int64(n)
		return
	}
	if from != k.to {
		b = k.convert(from, b, n)
	}
	if k.spec.Use&backend.Multiply == 0 {
		copy(k.out[k.to.Bytes(k.done):], b)
	} else {
		kcpu.PackRows(k.variant, k.to, k.out, k.spec.Rows, k.spec.Cols, int(k.done/int64(k.spec.Cols)), b)
	}
	k.done += int64(n)
}

// convert gives n elements stored as from in the weight's format: BF16 where no
// kernel multiplies from or the profile asks for it, or F32 (Runs refuses others).
func (k *packer) convert(from kernels.Format, b []byte, n int) []byte {
	k.wide = grow(k.wide, n)
	kcpu.Dequantize(from, b, k.wide[:n])
	if k.to == kernels.F32 {
		return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(k.wide))), 4*n)
	}
	k.narrow = grow(k.narrow, 2*n)
	kcpu.RoundBF16(k.wide[:n], k.narrow[:2*n])
	return k.narrow[:2*n]
}

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// floats is b as float32; b is aligned to 4.
func floats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

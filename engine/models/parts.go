package models

import (
	"fmt"
	"slices"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// matrixPart returns a piece as a part of a weight, its number of columns and its scaling. For a
// stack, rows count within one expert.
func (l *loader) matrixPart(p piece, experts int) (part backend.Part, cols int, s backend.Scaling) {
	if blocks, ok := l.src.Tensor(p.tensor + mxBlocks); ok {
		return l.mxPart(p, blocks)
	}
	if _, ok := l.src.Tensor(p.tensor + int8Packed); ok {
		return l.packedPart(p, experts)
	}
	t := l.tensor(p.tensor)
	if p.transposed {
		t = transpose(t)
	}
	rows := int(t.Rows()) / max(1, experts)
	part = backend.Part{Tensor: p.tensor, Row0: p.row0, Rows: rows, Col0: p.col0, Cols: p.cols, Format: t.Format, Transposed: p.transposed}
	if p.rows > 0 {
		part.Rows = p.rows
	}
	cols = int(t.RowElements())
	if p.cols > 0 {
		cols = p.cols
	}
	if experts > 0 {
		part.Stride = rows
		if p.transposed {
			part.Stride = int(t.RowElements())
		}
	}
	block, _ := t.Format.Block()
	l.aligned(p.tensor, "columns", p.col0, cols, int(t.RowElements()), block)
	if t.Format.Scaled() {
		s = l.scales(&part, p, cols, int(t.RowElements()))
	}
	if s == backend.PerBlock {
		l.aligned(p.tensor, "rows", p.row0, part.Rows, rows, backend.ScaleBlock)
		l.aligned(p.tensor, "columns", p.col0, cols, int(t.RowElements()), backend.ScaleBlock)
	}
	return part, cols, s
}

// packedPart is matrixPart for int8 codes packed four to an I32, in column order.
func (l *loader) packedPart(p piece, experts int) (part backend.Part, cols int, s backend.Scaling) {
	t := l.tensor(p.tensor + int8Packed)
	part = backend.Part{Tensor: t.Name, Row0: p.row0, Rows: int(t.Rows()) / max(1, experts), Col0: p.col0, Cols: p.cols, Format: kernels.I8, Offset: true}
	if experts > 0 {
		part.Stride = part.Rows
	}
	if p.rows > 0 {
		part.Rows = p.rows
	}
	all := 4 * int(t.RowElements())
	if cols = all; p.cols > 0 {
		cols = p.cols
	}
	s = l.scales(&part, p, cols, all)
	l.aligned(t.Name, "columns", p.col0, cols, all, 4)
	return part, cols, s
}

// scales sets the tensor of a part's scales and returns its scaling. It refuses cols of all columns
// that split a group of int8 codes.
func (l *loader) scales(part *backend.Part, p piece, cols, all int) backend.Scaling {
	name, s := l.quant.scaleTensor(l.src, p.tensor)
	scale, _ := l.src.Tensor(name)
	part.Scale, part.ScaleFormat = name, scale.Format
	if s != backend.PerGroup {
		return s
	}
	g := l.quant.group
	l.aligned(part.Tensor, "columns", p.col0, cols, all, g)
	if all%g != 0 {
		l.fail(&UnsupportedError{fmt.Sprintf("int8 with group_size %d of rows of %d (%s)", g, all, clip(p.tensor)), "rows are read in whole groups"})
	}
	return s
}

// transpose returns t with its last two dimensions swapped.
func transpose(t checkpoint.TensorInfo) checkpoint.TensorInfo {
	n := len(t.Shape)
	if n < 2 {
		return t
	}
	t.Shape = slices.Clone(t.Shape)
	t.Shape[n-2], t.Shape[n-1] = t.Shape[n-1], t.Shape[n-2]
	return t
}

// aligned refuses a part of n rows or columns that starts or ends inside a block with a common
// scale.
func (l *loader) aligned(tensor, what string, first, n, of, block int) {
	if first+n > of {
		l.fail(&UnsupportedError{fmt.Sprintf("%s %d to %d of %s", what, first, first+n-1, tensor), fmt.Sprintf("it has %d", of)})
		return
	}
	if first%block == 0 && (n%block == 0 || first+n == of) {
		return
	}
	l.fail(&UnsupportedError{fmt.Sprintf("tensor parallel size %d", l.Shard.World),
		fmt.Sprintf("a rank's %d %s of %s are no whole blocks of %d", n, what, tensor, block)})
}

// tensor returns a tensor of the checkpoint and fails if it is missing. checkTensors lets tensors
// that the family skips be absent, so it can be missing here.
func (l *loader) tensor(name string) checkpoint.TensorInfo {
	t, ok := l.src.Tensor(name)
	if !ok {
		l.fail(&MismatchError{l.src.Path(), []string{name + " is missing"}})
		return checkpoint.TensorInfo{Name: name, Shape: []int64{1, 1}, Format: kernels.F32}
	}
	return t
}

// Suffixes of the two tensors of an MXFP4 matrix: 4-bit codes, two a byte, [experts, rows, cols/32,
// 16]; exponents [experts, rows, cols/32].
const (
	mxBlocks = "_blocks"
	mxScales = "_scales"
)

func (l *loader) mxPart(p piece, blocks checkpoint.TensorInfo) (backend.Part, int, backend.Scaling) {
	shape := blocks.Shape
	part := backend.Part{Tensor: p.tensor + mxBlocks, Scale: p.tensor + mxScales, Format: kernels.MXFP4, Row0: p.row0, Col0: p.col0, Cols: p.cols}
	if len(shape) != 4 {
		l.fail(&MismatchError{l.src.Path(), []string{fmt.Sprintf("%s has shape %v, not four dimensions", blocks.Name, shape)}})
		return part, 0, backend.NoScale
	}
	part.Rows, part.Stride, part.ScaleFormat = int(shape[1]), int(shape[1]), kernels.U8
	if p.rows > 0 {
		part.Rows = p.rows
	}
	all := int(shape[2]) * 2 * int(shape[3])
	cols := all
	part.Whole = all
	if p.cols > 0 {
		cols = p.cols
	}
	block, _ := kernels.MXFP4.Block()
	l.aligned(p.tensor, "columns", p.col0, cols, all, block)
	return part, cols, backend.NoScale
}

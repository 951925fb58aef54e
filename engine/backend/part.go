package backend

import "vapp.dev/kernels"

// How the parts of weights are read: all rows that a rank holds, and of each row its columns.

// ReadPart fills dst with rows [row, row+n) of a part's tensor, in the tensor's own format, without
// the offset of its bytes: the columns from Col0 on, as many as dst has room for. Rows are those of
// the weight.
func ReadPart(src RowReader, p Part, row, n int, dst []byte) error {
	fold := max(1, p.Fold)
	var err error
	if p.Cols > 0 {
		err = readColumns(src, p.Tensor, row, n, p.Format.Bytes(int64(p.Col0)), dst)
	} else {
		err = src.ReadRows(p.Tensor, row*fold, n*fold, dst)
	}
	p.Centre(dst)
	return err
}

// readColumns is ColumnReader.ReadColumns. A RowReader without it has only whole rows.
func readColumns(src RowReader, tensor string, row, n int, first int64, dst []byte) error {
	if columns, ok := src.(ColumnReader); ok {
		return columns.ReadColumns(tensor, row, n, first, dst)
	}
	return src.ReadRows(tensor, row, n, dst)
}

// ReadTransposed fills dst with matrix `expert` of a Transposed part as its tensor stores it, [in, p.Rows].
func ReadTransposed(src RowReader, p Part, expert, in int, dst []byte) error {
	return readColumns(src, p.Tensor, p.Col0+expert*p.Stride, in, p.Format.Bytes(int64(p.Row0)), dst)
}

// ReadMXFP4 fills codes and exponents with rows [row, row+n) of a part of two tensors, of cols columns:
// [n, cols/32, 16] and [n, cols/32].
func ReadMXFP4(src RowReader, p Part, row, n, cols int, codes, exponents []byte) error {
	block, _ := kernels.MXFP4.Block()
	per, whole, first := cols/block, max(cols, p.Whole)/block, p.Col0/block
	if err := readColumns(src, p.Scale, row, n, int64(first), exponents); err != nil {
		return err
	}
	if per == whole {
		return src.ReadRows(p.Tensor, row*per, n*per, codes)
	}
	size := len(codes) / n
	for i := range n {
		if err := src.ReadRows(p.Tensor, (row+i)*whole+first, per, codes[i*size:(i+1)*size]); err != nil {
			return err
		}
	}
	return nil
}

// ReadScales fills dst with row `row` of the scales of a part whose weight has this scaling, group columns to
// a scale if it is PerGroup.
func ReadScales(src RowReader, p Part, s Scaling, group, row int, dst []byte) error {
	first := 0
	switch s {
	case PerBlock:
		first = p.Col0 / ScaleBlock
	case PerGroup:
		first = p.Col0 / group
	}
	return readColumns(src, p.Scale, row, 1, p.ScaleFormat.Bytes(int64(first)), dst)
}

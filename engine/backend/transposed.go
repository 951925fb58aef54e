package backend

import "fmt"

// Transpose returns matrix `expert` of a Transposed part, rows × cols, in the tensor's format.
func Transpose(src RowReader, p Part, expert, rows, cols int) (MatrixRows, error) {
	size := int(p.Format.Bytes(1))
	raw := make([]byte, rows*cols*size)
	if err := ReadTransposed(src, p, expert, cols, raw); err != nil {
		return nil, err
	}
	out := make(MatrixRows, len(raw))
	for r := range rows {
		to := out[r*cols*size:][:cols*size]
		for c := range cols {
			copy(to[c*size:(c+1)*size], raw[(c*rows+r)*size:])
		}
	}
	return out, nil
}

// MatrixRows is a RowReader of the rows of one matrix in its own format.
type MatrixRows []byte

// ReadRows copies rows; their size is the length of dst divided by their number.
func (m MatrixRows) ReadRows(_ string, row0, rows int, dst []byte) error {
	size := len(dst) / rows
	if copy(dst, m[row0*size:]) < len(dst) {
		return fmt.Errorf("rows %d to %d of a matrix of %d bytes", row0, row0+rows-1, len(m))
	}
	return nil
}

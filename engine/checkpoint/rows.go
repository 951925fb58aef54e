package checkpoint

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
)

// ReadRows fills dst with rows row0 to row0+rows-1 of a tensor, in its stored
// Format and in Hugging Face row order (see TensorInfo.SourceRow). A vector or
// scalar is one row. len(dst) must be rows·RowBytes. The rows of a stack are those of its experts, one after the other.
func (c *Checkpoint) ReadRows(name string, row0, rows int, dst []byte) error {
	i, ok := c.byName[name]
	if !ok && strings.HasSuffix(name, DecodedSuffix) {
		return c.readDecoded(name, row0, rows, dst)
	}
	if !ok {
		return c.readStack(name, row0, rows, 0, -1, dst)
	}
	t := c.tensors[i]
	size := t.RowBytes()
	if row0 < 0 || rows < 0 || int64(row0) > t.Rows()-int64(rows) {
		return fault(t.file(c), name, "rows %d to %d asked for, it has %d", row0, row0+rows, t.Rows())
	}
	if int64(len(dst)) != int64(rows)*size {
		return fault(t.file(c), name, "%d bytes given for %d rows of %d bytes", len(dst), rows, size)
	}
	if c.dummy != nil {
		c.dummy.fill(t, row0, rows, dst)
		return nil
	}
	f := c.files[t.File]
	if f == nil {
		return fault(t.File, name, "is closed")
	}
	if t.joined != nil {
		return c.readJoined(t, row0, rows, dst)
	}
	var err error
	switch {
	case t.RopeHead == 0 && t.tiles.each == 0:
		err = f.readAt(dst, t.Offset+int64(row0)*size)
	case len(t.Shape) == 1:
		err = readBias(f, t, dst)
	case t.tiles.each > 0:
		err = readTiles(f, t, int64(row0), dst)
	default:
		err = readHeads(f, t, int64(row0), dst)
	}
	if err == nil && t.negated {
		err = logNegated(t, dst)
	}
	if err == nil && t.swapped { // blocks do not cross rows
		swapMXFP4(dst)
	}
	return err
}

// ReadColumns fills dst with len(dst)/rows bytes of each of rows row0 to row0+rows-1, from byte first
// of the row on, which begins a block. Pieces of a dummy tensor are generated as if each were a tensor.
func (c *Checkpoint) ReadColumns(name string, row0, rows int, first int64, dst []byte) error {
	i, ok := c.byName[name]
	if !ok && rows > 0 && strings.Contains(name, eachExpert) {
		return c.readStack(name, row0, rows, first, int64(len(dst)/rows), dst)
	}
	if !ok || rows < 1 {
		return c.ReadRows(name, row0, rows, dst)
	}
	t := c.tensors[i]
	size, piece := t.RowBytes(), int64(len(dst)/rows)
	if first == 0 && piece == size {
		return c.ReadRows(name, row0, rows, dst)
	}
	if row0 < 0 || int64(row0) > t.Rows()-int64(rows) || first < 0 || piece*int64(rows) != int64(len(dst)) || first > size-piece {
		return fault(t.file(c), name, "bytes %d to %d of rows %d to %d asked for, it has %d rows of %d bytes", first, first+piece, row0, row0+rows, t.Rows(), size)
	}
	if c.dummy != nil {
		elems, bytes := t.Format.Block()
		t.Name += ":" + strconv.FormatInt(first, 10)
		t.Shape = []int64{t.Rows(), piece / int64(bytes) * int64(elems)}
		c.dummy.fill(t, row0, rows, dst)
		return nil
	}
	f := c.files[t.File]
	if f != nil && t.joined == nil && t.RopeHead == 0 && !t.swapped {
		for r := range int64(rows) {
			if err := f.readAt(dst[r*piece:][:piece], t.Offset+(int64(row0)+r)*size+first); err != nil {
				return err
			}
		}
		return nil
	}
	whole := make([]byte, size)
	for r := range rows {
		if err := c.ReadRows(name, row0+r, 1, whole); err != nil {
			return err
		}
		copy(dst[int64(r)*piece:][:piece], whole[first:])
	}
	return nil
}

// swapMXFP4 converts GGUF's blocks {e, q [16]byte}, in which byte i holds elements i and i+16, to
// {q [16]byte, e} with elements 2i and 2i+1 in byte i.
func swapMXFP4(b []byte) {
	const size = 17
	for ; len(b) >= size; b = b[size:] {
		e, in := b[0], [16]byte(b[1:size])
		for i := range 8 {
			b[i] = in[2*i]&15 | in[2*i+1]<<4
			b[i+8] = in[2*i]>>4 | in[2*i+1]&0xf0
		}
		b[size-1] = e
	}
}

// readHeads reads rows that the file stores in a different order within each head, one head at a
// time through a buffer.
func readHeads(f *file, t TensorInfo, row0 int64, dst []byte) error {
	size, d := t.RowBytes(), t.RopeHead
	buf := make([]byte, d*size)
	loaded := int64(-1)
	for n := range int64(len(dst)) / size {
		src := t.SourceRow(row0 + n)
		if head := src / d; head != loaded {
			if err := f.readAt(buf, t.Offset+head*d*size); err != nil {
				return err
			}
			loaded = head
		}
		at := src % d * size
		copy(dst[n*size:(n+1)*size], buf[at:at+size])
	}
	return nil
}

// readTiles reads rows whose heads the file stores in tiles.
func readTiles(f *file, t TensorInfo, row0 int64, dst []byte) error {
	size := t.RowBytes()
	for len(dst) > 0 {
		row, run := t.tiles.source(row0)
		n := min(run, int64(len(dst))/size)
		if err := f.readAt(dst[:n*size], t.Offset+row*size); err != nil {
			return err
		}
		row0, dst = row0+n, dst[n*size:]
	}
	return nil
}

// logNegated replaces each number y by log(−y).
func logNegated(t TensorInfo, b []byte) error {
	for i := 0; i < len(b); i += 4 {
		y := math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))
		if !(y < 0 && y >= -math.MaxFloat32) {
			return fault(t.File, t.Name, "has the number %v; −exp(A_log) is finite and below 0", y)
		}
		binary.LittleEndian.PutUint32(b[i:], math.Float32bits(float32(math.Log(-float64(y)))))
	}
	return nil
}

// readBias reorders the elements of a vector.
func readBias(f *file, t TensorInfo, dst []byte) error {
	buf := make([]byte, len(dst))
	if err := f.readAt(buf, t.Offset); err != nil {
		return err
	}
	_, size := t.Format.Block()
	for i := range len(dst) / size {
		at := int(t.SourceRow(int64(i))) * size
		copy(dst[i*size:(i+1)*size], buf[at:at+size])
	}
	return nil
}

// View returns the mapped bytes of a tensor as stored in the file. They are read-only and valid
// until Close; rows of Q and K may be permuted (see SourceRow). Pages that are read count as this
// process's memory until Release.
func (c *Checkpoint) View(name string) ([]byte, error) {
	b, err := c.mapped(name)
	if err == nil {
		prefetch(b)
	}
	return b, err
}

// Release drops the mapped pages of a tensor, or of all tensors of a stack, from this process;
// reading its View again maps them again.
func (c *Checkpoint) Release(name string) error {
	if _, ok := c.decoded(name); ok {
		name = strings.TrimSuffix(name, DecodedSuffix)
	}
	for _, one := range c.members(name) {
		i, ok := c.byName[one]
		if ok && c.tensors[i].joined != nil {
			if err := c.releaseJoined(c.tensors[i]); err != nil {
				return err
			}
			continue
		}
		b, err := c.mapped(one)
		if err != nil {
			return err
		}
		if err := drop(b); err != nil {
			return failed(c.path, one, err)
		}
	}
	return nil
}

// DropPages drops all mapped pages of all files from this process.
func (c *Checkpoint) DropPages() error {
	for _, f := range c.files {
		if err := drop(f.data); err != nil {
			return failed(f.path, "", err)
		}
	}
	return nil
}

func (c *Checkpoint) mapped(name string) ([]byte, error) {
	i, ok := c.byName[name]
	if !ok {
		return nil, fault(c.path, name, "is not in the checkpoint")
	}
	t := c.tensors[i]
	f := c.files[t.File]
	if f == nil {
		return nil, fault(t.file(c), name, "has no bytes on disk (dummy weights, or closed)")
	}
	if t.joined != nil {
		return nil, fault(t.file(c), name, "is stored as several tensors; its rows can be read")
	}
	return f.data[t.Offset : t.Offset+t.Bytes : t.Offset+t.Bytes], nil
}

// finite reports whether x is neither NaN nor infinite.
func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

package checkpoint

import (
	"math"

	"vapp.dev/kernels"
)

// Maximum elements and dimensions of a tensor, and maximum tensors of a file.
const (
	maxTensors  = 1 << 20
	maxElements = 1 << 48
	maxDims     = 8
)

// TensorInfo is one tensor of a checkpoint under its Hugging Face name.
type TensorInfo struct {
	Name   string
	Shape  []int64 // row-major: [out, in] for a linear; [] is a scalar
	Format kernels.Format
	File   string // path of the file that holds it, "" for dummy weights
	Offset int64  // of the first byte in File
	Bytes  int64

	// RopeHead is the number of rows of an attention head if the file stores Q or K rows as
	// interleaved rotary pairs (GGUF, llama), else 0. See SourceRow.
	RopeHead int64

	// tiles is set if the file stores the value heads of a delta net in tiles (GGUF, qwen35).
	tiles headTiles

	// negated is true if the file stores −exp(x) for each number x of the tensor, which is F32 (GGUF, qwen35).
	negated bool

	// swapped is true if MXFP4 blocks are stored as in GGUF: the exponent first, and elements i and
	// i+16 in a byte. ReadRows reorders them.
	swapped bool

	// joined is set if the tensor is stored as several (grouped.go).
	joined *joined
}

// headTiles is an order of the rows behind row first, heads of size rows each: the first head of each
// group, then the second of each, and so on. Hugging Face stores group after group. each is the number
// of heads of a group; 0: rows are in their own order.
type headTiles struct{ first, size, groups, each int64 }

// source returns the row of the file that holds row r, and how many rows from there on are in order.
func (h headTiles) source(r int64) (row, run int64) {
	if r < h.first {
		return r, h.first - r
	}
	head, in := (r-h.first)/h.size, (r-h.first)%h.size
	return h.first + (head%h.each*h.groups+head/h.each)*h.size + in, h.size - in
}

// Elements returns the product of the shape.
func (t TensorInfo) Elements() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// RowElements returns the length of a row: the last dimension. A vector is one
// row, a stack of experts [E, out, in] has E·out rows.
func (t TensorInfo) RowElements() int64 {
	if len(t.Shape) == 0 {
		return 1
	}
	return t.Shape[len(t.Shape)-1]
}

// Rows returns the number of rows of RowElements.
func (t TensorInfo) Rows() int64 { return t.Elements() / t.RowElements() }

// RowBytes returns the stored bytes of a row.
func (t TensorInfo) RowBytes() int64 { return t.Format.Bytes(t.RowElements()) }

// SourceRow returns the row of the file that holds row r of the Hugging Face tensor. Hugging Face
// rotates element i of a head with element i+d/2. GGUF's llama files rotate 2i with 2i+1, and the
// converter permuted the rows of Q and K accordingly: within a head of d rows, source row 2i+p is
// row i + p·d/2. Blocks of a quantized format run along a row, so moving rows never splits one. For
// a bias the "row" is an element. The value heads of qwen35's delta nets are in tiles, see headTiles.
func (t TensorInfo) SourceRow(r int64) int64 {
	if t.tiles.each > 0 {
		row, _ := t.tiles.source(r)
		return row
	}
	if t.RopeHead == 0 {
		return r
	}
	d, in := t.RopeHead, r%t.RopeHead
	return r - in + in%(d/2)*2 + in/(d/2)
}

// measure checks a shape read from a file and returns the tensor's bytes.
func measure(f kernels.Format, shape []int64) (bytes int64, wrong string) {
	if len(shape) > maxDims {
		return 0, "has more than 8 dimensions"
	}
	n := int64(1)
	for _, d := range shape {
		if d < 1 {
			return 0, "has a dimension below 1"
		}
		if d > maxElements || n > maxElements/d {
			return 0, "has more than 2^48 elements"
		}
		n *= d
	}
	block, size := f.Block()
	if block > 1 && (len(shape) == 0 || shape[len(shape)-1]%int64(block) != 0) {
		return 0, "has rows that are no whole number of " + f.String() + " blocks"
	}
	if n/int64(block) > math.MaxInt64/int64(size) {
		return 0, "is too large"
	}
	return f.Bytes(n), ""
}

package backend

import (
	"slices"
	"strings"

	"vapp.dev/kernels"
)

// Use is how programs read a weight; a weight may have several uses (tied
// embeddings), and then has one stored copy that serves them all.
type Use uint8

// The uses.
const (
	Multiply Use = 1 << iota // Linear: y = x·Wᵀ
	Lookup                   // Embed: rows picked by token id
	Vector                   // norms, biases, tables: read whole, kept as F32
)

// WeightSpec is one weight of a model as its programs see it: the rows of one
// or several checkpoint tensors one after the other.
type WeightSpec struct {
	Name   string         // "layers.0.qkv"
	Group  string         // ledger group: "embedding", "attention", "mlp", "norm", "head"
	Rows   int            // output features; 1 for vectors
	Cols   int            // input features
	Source kernels.Format // format in the checkpoint; Invalid where parts differ
	Use    Use
	Parts  []Part
	// Experts is how many matrices of Rows × Cols lie one after the other, each
	// for an expert; 0: one matrix.
	Experts int
	// Target is what the weight is quantized to while it is packed (the profile's
	// quantization); Invalid: it stays as stored.
	Target kernels.Format
	// Scaling of an 8-bit float format, as stored or as Target gets it, or of I8.
	Scaling Scaling
	// GroupSize is how many neighbours of a row share a scale, where Scaling is PerGroup.
	GroupSize int
	// RoundInputs says that what the weight is multiplied with is rounded first (W8A8): of I8 with a
	// scale for each row or tensor, to int8, each row of it with a scale of its own; of F8E4M3, where
	// Settings.Activations asks for it, to E4M3 with the scales that InputGroup says.
	RoundInputs bool
}

// Elems is Rows × Cols, of all experts.
func (w WeightSpec) Elems() int64 {
	return int64(max(1, w.Experts)) * int64(w.Rows) * int64(w.Cols)
}

// Stored is the format that kernels read where a layout has them for it.
func (w WeightSpec) Stored() kernels.Format {
	if w.Target != kernels.Invalid {
		return w.Target
	}
	return w.Source
}

// Formats names what its parts are stored in: "q4_k", "q4_k+q6_k".
func (w WeightSpec) Formats() string {
	var names []string
	for _, p := range w.Parts {
		if f := p.Format.String(); !slices.Contains(names, f) {
			names = append(names, f)
		}
	}
	return strings.Join(names, "+")
}

// Scaling says which weights share a scale. Formats whose blocks carry their own
// scale (GGUF's, MXFP4) have none.
type Scaling uint8

// The scalings. A scale is one F32.
const (
	NoScale    Scaling = iota
	PerTensor          // one for each part (each expert's, if there are any)
	PerChannel         // one for each output feature
	PerBlock           // one for each 128 × 128 block of a part
	PerGroup           // one for each GroupSize inputs of an output feature
)

// Columns is how many neighbours of a row of cols share a scale, at least 1; group is
// that of WeightSpec.GroupSize.
func (s Scaling) Columns(cols, group int) int {
	switch s {
	case PerBlock:
		return ScaleBlock
	case PerGroup:
		return max(1, group)
	}
	return max(1, cols)
}

// ScaleBlock is the side of a PerBlock block.
const ScaleBlock = 128

var scalingNames = [...]string{"", "per tensor", "per channel", "per 128x128 block", "per group"}

// String is the word that plans print; "" for NoScale.
func (s Scaling) String() string { return scalingNames[min(int(s), len(scalingNames)-1)] }

// Scales is how many F32 scales lie beside the weights.
func (w WeightSpec) Scales() int64 {
	experts := int64(max(1, w.Experts))
	switch w.Scaling {
	case PerTensor:
		if w.Experts > 0 {
			return experts
		}
		return int64(len(w.Parts))
	case PerChannel:
		return experts * int64(w.Rows)
	case PerGroup:
		return experts * int64(w.Rows) * int64(w.Cols/max(1, w.GroupSize))
	case PerBlock:
		var n int64
		blocks := func(n int) int64 { return (int64(n) + ScaleBlock - 1) / ScaleBlock }
		if w.Experts > 0 {
			return experts * blocks(w.Rows) * blocks(w.Cols)
		}
		for _, p := range w.Parts {
			n += blocks(p.Rows) * blocks(w.Cols)
		}
		return n
	}
	return 0
}

// Part is a run of rows of a checkpoint tensor, or literal values. The parts of
// a Vector are joined end to end: each is Rows rows of Elems elements in all, or one row from Col0 on.
// Of a stack of experts, Row0 and Rows count within each expert.
type Part struct {
	Tensor string
	Row0   int
	Rows   int
	Elems  int            // of a Vector's part; 0 otherwise
	Format kernels.Format // of this tensor; parts may differ
	// Col0 is the first column this rank holds, Cols how many; 0: all from the first.
	Col0, Cols int
	// Fold is how many rows of Tensor make one row here (the kernel of a convolution
	// that a matrix product does); 0: 1. Row0 and Rows count rows here.
	Fold int
	// Offset says that Tensor keeps I8 as bytes that are 128 more (pack-quantized).
	Offset bool
	// Scale names the tensor of the scales, where Tensor has some: of an 8-bit float or I8
	// by the spec's Scaling, stored as ScaleFormat; of MXFP4 one byte for each 32
	// weights. "" where none.
	Scale       string
	ScaleFormat kernels.Format
	// Stride is the rows from one expert to the next in Tensor; 0 where there is none.
	Stride int
	// Transposed says that Tensor keeps the matrix, or each of a stack, as [in, out]:
	// rows and columns above are of the matrix as it is multiplied, Row0 and Rows being
	// columns of Tensor.
	Transposed bool
	// Values replaces Tensor for vectors the model code computes (rope
	// frequencies).
	Values []float32
}

// Centre takes the 128 of Offset from bytes that were read of Tensor.
func (p Part) Centre(b []byte) {
	for i := 0; p.Offset && i < len(b); i++ {
		b[i] ^= 0x80
	}
}

// WeightID is the index of a WeightSpec in a model's list.
type WeightID int32

// NoWeight marks an absent weight (no bias).
const NoWeight WeightID = -1

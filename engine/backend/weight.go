package backend

import (
	"slices"
	"strings"

	"vapp.dev/kernels"
)

// Use is how programs read a weight. A weight with several uses (tied embeddings) is
// stored once.
type Use uint8

// The uses.
const (
	Multiply Use = 1 << iota // Linear: y = x·Wᵀ
	Lookup                   // Embed: rows picked by token id
	Vector                   // norms, biases, tables: read whole, kept as F32
)

// WeightSpec is one weight of a model as its programs see it: the concatenated rows of one
// or several checkpoint tensors.
type WeightSpec struct {
	Name   string         // "layers.0.qkv"
	Group  string         // ledger group: "embedding", "attention", "mlp", "norm", "head"
	Rows   int            // output features; 1 for vectors
	Cols   int            // input features
	Source kernels.Format // format in the checkpoint; Invalid where parts differ
	Use    Use
	Parts  []Part
	// Experts is the number of stacked Rows × Cols matrices, one for each expert; 0: one
	// matrix.
	Experts int
	// Target is the format that the weight is quantized to while it is packed (the profile's
	// quantization); Invalid: it is stored as in the checkpoint.
	Target kernels.Format
	// Scaling applies to an 8-bit float format (in the checkpoint or in Target), to I8 and to NVFP4,
	// whose blocks have scales besides.
	Scaling Scaling
	// GroupSize is how many neighbours in a row share a scale if Scaling is PerGroup.
	GroupSize int
	// InputOrder is 1 + the WeightID of a vector with the order of the weight's columns, if it
	// differs from that of the inputs (GPTQ's act-order); 0: it does not. Recorder.Do reorders the
	// inputs of Linear.
	InputOrder int
	// Adapters are the adapters of a matrix to multiply; zero: none. Recorder.Do adds them to the
	// results of Linear.
	Adapters Adapters
	// Unloaded means that the weight has no tensors: Pack is not called for it, and its rows are
	// zero until AdapterWriter.WriteRows stores them.
	Unloaded bool
	// RoundInputs means that inputs are rounded before the product (W8A8). With I8 weights,
	// scaled per row or tensor, inputs are rounded to int8 with a scale for each input row.
	// With F8E4M3 weights, if Settings.Activations is FP8Activations, inputs are rounded to
	// E4M3 with a scale for each InputGroup.
	RoundInputs bool
	// GateUp means that rows are the gates of a GLU and then as many ups. A layout may bring a gate and its up together.
	GateUp bool
}

// Elems returns Rows × Cols, summed over experts.
func (w WeightSpec) Elems() int64 {
	return int64(max(1, w.Experts)) * int64(w.Rows) * int64(w.Cols)
}

// Stored returns the format after packing, if a layout has kernels for it: Target, or else
// Source.
func (w WeightSpec) Stored() kernels.Format {
	if w.Target != kernels.Invalid {
		return w.Target
	}
	return w.Source
}

// Segments splits a matrix whose parts have several formats, as Q, K and V in GGUF files may
// have, into runs of parts of one format. Each segment is packed and multiplied separately,
// into its own outputs. It returns nil if all parts have one format, or if the matrix has
// other uses than Multiply.
func (w WeightSpec) Segments() []WeightSpec {
	if w.Stored() != kernels.Invalid || w.Use != Multiply || w.Experts > 0 {
		return nil
	}
	var out []WeightSpec
	for _, p := range w.Parts {
		if n := len(out); n == 0 || out[n-1].Source != p.Format {
			s := w
			s.Source, s.Rows, s.Parts = p.Format, 0, nil
			out = append(out, s)
		}
		s := &out[len(out)-1]
		s.Rows += p.Rows
		s.Parts = append(s.Parts, p)
	}
	return out
}

// Formats returns the checkpoint formats of the parts: "q4_k", "q4_k+q6_k".
func (w WeightSpec) Formats() string {
	var names []string
	for _, p := range w.Parts {
		if f := p.Format.String(); !slices.Contains(names, f) {
			names = append(names, f)
		}
	}
	return strings.Join(names, "+")
}

// Scaling is the granularity of a weight's scales. Formats whose blocks contain their
// scale (GGUF's, MXFP4) have NoScale.
type Scaling uint8

// The scalings. A scale is one F32.
const (
	NoScale    Scaling = iota
	PerTensor          // one for each part (each expert's, if there are any)
	PerChannel         // one for each output feature
	PerBlock           // one for each 128 × 128 block of a part
	PerGroup           // one for each GroupSize inputs of an output feature
)

// Columns returns how many neighbours in a row of cols elements share a scale, at least 1;
// group is WeightSpec.GroupSize.
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

// String returns the scaling's name in plans; "" for NoScale.
func (s Scaling) String() string { return scalingNames[min(int(s), len(scalingNames)-1)] }

// Scales returns the number of F32 scales that are stored with the weights.
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

// Part is a run of rows of a checkpoint tensor, or literal values. The parts of a Vector are
// concatenated: each is Rows rows with Elems elements in total, or one row from Col0 on.
// In a stack of experts, Row0 and Rows count within each expert.
type Part struct {
	Tensor string
	Row0   int
	Rows   int
	Elems  int            // in a part of a Vector; 0 otherwise
	Format kernels.Format // of this tensor; parts may differ
	// Col0 is the first column this rank holds, Cols how many; 0: all from the first. Of a vector they count
	// elements of a row.
	Col0, Cols int
	// Whole is how many columns Tensor has if it stores MXFP4; 0: those of the weight.
	Whole int
	// Fold is how many rows of Tensor are joined to one row of the weight (a convolution
	// that runs as a matrix product); 0: 1. Row0 and Rows count rows of the weight.
	Fold int
	// Offset means that Tensor stores I8 as bytes plus 128 (pack-quantized).
	Offset bool
	// Scale names the tensor of the scales; "": none. For 8-bit floats, I8 and NVFP4 it has the
	// spec's Scaling and format ScaleFormat; for MXFP4 one byte for each 32 weights.
	Scale       string
	ScaleFormat kernels.Format
	// Stride is the number of rows from one expert to the next in Tensor; 0: no experts.
	Stride int
	// Transposed means that Tensor stores the matrix, or each matrix of a stack, as
	// [in, out]. Rows and columns above refer to the matrix as it is multiplied: Row0 and Rows
	// count columns of Tensor, Col0 and Stride its rows.
	Transposed bool
	// Values replaces Tensor for vectors the model code computes (rope
	// frequencies).
	Values []float32
}

// Centre subtracts the 128 of Offset from bytes that were read from Tensor.
func (p Part) Centre(b []byte) {
	for i := 0; p.Offset && i < len(b); i++ {
		b[i] ^= 0x80
	}
}

// WeightID is the index of a WeightSpec in a model's list.
type WeightID int32

// NoWeight marks an absent weight (no bias).
const NoWeight WeightID = -1

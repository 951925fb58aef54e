package backend

import "vapp.dev/kernels"

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
}

// Elems is Rows × Cols.
func (w WeightSpec) Elems() int64 { return int64(w.Rows) * int64(w.Cols) }

// Part is a run of rows of a checkpoint tensor, or literal values. The parts of
// a Vector are joined end to end: each is one row of Elems elements.
type Part struct {
	Tensor string
	Row0   int
	Rows   int
	Elems  int            // of a Vector's part; 0 otherwise
	Format kernels.Format // of this tensor; parts may differ
	// Values replaces Tensor for vectors the model code computes (rope
	// frequencies).
	Values []float32
}

// WeightID is the index of a WeightSpec in a model's list.
type WeightID int32

// NoWeight marks an absent weight (no bias).
const NoWeight WeightID = -1

package backend

// Op is one operation of a Program. Every op is a struct, so a new model family adds a
// field, not a method. A backend that lacks an op or a field rejects the Program with
// ErrUnsupported when it computes its Workspace. The package comment lists the ops by file;
// this file has those that are not special to attention, MLPs, states, drafts or vision.
//
// Shapes: T tokens in the step, S sequences, L sampled rows. Values are
// row-major and F32 unless stated otherwise.
type Op interface{ opName() string }

// OpName returns the op's name in plans and errors: "linear".
func OpName(op Op) string { return op.opName() }

// Token ids and embeddings.

// Tokens resolves Step.Tokens into Out [T,1] I32. An entry ≥ 0 is a token id;
// an entry −1−r refers to row r of the other set's Step.Sampled. If that row has no token
// (−1), Out is token 0, and Commit drops the row.
type Tokens struct{ Out Value }

// StoreTokens writes Ids [T,1] I32 into the token plane of class Class, at
// each token's page slot (see KVClass.TokenOffset). Sample reads it for penalties.
type StoreTokens struct {
	Ids   Value
	Class int
}

// Embed sets Y [rows,cols] to rows Ids [rows,1] I32 of Table, times Scale. Row0 is the id
// of the table's first row on this rank; ids that another rank has give zeros.
type Embed struct {
	Ids   Value
	Table WeightID
	Y     Value
	Scale float32
	Row0  int
}

// Rows and elements.

// Norm is RMSNorm with an optional residual, row by row. With Residual ≥ 0 it
// first adds X into Residual (in place) and normalises the sum, else X:
// Y = r / sqrt(mean(r²) + Eps) · (Offset + W) · Scale. X, Residual, Y are
// [rows, cols]. Y may be X.
type Norm struct {
	X        Value
	Residual Value    // NoValue: none
	W        WeightID // [cols], or [Segment]; NoWeight: ones
	Eps      float32
	Y        Value
	// Offset is added to every weight: 1 if the checkpoint stores weights around 0.
	Offset float32
	// Scale multiplies the result; 0: 1.
	Scale float32
	// Segment is how many columns are normalised together; 0: all.
	Segment int
	// Gated multiplies the result by silu(Gate), Gate [rows, cols].
	Gated bool
	Gate  Value
	// Plain selects LayerNorm instead of RMSNorm: it subtracts the mean first and adds
	// Bias last. Vision towers use it.
	Plain bool
	Bias  WeightID // with Plain only
}

// Add sets Into [rows,cols] to (Into + X) · Scale[0]; Scale is a vector of one number.
type Add struct {
	X, Into Value
	Scale   WeightID // NoWeight: 1
}

// Concat sets Y [rows,a+b] to the columns of A, then those of B.
type Concat struct{ A, B, Y Value }

// Reorder selects columns of X [rows,cols]: column i of Y [rows,n] is column Order[i] of X. Order
// [1,n] has whole numbers below cols.
type Reorder struct {
	X, Y  Value
	Order WeightID
}

// Softcap sets X [rows,cols] to Cap · tanh(X / Cap), in place.
type Softcap struct {
	X   Value
	Cap float32
}

// Linear sets Y [rows,out] to X [rows,in] · Wᵀ (+ Bias [out]). The format is in the
// weight's spec. The result of a row does not depend on the other rows.
type Linear struct {
	X    Value
	W    WeightID
	Bias WeightID // NoWeight: none
	Y    Value
}

// Outputs of a step.

// Gather copies rows Step.Rows of X [T,cols] to Y [L,cols].
type Gather struct{ X, Y Value }

// GatherLast copies the last row of each sequence of X [T,cols] to Y [S,cols].
type GatherLast struct{ X, Y Value }

// Sample turns Logits [L,vocab] into tokens: masks, raw logprobs, edits,
// penalties, temperature, min-p, top-k, top-p, draw, in that order. Each row has its own
// SampleRow. It fills Step's outputs and may overwrite Logits.
type Sample struct {
	Logits Value
	Class  int // whose token plane is the history
}

// OutputRows copies rows X [L,cols] to Step.Outputs for the host. Pooling models end with it
// instead of Sample.
type OutputRows struct{ X Value }

// Communication between ranks.

// AllReduce sums X over the ranks in place.
type AllReduce struct{ X Value }

// AllGather concatenates the ranks' columns of X [rows,cols] in Y [rows,cols·World].
type AllGather struct{ X, Y Value }

// Receive fills Y [rows,cols] with the values that the previous pipeline rank sent.
type Receive struct{ Y Value }

// Send sends X [rows,cols] to the next pipeline rank.
type Send struct{ X Value }

func (Receive) opName() string        { return "receive" }
func (Send) opName() string           { return "send" }
func (Tokens) opName() string         { return "tokens" }
func (StoreTokens) opName() string    { return "store_tokens" }
func (Embed) opName() string          { return "embed" }
func (Add) opName() string            { return "add" }
func (Concat) opName() string         { return "concat" }
func (Softcap) opName() string        { return "softcap" }
func (Reorder) opName() string        { return "reorder" }
func (Activate) opName() string       { return "activate" }
func (Route) opName() string          { return "route" }
func (Experts) opName() string        { return "experts" }
func (Conv) opName() string           { return "conv" }
func (DeltaNet) opName() string       { return "delta_net" }
func (Mamba2) opName() string         { return "mamba2" }
func (Gate) opName() string           { return "gate" }
func (DraftInput) opName() string     { return "draft_input" }
func (Verify) opName() string         { return "verify" }
func (GatherAccepted) opName() string { return "gather_accepted" }
func (Propose) opName() string        { return "propose" }
func (Norm) opName() string           { return "norm" }
func (Linear) opName() string         { return "linear" }
func (Angles) opName() string         { return "angles" }
func (Rope) opName() string           { return "rope" }
func (Attention) opName() string      { return "attention" }
func (StoreKV) opName() string        { return "store_kv" }
func (GLU) opName() string            { return "glu" }
func (Gather) opName() string         { return "gather" }
func (GatherLast) opName() string     { return "gather_last" }
func (Sample) opName() string         { return "sample" }
func (OutputRows) opName() string     { return "output_rows" }
func (AllReduce) opName() string      { return "all_reduce" }
func (AllGather) opName() string      { return "all_gather" }

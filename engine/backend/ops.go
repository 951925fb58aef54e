package backend

// Op is one operation of a Program. Every op is a struct, so that a new model
// family adds a field and not a method; a backend that lacks an op or a field
// refuses the Program with ErrUnsupported when it computes its Workspace.
//
// Shapes: T tokens in the step, S sequences, L rows that sample. Values are
// row-major; unless said otherwise they are F32.
type Op interface{ opName() string }

// OpName is the op's name in plans and errors: "linear".
func OpName(op Op) string { return op.opName() }

// Tokens resolves Step.Tokens into Out [T,1] I32: an entry ≥ 0 is a token id,
// an entry −1−r stands for row r of the other set's Step.Sampled. A Sampled of
// −1 (its row had no token) reads as token 0: the row is dropped at Commit.
type Tokens struct{ Out Value }

// StoreTokens writes Ids [T,1] I32 into the token plane of class Class, at
// each token's page slot (see KVClass.TokenOffset). Sample's penalties read it.
type StoreTokens struct {
	Ids   Value
	Class int
}

// Embed sets Y [rows,cols] to the rows of Table that Ids [rows,1] I32 name, times
// Scale. Row0 is the id of the table's first row: ids outside of it (another
// rank has them) give zeros.
type Embed struct {
	Ids   Value
	Table WeightID
	Y     Value
	Scale float32
	Row0  int
}

// Norm is RMSNorm with an optional residual, row by row. With Residual ≥ 0 it
// first adds X into Residual (in place) and normalises that, else X:
// Y = r / sqrt(mean(r²) + Eps) · (Offset + W) · Scale. X, Residual, Y are
// [rows, cols]. Y may be X.
type Norm struct {
	X        Value
	Residual Value    // NoValue: none
	W        WeightID // [cols], or [Segment]; NoWeight: ones
	Eps      float32
	Y        Value
	// Offset is added to every weight: 1 where the checkpoint keeps weights around 0.
	Offset float32
	// Scale multiplies the result; 0: 1.
	Scale float32
	// Segment is how many columns are normalised together; 0: all.
	Segment int
	// Gated says that the result is multiplied by silu(Gate), Gate [rows, cols].
	Gated bool
	Gate  Value
	// Plain is LayerNorm in place of RMSNorm: the mean is taken off first and Bias
	// added last. Vision towers have it.
	Plain bool
	Bias  WeightID // with Plain only
}

// Add is Into [rows,cols] = (Into + X) · Scale[0], Scale a vector of one number.
type Add struct {
	X, Into Value
	Scale   WeightID // NoWeight: 1
}

// Concat is Y [rows,a+b]: the columns of A, then those of B.
type Concat struct{ A, B, Y Value }

// Softcap is X [rows,cols] = Cap · tanh(X / Cap), in place.
type Softcap struct {
	X   Value
	Cap float32
}

// Linear is Y [rows,out] = X [rows,in] · Wᵀ (+ Bias [out]). The weight carries
// its format; the result of a row does not depend on the other rows.
type Linear struct {
	X    Value
	W    WeightID
	Bias WeightID // NoWeight: none
	Y    Value
}

// Gather picks the rows Step.Rows of X [T,cols] into Y [L,cols].
type Gather struct{ X, Y Value }

// GatherLast picks the last row of each sequence of X [T,cols] into Y [S,cols].
type GatherLast struct{ X, Y Value }

// Sample turns Logits [L,vocab] into tokens: masks, raw logprobs, edits,
// penalties, temperature, min-p, top-k, top-p, draw, in that order, each row by
// its SampleRow. It fills Step's outputs and may overwrite Logits.
type Sample struct {
	Logits Value
	Class  int // whose token plane is the history
}

// Emit hands rows X [L,cols] to the host, in Step.Outputs: a model that pools ends with
// it in place of Sample.
type OutputRows struct{ X Value }

// AllReduce sums X over the ranks in place.
type AllReduce struct{ X Value }

// AllGather joins the ranks' columns of X [rows,cols] into Y [rows,cols·World].
type AllGather struct{ X, Y Value }

// Receive fills Y [rows,cols] with what the pipeline rank before this one sent.
type Receive struct{ Y Value }

// Send gives X [rows,cols] to the pipeline rank after this one.
type Send struct{ X Value }

func (Receive) opName() string        { return "receive" }
func (Send) opName() string           { return "send" }
func (Tokens) opName() string         { return "tokens" }
func (StoreTokens) opName() string    { return "store_tokens" }
func (Embed) opName() string          { return "embed" }
func (Add) opName() string            { return "add" }
func (Concat) opName() string         { return "concat" }
func (Softcap) opName() string        { return "softcap" }
func (Activate) opName() string       { return "activate" }
func (Route) opName() string          { return "route" }
func (Experts) opName() string        { return "experts" }
func (Conv) opName() string           { return "conv" }
func (DeltaNet) opName() string       { return "delta_net" }
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

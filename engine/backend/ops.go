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

// Embed sets Y [T,cols] to the rows of Table that Ids [T,1] I32 name, times Scale.
type Embed struct {
	Ids   Value
	Table WeightID
	Y     Value
	Scale float32
}

// Norm is RMSNorm with an optional residual, row by row. With Residual ≥ 0 it
// first adds X into Residual (in place) and normalises that, else X:
// Y = r / sqrt(mean(r²) + Eps) · W. X, Residual, Y are [rows, cols]. Y may be X.
type Norm struct {
	X        Value
	Residual Value // NoValue: none
	W        WeightID
	Eps      float32
	Y        Value
}

// Linear is Y [rows,out] = X [rows,in] · Wᵀ (+ Bias [out]). The weight carries
// its format; the result of a row does not depend on the other rows.
type Linear struct {
	X    Value
	W    WeightID
	Bias WeightID // NoWeight: none
	Y    Value
}

// Angles fills Y [T,2·half] with cos then sin of position · InvFreq [half],
// times Scale: the product in F32 as transformers does it, cos and sin of
// that product rounded to F32.
type Angles struct {
	InvFreq WeightID
	Scale   float32
	Y       Value
}

// Rope splits the fused QKV [T,(Heads+2·KVHeads)·HeadDim] and rotates Q and
// K by halves (NeoX): pair (i, i+Rotary/2). Q [T,Heads·HeadDim] is F32; K and V
// [T,KVHeads·HeadDim] are rounded to the class's format.
type Rope struct {
	QKV, Angles             Value
	Q, K, V                 Value
	Heads, KVHeads, HeadDim int
	Rotary                  int // rotated dimensions, ≤ HeadDim
}

// Attention is causal attention of the step's queries over the paged history
// of each sequence and the step's own K and V, which StoreKV stores afterwards.
// Token t at position p of its sequence sees positions 0..p: those before the
// sequence's first token in this step from pages, the others from K and V.
// Scores are accumulated, and the softmax is split, at absolute positions, so that
// a row's result does not depend on chunking, batch, page numbers or threads.
type Attention struct {
	Q, K, V, Y              Value // Q, Y [T,Heads·HeadDim]; K, V [T,KVHeads·HeadDim]
	Class, Layer            int   // Layer counts within the class
	Heads, KVHeads, HeadDim int
	Scale                   float32
}

// StoreKV writes K and V [T,KVHeads·HeadDim] into the pages of their sequences.
type StoreKV struct {
	K, V         Value
	Class, Layer int
}

// SwiGLU is Y [rows,cols] = silu(X[:, :cols]) · X[:, cols:], X [rows,2·cols].
type SwiGLU struct{ X, Y Value }

// Gather picks the rows Step.Rows of X [T,cols] into Y [L,cols].
type Gather struct{ X, Y Value }

// Sample turns Logits [L,vocab] into tokens: masks, raw logprobs, edits,
// penalties, temperature, min-p, top-k, top-p, draw, in that order, each row by
// its SampleRow. It fills Step's outputs and may overwrite Logits.
type Sample struct {
	Logits Value
	Class  int // whose token plane is the history
}

// AllReduce sums X over the ranks in place.
type AllReduce struct{ X Value }

// AllGather joins the ranks' columns of X [rows,cols] into Y [rows,cols·World].
type AllGather struct{ X, Y Value }

func (Tokens) opName() string      { return "tokens" }
func (StoreTokens) opName() string { return "store_tokens" }
func (Embed) opName() string       { return "embed" }
func (Norm) opName() string        { return "norm" }
func (Linear) opName() string      { return "linear" }
func (Angles) opName() string      { return "angles" }
func (Rope) opName() string        { return "rope" }
func (Attention) opName() string   { return "attention" }
func (StoreKV) opName() string     { return "store_kv" }
func (SwiGLU) opName() string      { return "swiglu" }
func (Gather) opName() string      { return "gather" }
func (Sample) opName() string      { return "sample" }
func (AllReduce) opName() string   { return "all_reduce" }
func (AllGather) opName() string   { return "all_gather" }

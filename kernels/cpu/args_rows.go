package cpu

// Norm is the operands of OpNorm: a row has Segments segments of Cols columns.
type Norm struct {
	X, Residual, W, Y, Gate, Bias uintptr // Residual, W, Gate, Bias: or 0
	Symbol, Cols, Segments, Plain int32
	Eps, Offset, Scale            float32
	_                             int32
}

// Rope is the operands of OpRope. A unit is a head of Q, or of K and V, of a row.
type Rope struct {
	QKV, Angles, Q, K, V                            uintptr
	Gate, NormQ, NormK                              uintptr // or 0
	QueryAngles                                     uintptr // of Q; 0: Angles
	Heads, KVHeads, HeadDim, Rotary, Format, Symbol int32
	Norm, Shared                                    int32 // Norm: a set of NormQK and those below
	Eps, Offset                                     float32
	Interleaved, _                                  int32 // 1: pairs are neighbours; RopeGrid: each half of Rotary by halves
}

// RopeGrid is the Interleaved of heads that two positions rotate.
const RopeGrid = 2

// LatentRope is the operands of OpLatentRope. A unit is a head of Q, or K and V, of a row.
type LatentRope struct {
	Q, KV, Angles, Norm, Query, K, V uintptr
	Heads, Nope, Rank, Rotary        int32
	Format, Symbol, Interleaved      int32 // Interleaved: pairs are neighbours
	Eps                              float32
}

// The norm of heads of Rope: of Q and K; of V; with one mean square for all heads of a row;
// with weights of its own for each head; with the mean subtracted first; of rotated heads.
const (
	NormQK int32 = 1 << iota
	NormV
	NormWhole
	NormEach
	NormPlain
	NormAfter
)

// The kinds of Activation.
const (
	SiLU int32 = iota
	GELUTanh
	Clamped // min(gate, Limit) · sigmoid(Alpha · min(gate, Limit)) · (up clamped to ±Limit + Shift)
	GELU    // of OpActivate
)

// Activation is a function of gate and up; Limit is infinite if there is none.
type Activation struct {
	Kind, Paired        int32
	Limit, Alpha, Shift float32
}

// GLU is the operands of OpGLU.
type GLU struct {
	X, Y         uintptr
	Symbol, Cols int32
	Activation
	_ int32
}

// Elements is the operands of OpAdd (Other, Scale), OpGate (Other), OpActivate (Act) and
// OpSoftcap (Cap), all in place on X.
type Elements struct {
	X, Other, Scale   uintptr
	Symbol, Cols, Act int32
	Cap               float32
	RowFactor         int32 // 1: Other of OpGate has one number for each row
	_                 int32
}

// Concat is the operands of OpConcat. With BCols −n, B has n numbers: column i of Y is column B[i]
// of A.
type Concat struct {
	A, B, Y              uintptr
	Symbol, ACols, BCols int32
	_                    int32
}

// GatherLast is the operands of OpGatherLast; Bytes is the size of a row.
type GatherLast struct {
	X, First, Y uintptr
	Bytes       int64
}

// Route is the operands of OpRoute; Score has the numbers of backend.Score.
type Route struct {
	Logits, Scale, Correction, IDs, Weights uintptr
	Symbol, Experts, Top                    int32
	Score, Normalize                        int32
	Groups, TopGroups, GroupTop             int32
	Factor                                  float32
}

// Adapt is the operands of OpAdaptDown and OpAdaptUp, low-rank adapters of a product's results. The
// weights of slot s are rows s·Modules·Rank of A, [.., In], and s·Rank of B, [.., Out].
type Adapt struct {
	X, Mid, Y, A, B, Slots, Rows                     uintptr // Rows: the token of each row, or 0
	Symbol, In, Out, Rank, Modules, Format, NumSlots int32
	Ends                                             [3]int32
}

package cpu

// Norm are the operands of OpNorm: Segments of Cols columns are a row.
type Norm struct {
	X, Residual, W, Y, Gate, Bias uintptr // Residual, W, Gate, Bias: or 0
	Symbol, Cols, Segments, Plain int32
	Eps, Offset, Scale            float32
	_                             int32
}

// Rope are the operands of OpRope. Its units are rows and their heads of Q and of K.
type Rope struct {
	QKV, Angles, Q, K, V                            uintptr
	Gate, NormQ, NormK                              uintptr // or 0
	Heads, KVHeads, HeadDim, Rotary, Format, Symbol int32
	NormV, Shared                                   int32
	Eps, Offset                                     float32
}

// The kinds of Activation.
const (
	SiLU int32 = iota
	GELUTanh
	Clamped // min(gate, Limit) · sigmoid(Alpha · that) · (up within ±Limit + Shift)
)

// Activation is a function of gate and up; Limit is infinite where there is none.
type Activation struct {
	Kind, Paired        int32
	Limit, Alpha, Shift float32
}

// GLU are the operands of OpGLU.
type GLU struct {
	X, Y         uintptr
	Symbol, Cols int32
	Activation
	_ int32
}

// Elements are the operands of OpAdd (Other, Scale), OpGate (Other), OpActivate (Act) and
// OpSoftcap (Cap), all in place on X.
type Elements struct {
	X, Other, Scale   uintptr
	Symbol, Cols, Act int32
	Cap               float32
}

// Concat are the operands of OpConcat.
type Concat struct {
	A, B, Y              uintptr
	Symbol, ACols, BCols int32
	_                    int32
}

// GatherLast are the operands of OpGatherLast; Bytes is a row's.
type GatherLast struct {
	X, First, Y uintptr
	Bytes       int64
}

// Route are the operands of OpRoute.
type Route struct {
	Logits, Scale, IDs, Weights uintptr
	Symbol, Experts, Top        int32
	_                           int32
}

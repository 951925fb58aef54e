package cpu

// Conv are the operands of OpConv; Pages.K is the place of the layer's inputs and
// Pages.Format theirs. Marks are the checkpoints that a step begins from and leaves: its
// Table is 0 where there are none.
type Conv struct {
	Pages, Marks              Pages
	X, W, Y, Positions, First uintptr
	Cols, Kernel, Rows        int32
	_                         int32
}

// Delta are the operands of OpDelta; Pages.K is the place of the layer's first copy of
// the matrices, Marks.K that of the only copy in a checkpoint.
type Delta struct {
	Pages, Marks                                   Pages
	QKV, BA, ALog, DtBias, Y                       uintptr
	Positions, First, Rows                         uintptr
	CopyBytes                                      int64
	KeyHeads, ValueHeads, KeyDim, ValueDim, Copies int32
	_                                              int32
}

// MaxConvKernel is the longest convolution that OpConv does, MaxKeyDim the widest key of
// OpDelta.
const (
	MaxConvKernel = 16
	MaxKeyDim     = 256
)

// deltaCols is how many columns of a value head are a unit of OpDelta.
const deltaCols = 64

// DeltaUnits is how many units of OpDelta a token has.
func DeltaUnits(valueHeads, valueDim int) int {
	return valueHeads * ((valueDim + deltaCols - 1) / deltaCols)
}

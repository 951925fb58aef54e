package cpu

// Conv is the operands of OpConv. Pages.K is the offset of the layer's inputs, Pages.Format
// their format. Marks are the state snapshots that a step begins from and stores; its Table is
// 0 if there are none.
type Conv struct {
	Pages, Marks              Pages
	X, W, Y, Positions, First uintptr
	Cols, Kernel, Rows        int32
	_                         int32
}

// Delta is the operands of OpDelta. Pages.K is the offset of the layer's first copy of the
// matrices, Marks.K that of the only copy in a snapshot.
type Delta struct {
	Pages, Marks                                   Pages
	QKV, BA, ALog, DtBias, Y                       uintptr
	Positions, First, Rows                         uintptr
	CopyBytes                                      int64
	KeyHeads, ValueHeads, KeyDim, ValueDim, Copies int32
	_                                              int32
}

// MaxConvKernel is the longest convolution of OpConv, MaxKeyDim the largest key dimension of
// OpDelta.
const (
	MaxConvKernel = 16
	MaxKeyDim     = 256
)

// deltaCols is the number of columns of a value head in a unit of OpDelta.
const deltaCols = 64

// DeltaUnits returns the number of units of OpDelta for a token.
func DeltaUnits(valueHeads, valueDim int) int {
	return valueHeads * ((valueDim + deltaCols - 1) / deltaCols)
}

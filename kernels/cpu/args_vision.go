package cpu

// Patches is the operands of OpPatches: the places, and the colours of Item times Scale plus Shift. Item is 256
// F32, the colours of bytes, and behind them the bytes [patches, Cols].
type Patches struct {
	Item, ItemAcross, ItemDown, Pixels, Across, Down uintptr
	Cols                                             int32
	Scale, Shift                                     float32
	_                                                int32
}

// Pool is the operands of OpPool. Square is the order of patches: squares of so many columns and rows;
// 0 or 1: row by row.
type Pool struct {
	X, Across, Y       uintptr
	Cols, Size, Square int32
	Scale              float32
}

// Standardize is the operands of OpStandardize.
type Standardize struct {
	X, Mean, Scale uintptr
	Symbol, Cols   int32
}

// Resample is the operands of OpResample. Table is stored row by row, as F32, F16 or BF16.
type Resample struct {
	X, Table, Across, Down uintptr
	Format, Cols, Side, _  int32
}

// Encoded is the operands of OpEncoded: one of Rows and At is 0.
type Encoded struct {
	X, Encoded, Rows, At uintptr
	Symbol, Cols         int32
}

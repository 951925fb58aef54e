package cuda

// PatchesArgs: patches. A block for each patch. Item is 256 F32, the colours of bytes, and behind them the
// bytes of patches.
type PatchesArgs struct {
	Item, ItemAcross, ItemDown, Pixels, Across, Down Ptr
	Scale, Shift                                     float32
	Cols, _                                          int32
}

// PoolSquare is the most patches of a square of pool.
const PoolSquare = 64

// PoolArgs: pool. A block of whole warps for each row of Y; squares of at most PoolSquare patches.
type PoolArgs struct {
	X, Across, Down, Y Ptr
	Tokens, Cols, Size int32
	Scale              float32
}

// StandardizeArgs: standardize. A block for each row.
type StandardizeArgs struct {
	X, Mean, Scale Ptr
	Cols, _        int32
}

// ResampleArgs: resample_f32, resample_f16, resample_bf16, by the format of the table. A
// block of whole warps for each token.
type ResampleArgs struct {
	X, Table, Across, Down Ptr
	Tokens, Cols, Side, _  int32
}

// MergeArgs: merge. A block for each row.
type MergeArgs struct {
	X, Encoded, Rows Ptr
	Cols, _          int32
}

// StoreEncodedArgs: store_encoded. A block for each row.
type StoreEncodedArgs struct {
	X, Encoded, At Ptr
	Cols, _        int32
}

package cuda

// PatchesArgs: patches. A block for each patch.
type PatchesArgs struct {
	Image, Pixels, Across, Down  Ptr
	Frames, Height, Width, Patch int32
	PatchFrames, Square          int32
	Scale, Shift                 float32
}

// PoolArgs: pool. A block of whole warps for each row of Y; squares of at most 64 patches.
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

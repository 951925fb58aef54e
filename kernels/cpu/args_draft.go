package cpu

// Drafted is the operands of OpDrafted. Map holds an I32 for each token row.
type Drafted struct{ IDs, First, Rows, Sampled, Map, Out uintptr }

// Verify is the operands of OpVerify. Map holds an I32 for each token row.
type Verify struct {
	IDs, First, Seq, Rows, Sampled uintptr
	Map, Kept, Accepted            uintptr
}

// GatherKept is the operands of OpGatherKept; Bytes is the size of a row.
type GatherKept struct {
	X, Kept, Y uintptr
	Bytes      int64
}

// Propose is the operands of OpPropose.
type Propose struct {
	Logits, IDs, Drafts uintptr
	Vocab, N, Of        int32
	_                   int32
}

package cpu

// Drafted are the operands of OpDrafted. Map has room for an I32 for each token row.
type Drafted struct{ IDs, First, Rows, Sampled, Map, Out uintptr }

// Verify are the operands of OpVerify. Map has room for an I32 for each token row.
type Verify struct {
	IDs, First, Seq, Rows, Sampled uintptr
	Map, Kept, Accepted            uintptr
}

// GatherKept are the operands of OpGatherKept; Bytes is a row's.
type GatherKept struct {
	X, Kept, Y uintptr
	Bytes      int64
}

// Propose are the operands of OpPropose.
type Propose struct {
	Logits, IDs, Drafts uintptr
	Vocab, N, Of        int32
	_                   int32
}

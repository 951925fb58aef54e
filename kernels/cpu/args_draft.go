package cpu

// DraftInput is the operands of OpDraftInput. Map holds an I32 for each token row.
type DraftInput struct{ IDs, First, Rows, Sampled, Map, Out uintptr }

// Verify is the operands of OpVerify. Map holds an I32 for each token row.
type Verify struct {
	IDs, First, Seq, Rows, Sampled uintptr
	Map, AcceptedRow, Accepted     uintptr
}

// GatherAccepted is the operands of OpGatherAccepted; Bytes is the size of a row.
type GatherAccepted struct {
	X, AcceptedRow, Y uintptr
	Bytes             int64
}

// Propose is the operands of OpPropose.
type Propose struct {
	Logits, IDs, Drafts uintptr
	Vocab, N, Of        int32
	_                   int32
}

package backend

// Ops of a model's own head, which proposes tokens that the next step verifies.
// They come after Sample. A sequence whose proposals are verified has its last
// token and then the proposals as its last rows, and all of these are sampled.

// DraftInput makes the head's input: Out [T,1] I32 is each token's successor, what
// the step sampled for its row (by the first of Step.Rows that names it), else the
// next row of its sequence. A sequence's last row has to be sampled: within a
// prompt with UseTarget, the target being the next token of the prompt. Rows
// behind a proposal that Verify does not keep have no successor that counts. A row
// whose sample failed, and a last row that is not sampled, have token 0.
type DraftInput struct{ Ids, Out Value }

// Verify compares what was sampled with what was proposed. Of a sequence's rows a
// row is kept if it is not sampled, or the first that is, or if Ids [T,1] I32 has
// there what was sampled for the row before it and that one is kept: with a
// random number for each position, a proposal is kept exactly where decoding
// without proposals gives the same token. Kept [S,1] I32 is the last row that is
// kept, −1 of a sequence without rows; Step.Accepted the number of sampled rows that are.
type Verify struct{ Ids, AcceptedRow Value }

// GatherAccepted picks row Kept[s] of X [T,cols] into Y [S,cols]; zeros where Kept is −1.
type GatherAccepted struct{ X, AcceptedRow, Y Value }

// Propose makes proposal N of Of, counted from 0: Ids [S,1] I32 is the largest of
// Logits [S,vocab], the lowest id of equals (NaN is less than any), and goes to
// Step.Drafts, which has Of columns.
type Propose struct {
	Logits, Ids Value
	N, Of       int
}

// Ahead says of an op that its rows are sequences: row s is at the position of
// token row Kept[s] and By more. It sees all its positions before that one in pages. A
// position that the page table does not reach is passed over: it is not stored, and
// attention sees the positions before the table's first missing page and the row's own.
// Rows of sequences whose Kept is −1 hold nothing. Of a class with a window there are no
// rows ahead.
type DraftPosition struct {
	AcceptedRow Value // [S,1] I32
	By          int
}

// DraftPositionOf is how an op's rows are ahead; nil: they are not.
func DraftPositionOf(op Op) *DraftPosition {
	switch o := op.(type) {
	case Angles:
		return o.Draft
	case Attention:
		return o.Draft
	case StoreKV:
		return o.Draft
	}
	return nil
}

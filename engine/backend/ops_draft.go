package backend

// Ops of a draft head, which proposes tokens that the next step verifies. They come after
// Sample. If proposals of a sequence are verified, its last rows are its last token and
// the proposals, and all of these rows are sampled.

// DraftInput computes the head's input. Out [T,1] I32 is each token's successor: the token
// sampled for its row (at the first entry of Step.Rows with this row), else the next row
// of its sequence. A sequence's last row has to be sampled; within a prompt it is with
// UseTarget, and the target is the next token of the prompt. Successors of rows after a
// rejected proposal are meaningless. A row whose sampling failed, and a last row that is
// not sampled, get token 0.
type DraftInput struct{ Ids, Out Value }

// Verify compares sampled tokens with proposals. A row of a sequence is accepted if it is
// not sampled, if it is the sequence's first sampled row, or if the row before it is
// accepted and sampled the token that Ids [T,1] I32 has here. Random numbers depend on
// the position alone, so a proposal is accepted exactly if decoding without proposals
// gives the same token. AcceptedRow [S,1] I32 is the last accepted row, −1 for a sequence
// without rows; Step.Accepted is the number of accepted rows that are sampled.
type Verify struct{ Ids, AcceptedRow Value }

// GatherAccepted copies row AcceptedRow[s] of X [T,cols] to Y [S,cols], or zeros if it is −1.
type GatherAccepted struct{ X, AcceptedRow, Y Value }

// Propose computes proposal N, counted from 0, of Of. Ids [S,1] I32 is the argmax of Logits
// [S,vocab]: the lowest id of equals, and NaN is less than any number. It is also stored
// in Step.Drafts, which has Of columns.
type Propose struct {
	Logits, Ids Value
	N, Of       int
}

// DraftPosition marks an op of a draft pass: one row for each sequence, By positions after
// token row AcceptedRow[s]. The row attends to all earlier positions in pages. If the page
// table does not reach a row's position, the row is not stored, and attention sees the
// positions before the first missing page and the row itself. Rows of sequences whose
// AcceptedRow is −1 are undefined. Classes with a window have no draft positions.
type DraftPosition struct {
	AcceptedRow Value // [S,1] I32
	By          int
}

// DraftPositionOf returns an op's DraftPosition, or nil.
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

package sched

import "vapp.dev/engine/steptime"

// Step is what to compute next. Its rows, tokens and page tables are valid until
// the scheduler's next call of any kind, by when they must be in the step
// buffers; its Stats until the Next after its Commit.
type Step struct {
	Rows    []Row
	Tokens  int // to compute, over all rows
	Samples int // sampled rows, over all rows
	// Moves of pages between device and host, in order, after the steps before
	// and before this one.
	Moves []Move
	Stats Stats
	// Work is what the step's time depends on; its Beats are 0 where no sequence waits for a
	// token after its first.
	Work steptime.Work
	// Speculation is what Commit found.
	Speculation Speculation
}

// Move is a page that leaves the device for a slot on the host, or comes back.
type Move struct {
	Class int
	Out   bool // page to slot, else slot to page
	Page  int32
	Slot  int32
}

// Stats counts what was decided since the step before.
type Stats struct {
	PromptTokens int // prompt tokens computed for the first time
	Preempted    int // sequences that lost their pages
	SwappedOut   int // of these, sequences whose pages went to the host
	SwappedIn    int // sequences whose pages came back
	Scheduled    int // sequences scheduled for the first time
	// CacheQueries and CacheHits count the prompt tokens of sequences scheduled for
	// the first time, and those of them that the prefix cache had; 0 without
	// prefix caching.
	CacheQueries, CacheHits int
}

// Speculation counts the proposed tokens of a step.
type Speculation struct {
	Drafts   int // sequences that had proposals
	Proposed int // tokens
	Accepted int // of these
	// PerPosition is how many sequences had their first, second, … proposal accepted,
	// Options.Verify numbers.
	PerPosition []int
}

// Row is one sequence's part of a step: the positions From to From+Count−1 are
// computed.
type Row struct {
	Seq   *Seq
	From  int
	Count int
	// Tokens are the ids of these positions. It is nil when Ref ≥ 0: then Count is
	// 1, and the token is what sampled row Ref of the step before drew.
	Tokens []int32
	Ref    int
	// Targets tokens of the prompt have their logprob taken, at the positions from
	// TargetPos on: sampled row Sample+i reads position TargetPos+i−1 and its
	// target is the prompt's token TargetPos+i.
	Targets   int
	TargetPos int
	// Draw says that the last position draws the next token, in sampled row
	// DrawRow. With proposals the last Proposed of Tokens are these, and each draws in a
	// row of its own after it.
	Draw     bool
	Proposed int
	// Next is the token after the last position where that is known and yet sampled,
	// in row DrawRow, with Next as the target; −1: it is not.
	Next   int32
	Sample int // first sampled row of the sequence
	epoch  int
}

// DrawRow is the sampled row of the first drawn token, meaningful with Draw and Next.
func (r *Row) DrawRow() int { return r.Sample + r.Targets }

// draws is how many sampled rows come after the targets.
func (r *Row) draws() int {
	switch {
	case r.Draw:
		return 1 + r.Proposed
	case r.Next >= 0:
		return 1
	}
	return 0
}

// Result is what the device found, by sampled row: the step's Sampled and Status; and
// by row of the step: what Step.Accepted and Step.Drafts have, with Options.Verify
// and Options.Drafts.
type Result struct {
	Tokens   []int32
	Status   []int32 // 0: fine
	Accepted []int32 // sampled rows that count, targets included
	Drafts   []int32 // [rows·Options.Drafts] tokens proposed to follow
}

// Finish says why a sequence ended; NotFinished while it has not.
type Finish uint8

// The reasons.
const (
	NotFinished  Finish = iota
	FinishStop          // EOS or a stop token
	FinishLength        // max_tokens or the model length
	FinishError         // a row had no token: NaN logits, or every token forbidden
)

// Output is what a committed step gave a sequence: one for each token, in order.
type Output struct {
	Seq   *Seq
	Token int32 // −1: none in this step
	Row   int   // sampled row of Token, of a draw that failed, or of a pooled prompt's last position; −1: a grammar forced Token
	First bool  // Token is the sequence's first
	More  bool  // Token comes with the one of the Output before
	// Finish, and the id that stopped it: −1 unless it is one of stop_token_ids
	// or an EOS beside the tokenizer's own.
	Finish    Finish
	StopToken int32
	Err       error // with FinishError: why the grammar cannot be followed
	// Targets prompt logprobs, of positions TargetPos and following, are in
	// sampled rows TargetRow and following.
	Targets, TargetPos, TargetRow int
}

package sched

import "vapp.dev/engine/steptime"

// Step is the work of one step. Its rows, tokens and page tables are valid until the next call
// of the Scheduler; the caller copies them to the step buffers before. Its Stats are valid
// until the Next after its Commit.
type Step struct {
	Rows    []Row
	Tokens  int // tokens to compute, over all rows
	Samples int // sampled rows, over all rows
	// Moves are the page moves between device and host, in order. They run after the
	// previous step and before this one.
	Moves []Move
	// Encodes are the items that are encoded, in order, after the moves and before the rows.
	Encodes []Encode
	Stats   Stats
	// Work describes what the step's time depends on. Its StepsPerToken is 0 if no sequence
	// waits for a token after its first.
	Work steptime.Work
	// Speculation is filled in by Commit.
	Speculation Speculation
}

// Move copies a page from the device to the host, or back.
type Move struct {
	Class int
	Out   bool  // from device to host, otherwise from host to device
	Page  int32 // on the device
	Slot  int32 // page of the swap space
}

// Stats counts the scheduler's decisions since the previous step.
type Stats struct {
	PromptTokens int // prompt tokens computed for the first time
	Preempted    int // sequences that lost their pages
	SwappedOut   int // of these, sequences whose pages went to the host
	SwappedIn    int // sequences whose pages came back
	Scheduled    int // sequences scheduled for the first time
	// CacheQueries counts the prompt tokens of sequences scheduled for the first time, and
	// CacheHits those of them that were in the prefix cache. Both are 0 without prefix caching.
	CacheQueries, CacheHits int
	Items                   int // items that rows begin to compute
	Encoded                 int // items that are encoded; the others are in the encoder cache
}

// Speculation counts the proposed tokens of a step.
type Speculation struct {
	Drafts   int // sequences with proposals
	Proposed int // proposed tokens
	Accepted int // accepted tokens
	// PerPosition[i] is how many sequences had proposal i accepted; it has Options.Verify
	// numbers.
	PerPosition []int
}

// Row is one sequence's part of a step, which computes the positions From to From+Count−1.
type Row struct {
	Seq   *Seq
	From  int
	Count int
	// Tokens are the ids of these positions. It is nil if Ref ≥ 0: then Count is 1, and the
	// token is the one that sampled row Ref of the previous step gives.
	Tokens []int32
	Ref    int
	// Targets is the number of prompt logprobs, of the prompt's tokens TargetPos and
	// following: sampled row Sample+i reads position TargetPos+i−1, and its target is the
	// prompt's token TargetPos+i.
	Targets   int
	TargetPos int
	// Draw means that the last position samples the next token, in sampled row DrawRow. The
	// last Proposed of Tokens are proposals; each samples in a row of its own after DrawRow.
	Draw     bool
	Proposed int
	// Next is the known token after the last position if that position is sampled all the
	// same, in row DrawRow with Next as the target; −1: it is not.
	Next int32
	// NextEncoded is the encoded row of the token after the last position, for the model's own head;
	// −1: it has none, or is not encoded yet. The head then reads the embedding of the token itself,
	// which may lose a proposal, never a token.
	NextEncoded int32
	Sample      int // first sampled row of the sequence
	epoch       int // Seq.epoch when the row was made
}

// DrawRow returns the sampled row of the first sampled token. It is valid with Draw or Next.
func (r *Row) DrawRow() int { return r.Sample + r.Targets }

// draws returns the number of sampled rows after the targets.
func (r *Row) draws() int {
	switch {
	case r.Draw:
		return 1 + r.Proposed
	case r.Next >= 0:
		return 1
	}
	return 0
}

// Result is the device's result of a step. Tokens and Status are indexed by sampled row;
// Accepted (with Options.Verify) and Drafts (with Options.Drafts) by row of the step.
type Result struct {
	Tokens   []int32
	Status   []int32 // 0: valid
	Accepted []int32 // number of accepted sampled rows, targets included
	Drafts   []int32 // [rows·Options.Drafts] tokens proposed for the next step
}

// Finish is the reason why a sequence ended, or NotFinished.
type Finish uint8

// The reasons.
const (
	NotFinished  Finish = iota
	FinishStop          // EOS or a stop token
	FinishLength        // max_tokens or the model length
	FinishError         // a row gave no token: NaN logits, or every token forbidden
)

// Output is the output of a committed step for a sequence: one for each token, in order.
type Output struct {
	Seq    *Seq
	Token  int32 // −1: none in this step
	Row    int   // sampled row of Token, of a failed sample, or of a pooled prompt's last position; −1: a grammar forced Token
	First  bool  // Token is the sequence's first
	More   bool  // the same step also gave the token of the previous Output
	Finish Finish
	// StopToken is the id that stopped the sequence if it is one of stop_token_ids or an EOS
	// of the generation config; −1 otherwise.
	StopToken int32
	Err       error // with FinishError: why the grammar cannot be followed
	// Targets is the number of prompt logprobs. They are of positions TargetPos and following,
	// in sampled rows TargetRow and following.
	Targets, TargetPos, TargetRow int
}

package backend

import (
	"fmt"
	"unsafe"
)

// StepShape sizes the step buffers; the plan fixes it.
type StepShape struct {
	Tokens       int // maximum of T
	Seqs         int // maximum of S
	Samples      int // maximum of L
	Vocab        int
	MaxPages     []int // page-table width per class
	Bias         int   // maximum of logit edits of a row
	Logprobs     int   // maximum of top logprobs of a row
	Axes         int   // Program.Axes
	Drafts       int   // tokens that the draft head or draft model proposes for each sequence
	OutputCols   int   // columns of OutputRows; 0: rows are sampled instead
	AdapterSlots int   // slots of adapters; 0: steps have none
	Verify       int   // proposals that a step verifies for each sequence, from any proposer
	Sets         int   // sets of buffers, one for each step in flight; 0: two
	Items        bool  // tokens may belong to items (images, frames): steps have Encoded and ItemEnd
	Work         int   // numbers in lists of work, which a device computes from the other inputs (WorkLister)
}

// Step is one set of step buffers: memory that the host can access, at fixed addresses.
// The runner fills the inputs before Launch and reads the outputs after Wait.
type Step struct {
	// Inputs.
	Tokens         []int32     // [T] token id, or −1−r: row r of the Sampled of the set before
	Positions      []int32     // [T] position in its sequence
	Seq            []int32     // [T] which sequence of the step; −1: none, what pads a graph
	First          []int32     // [S+1] first token row of each sequence; [S] is T
	Pages          [][]int32   // per class [S·MaxPages] page numbers; −1 none
	Rows           []int32     // [L] token row that each sampled row reads
	Sampling       []SampleRow // [L]
	Grammar        []uint32    // [L·Words] bit set: token allowed by the grammar
	Allowed        []uint32    // [L·Words] bit set: token in allowed_token_ids
	Bias           []BiasEntry // [L·Bias]
	MRopePositions []int32     // [T·Axes] the positions of multimodal rope (time, row, column), if Axes > 0
	Adapters       []int32     // [T] the slot of the token's adapter, −1: none; if AdapterSlots > 0
	Encoded        []int32     // [T] the row of the Encoded arena that Merge puts in place of the token's embedding, −1: none; if Items
	ItemEnd        []int32     // [T] the position behind the last token of the token's item; for tokens of no item their position + 1; if Items
	EncodedNext    []int32     // [T] Encoded of the token's successor (Merge.Next), −1 also where that row is not encoded yet; if Items and Drafts > 0
	Work           []int32     // [Work] the device's own: Launch fills it
	// Outputs.
	Sampled  []int32   // [L] the token; −1 if Status is RowNaN
	Status   []int32   // [L] RowOK, RowNaN
	Logprob  []float32 // [L] raw logprob of the token
	Rank     []int32   // [L] tokens whose raw logprob is ≥ the token's
	TopIDs   []int32   // [L·Logprobs] best first
	TopProbs []float32 // [L·Logprobs] raw logprobs
	Accepted []int32   // [S] by Verify: number of sampled rows to keep; nil without proposals
	Drafts   []int32   // [S·Drafts] by Propose: proposals for the next step
	Outputs  []float32 // [L·OutputCols] by OutputRows; if present, the buffers for sampling are nil

	Words int // 32-bit words of a mask row
}

// Row outcomes.
const (
	RowOK  = 0
	RowNaN = 1 // a logit was NaN or +Inf, or every one was −Inf
)

// Flags of a SampleRow.
const (
	UseGrammar  = 1 << iota // apply the row of Grammar
	UseAllowed              // apply the row of Allowed
	WantLogprob             // fill Logprob, Rank and NumTop of TopIDs, TopProbs
	UseTarget               // do not draw: Target is the token (prompt logprobs)
)

// SampleRow holds the sampling parameters of one row. C code reads the same memory: 80
// bytes, little endian, no padding.
type SampleRow struct {
	Seed        uint64 // of the request and choice
	Position    int32  // position the token will have: the random counter
	Seq         int32  // sequence of the step, for its history
	Flags       uint32
	NumTop      int32
	NumBias     int32   // entries of the row's Bias
	TopK        int32   // 0: off
	Temperature float32 // < 1e-5: arg max, lowest id of equals
	TopP        float32 // 1: off
	MinP        float32 // 0: off
	Repetition  float32 // 1: off
	Frequency   float32 // 0: off
	Presence    float32 // 0: off
	PromptLen   int32   // history positions below it are prompt
	HistoryLen  int32   // tokens of the token plane to count, including this step's
	Target      int32
	_           [3]int32
}

// BiasEntry adds Value to the logit of Token; −Inf forbids it.
type BiasEntry struct {
	Token int32
	Value float32
}

// MaskWords returns the number of 32-bit words in a vocabulary mask.
func (s StepShape) MaskWords() int { return (s.Vocab + 31) / 32 }

// walk calls f for each buffer of one set, in order, with the number of elements and their
// size in bytes.
func (s StepShape) walk(f func(elems int, size int64)) {
	f(s.Tokens, 4)
	f(s.Tokens, 4)
	f(s.Tokens, 4)
	f(s.Seqs+1, 4)
	f(s.Work, 4)
	for _, w := range s.MaxPages {
		f(s.Seqs*w, 4)
	}
	f(s.Samples, 4)
	n := s.drawn()
	f(n, int64(unsafe.Sizeof(SampleRow{})))
	f(n*s.MaskWords(), 4)
	f(n*s.MaskWords(), 4)
	f(n*s.Bias, 8)
	for range 4 {
		f(n, 4)
	}
	f(n*s.Logprobs, 4)
	f(n*s.Logprobs, 4)
	f(s.Tokens*s.Axes, 4)
	f(s.accepted(), 4)
	f(s.Seqs*s.Drafts, 4)
	f(s.Samples*s.OutputCols, 4)
	f(s.adapted(), 4)
	f(s.inItems(), 4)
	f(s.inItems(), 4)
	f(s.inNext(), 4)
}

// drawn returns how many rows are sampled.
func (s StepShape) drawn() int {
	if s.OutputCols > 0 {
		return 0
	}
	return s.Samples
}

// adapted returns the length of Step.Adapters.
func (s StepShape) adapted() int {
	if s.AdapterSlots == 0 {
		return 0
	}
	return s.Tokens
}

// inItems returns the length of Step.Encoded and Step.ItemEnd.
func (s StepShape) inItems() int {
	if !s.Items {
		return 0
	}
	return s.Tokens
}

// inNext returns the length of Step.EncodedNext.
func (s StepShape) inNext() int {
	if s.Drafts == 0 {
		return 0
	}
	return s.inItems()
}

// accepted returns the length of Step.Accepted.
func (s StepShape) accepted() int {
	if max(s.Drafts, s.Verify) == 0 {
		return 0
	}
	return s.Seqs
}

func align64(n int64) int64 { return (n + 63) / 64 * 64 }

// SetBytes returns the size of one set of buffers.
func (s StepShape) SetBytes() int64 {
	var n int64
	s.walk(func(e int, size int64) { n += align64(int64(e) * size) })
	return n
}

// NumSets returns the number of sets, at least two.
func (s StepShape) NumSets() int { return max(2, s.Sets) }

// Before returns the set of the step before that of a set. Steps use the sets in turn.
func (s StepShape) Before(set int) int { return (set + s.NumSets() - 1) % s.NumSets() }

// CheckSet returns a *StepError unless there is such a set.
func (s StepShape) CheckSet(set int) error {
	if set < 0 || set >= s.NumSets() {
		return &StepError{"Binding.Set", fmt.Sprintf("%d of %d sets", set, s.NumSets())}
	}
	return nil
}

// Bytes returns the size of all sets, which fill the step arena.
func (s StepShape) Bytes() int64 { return int64(s.NumSets()) * s.SetBytes() }

// Carve returns a set of buffers as slices of mem, which has SetBytes bytes and 64-byte
// alignment. The slices have their full length.
func (s StepShape) Carve(mem []byte) *Step {
	var off int64
	i32 := func(n int) []int32 { return carve[int32](mem, &off, n) }
	st := &Step{Words: s.MaskWords()}
	st.Tokens, st.Positions, st.Seq = i32(s.Tokens), i32(s.Tokens), i32(s.Tokens)
	st.First = i32(s.Seqs + 1)
	st.Work = i32(s.Work)
	for _, w := range s.MaxPages {
		st.Pages = append(st.Pages, i32(s.Seqs*w))
	}
	st.Rows = i32(s.Samples)
	n := s.drawn()
	st.Sampling = carve[SampleRow](mem, &off, n)
	st.Grammar = carve[uint32](mem, &off, n*st.Words)
	st.Allowed = carve[uint32](mem, &off, n*st.Words)
	st.Bias = carve[BiasEntry](mem, &off, n*s.Bias)
	st.Sampled, st.Status = i32(n), i32(n)
	st.Logprob = carve[float32](mem, &off, n)
	st.Rank = i32(n)
	st.TopIDs = i32(n * s.Logprobs)
	st.TopProbs = carve[float32](mem, &off, n*s.Logprobs)
	st.MRopePositions = i32(s.Tokens * s.Axes)
	st.Accepted, st.Drafts = i32(s.accepted()), i32(s.Seqs*s.Drafts)
	st.Outputs = carve[float32](mem, &off, s.Samples*s.OutputCols)
	st.Adapters = i32(s.adapted())
	st.Encoded, st.ItemEnd = i32(s.inItems()), i32(s.inItems())
	st.EncodedNext = i32(s.inNext())
	return st
}

func carve[T any](mem []byte, off *int64, n int) []T {
	var z T
	size := int64(n) * int64(unsafe.Sizeof(z))
	b := mem[*off : *off+size]
	*off = align64(*off + size)
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// Random returns the uniform number in [0,1) that position pos of a request
// with this seed draws: SplitMix64 over both, top 53 bits. Every backend uses
// the same function, so that a request's tokens depend on nothing else.
func Random(seed uint64, pos int32) float64 {
	z := seed + 0x9e3779b97f4a7c15*(uint64(uint32(pos))+1)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return float64((z^z>>31)>>11) / (1 << 53)
}

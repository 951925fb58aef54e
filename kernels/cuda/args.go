package cuda

// EmbedArgs: embed_f32, embed_f16, embed_bf16. A block for each row.
type EmbedArgs struct {
	IDs, Table, Y   Ptr
	Scale           float32
	Rows, Cols      int32
	Row0, TableRows int32
	_               int32
}

// GatherArgs: gather. A block for each row.
type GatherArgs struct {
	X, Y, Rows Ptr
	Cols, Last int32
}

// TokensArgs: tokens. A thread for each row.
type TokensArgs struct {
	Tokens, Sampled, Out Ptr
	Rows, _              int32
}

// NormArgs: norm, and norm_rows, which takes Segment = Cols, no Gate and no Plain. A block for each segment of a row.
type NormArgs struct {
	X, Residual, W, Bias, Gate, Y Ptr
	Cols, Segment                 int32
	Eps, Offset, Scale            float32
	Plain                         int32
	XBF16, _                      int32 // 1: X is bf16, and not Y; 0: float32
}

// AddArgs: add. A thread for each number.
type AddArgs struct {
	X, Into, Scale Ptr
	N              int64
	XBF16, _       int32 // 1: X is bf16; 0: float32
}

// ConcatArgs: concat, and reorder: the columns of A that the NB numbers in B select. A block for each row.
type ConcatArgs struct {
	A, B, Y Ptr
	NA, NB  int32
}

// SumRanksArgs: sum_ranks. X has World parts of Y's numbers, those from N·Rank/World to
// N·(Rank+1)/World, one behind the other. A thread for each of them.
type SumRanksArgs struct {
	X, Y        Ptr
	N           int64
	Rank, World int32
}

// JoinRanksArgs: join_ranks. X is [World, Rows, Cols], Y [Rows, World·Cols]. A block for each row.
type JoinRanksArgs struct {
	X, Y        Ptr
	Cols, World int32
	Rows, _     int32
}

// AnglesArgs: angles. A block for each row.
type AnglesArgs struct {
	Positions, AcceptedRow, Places, Across, Down, Frequencies, Y Ptr
	Half, By                                                     int32
	Sections                                                     [3]int32
	Scale                                                        float32
	Joined, Every, Offset                                        int32 // Every, Offset and Beta: of the temperature; Every 0: none
	Beta                                                         float32
}

// RopeArgs: rope_ with the format of K and V. A block for each row, a warp for each head in
// turn.
type RopeArgs struct {
	QKV, Angles, Q, K, V, Gate, WQ, WK Ptr
	QueryAngles                        Ptr // of Q; 0: Angles
	Heads, KVHeads, HeadDim, Rotary    int32
	Shared, Norm, Parts                int32 // Norm: a set of NormQK and those below
	Eps, Offset                        float32
	Interleaved                        int32
	XBF16, QStored                     int32 // 1: QKV is bf16, 0: float32; the Store of Q: float32, or QueryFormat of the kernel's format
}

// The norm of heads of rope_: of Q and K; of V; with one mean square for all heads of a row; with
// weights of its own for each head; with the mean subtracted first; of rotated heads.
const (
	NormQK int32 = 1 << iota
	NormV
	NormWhole
	NormEach
	NormPlain
	NormAfter
)

// LatentRopeArgs: latent_rope_ with the format of K and V. A block of whole warps for each row.
type LatentRopeArgs struct {
	Q, KV, Angles, W, Query, K, V Ptr
	Heads, Nope, Rank, Rotary     int32
	Interleaved                   int32
	Eps                           float32
}

// GLUArgs: glu, glu4. A thread for each number of Y, or for four.
type GLUArgs struct {
	X, Y                Ptr
	Rows, Cols          int32
	Act, Paired         int32
	Limit, Alpha, Shift float32
	XBF16               int32 // 1: X is bf16; 0: float32
}

// ElementsArgs: activate, gate, softcap. A thread for each number.
type ElementsArgs struct {
	X, Gate Ptr
	N       int64
	Cap     float32
	Act     int32
	Cols, _ int32
}

// Pages locates one layer's keys and values (kernels/ref: Pages).
type Pages struct {
	Arena, Tables        Ptr
	PageBytes, SlabBytes int64
	K, V                 int64
	Width, Block         int32
	KVHeads, HeadDim     int32
	KeyDim, Window       int32
	PerSlab, Chunked     int32 // Chunked 1: the class keeps a chunk of Window tokens
}

// StoreArgs: store_kv_8, store_kv_16, store_kv_32 (by the bits of a number), a block for 16
// rows of a head, with StoreShared bytes; store_tokens, a thread for each row. With Latent 1, K
// has only the Pages.KeyDim numbers of a key that pages store.
type StoreArgs struct {
	Pages                                         Pages
	K, V, Positions, Seq, First, AcceptedRow, IDs Ptr
	Plane                                         int64
	Rows, By                                      int32
	Latent, _                                     int32
}

// StoreShared returns the bytes of shared memory of store_kv for keys of wide numbers of that many bytes.
func StoreShared(wide, bytes int) int { return 16 * (wide + 2) * bytes }

// PackArgs: linear_pack_ with the format that X is rounded to, and of all kernels that pack X. See Rounding for the grid.
type PackArgs struct {
	X, Y, Sums, Order      Ptr
	Rows, In, Group, Words int32 // Words 1: for linear_wide; 2: [_, In] row by row
	Most                   int32 // if not 0, Sums are [groups, rows], with rows padded to a multiple of LibraryUnit or to Most
	XBF16                  int32 // of norm_pack, chain_pack without Kinds, and glu_pack, 1: X is bf16; else float32
}

// StorePackArgs: store_pack_ with the format that X is rounded to. See Rounding for the grid. With Gate
// [rows, In], X is multiplied by its sigmoid.
type StorePackArgs struct {
	Pack   PackArgs
	Gate   Ptr
	Beside StoreBeside
}

// StoreBeside is what a launch stores in blocks of its own. With Across, the blocks (x; of attention_join y) of its grid, as many
// more blocks as Store has heads store keys and values as store_kv does, in numbers of Bytes bytes, with StoreShared bytes.
type StoreBeside struct {
	Across, Bytes int32
	Store         StoreArgs
}

// NormPackArgs: norm_pack_ with the format that X is rounded to, of which those of 16 bits store Beside. Plain gets the rows
// that are packed, [Rows, In] in float32; or with PlainWords, of 8-bit formats, packed in bf16 with PackArgs.Words of PlainWords - 1.
type NormPackArgs struct {
	Pack               PackArgs
	Residual, W, Plain Ptr
	Eps, Offset, Scale float32
	PlainWords         int32
	Beside             StoreBeside
}

// ChainPackArgs: chain_pack_ with the format that X is rounded to. Kinds is a set of ChainJoined and ChainPost, norms with
// Norm.Eps before the sum with the residual: X is written to. SumScale is a factor of that sum, 0: none.
type ChainPackArgs struct {
	Norm                                 NormPackArgs
	Other, WOwn, WOther, WPost, SumScale Ptr
	Kinds, _                             int32
}

// Before X is added to the residual: it becomes norm(X)·WOwn + norm(Other)·WOther; it becomes norm(X)·WPost.
const (
	ChainJoined int32 = 1 << iota
	ChainPost
)

// HeadsPackArgs: heads_pack_ with the format that X is rounded to. Every Segment numbers of a row, at most
// HeadsPackSegment, are normalised by themselves, at most HeadsPackSegments in a row. With Gate [rows, In], the result is
// multiplied by silu(Gate).
type HeadsPackArgs struct {
	Pack               PackArgs
	W, Gate            Ptr
	Eps, Offset, Scale float32
	Segment            int32
}

// The largest segment of heads_pack, and the most of a row.
const (
	HeadsPackSegment  = 128
	HeadsPackSegments = 256
)

// GLUPackArgs: glu_pack_ with the format that X is rounded to. Pack.In is the number of packed
// columns; X has twice as many.
type GLUPackArgs struct {
	Pack                PackArgs
	Act, Paired         int32
	Limit, Alpha, Shift float32
	_                   int32
}

// LibraryArgs is a product by cuBLASLt: Y [Rows, Out] in float32, or with YBF16 1 in bf16 and without Bias, = X [Rows, In] · Wᵀ + Bias,
// with W [Out, In] and X of one format, all row by row. Most is the largest number of rows of a
// launch, for which X and Y have memory. 8-bit floats have float32 scales: Scales are [Out] and
// Sums [Most]; or, with Blocks 1, Scales are [Out/128, BlocksAcross(In)] and Sums [In/128,
// computed rows]. Bias is added by linear_bias.
type LibraryArgs struct {
	W, X, Scales, Sums, Bias, Y, Workspace Ptr
	In, Out, Most, Rows                    int32
	Blocks, YBF16                          int32
}

// LinearBiasArgs: linear_bias. A thread for each four elements of Y: N fours, in rows of Out
// fours.
type LinearBiasArgs struct {
	Y, Bias Ptr
	N       int64
	Out, _  int32
}

// LinearArgs: linear_ and the format of W; then _x8 if X is rounded to that format; then the
// rows of a block: _8, _16, _64, or _tile and _wide with 128. Matrices stored row by row have
// _plain_8 or _plain_16. See Linear for the launch. linear_f32 has blocks of four rows by 8
// features.
type LinearArgs struct {
	W, X, Sums, Scales, Bias, Y              Ptr
	Experts, Partial, Arrived                Ptr
	ExpertBytes, ExpertScales, ExpertBias    int64
	Rows, In, Out, Splits                    int32
	ScaleRows, ScaleCols, ScaleAcross, Parts int32
	PartRow, PartScale                       [4]int32
	XSteps                                   int32
	Half                                     int32 // GateUpRow is the order of the rows of panels, of two halves; 0: their own
	Gated                                    Ptr   // instead of Y: [Rows, Out/2] gated and packed in 16 bits for a product of whole steps, without sums
	Act, Paired                              int32 // of Gated, as in GLUArgs; with Half, Paired is 0
	Limit, Alpha, Shift                      float32
	Words, F16                               int32 // of Gated: PackArgs.Words; 1: F16, 0: BF16
	YBF16                                    int32 // 1: Y is bf16, row by row; 0: float32. Not with Gated, and not of linear_f32
	GatedScales, GatedArrived                Ptr   // with Linear.GatesNarrow: Gated is E4M3 with these scales, and its numbers pass through Y, [Rows, Out/2]
}

// PicksArgs: linear_ and _picks_ in the name, see Linear.Picks. The product is one of experts, without splits.
type PicksArgs struct {
	Product    LinearArgs
	Order      Ptr   // [Rows] the row of X in each place, −1: none
	Gathers, _ int32 // 1: X is [_, In] row by row (PackArgs.Words 2), and Order says which row; 0: in word order, by places
}

// HeadLinearArgs: head_linear_ with the format of W: see ChooseHeadLinear for the launch. Heads of X
// and Y begin every XHead and YHead columns of XCols and YCols; HeadBytes are those of a matrix.
type HeadLinearArgs struct {
	W, X, Y                    Ptr
	HeadBytes                  int64
	Rows, In, Out              int32
	XCols, XHead, YCols, YHead int32
	_                          int32
}

// EmbedPackedArgs: embed_packed_ with the format. A block for each row.
type EmbedPackedArgs struct {
	IDs   Ptr
	Table LinearArgs
	Y     Ptr
	Scale float32
	Row0  int32
}

// AttentionArgs: attention_ with the format, head dimension and _few, _many or _wide, see ChooseAttentionWide,
// ChooseAttention and ChooseLatent. With Rebuild, half of Pages.HeadDim and half of Pages.KeyDim are
// multiples of 8. Latent is Pages.KeyDim if keys are latent, else 0. attention_join: a block for each token (Blocks' x) and head (y).
// With List, which AttentionPieces writes, Splits is 1 and Most its most splits; attention_join is not needed. With Packed, rows
// of whole steps are packed there instead of Y, in 16 bits without sums, where no other launch joins them.
type AttentionArgs struct {
	Pages                              Pages
	Q, K, V, Y, Sinks                  Ptr
	First, Positions, Rebuild, Partial Ptr
	Items, List, Arrived, Stats        Ptr
	Scale, Softcap                     float32
	Seqs, Heads, Window, Bidirectional int32
	Splits, Latent, Most               int32
	Words, F16                         int32 // of Packed: PackArgs.Words; 1: F16, 0: BF16
	QStored                            int32 // the Store of Q: the 16 bits that are multiplied, or float32, as with latent keys and attention_f32
	Packed                             Ptr
}

// JoinArgs: attention_join. With Gate [T, heads·head_dim], Y is multiplied by its sigmoid.
type JoinArgs struct {
	Attention AttentionArgs
	Gate      Ptr
	Beside    StoreBeside
}

// AheadArgs: ahead. A warp for each sequence. First and At become First and Positions of
// AttentionArgs.
type AheadArgs struct {
	AcceptedRow, Positions, Tables, First, At Ptr
	Seqs, Width, Block, By                    int32
}

// RouteArgs: route. A warp for each row; at most 1,024 experts and 32 groups. Score has the numbers
// of backend.Score.
type RouteArgs struct {
	Logits, Scale, Correction, IDs, Weights Ptr
	Rows, Experts, Top                      int32
	Score, Normalize                        int32
	Groups, TopGroups, GroupTop             int32
	Factor                                  float32
}

// OrderArgs: experts_order. One block, shared memory for 2·Experts ints.
type OrderArgs struct {
	IDs, Order, Place, Owner              Ptr
	Picks, Top, Experts, Block, Blocks, _ int32
}

// RouteOrderArgs: route_order. One block, a warp for each row, shared memory for 2·Experts ints. Order.IDs are
// Route.IDs.
type RouteOrderArgs struct {
	Route RouteArgs
	Order OrderArgs
}

// ExpertsArgs: experts_f32_4 and experts_f32_64, with that many rows in a block: see
// ChooseExperts for the launch. Y has a row for every row of all blocks; Order marks the rows
// that exist.
type ExpertsArgs struct {
	X, Order, Owner, W, Bias, Y Ptr
	In, Out, Placed, _          int32
}

// CombineArgs: experts_combine. A block for each row.
type CombineArgs struct {
	X, Place, Weights, Y Ptr
	Cols, Top            int32
	XBF16, YBF16         int32 // 1: bf16; 0: float32
}

// SampleArgs: sample_edit, sample_weigh, sample_draw and sample_report, one after the other; sample_edit is enough if no row draws
// or wants logprobs (SampleRow.Draws).
// They have blocks of whole warps for Slices slices (Blocks' x) of a row (y); sample_draw has
// at most SampleDrawThreads. sample_edit needs SampleShared bytes of shared memory, sample_draw
// SampleDrawShared. Raw holds the raw logits of rows that want logprobs and whose logits are
// edited.
type SampleArgs struct {
	Logits, Rows, Grammar, Allowed, Bias, Raw Ptr
	Sampled, Status, Rank, Logprob            Ptr
	TopIDs, TopProbs, Reported                Ptr // Reported: the tokens of Sampled once more, for the host
	Pages                                     Pages
	Plane                                     int64
	Vocab, Words, BiasWidth, TopWidth         int32
	Workspace                                 Ptr // SampleWorkspace bytes for each row; previous content does not matter
	Slices, _                                 int32
	Finished                                  Ptr // a counter for each row of several slices, zero before and after
}

// SampleShared is the size of the counters of history tokens: with the kernels' other shared
// memory, it stays below the 48 KiB that every block may have.
const SampleShared = 4 * 11264

// SampleDrawThreads is the largest block of sample_draw.
const SampleDrawThreads = 512

// SampleDrawShared is the size of a row's candidates at the edges.
const SampleDrawShared = 2048 * 16

// SampleSlices returns the number of slices of a row of vocab logits, on a device with that
// many multiprocessors.
func SampleSlices(rows, vocab, processors int) int {
	return max(1, min(64, processors/max(1, rows), vocab/2048))
}

// SampleWorkspace is the bytes of workspace that the slices of a row share.
const SampleWorkspace = 32 << 10

// SampleRow holds the sampling parameters of a row: engine/backend's SampleRow, byte for byte.
type SampleRow struct {
	Seed                            uint64
	Position, Seq                   int32
	Flags                           uint32
	NumTop, NumBias, TopK           int32
	Temperature, TopP, MinP         float32
	Repetition, Frequency, Presence float32
	Prompt, History, Target         int32
	_                               [3]int32
}

// Draws reports whether a row needs more launches than sample_edit: it draws its token, or wants logprobs.
func (r *SampleRow) Draws() bool {
	const greedy = 1e-5
	return r.Flags&WantLogprob != 0 || r.Flags&UseTarget == 0 && !(r.Temperature < greedy)
}

// Flags of a SampleRow, as in engine/backend.
const (
	UseGrammar = 1 << iota
	UseAllowed
	WantLogprob
	UseTarget
)

// BiasEntry is added to the logit of a token, as in engine/backend.
type BiasEntry struct {
	Token int32
	Value float32
}

// States locates the recurrent states of a class and their snapshots (Marks).
type States struct {
	Pages                        Pages
	Marks                        Ptr
	MarkPageBytes, MarkSlabBytes int64
	MarkK                        int64
	MarkPerSlab, Rows, Cols      int32
	Store, Copies, _             int32
	MatrixBytes, InputBytes      int64
}

// ConvArgs: conv_f32, conv_bf16, conv_f16, by the format of the stored inputs. A thread for
// each column (Blocks' x) of a sequence (y), which takes runs of ConvRun tokens (z: any number
// of blocks). Kernels have at most 8 taps.
type ConvArgs struct {
	States                    States
	X, W, Y, First, Positions Ptr
	Kernel, _                 int32
}

// ConvRun is the tokens of a thread of conv.
const ConvRun = 32

// DeltaArgs. ChooseDelta's kernel is for sequences of fewer than Least tokens (0: all): 128 threads for DeltaColumns
// columns (Blocks' x) of a value head (y) of a sequence (z). For other sequences delta_chunks
// has 128 threads for a chunk (x: DeltaChunks) of a key head (y); delta_prompt follows, with
// 128 threads for DeltaColumns columns (x) of a value head (y) of a sequence (z). Keys have at most 128 dimensions.
type DeltaArgs struct {
	States                    States
	QKV, BA, ALog, Bias, Y    Ptr
	First, Positions, Samples Ptr
	Work                      Ptr // DeltaWork bytes, for the chunked kernels
	KeyHeads, ValueHeads      int32
	KeyDim, ValueDim          int32
	SampleCount, Least        int32
	Seqs, _                   int32
}

// DeltaColumns are the columns of a state that a block of delta, delta_128 and delta_prompt updates.
const DeltaColumns = 64

// ChooseDelta returns the kernel that updates states token by token. aligned: the address of each state is a multiple of 16.
func ChooseDelta(keyDim, valueDim int, aligned bool) string {
	if keyDim == 128 && valueDim == 128 && aligned {
		return "delta_128"
	}
	return "delta"
}

// DeltaLeast is the number of tokens of a sequence from which on chunks are faster.
const DeltaLeast = 16

// Bytes of shared memory of delta_chunks and delta_prompt.
const (
	DeltaChunksShared = 4 * 64 * 256
	DeltaPromptShared = 4*64*256 + 4*64*128
)

// DeltaChunk is the tokens of a chunk; chunks begin at multiples of it.
const DeltaChunk = 64

// DeltaChunks returns the largest number of chunks for tokens of seqs sequences.
func DeltaChunks(tokens, seqs int) int { return min(tokens, tokens/DeltaChunk+2*seqs) }

// DeltaWork returns the bytes that delta_chunks passes to delta_prompt: two triangles and the sums of decays of each value
// head, keys and queries of each key head.
func DeltaWork(tokens, keyHeads, valueHeads int) int64 {
	return int64(tokens) * int64(valueHeads*2*64*4+keyHeads*2*128*4+(valueHeads+3)/4*16)
}

// DraftArgs: drafted, verify. One block.
type DraftArgs struct {
	IDs, First, Rows, Sampled, Index, Out, Accepted Ptr
	Tokens, Seqs, Samples, _                        int32
}

// ProposeArgs: propose. A block of whole warps for each sequence.
type ProposeArgs struct {
	Logits, IDs, Drafts Ptr
	Vocab, N, Of, _     int32
}

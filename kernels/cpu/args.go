package cpu

import "vapp.dev/kernels"

// Op is the number of an op in native/shared/kernels.h.
type Op int32

// The ops. Linear has two: all parts of OpLinearPrepare finish before the first of OpLinearRun
// begins.
const (
	OpTokens Op = iota
	OpStoreTokens
	OpEmbed
	OpNorm
	OpLinearPrepare
	OpLinearRun
	OpAngles
	OpRope
	OpAttention
	OpAttentionJoin // with the operands of OpAttention, after all of its parts
	OpAttentionPack // with the operands of OpAttention, before the first of its parts: AttentionPacks
	OpStoreKV
	OpGLU
	OpGather
	OpSample
	OpAdd
	OpGate
	OpActivate
	OpSoftcap
	OpConcat
	OpGatherLast
	OpRoute
	OpConv
	OpDelta
	OpDraftInput // OpDraftInput and OpVerify have one part
	OpVerify
	OpGatherAccepted
	OpPropose
	OpAdaptDown // Mid of Adapt
	OpAdaptUp   // Y of Adapt, after OpAdaptDown
	OpLatentRope
	OpHeadLinear
	OpPatches
	OpPool
	OpStandardize
	OpResample
	OpEncoded // with At rows of X to the encoded ones, with Rows the other way
	OpRead    // reads memory; this op and the following measure limits
	OpFMA
	OpDotBF16   // avx512, on CPUs with AVX-512 BF16
	OpTilesBF16 // amx
	OpDotInt8   // on CPUs with AVX-512 VNNI; for amx on tiles; for dotprod SDOT, for i8mm SMMLA
)

// Limit is the operands of the ops that measure limits. Sink has 64 bytes for each part.
type Limit struct {
	Buffer        uintptr
	Bytes, Rounds int64
	Sink          uintptr
}

// LimitFLOP returns the operations of one round of OpFMA, OpDotBF16, OpTilesBF16 or OpDotInt8;
// 0 for other ops.
func LimitFLOP(op Op, variant string) int64 {
	lanes := map[string]int64{"generic": 4, "avx2": 8, "avx512": 16, "avx512bf16": 16, "amx": 16, "neon": 4, "dotprod": 4, "i8mm": 4}[variant]
	switch op {
	case OpFMA:
		return 12 * lanes * 2
	case OpDotBF16:
		return 12 * 16 * 4
	case OpDotInt8:
		switch variant {
		case "amx":
			return 4 * 16 * 16 * 64 * 2
		case "dotprod":
			return 12 * 16 * 2
		case "i8mm":
			return 12 * 32 * 2
		}
		return 12 * 64 * 2
	case OpTilesBF16:
		return 4 * 16 * 16 * 32 * 2
	}
	return 0
}

// The structs below are those of kernels.h, field by field. Addresses are of memory that Go's
// collector does not move or free while an op may run.

// Pages is one page class, and the place of one layer in its pages.
type Pages struct {
	Arena, Table                                    uintptr
	PageBytes, SlabBytes, K, V                      int64
	PerSlab, Width, Block, Format, KVHeads, HeadDim int32
	Window                                          int32 // tokens that the class keeps; 0: all
	KeyDim                                          int32 // stored dimensions of a head's key
	Chunked, _                                      int32 // Chunked 1: the class keeps a chunk of Window tokens, and a token sees its chunk
}

// Tokens is the operands of OpTokens.
type Tokens struct {
	IDs, Sampled, Out uintptr
	Samples, Vocab    int32
}

// StoreTokens is the operands of OpStoreTokens; Pages.K is the token plane.
type StoreTokens struct {
	Pages                      Pages
	IDs, Seq, Positions, First uintptr
}

// Embed is the operands of OpEmbed. Row is a LinearKernel's row function, or 0.
type Embed struct {
	IDs, Table, Y, Row uintptr
	Format, Cols, Rows int32
	Scale              float32
	Symbol, Row0       int32
}

// Angles is the operands of OpAngles. AcceptedRow is the address of the accepted rows of a draft pass,
// or 0.
type Angles struct {
	Positions, AcceptedRow uintptr
	Across, Down           uintptr // the two positions of a patch, or 0
	Axes                   uintptr // the three positions of a token, or 0
	Freq, Y                uintptr
	Half, By               int32
	Scale                  float32
	Every, Offset          int32 // of the temperature; Every 0: none
	Beta                   float32
	Joined                 int32 // of a patch: all cosines, then all sines
	Sections               [3]int32
}

// Attention is the operands of OpAttention and OpAttentionJoin. Work has AttentionWorkspace
// bytes for each part, Shared has AttentionShared bytes for all.
type Attention struct {
	Pages                        Pages
	Q, K, V, Y, Positions, First uintptr
	AcceptedRow, Sinks           uintptr // or 0
	Items, Rebuild               uintptr // or 0
	Work, Shared                 uintptr
	WorkBytes, SharedBytes       int64
	Heads                        int32
	Scale, Softcap               float32 // Softcap 0: none
	Window                       int32   // positions that a token sees; 0: all
	Bidirectional                int32   // tokens see the tokens after them, and nothing is paged
	Threads, By                  int32
	FMA                          int32 // 1: decode steps of avx512bf16 use multiply-adds; the bits are the same
	Latent                       int32 // dimensions of a key behind those of its value: K has as many columns; 0: none
	Packed                       int32 // 1: OpAttentionPack has filled Shared, of AttentionPacked bytes
}

// StoreKV is the operands of OpStoreKV.
type StoreKV struct {
	Pages                                    Pages
	K, V, Seq, Positions, First, AcceptedRow uintptr // AcceptedRow: or 0
	By                                       int32
	Latent                                   int32 // 1: K has the KeyDim numbers of each head that are stored
}

// Gather is the operands of OpGather; Bytes is the size of a row.
type Gather struct {
	X, Rows, Y uintptr
	Bytes      int64
}

// Sample is the operands of OpSample. Work has SampleWorkspace bytes for each part.
type Sample struct {
	Pages                                  Pages
	Logits, Rows, Grammar, Allowed, Bias   uintptr
	Sampled, Status, Logprob, Rank, TopIDs uintptr
	TopProbs, Work                         uintptr
	WorkBytes                              int64
	Vocab, Words, MaxBias, MaxTop          int32
}

// Linear is the operands of OpLinearPrepare and OpLinearRun. Work has WorkBytes for each part.
type Linear struct {
	W, Bias, X    uintptr
	LdX           int64
	Y             uintptr
	LdY           int64
	Rows, In, Out int32 // each call sets Rows
	Format        int32
	Shared        uintptr
	SharedBytes   int64
	Work          uintptr
	WorkBytes     int64
	_             [3]uintptr // set by each call
	Kernel        uintptr
	WorkStride    int64
	Symbol        int32
	_             int32
}

// HeadLinear is the operands of OpHeadLinear: those of Linear for the first head, and the distances
// from one head to the next: Bytes of the stack, columns NextX and NextY. Parts are Stride bytes of
// Parts, of which Shared and Work take SharedBytes and WorkBytes.
type HeadLinear struct {
	W, Bias, X          uintptr // Bias: 0
	LdX                 int64
	Y                   uintptr
	LdY                 int64
	Rows, In, Out       int32 // each call sets Rows
	Format              int32
	_                   uintptr
	SharedBytes         int64
	_                   uintptr
	WorkBytes           int64
	_                   [3]uintptr // set by each call
	Kernel              uintptr
	Parts               uintptr
	Stride              int64
	Bytes, NextX, NextY int64
	Symbol, Heads       int32
}

// The constants of kernels.h; kernels.go checks that they are equal.
const (
	attentionSpan = 256
	attentionTile = 192
	attentionPass = 96
	attentionDim  = 512
	attentionKeys = 8
	sampleBins    = 2048
)

// MaxHeadDim is the largest head dimension, MaxVocab the largest number of logits for OpSample.
const (
	MaxHeadDim = attentionDim
	MaxVocab   = sampleBins * 1024
)

// AttentionWorkspace returns the bytes that a part of OpAttention needs, a multiple of 64. Keys have
// `latent` dimensions more than values.
func AttentionWorkspace(headDim, latent int) int64 {
	wide, key := roundUp(int64(headDim), 16), roundUp(int64(headDim+latent), 16)
	floats := attentionTile*(2*wide+key) + attentionSpan*(wide+key)/2 + attentionPass*(attentionSpan+16) + 2*attentionTile
	return roundUp(4*floats, 64)
}

// AttentionShared returns the bytes that all threads share for results of spans: 128 spans for
// each thread, each of a token with `group` query heads to a KV head. With fewer bytes a long
// sequence is not spread over threads.
func AttentionShared(threads, group, headDim int) int64 {
	if threads == 1 {
		return 0
	}
	span := 4 * roundUp(int64(group)*(roundUp(int64(headDim), 16)+2), 16)
	return int64(threads) * max(1<<18, 128*span)
}

// AttentionPacks reports whether attention of a variant without a mask reads keys and values of f that
// OpAttentionPack has packed, which all threads share.
func AttentionPacks(variant string, f kernels.Format) bool {
	return variant == AVX512BF16 && f == kernels.BF16
}

// AttentionPacked returns the bytes that OpAttentionPack fills for so many rows of keys and values in
// `seqs` sequences, a multiple of 64.
func AttentionPacked(rows, seqs, kvHeads, headDim int) int64 {
	all := roundUp(int64(rows), attentionKeys) + attentionKeys*int64(seqs)
	return roundUp(2*all*int64(kvHeads)*(roundUp(int64(headDim), 2)+roundUp(int64(headDim), attentionKeys)), 64)
}

// SampleWorkspace returns the bytes that a part of OpSample needs, a multiple of 64.
func SampleWorkspace(vocab int) int64 {
	return roundUp(sampleBins*12+12*int64(vocab), 64)
}

// Lookup reports whether OpEmbed can read rows of f as a checkpoint stores them.
func Lookup(f kernels.Format) bool {
	return f == kernels.F32 || f == kernels.F16 || f == kernels.BF16 || f.Quantized()
}

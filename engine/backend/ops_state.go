package backend

// Conv is a causal convolution of each column of X [T,cols] over the Kernel last
// rows of its sequence, followed by silu: Y[t,c] = silu(Σ W[c,k] · X[t−Kernel+1+k,c] + Bias[c]).
// Rows before the step come from the state of Class, which the op updates: Kernel−1 rows,
// oldest first. If the state has more rows (for steps that verify proposals), the row of
// position p is p mod ConvRows, so that the rows before any row of the last step are
// present. If a class keeps snapshots of Class, the op reads and stores them as that
// class's page table directs (see state_snapshot.go).
type Conv struct {
	X, Y         Value
	W            WeightID // [cols, Kernel]
	Kernel       int
	Class, Layer int
	Biased       bool
	Bias         WeightID // [cols], with Biased only
}

// DeltaNet is the gated delta rule, the recurrence of one linear-attention layer
// (transformers: Qwen3.5's GatedDeltaNet). QKV [T, 2·KeyHeads·KeyDim +
// ValueHeads·ValueDim] are queries, keys and values after the convolution, BA [T,
// 2·ValueHeads] the inputs of β and of the decay. Queries and keys are L2-normalised
// by head; value head h reads key head h·KeyHeads/ValueHeads. With g = −exp(ALog) ·
// softplus(a + DtBias) and β = sigmoid(b), each token computes
// S ← exp(g)·S; S ← S + k·(β·(v − Sᵀk))ᵀ; y = Sᵀq / √KeyDim.
// S [ValueHeads, KeyDim, ValueDim] F32 is the state of Class. With several Copies, the state
// after position p is copy p mod Copies. Each sampled row and the last row of a sequence
// store a copy; the next step reads the copy before its first position, however many
// proposals were accepted. Chunks of prefill begin at absolute positions. Snapshots are
// used as by Conv. Y [T,ValueHeads·ValueDim].
type DeltaNet struct {
	QKV, BA, Y           Value
	ALog, DtBias         WeightID // [ValueHeads]
	KeyHeads, ValueHeads int
	KeyDim, ValueDim     int
	Class, Layer         int
}

// Mamba2 is the recurrence of one Mamba-2 layer (transformers: mamba2_chunk_scan). X [T,
// Heads·HeadDim + 2·StateDim] are the inputs x of all heads, then B and C, after the convolution; Dt
// [T,Heads] are steps. With dt = softplus(Dt + DtBias), each token computes
// S ← exp(−exp(ALog)·dt)·S + dt·x·Bᵀ; y = S·C + D·x. S [Heads, HeadDim, StateDim] F32 is the state
// of Class; its copies and snapshots are used as by DeltaNet. Y [T,Heads·HeadDim].
type Mamba2 struct {
	X, Dt, Y                 Value
	ALog, D, DtBias          WeightID // [Heads]
	Heads, HeadDim, StateDim int
	Class, Layer             int
}

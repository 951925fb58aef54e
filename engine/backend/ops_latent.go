package backend

// Ops of multi-head latent attention (DeepSeek V2 and V3). Pages store a compressed form of keys
// and values: Rank latent numbers, which are normalised, and Rotary rotated ones, for all heads
// together. Queries are multiplied into the latent space, and Attention with Latent computes
// there; HeadLinear does both changes of space.

// LatentRope computes the queries, keys and values of latent attention. Q
// [T,Heads·(Nope+Rotary)] is the projection of queries, KV [T,Rank+Rotary] the compressed one of
// keys and values. The last Rotary numbers of each head of Q are rotated into the last Rotary
// columns of each head of Query [T,Heads·(Rank+Rotary)]; its other columns are unchanged. V
// [T,Rank] is the RMSNorm of the first Rank columns of KV, with weights Norm [Rank]; K [T,Rotary]
// is its other columns, rotated. K and V are rounded to the class's format. Angles [T,Rotary] are
// those of Rope. Rows are tokens, or sequences if those of Angles are.
type LatentRope struct {
	Q, KV, Angles             Value
	Query, K, V               Value
	Norm                      WeightID
	Eps                       float32
	Heads, Nope, Rank, Rotary int
	Interleaved               bool // pairs (2i, 2i+1) instead of (i, i+Rotary/2)
}

// HeadLinear multiplies each head with a matrix of its own: Y of head h = X of head h · W[h]ᵀ.
// X [rows,Heads·a] and Y [rows,Heads·b] have a column range for each head; W is a stack of Heads
// matrices of out × in (WeightSpec.Experts). The first in ≤ a columns of a head of X are read, and
// the first out ≤ b columns of a head of Y written; the others are unchanged. W is F32, F16 or
// BF16. The result of a row does not depend on the other rows.
type HeadLinear struct {
	X     Value
	W     WeightID
	Y     Value
	Heads int
}

func (LatentRope) opName() string { return "latent_rope" }
func (HeadLinear) opName() string { return "head_linear" }

package backend

// Angles fills Y [T,2·half] with cos then sin of position · InvFreq [half],
// times Scale: the product in F32 as transformers does it, cos and sin of
// that product rounded to F32.
type Angles struct {
	InvFreq WeightID
	Scale   float32
	Y       Value
	Draft   *DraftPosition // nil: rows are tokens; else Y is [S,2·half]
	// Grid says that a row has two positions, Across and Down [T,1] I32, in place of
	// the step's: Y [T,4·half] is cos and sin of the first, then of the second.
	Grid         bool
	Across, Down Value
	// Joined puts the cosines of both before the sines of both, for a Rope that
	// turns a head as one.
	Joined bool
	// Sections says that a token's positions are the three of Step.Places, time, row
	// and column: frequency i turns by that of axis i mod 3 where i < 3 · Sections[axis],
	// else by the time (transformers: interleaved mrope). Rows ahead count from the
	// token's on all axes. Zero: one position.
	Sections [3]int
}

// Rope splits the fused QKV [T,(Heads+2·KVHeads)·HeadDim], normalises heads where
// Norm says so, and rotates Q and K by halves (NeoX): pair (i, i+Rotary/2). Q
// [T,Heads·HeadDim] is F32; K and V [T,KVHeads·HeadDim] are rounded to the class's
// format. Rows are tokens, or sequences where Angles has them.
type Rope struct {
	QKV, Angles             Value
	Q, K, V                 Value
	Heads, KVHeads, HeadDim int
	Rotary                  int // rotated dimensions, ≤ HeadDim
	Norm                    *HeadNorm
	// Gated says that each head's query is followed by its gate, HeadDim columns
	// more, which go to Gate [T,Heads·HeadDim].
	Gated bool
	Gate  Value
	// Shared says that QKV has no columns for V: it is K before Norm and rotation.
	Shared bool
	// Grid says that Angles are of two positions: the first half of the Rotary
	// dimensions is rotated, by halves of its own, by those of Across, the second by
	// those of Down.
	Grid bool
}

// HeadNorm is RMSNorm of each head of Q and K before they are rotated, and of V.
type HeadNorm struct {
	Q, K   WeightID // [HeadDim]
	V      bool     // V is normalised too, with ones for weights
	Eps    float32
	Offset float32 // added to every weight
}

// Attention is causal attention of the step's queries over the paged history
// of each sequence and the step's own K and V, which StoreKV stores afterwards.
// Token t at position p of its sequence sees positions 0..p: those before the
// sequence's first token in this step from pages, the others from K and V.
// Scores are accumulated, and the softmax is split, at absolute positions, so that
// a row's result does not depend on chunking, batch, page numbers or threads.
type Attention struct {
	Q, K, V, Y              Value // Q, Y [T,Heads·HeadDim]; K, V [T,KVHeads·HeadDim]
	Class, Layer            int   // Layer counts within the class
	Heads, KVHeads, HeadDim int
	Scale                   float32
	// Window is how many positions a token sees, its own included; 0: all.
	Window int
	// Sinked says that each head's softmax has one term more, exp(Sinks[head]), which
	// takes weight and gives no value. Sinks [Heads].
	Sinked bool
	Sinks  WeightID
	// Softcap bounds scores: Softcap · tanh(score / Softcap); 0: none.
	Softcap float32
	// Rebuild gives the part of a key that pages do not hold; nil: they hold it all.
	Rebuild *Rebuild
	// Ahead says that rows are sequences, each at a position of its own; nil: tokens.
	Draft *DraftPosition
	// Items says that the tokens that stand for one item see each other, later ones
	// too, within Window (Gemma 4's use_bidirectional_attention "vision").
	Items bool
	// Both says that a token sees those after it too, and that nothing is paged:
	// Class is not read. Vision towers have it.
	Bidirectional bool
}

// Rebuild says that a page holds of a key only the Rotary dimensions that turn: of
// each half of the head the first Rotary/2, in this order (a rope of HeadDim whose
// other frequencies are 0). The others are those of V, as it is stored, times Weight
// (Gemma 4, whose K and V are one projection): of the step's own keys too, so that
// chunks do not change a result.
type Rebuild struct {
	Weight WeightID // [HeadDim]: that of the norm of K
	Rotary int
}

// StoreKV writes K and V [T,KVHeads·HeadDim] into the pages of their sequences; of
// a class with a KeyDim, only the KeyDim numbers of each head's key that were rotated. Tokens that
// have left the class's window by the end of the step have no page and are
// passed over.
type StoreKV struct {
	K, V         Value
	Class, Layer int
	Draft        *DraftPosition // nil: rows are tokens
}

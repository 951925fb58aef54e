package backend

// Angles fills Y [T,2·half] with cos then sin of position · InvFreq [half],
// times Scale. As in transformers, the product is F32, and cos and sin of it are rounded to
// F32.
type Angles struct {
	InvFreq WeightID
	Scale   float32
	Y       Value
	Draft   *DraftPosition // nil: rows are tokens; else Y is [S,2·half]
	// Grid means that a row has two positions, Across and Down [T,1] I32, instead of the
	// step's one: Y [T,4·half] is cos and sin of the first, then of the second.
	Grid         bool
	Across, Down Value
	// Joined puts the cosines of both positions before the sines of both, for a Rope
	// without Grid.
	Joined bool
	// Sections means that a token has the three positions of Step.MRopePositions: time, row and
	// column. Frequency i uses axis i mod 3 if i < 3 · Sections[axis], else time
	// (transformers: interleaved mrope). Draft positions are added on all axes. Zero: one
	// position.
	Sections [3]int
	// Temperature also multiplies Y by a factor of the position. It takes one position.
	Temperature Temperature
}

// Temperature is a factor of a position: 1 + Beta · ln(1 + ⌊(position + Offset) / Every⌋). It is
// computed in float64 and rounded to F32 (transformers: get_llama_4_attn_scale with Offset 0,
// attn_temperature_tuning of Llama 4 with Offset 1). Every 0: the factor is 1.
type Temperature struct {
	Beta          float32
	Every, Offset int
}

// Rope splits the fused QKV [T,(Heads+2·KVHeads)·HeadDim], normalises heads if Norm is
// set, and rotates Q and K by halves (NeoX): pair (i, i+Rotary/2), or by neighbours. Q [T,Heads·HeadDim] is
// F32 or in the 16 bits that Attention multiplies; K and V [T,KVHeads·HeadDim] are rounded to the class's format. Rows are tokens, or
// sequences if those of Angles are. With 0 KVHeads there are queries alone: K and V are NoValue.
type Rope struct {
	QKV, Angles             Value
	Q, K, V                 Value
	Heads, KVHeads, HeadDim int
	Rotary                  int // rotated dimensions, ≤ HeadDim; 0: none, and Angles is not read
	Norm                    *HeadNorm
	// Gated means that HeadDim columns with its gate follow each head's query; they go to
	// Gate [T,Heads·HeadDim].
	Gated bool
	Gate  Value
	// Shared means that QKV has no columns for V: V is K before Norm and rotation.
	Shared bool
	// Grid means that Angles have two positions. The angles of Across rotate the first half
	// of the Rotary dimensions, those of Down the second half, each by halves of its own.
	Grid bool
	// Interleaved means that pair i is (2i, 2i+1) (GPT-J, Command-R).
	Interleaved bool
	// Tempered means that the angles of Q are QueryAngles [T,Rotary], those of K Angles: with a
	// Temperature they scale queries by their position. Whole heads are rotated then.
	Tempered    bool
	QueryAngles Value
}

// HeadNorm is RMSNorm of each head of Q and K before rotation, and optionally of V.
type HeadNorm struct {
	Q, K   WeightID // [HeadDim]; with Whole or Each [Heads·HeadDim], [KVHeads·HeadDim]; NoWeight: ones
	V      bool     // each head of V is normalised too, with weights of 1
	Eps    float32
	Offset float32 // added to every weight
	// Whole normalises all heads of Q together, and all of K, as one vector each (OLMo 2), on one
	// rank. Several ranks gather Q and K and normalise them with Norm.
	Whole bool
	// Each means that a head has weights of its own (Command-R+).
	Each bool
	// Plain selects LayerNorm instead of RMSNorm: it subtracts the mean of the head first
	// (Command-R+). Offset is not read.
	Plain bool
	// After normalises rotated heads (Hunyuan, Llama 4).
	After bool
}

// Attention is causal attention of the step's queries over the paged history
// of each sequence and the step's own K and V, which StoreKV stores afterwards.
// Token t at position p of its sequence sees positions 0..p: those before the
// sequence's first token in this step from pages, the others from K and V.
// The sums and the softmax are split at absolute positions, so a row's result does not
// depend on chunking, batch, page numbers or threads.
type Attention struct {
	Q, K, V, Y              Value // Q, Y [T,Heads·HeadDim]; K, V [T,KVHeads·HeadDim]; with Latent see there
	Class, Layer            int   // Layer counts within the class
	Heads, KVHeads, HeadDim int
	Scale                   float32
	// Window is how many positions a token sees, its own included; 0: all.
	Window int
	// Chunked limits a token to its chunk: the positions from the last multiple of Window to its own
	// (chunked local attention, Llama 4).
	Chunked bool
	// Sinked adds exp(Sinks[head]) to the denominator of each head's softmax (attention
	// sinks). Sinks [Heads].
	Sinked bool
	Sinks  WeightID
	// Softcap bounds scores: Softcap · tanh(score / Softcap); 0: none.
	Softcap float32
	// Rebuild computes the part of a key that pages do not store; nil: they store all of it.
	Rebuild *Rebuild
	// Latent is how many dimensions a key has behind those of its value, in multi-head latent
	// attention: keys are V [T,HeadDim], as stored, followed by K [T,Latent]. Queries have as many,
	// Q [T,Heads·(HeadDim+Latent)], and there is one KV head. Pages store V and K. 0: none.
	Latent int
	// Draft makes rows sequences, each at its draft position; nil: rows are tokens.
	Draft *DraftPosition
	// Items lets a token also see the later tokens of its multimodal item, up to Step.ItemEnd: Window
	// bounds only what is before a token (Gemma 4's use_bidirectional_attention "vision").
	Items bool
	// Bidirectional lets a token see later ones too. Nothing is paged then, and Class is
	// not read. Vision towers use it.
	Bidirectional bool
}

// Rebuild means that pages store only the Rotary dimensions of a key that are rotated: the
// first Rotary/2 of each half of the head, in this order (a rope of HeadDim whose other
// frequencies are 0). The other dimensions are computed as V, as stored, times Weight
// (Gemma 4, whose K and V are one projection). This applies to the step's own keys too, so
// that chunked prefill does not change a result.
type Rebuild struct {
	Weight WeightID // [HeadDim]: that of the norm of K
	Rotary int
}

// StoreKV writes K and V [T,KVHeads·HeadDim] into the pages of their sequences. In a class
// with a KeyDim, it writes only the KeyDim rotated numbers of each head's key, or all of K if
// this is [T,KVHeads·KeyDim]. It skips tokens that have left the class's window or chunk by the end of
// the step: they have no page.
type StoreKV struct {
	K, V         Value
	Class, Layer int
	Draft        *DraftPosition // nil: rows are tokens
}

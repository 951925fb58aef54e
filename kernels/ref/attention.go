package ref

import (
	"math"

	"vapp.dev/kernels"
)

// AttentionArgs are the operands of Attention. T tokens of S sequences; the
// tokens of sequence s are First[s] to First[s+1]-1 at consecutive positions.
type AttentionArgs struct {
	Q, Y          []float32 // [T, Heads·HeadDim]; with Pages.Latent Q is [T, Heads·(HeadDim+KeyDim)]
	K, V          []byte    // [T, KVHeads·HeadDim], stored as Pages.Format; with Pages.Latent K is [T, KVHeads·KeyDim]
	First         []int32   // [S+1]
	Positions     []int32   // [T]
	Tables        []int32   // [S, Width] page numbers; in a class with a Window from its first block in use
	Width         int
	Pages         Pages // the history: positions before a sequence's first token
	Heads         int
	Scale         float32
	Window        int       // positions a token sees, its own included; 0: all; with Pages.Chunked, the size of a chunk
	Sinks         []float32 // [Heads]: attention sinks, one more term in each head's softmax; nil: none
	Softcap       float32   // 0: none
	Rebuild       []float32 // [HeadDim]: factors from values to the numbers of keys that Pages do not store; nil: they store all
	Bidirectional bool      // tokens see later ones too, and there is no history
	Items         []int32   // [T] end position of the item that a token belongs to, 0: none; nil: no items
	Workspace     AttentionWorkspace
}

// AttentionWorkspace is scratch memory of Attention for up to N positions.
type AttentionWorkspace struct {
	K, V []float32 // [N, HeadDim]; with Pages.Latent K is [N, HeadDim+KeyDim]
	P    []float64 // [N]
	Acc  []float64 // [HeadDim]
}

// Attention computes the query heads that read KV head kv, for all tokens of sequence seq. A
// token at position p sees positions 0 to p: the history from pages, the rest from K and V.
// For each token and head, in float64 and in the order of the positions: s = (q·k)·Scale,
// capped by Softcap, m = max s, y = Σ e^(s−m)·v / Σ e^(s−m). y is rounded to float32 once. A
// sink takes part in m and in the denominator. The result does not depend on where the
// history ends. With a Window, pages of blocks before it are not read. A token of an item
// also sees later tokens of the item that are in the step, however many they are.
func Attention(a AttentionArgs, seq, kv int) {
	first, last := int(a.First[seq]), int(a.First[seq+1])
	if first == last {
		return
	}
	p, d, wide := a.Pages, a.Pages.HeadDim, a.Pages.keyWidth()
	history := int(a.Positions[first])
	old := 0 // the first position to read
	if a.Bidirectional {
		history = 0
	}
	if a.Window > 0 {
		old = a.seenFrom(history)
	}
	n := history - old + last - first
	k, v := a.Workspace.K[:n*wide], a.Workspace.V[:n*d]
	if old < history {
		p.Load(a.Tables[seq*a.Width:(seq+1)*a.Width], p.firstBlock(history), kv, old, history, a.Rebuild, k, v)
	}
	for t := first; t < last; t++ {
		i, at := history-old+t-first, t*p.KVHeads+kv
		key, value := k[i*wide:(i+1)*wide], v[i*d:(i+1)*d]
		Dequantize(p.Format, vectorAt(p.Format, a.V, at, d), value)
		p.key(vectorAt(p.Format, a.K, at, p.givenKey()), value, a.Rebuild, key)
	}
	group := a.Heads / p.KVHeads
	for t := first; t < last; t++ {
		end := history - old + t - first + 1
		if a.Bidirectional {
			end = n
		}
		from := 0
		if a.Window > 0 {
			from = a.seenFrom(old+end-1) - old
		}
		if a.Items != nil {
			end = max(end, min(int(a.Items[t])-old, n))
		}
		for h := kv * group; h < (kv+1)*group; h++ {
			row := t*a.Heads + h
			a.attend(h, a.Q[row*wide:(row+1)*wide], k[from*wide:end*wide], v[from*d:end*d], a.Y[row*d:(row+1)*d])
		}
	}
}

// seenFrom returns the first position that the token at pos sees, in a window or a chunk.
func (a *AttentionArgs) seenFrom(pos int) int {
	if a.Pages.Chunked {
		return pos / a.Window * a.Window
	}
	return max(0, pos-a.Window+1)
}

// attend computes one query of head h over len(k)/len(q) positions.
func (a *AttentionArgs) attend(h int, q, k, v, y []float32) {
	d, wide := len(y), len(q)
	p, acc := a.Workspace.P[:len(k)/wide], a.Workspace.Acc[:d]
	m, sum := math.Inf(-1), 0.0
	if a.Sinks != nil {
		m = float64(a.Sinks[h])
	}
	for i := range p {
		p[i] = dot(q, k[i*wide:(i+1)*wide]) * float64(a.Scale)
		if a.Softcap > 0 {
			p[i] = float64(a.Softcap) * math.Tanh(p[i]/float64(a.Softcap))
		}
		m = max(m, p[i])
	}
	if a.Sinks != nil {
		sum = math.Exp(float64(a.Sinks[h]) - m)
	}
	clear(acc)
	for i, s := range p {
		e := math.Exp(s - m)
		sum += e
		for j, x := range v[i*d : (i+1)*d] {
			acc[j] += float64(e * float64(x))
		}
	}
	for j := range y {
		y[j] = float32(acc[j] / sum)
	}
}

// vectorAt returns the bytes of vector i of b, whose vectors have n elements of f.
func vectorAt(f kernels.Format, b []byte, i, n int) []byte {
	size := f.Bytes(int64(n))
	return b[int64(i)*size : int64(i+1)*size]
}

package ref

import "math"

// AttentionArgs are the operands of Attention. T tokens of S sequences; the
// tokens of sequence s are First[s] to First[s+1]-1 at consecutive positions.
type AttentionArgs struct {
	Q, Y      []float32 // [T, Heads·HeadDim]
	K, V      []byte    // [T, KVHeads·HeadDim], stored as Pages.Format
	First     []int32   // [S+1]
	Positions []int32   // [T]
	Tables    []int32   // [S, Width] page numbers
	Width     int
	Pages     Pages // the history: positions before a sequence's first token
	Heads     int
	Scale     float32
	Room      AttentionRoom
}

// AttentionRoom is what Attention needs beside its operands for up to N positions.
type AttentionRoom struct {
	K, V []float32 // [N, HeadDim]
	P    []float64 // [N]
	Acc  []float64 // [HeadDim]
}

// Attention computes the query heads that read KV head kv, for all tokens of
// sequence seq: a token at position p sees positions 0 to p, the history from pages
// and the rest from K and V. Per token and head, in float64 and in the order of
// the positions: s = (q·k)·Scale, m = max s, y = Σ e^(s−m)·v / Σ e^(s−m), and y is
// rounded to float32 once. Nothing depends on where the history ends.
func Attention(a AttentionArgs, seq, kv int) {
	first, last := int(a.First[seq]), int(a.First[seq+1])
	if first == last {
		return
	}
	d, p := a.Pages.HeadDim, a.Pages
	history := int(a.Positions[first])
	n := history + last - first
	k, v := a.Room.K[:n*d], a.Room.V[:n*d]
	p.Load(a.Tables[seq*a.Width:(seq+1)*a.Width], kv, history, k, v)
	size := p.Format.Bytes(int64(d))
	for t := first; t < last; t++ {
		at, row := int64(t*p.KVHeads+kv)*size, (history+t-first)*d
		Dequantize(p.Format, a.K[at:at+size], k[row:row+d])
		Dequantize(p.Format, a.V[at:at+size], v[row:row+d])
	}
	group := a.Heads / p.KVHeads
	for t := first; t < last; t++ {
		seen := (history + t - first + 1) * d
		for h := kv * group; h < (kv+1)*group; h++ {
			at := (t*a.Heads + h) * d
			attend(a.Q[at:at+d], k[:seen], v[:seen], a.Scale, a.Room, a.Y[at:at+d])
		}
	}
}

// attend is one query over len(k)/len(q) positions.
func attend(q, k, v []float32, scale float32, room AttentionRoom, y []float32) {
	d := len(q)
	p, acc := room.P[:len(k)/d], room.Acc[:d]
	m := math.Inf(-1)
	for i := range p {
		p[i] = dot(q, k[i*d:(i+1)*d]) * float64(scale)
		m = max(m, p[i])
	}
	clear(acc)
	sum := 0.0
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

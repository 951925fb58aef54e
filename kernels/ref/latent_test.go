package ref

import (
	"math"
	"math/rand/v2"
	"testing"

	"vapp.dev/kernels"
)

// TestLatentAttention compares Attention with latent keys with a plain computation in float64: a
// history in pages, then two tokens of a step.
func TestLatentAttention(t *testing.T) {
	const heads, rank, rotary, block, history, step, scale = 3, 6, 4, 4, 9, 2, 0.3
	r := rand.New(rand.NewPCG(1, 2))
	numbers := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	const n = history + step
	q, k, v := numbers(step*heads*(rank+rotary)), numbers(n*rotary), numbers(n*rank)
	p := Pages{Format: kernels.F32, BlockSize: block, KVHeads: 1, HeadDim: rank, KeyDim: rotary, Latent: true, PagesPerSlab: 3, PageBytes: 4 * block * (rank + rotary), V: 4 * block * rotary}
	p.SlabBytes = 3 * p.PageBytes
	p.Arena = make([]byte, p.SlabBytes)
	bytes := func(x []float32) []byte {
		b := make([]byte, 4*len(x))
		Quantize(kernels.F32, x, b)
		return b
	}
	table := []int32{2, 0, 1}
	for i := range history {
		p.Store(table[i/block], i%block, bytes(k[i*rotary:(i+1)*rotary]), bytes(v[i*rank:(i+1)*rank]))
	}
	a := AttentionArgs{
		Q: q, Y: make([]float32, step*heads*rank), K: bytes(k[history*rotary:]), V: bytes(v[history*rank:]), First: []int32{0, step}, Positions: []int32{history, history + 1},
		Tables: table, Width: 3, Pages: p, Heads: heads, Scale: scale,
		Workspace: AttentionWorkspace{K: make([]float32, n*(rank+rotary)), V: make([]float32, n*rank), P: make([]float64, n), Acc: make([]float64, rank)},
	}
	Attention(a, 0, 0)
	for row := range step * heads {
		query, sum, want := q[row*(rank+rotary):][:rank+rotary], 0.0, make([]float64, rank)
		for j := range history + row/heads + 1 {
			s := 0.0
			for d, x := range query[:rank] {
				s += float64(x) * float64(v[j*rank+d])
			}
			for d, x := range query[rank:] {
				s += float64(x) * float64(k[j*rotary+d])
			}
			e := math.Exp(s * float64(float32(scale)))
			sum += e
			for d := range want {
				want[d] += e * float64(v[j*rank+d])
			}
		}
		for d, w := range want {
			if got := float64(a.Y[row*rank+d]); math.Abs(got-w/sum) > 1e-6 {
				t.Errorf("row %d, number %d: %v, want %v", row, d, got, w/sum)
			}
		}
	}
}

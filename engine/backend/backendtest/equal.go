package backendtest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// equal checks that a row's logits have the same bits in every step: alone, in a batch, with
// other chunks, on other pages, with other threads.
func (s *subject) equal(t *testing.T) {
	for i, f := range weightFormats {
		for j, kv := range kvFormats {
			if f == kernels.BF16 || i%len(kvFormats) == j { // one pair is enough for the rest
				s.run(t, fmt.Sprintf("%v on %v", f, kv), func(t *testing.T) { s.equalNet(t, net{weights: f, pages: kv}) })
			}
		}
	}
}

// netLengths are the lengths of the test's sequences, at most netMax.
var netLengths = []int{1, 5, 23, 60}

// netSequences are their tokens.
func netSequences() [][]int32 {
	r := rng(5)
	var out [][]int32
	for _, n := range netLengths {
		var ids []int32
		for range n {
			ids = append(ids, int32(r.IntN(netVocab)))
		}
		out = append(out, ids)
	}
	return out
}

func (s *subject) equalNet(t *testing.T, n net) {
	seqs := netSequences()
	n.block, n.rows, n.seqs = 16, 80, len(seqs)
	rig := n.rig(t, s, len(seqs))
	inOrder := netPages(rig, len(seqs), upTo(rig.pageCount()))
	var want [][][]float32
	for i, ids := range seqs {
		want = append(want, n.runs(rig, [][]int32{ids}, inOrder[i:], []int{len(ids)})[0])
	}
	var mixed []int32
	for _, p := range rng(8).Perm(rig.pageCount()) {
		mixed = append(mixed, int32(p))
	}
	shuffled := netPages(rig, len(seqs), mixed)
	for _, c := range []struct {
		what   string
		pages  [][]int32
		chunks []int
	}{
		{"in a batch", inOrder, []int{16}},
		{"in a batch, in chunks of 1", inOrder, []int{1}},
		{"in a batch, in chunks of 3, 7, 1, 15", inOrder, []int{3, 7, 1, 15}},
		{"in a batch, on other pages", shuffled, []int{5, 11, 13}},
	} {
		s.sameLogits(t, &n, c.what, n.runs(rig, seqs, c.pages, c.chunks), want)
	}
	n.lastOnly(t, s, rig, seqs[3], inOrder[0], want[3])
	other := n
	other.block = 32
	wide := other.rig(t, s, len(seqs))
	s.sameLogits(t, &other, "on pages of 32", other.runs(wide, seqs, netPages(wide, len(seqs), upTo(wide.pageCount())), []int{9}), want)
	for _, threads := range []int{1, 3} {
		sub := s.withThreads(t, threads)
		again := n
		r := again.rig(t, sub, len(seqs))
		s.sameLogits(t, &again, fmt.Sprintf("with %d threads", threads), again.runs(r, seqs, netPages(r, len(seqs), upTo(r.pageCount())), []int{16}), want)
	}
}

// pageCount returns the number of pages of the first class in the arena.
func (r *rig) pageCount() int {
	c, n := r.p.Classes[0], 0
	for c.Address(int32(n))+c.PageBytes() <= r.res.Arenas[backend.KV] {
		n++
	}
	return n
}

// netPages assigns page numbers to sequences.
func netPages(r *rig, seqs int, numbers []int32) [][]int32 {
	out, width := make([][]int32, seqs), r.p.Classes[0].MaxPages
	for i := range out {
		out[i] = numbers[i*width : (i+1)*width]
	}
	return out
}

// runs runs the sequences together, each in chunks (repeating the last size), and returns the
// logits of every token of each.
func (n *net) runs(r *rig, seqs, pages [][]int32, chunks []int) [][][]float32 {
	r.t.Helper()
	out, at := make([][][]float32, len(seqs)), make([]int, len(seqs))
	for step := 0; ; step++ {
		var feeds []feed
		var who []int
		for i, ids := range seqs {
			size := min(chunks[min(step, len(chunks)-1)], len(ids)-at[i])
			if size > 0 {
				feeds = append(feeds, feed{tokens: ids[at[i] : at[i]+size], at: at[i], pages: pages[i], sampled: all(size)})
				who, at[i] = append(who, i), at[i]+size
			}
		}
		if len(feeds) == 0 {
			return out
		}
		b := r.run(feeds...)
		logits, row := r.floats(n.logits, b.Samples), 0
		for j, f := range feeds {
			for range f.tokens {
				out[who[j]] = append(out[who[j]], logits[row*netVocab:(row+1)*netVocab])
				row++
			}
		}
	}
}

// lastOnly runs a sequence in steps that sample only its last token.
func (n *net) lastOnly(t *testing.T, s *subject, r *rig, ids, pages []int32, want [][]float32) {
	t.Helper()
	last := len(ids) - 1
	r.run(feed{tokens: ids[:30], pages: pages})
	r.run(feed{tokens: ids[30:last], at: 30, pages: pages})
	r.run(feed{tokens: ids[last:], at: last, pages: pages, sampled: []int{0}})
	s.sameLogits(t, n, "after steps that sample nothing", [][][]float32{split(r.floats(n.logits, 1), netVocab)}, [][][]float32{want[last:]})
}

func all(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// roundings returns how many roundings to bf16 a row goes through: the inputs of four
// products in each of two layers and of the logits, the results of those in layers, and with pages of bf16 also Q, K, V and
// the weights of V in each layer. Latent attention has two more products in each layer; their
// roundings count more, because they come before scores and after sums.
func (n *net) roundings() int {
	roundings := 17
	if n.pages == kernels.BF16 {
		roundings += 8
	}
	if n.latent {
		roundings += 24
	}
	return roundings
}

// sameLogits compares logits with those of another run. With MatrixTolerance, they may differ
// like two results that were independently rounded to bf16, 2⁻⁹.
func (s *subject) sameLogits(t *testing.T, n *net, what string, got, want [][][]float32) {
	t.Helper()
	for i := range want {
		for pos, row := range want[i] {
			at := fmt.Sprintf("%s: sequence %d, position %d", what, i, pos)
			if s.matrixTolerance {
				unit := rms(row) * math.Sqrt(float64(2*n.roundings())) / (1 << 9)
				compareUnits(t, at, got[i][pos], row, slices.Repeat([]float64{unit}, len(row)))
			} else if k := bits(got[i][pos], row); k >= 0 {
				t.Errorf("%s: logit %d is %v, alone it is %v", at, k, got[i][pos][k], row[k])
			}
			if t.Failed() {
				return
			}
		}
	}
}

// rms returns the root mean square.
func rms(x []float32) float64 {
	square := 0.0
	for _, v := range x {
		square += float64(v) * float64(v)
	}
	return math.Sqrt(square / float64(len(x)))
}

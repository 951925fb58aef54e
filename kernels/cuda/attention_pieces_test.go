package cuda_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"vapp.dev/kernels/cuda"
)

// listOf returns the list of p for sequences of positions and tokens, in a list of the planned size.
func listOf(t *testing.T, p cuda.AttentionPieces, tokens, seqs int, history, count []int) []int32 {
	t.Helper()
	list := make([]int32, p.Bytes(tokens, seqs)/4)
	n, ok := new(cuda.AttentionLister).Write(p, list, len(count), func(s int) (int, int) { return history[s], count[s] })
	if !ok {
		t.Fatalf("%+v: a step of %v tokens does not fit in a list of %d bytes", p, count, p.Bytes(tokens, seqs))
	}
	return list[:n]
}

// TestAttentionPieces: in random steps each position that a row sees is in exactly one piece of its block; the two launches of
// a step take each sequence once; lists, rows and counters stay within what is planned; and a sequence's splits do not
// depend on the others.
func TestAttentionPieces(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 400 {
		seqs, to := 1+rnd.IntN(12), 1+rnd.IntN(4)
		few := cuda.AttentionPieces{Rows: 16, Group: 1 + rnd.IntN(40), From: 1, To: to, Least: 64 * (1 + rnd.IntN(4)), Most: 1 + rnd.IntN(cuda.MostSplits)}
		if rnd.IntN(2) == 0 {
			few.Window, few.Chunked = 1+rnd.IntN(300), rnd.IntN(2) == 0
		}
		many := few
		many.Rows, many.From, many.To, many.Most = 64, to+1, 1<<20, 1
		history, count, tokens := make([]int, seqs), make([]int, seqs), 0
		for s := range seqs {
			history[s], count[s] = rnd.IntN(3000), rnd.IntN(to+1)
			if rnd.IntN(4) == 0 {
				count[s] = rnd.IntN(200)
			}
			if few.Chunked {
				count[s] = min(count[s], few.Window-history[s]%few.Window) // a step stays in a chunk here, so that its rows see a common begin
			}
			tokens += count[s]
		}
		took := make([]int, seqs)
		for _, p := range []cuda.AttentionPieces{few, many} {
			covered := map[[2]int]int{} // by sequence and block: the end of the splits so far
			counters := map[int][2]int{}
			for _, w := range cuda.PiecesOf(listOf(t, p, max(1, tokens), seqs, history, count)) {
				from, end := p.Range(w, history[w.Seq], count[w.Seq])
				key := [2]int{w.Seq, w.Block}
				if w.Split == 0 {
					took[w.Seq]++
					first := w.Block * p.Rows / p.Group
					switch want := history[w.Seq] + first; {
					case p.Window == 0 && from != 0, p.Window > 0 && !p.Chunked && from != max(0, want-p.Window+1):
						t.Fatalf("%+v: piece %+v begins at %d", p, w, from)
					}
				} else if from < end && from != covered[key] {
					t.Fatalf("%+v: split %d of %v begins at %d, the one before ends at %d", p, w.Split, key, from, covered[key])
				}
				covered[key] = max(covered[key], end)
				if w.Splits != p.Splits(history[w.Seq], count[w.Seq]) || w.Splits > p.Most {
					t.Fatalf("%+v: %d splits of a sequence of %d and %d", p, w.Splits, history[w.Seq], count[w.Seq])
				}
				if n := p.Tokens(tokens, seqs); w.Row+count[w.Seq] > n {
					t.Fatalf("%+v: rows %d to %d of %d", p, w.Row, w.Row+count[w.Seq], n)
				}
				counter := w.Row*((p.Group+p.Rows-1)/p.Rows) + w.Block
				if other, ok := counters[counter]; ok && other != key || counter >= p.Counters(p.Tokens(tokens, seqs), 1) {
					t.Fatalf("%+v: counter %d of %v is that of %v", p, counter, key, other)
				}
				counters[counter] = key
			}
			for key, end := range covered {
				last := min(count[key[0]]-1, ((key[1]+1)*p.Rows-1)/p.Group)
				if want := history[key[0]] + last + 1; end != want {
					t.Fatalf("%+v: the splits of %v end at %d, want %d", p, key, end, want)
				}
			}
		}
		for s, n := range count {
			rows := 16
			if n > to {
				rows = 64
			}
			if want := (n*few.Group + rows - 1) / rows; took[s] != want {
				t.Fatalf("%+v: sequence %d of %d tokens has %d blocks, want %d", few, s, n, took[s], want)
			}
		}
	}
	if _, ok := new(cuda.AttentionLister).Write(cuda.AttentionPieces{Rows: 16, Group: 1, To: 1, Least: 64, Most: 1}, make([]int32, 4), 1, func(int) (int, int) { return 0, 1 }); ok {
		t.Error("a piece in a list without memory")
	}
}

// longest returns the positions that the blocks of a launch read: of the block that reads most, and the mean of grid blocks.
func longest(p cuda.AttentionPieces, list []int32, grid int, history, count []int) (most, mean float64) {
	reads := make([]float64, grid)
	for i, w := range cuda.PiecesOf(list) {
		from, to := p.Range(w, history[w.Seq], count[w.Seq])
		reads[i%grid] += float64(to - from)
		mean += float64(to-from) / float64(grid)
		most = max(most, reads[i%grid])
	}
	return most, mean
}

// TestAttentionLongestBlock: one sequence of 32,768 positions beside 64 short ones costs the longest block no more than its own
// reads spread over the blocks, and at most one split.
func TestAttentionLongestBlock(t *testing.T) {
	p := cuda.AttentionPieces{Rows: 16, Group: 4, From: 1, To: 1, Least: 512, Most: 63}
	const grid = 66
	var history, count []int
	for range 64 {
		history, count = append(history, 511), append(count, 1)
	}
	before, _ := longest(p, listOf(t, p, 64, 64, history, count), grid, history, count)
	history, count = append(history, 32767), append(count, 1)
	after, mean := longest(p, listOf(t, p, 65, 65, history, count), grid, history, count)
	split := 32768.0/float64(p.Splits(32767, 1)) + cuda.AttentionKeys
	if own := 32768.0 / grid; before != 512 || after > before+own+split || after > mean+split {
		t.Errorf("the longest block reads %g positions without the long sequence, %g with it; the mean is %g, the long sequence's share of a block %g", before, after, mean, own)
	}
	whole := p
	whole.Most = 1
	if most, _ := longest(whole, listOf(t, whole, 65, 65, history, count), grid, history, count); most < 32768 {
		t.Errorf("unsplit the longest block reads %g", most)
	}
}

// TestAttentionList is the list of a small step.
func TestAttentionList(t *testing.T) {
	p := cuda.AttentionPieces{Rows: 16, Group: 4, From: 1, To: 2, Least: 64, Most: 3}
	list := listOf(t, p, 50, 4, []int{10, 200, 0, 130}, []int{1, 1, 40, 2})
	if got := fmt.Sprint(cuda.PiecesOf(list)); got != "[{1 0 0 3 1} {1 0 1 3 1} {1 0 2 3 1} {3 0 0 3 2} {3 0 1 3 2} {3 0 2 3 2} {0 0 0 1 0}]" {
		t.Error(got)
	}
}

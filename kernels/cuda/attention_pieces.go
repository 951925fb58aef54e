package cuda

import (
	"cmp"
	"slices"
)

// AttentionPieces is how the blocks of rows of a step become the pieces of one launch of attention. What depends on the
// lengths of sequences is in a list in memory, so the launch itself is the same in every step.
type AttentionPieces struct {
	Rows, Group int // query rows of a block; query heads that share a KV head
	From, To    int // the sequences with From to To tokens in the step are this launch's
	Least       int // positions of a split at least; a multiple of AttentionKeys
	Most        int // splits of a block of rows; 1: none is split
	Window      int // positions that a token sees; 0: all
	Chunked     bool
}

// MostSplits is the most splits of a piece (attention.cuh: kMost).
const MostSplits = 64

// Tokens returns how many tokens of a step the launch takes at most.
func (p AttentionPieces) Tokens(tokens, seqs int) int { return min(tokens, seqs*p.To) }

// Count returns the largest number of pieces in steps of so many tokens and sequences.
func (p AttentionPieces) Count(tokens, seqs int) int {
	n := p.Tokens(tokens, seqs)
	return p.Most * min(min(n, seqs)+n*p.Group/p.Rows, n*p.blocks(1))
}

// Bytes returns the size of the list of so many pieces.
func (p AttentionPieces) Bytes(tokens, seqs int) int64 { return 16 * int64(1+p.Count(tokens, seqs)) }

// Counters returns the number of counters for KV heads of so many split tokens.
func (p AttentionPieces) Counters(tokens, kvHeads int) int { return tokens * p.blocks(1) * kvHeads }

// PartialBytes returns the sizes of the partial results of a split of one token: of its values, of dim dimensions, and of
// what joins them.
func PartialBytes(heads, dim int) (values, stats int64) {
	return 4 * int64(heads) * int64(dim), 8 * int64(heads)
}

// blocks returns the blocks of rows of a sequence with count tokens.
func (p AttentionPieces) blocks(count int) int { return (count*p.Group + p.Rows - 1) / p.Rows }

// span returns the positions [from, to) that a sequence's tokens see, if they begin at position at.
func (p AttentionPieces) span(at, count int) (from, to int) {
	switch {
	case p.Window == 0:
	case p.Chunked:
		from = at / p.Window * p.Window
	default:
		from = max(0, at-p.Window+1)
	}
	return from, at + count
}

// Splits returns how many blocks share the keys of each block of rows of a sequence with count tokens from position at on. It
// depends on nothing else, so a row has the same bits beside any other sequences.
func (p AttentionPieces) Splits(at, count int) int {
	from, to := p.span(at, count)
	runs := (to+AttentionKeys-1)/AttentionKeys - from/AttentionKeys
	return max(1, min(p.Most, runs*AttentionKeys/p.Least))
}

// AttentionLister writes lists of pieces. It keeps its memory from step to step.
type AttentionLister struct{ taken []takenSeq }

// takenSeq is a sequence of a launch.
type takenSeq struct{ seq, count, splits, each, row int }

// Write writes the list of p for seqs sequences to list; at returns a sequence's first position and its tokens. The list is the
// number of pieces, three zeros, and of each piece its sequence, its block of rows, its split | splits << 16, and the place of
// the sequence's first token among those of partial results. Longer pieces come first. n is the number of int32s; ok is false
// if the list is too short.
func (l *AttentionLister) Write(p AttentionPieces, list []int32, seqs int, at func(seq int) (from, count int)) (n int, ok bool) {
	l.taken = l.taken[:0]
	row := 0
	for s := range seqs {
		from, count := at(s)
		if count < max(1, p.From) || count > p.To {
			continue
		}
		first, end := p.span(from, count)
		splits := p.Splits(from, count)
		l.taken = append(l.taken, takenSeq{s, count, splits, (end - first) / splits, row})
		row += count
	}
	slices.SortFunc(l.taken, func(a, b takenSeq) int { return cmp.Or(cmp.Compare(b.each, a.each), cmp.Compare(a.seq, b.seq)) })
	n = 4
	for _, t := range l.taken {
		for b := p.blocks(t.count) - 1; b >= 0; b-- { // the last tokens see most
			for s := range t.splits {
				if n+4 > len(list) {
					return 0, false
				}
				list[n], list[n+1], list[n+2], list[n+3] = int32(t.seq), int32(b), int32(s|t.splits<<16), int32(t.row)
				n += 4
			}
		}
	}
	if len(list) < 4 {
		return 0, false
	}
	list[0], list[1], list[2], list[3] = int32(n/4-1), 0, 0, 0
	return n, true
}

// Piece is a piece of a list.
type Piece struct{ Seq, Block, Split, Splits, Row int }

// PiecesOf returns the pieces of a list.
func PiecesOf(list []int32) []Piece {
	out := make([]Piece, list[0])
	for i := range out {
		w := list[4+4*i:]
		out[i] = Piece{int(w[0]), int(w[1]), int(w[2] & 0xffff), int(w[2] >> 16), int(w[3])}
	}
	return out
}

// Range returns the positions that a piece reads, of a sequence with count tokens from position at on: those that its rows
// see, of which each split has an equal number of runs of AttentionKeys.
func (p AttentionPieces) Range(w Piece, at, count int) (from, to int) {
	first, last := w.Block*p.Rows/p.Group, min(count-1, ((w.Block+1)*p.Rows-1)/p.Group)
	from, _ = p.span(at+first, 1)
	_, to = p.span(at+last, 1)
	if w.Splits == 1 {
		return from, to
	}
	run := from / AttentionKeys
	each := ((to+AttentionKeys-1)/AttentionKeys - run + w.Splits - 1) / w.Splits
	from, to = max(from, (run+w.Split*each)*AttentionKeys), min(to, (run+(w.Split+1)*each)*AttentionKeys)
	return min(from, to), to
}

package sample

import (
	"slices"
	"testing"
)

// only returns a mask of ids for a vocabulary of 70.
func only(ids ...int32) []uint32 {
	w := make([]uint32, 3)
	for _, id := range ids {
		w[id/32] |= 1 << (id % 32)
	}
	return w
}

func TestConflict(t *testing.T) {
	const vocab = 70
	for _, c := range []struct {
		name   string
		mask   []uint32
		change func(*Params)
		output []int32
		want   []string
	}{
		{"nothing asked", nil, func(*Params) {}, nil, nil},
		{"the last token alone", only(69), func(*Params) {}, nil, nil},
		{"bits beyond the vocabulary", only(70, 90), func(*Params) {}, nil, []string{"mask"}},
		{"mask and allowed tokens meet", only(3, 40), func(p *Params) { p.AllowedTokenIDs = []int32{40, 41} }, nil, nil},
		{"mask and allowed tokens", only(3, 40), func(p *Params) { p.AllowedTokenIDs = []int32{41} }, nil, []string{"mask", "allowed_token_ids"}},
		{"mask and a word", only(3), func(p *Params) { p.BadWords = [][]int32{{3}} }, nil, []string{"mask", "bad_words"}},
		{"a word that has not begun", only(3), func(p *Params) { p.BadWords = [][]int32{{2, 3}} }, []int32{1}, nil},
		{"a word that has begun", only(3), func(p *Params) { p.BadWords = [][]int32{{2, 3}} }, []int32{1, 2}, []string{"mask", "bad_words"}},
		{"allowed tokens and words", nil, func(p *Params) { p.AllowedTokenIDs, p.BadWords = []int32{5, 6}, [][]int32{{5}, {6}} }, nil, []string{"allowed_token_ids", "bad_words"}},
		{"only ends before min_tokens", only(9, 8), func(p *Params) { p.MinTokens, p.EOS, p.StopTokenIDs = 2, []int32{-1, 9}, []int32{8} }, []int32{1}, []string{"mask", "min_tokens"}},
		{"only ends behind min_tokens", only(9), func(p *Params) { p.MinTokens, p.EOS = 2, []int32{9} }, []int32{1, 1}, nil},
		{"all four", only(1, 2, 3), func(p *Params) {
			p.AllowedTokenIDs, p.BadWords, p.MinTokens, p.EOS = []int32{1, 2, 7}, [][]int32{{1}}, 5, []int32{2}
		}, nil, []string{"mask", "allowed_token_ids", "bad_words", "min_tokens"}},
		{"the least of several", only(1), func(p *Params) {
			p.AllowedTokenIDs, p.BadWords, p.MinTokens, p.EOS = []int32{2}, [][]int32{{1}}, 5, []int32{9}
		}, nil, []string{"mask", "allowed_token_ids"}},
	} {
		p := Default()
		c.change(&p)
		at := At{Position: 10 + len(c.output), Prompt: 10, Output: c.output}
		if got := p.Conflict(at, c.mask, vocab); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestEnd(t *testing.T) {
	for _, c := range []struct {
		eos  []int32
		want int32
	}{{nil, -1}, {[]int32{-1}, -1}, {[]int32{7, 8}, 7}, {[]int32{-1, 8}, 8}} {
		if got := (&Params{EOS: c.eos}).End(); got != c.want {
			t.Errorf("%v ends with %d, want %d", c.eos, got, c.want)
		}
	}
}

package models_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/enginetest"
)

// imageToken and videoToken are the placeholders in the checkpoints of testdata/tiny_media.py.
const imageToken, videoToken = 122, 123

// mediaSides are the checkpoints with recorded prompts that have images → the patches of a side that
// one token covers.
var mediaSides = map[string]int{"tiny-gemma4-tower": 3, "tiny-gemma4-moe-tower": 3, "tiny-qwen35-tower": 2}

// mediaCases are the prompts of each checkpoint → prompt tokens, images and frames.
var mediaCases = map[string][2]int{"video": {24, 3}, "first": {41, 1}, "middle": {35, 1}, "several": {43, 3}, "adjacent": {47, 2}, "long": {128, 4}}

// recordedMedia reports whether the prompt is recorded of a checkpoint: videos are of two.
func recordedMedia(name, kind string) bool { return kind != "video" || !strings.Contains(name, "moe") }

func readMedia(t testing.TB, name, kind string) *enginetest.Golden {
	t.Helper()
	g, err := enginetest.ReadGolden(filepath.Join("testdata/media", name+"."+kind+".safetensors"))
	must(t, err)
	return g
}

// TestMediaFiles checks that every golden file with images is complete, consistent, and recorded from
// the present checkpoint.
func TestMediaFiles(t *testing.T) {
	found, err := filepath.Glob("testdata/media/*.safetensors")
	listed := 0
	for name, side := range mediaSides {
		for kind, want := range mediaCases {
			if !recordedMedia(name, kind) {
				continue
			}
			listed++
			t.Run(name+"/"+kind, func(t *testing.T) {
				g := readMedia(t, name, kind)
				if got := [2]int{len(g.InputIDs), len(g.Items)}; got != want || len(g.DecodeIDs) != 16 {
					t.Errorf("prompt, images are %v and %d steps; want %v", got, len(g.DecodeIDs), want)
				}
				if checkRows(t, g) < 1 {
					t.Error("all logits are kept of no row")
				}
				checkItems(t, g, side, strings.Contains(name, "qwen"))
				for file, sum := range g.Facts.Checkpoint {
					checkFile(t, name, file, sum)
				}
			})
		}
	}
	if err != nil || len(found) != listed {
		t.Errorf("%d golden files with images (%v), %d are listed here", len(found), err, listed)
	}
}

// checkItems checks that images are where the placeholders are and that patches are ordered row by row,
// or in squares of merged patches. It checks the three positions of every token against the rule
// that they follow from.
func checkItems(t *testing.T, g *enginetest.Golden, side int, merges bool) {
	t.Helper()
	for i, id := range g.InputIDs {
		if item, _ := g.ItemAt(i); (item != nil) != (id == imageToken || id == videoToken) {
			t.Errorf("position %d has token %d; belongs to an image: %t", i, id, item != nil)
		}
	}
	for n, x := range g.Items {
		wide, high := x.Across/side, x.Down/side
		if x.Tokens != wide*high || x.Across%side != 0 || x.Down%side != 0 {
			t.Errorf("image %d: %d tokens of %d × %d patches", n, x.Tokens, x.Across, x.Down)
		}
		for p := range x.Patches() {
			column, row := p%x.Across, p/x.Across
			if merges {
				square, in := p/(side*side), p%(side*side)
				column, row = square%wide*side+in%side, square/wide*side+in/side
			}
			if x.Columns[p] != int32(column) || x.Rows[p] != int32(row) {
				t.Fatalf("image %d: patch %d is in column %d, row %d; want %d, %d", n, p, x.Columns[p], x.Rows[p], column, row)
			}
		}
	}
	if (g.Positions != nil) != merges {
		t.Fatalf("%d positions of three axes", len(g.Positions))
	}
	if merges && !slices.Equal(g.Positions, threeAxes(g, side)) {
		t.Errorf("positions of three axes:\n%v, want\n%v", g.Positions, threeAxes(g, side))
	}
}

// threeAxes returns the time, row and column of each token, [3, T+N], as transformers' get_rope_index
// of Qwen3.5 computes them. A text token's three positions are equal. The tokens of an image that
// begins at p have time p, and row and column from p on; the token behind it is at p plus the larger
// side of its grid of tokens.
func threeAxes(g *enginetest.Golden, side int) []int32 {
	rows := g.Rows()
	out, next := make([]int32, 3*rows), 0
	for i := 0; i < rows; {
		x, _ := g.ItemAt(i)
		if x == nil {
			out[i], out[rows+i], out[2*rows+i] = int32(next), int32(next), int32(next)
			i, next = i+1, next+1
			continue
		}
		wide := x.Across / side
		for k := range x.Tokens {
			out[i+k], out[rows+i+k], out[2*rows+i+k] = int32(next), int32(next+k/wide), int32(next+k%wide)
		}
		i, next = i+x.Tokens, next+max(wide, x.Down/side)
	}
	return out
}

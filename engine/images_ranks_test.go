package engine_test

import (
	"fmt"
	"slices"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/models"
	"vapp.dev/engine/ranks"
	"vapp.dev/kernels"
)

// rankAxes are the ways of imageAxes that ranks run; but for the first two, only make soak runs them.
var rankAxes = []string{"in a batch", "preempted, overlapped", "swapped", "overlapped, chunks of 16", "prefixes, chunks of 16, alone, twice", "n-grams proposed, prefixes, chunks of 16, twice"}

// TestImagesRanks runs requests with images on two tensor parallel ranks, in two stages, and both. Each way gives the
// tokens of the plain one on the same ranks, and stages give those of one rank.
func TestImagesRanks(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	imagesOnRanks(t, toy{on: ref.Opener{}}, seeingFamilies, rankGrids)
}

// rankGrids are the ranks of TestImagesRanks.
var rankGrids = []ranks.Places{{Tensor: 2, Pipeline: 1}, {Tensor: 1, Pipeline: 2}, {Tensor: 2, Pipeline: 2}}

func imagesOnRanks(t *testing.T, like toy, families []seeing, grids []ranks.Places) {
	names := rankAxes
	if !longSoak {
		names = names[:2]
	}
	for _, f := range families {
		if f.slow && like.on.Name() == "ref" && !longSoak {
			continue
		}
		dir := f.folder(t, t.TempDir())
		for _, p := range grids {
			t.Run(fmt.Sprintf("%s %d×%d", f.name, p.Tensor, p.Pipeline), func(t *testing.T) {
				var plain [][]int32
				for _, name := range names {
					a := imageAxes[slices.IndexFunc(imageAxes, func(a imageAxis) bool { return a.name == name })]
					t.Run(a.name, func(t *testing.T) {
						y := toy{dir: dir, on: like.on, groups: like.groups, slabs: 16, build: models.Build{Vision: true, Dtype: like.build.Dtype}, opts: engine.Options{
							MaxModelLen: 160, MaxNumSeqs: 16, MaxNumBatchedTokens: 2048, BlockSize: 16, KVFormat: kernels.F32, ChunkedPrefill: true,
							Backend: like.opts.Backend, Items: engine.ItemOptions{Patches: 16 * f.side * f.side},
						}}
						if plain != nil || p.Tensor > 1 {
							y.world = p
						}
						if a.change != nil {
							a.change(&y)
						}
						r := f.run(t, &y, a.alone, a.rounds)
						if a.took != nil && !a.took(r) {
							t.Errorf("%+v: this tests too little", *r)
						}
						if plain == nil {
							plain = r.tokens
						}
						for i := range plain {
							if !slices.Equal(r.tokens[i], plain[i]) {
								t.Errorf("request %d: %v, plain %v", i, r.tokens[i], plain[i])
							}
						}
					})
				}
			})
		}
	}
}

// few sends two greedy requests with three images to e and returns their tokens.
func (f seeing) few(t *testing.T, e *engine.Engine) (out [][]int32) {
	t.Helper()
	var streams []*engine.Stream
	for i, parts := range [][]any{{9, f.image(2, 3, 2), 3}, {2, f.image(1, 2, 2), f.image(3, 1, 2), 2}} {
		q := request(0)
		q.Params.MaxTokens = 3 + i
		q.Prompt, q.Items = prompt(i, parts...)
		for k := range q.Prompt {
			q.Prompt[k] %= int32(f.vocab)
		}
		s, err := e.Submit(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s...)
	}
	for _, s := range streams {
		out = append(out, replied(t, s))
	}
	return out
}

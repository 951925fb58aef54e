package engine_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// TestImagesPooling: vectors of prompts with images do not depend on batch, chunk and cache, and they depend on the image. Where
// the tokens of an image see each other, only the last row is given.
func TestImagesPooling(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	for _, f := range seeingFamilies {
		t.Run(f.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), f.name)
			f.write(t, dir)
			modes := []engine.PoolingMode{engine.PoolingLast, engine.PoolingMean, engine.PoolingAll}
			if !f.square {
				modes = modes[:1]
			}
			var plain [][]float32
			for _, alone := range []bool{true, false} {
				y := toy{dir: dir, on: ref.Opener{}, slabs: 16, build: models.Build{Vision: true, Dtype: kernels.F32, Pooling: models.Pooling{Head: models.Hidden}}, opts: engine.Options{
					MaxModelLen: 160, MaxNumSeqs: 16, MaxNumBatchedTokens: 24, BlockSize: 16, KVFormat: kernels.F32, ChunkedPrefill: true,
					PrefixCaching: !alone, Overlap: !alone, EveryRow: true, Items: engine.ItemOptions{Patches: 16 * f.side * f.side},
				}}
				e := y.open(t)
				var streams []*engine.Stream
				var got [][]float32
				for _, mode := range modes {
					for _, r := range f.requests()[:4] {
						r.Pooling = mode
						s, err := e.Submit(t.Context(), r)
						if err != nil {
							t.Fatal(err)
						}
						if streams = append(streams, s...); alone {
							got = append(got, vectorOf(t, s[0]))
						}
					}
				}
				for _, s := range streams {
					if !alone {
						got = append(got, vectorOf(t, s))
					}
				}
				if plain == nil {
					plain = got
				}
				if slices.Equal(got[0], got[1]) {
					t.Error("two images give one vector")
				}
				for i := range plain {
					if !slices.Equal(got[i], plain[i]) {
						t.Errorf("vector %d differs from that of the prompt alone", i)
					}
				}
				r := f.requests()[0]
				r.Pooling = engine.PoolingMean
				var refused *engine.ItemError
				if _, err := e.Submit(t.Context(), r); f.square == (err != nil) || err != nil && (!errors.As(err, &refused) || !strings.Contains(err.Error(), "pooling.type LAST")) {
					t.Errorf("all tokens: %v", err)
				}
			}
		})
	}
}

// vectorOf reads the only event of a pooling request.
func vectorOf(t *testing.T, s *engine.Stream) []float32 {
	t.Helper()
	_, last := collect(t, s)
	if last.Err != nil || len(last.Pooled) == 0 {
		t.Fatalf("no vector: %v", last.Err)
	}
	return last.Pooled
}

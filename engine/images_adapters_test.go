package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// TestImagesAdapters: prompts with images and an adapter of the text layers have the same tokens alone, and in a batch with
// prompts without it that have the same images and, but for the adapter, the same prefixes.
func TestImagesAdapters(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	f := seeingFamilies[0]
	dir := filepath.Join(t.TempDir(), f.name)
	f.write(t, dir)
	adapter := writeAdapter(t, "models/testdata/"+f.name, 4, 1)
	var plain [][]int32
	for _, alone := range []bool{true, false} {
		y := toy{dir: dir, on: ref.Opener{}, slabs: 16, build: models.Build{Vision: true, LoRA: models.LoRA{Slots: 1, Rank: 8}}, opts: engine.Options{
			MaxModelLen: 160, MaxNumSeqs: 16, MaxNumBatchedTokens: 24, BlockSize: 16, KVFormat: kernels.F32, ChunkedPrefill: true,
			PrefixCaching: true, Overlap: !alone, Items: engine.ItemOptions{Patches: 16 * f.side * f.side},
		}}
		e := y.open(t)
		load(t, e, "a", adapter)
		var all []engine.Request
		for _, r := range f.requests()[:4] {
			with := r
			with.Adapter, with.ID = "a", r.ID+"a"
			all = append(all, r, with)
		}
		var streams []*engine.Stream
		var got [][]int32
		for _, r := range all {
			s, err := e.Submit(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if streams = append(streams, s...); alone {
				got = append(got, replied(t, s[0]))
			}
		}
		for _, s := range streams {
			if !alone {
				got = append(got, replied(t, s))
			}
		}
		if plain == nil {
			plain = got
		}
		if slices.Equal(got[0], got[1]) {
			t.Errorf("the adapter changes nothing: %v", got[0])
		}
		for i := range plain {
			if !slices.Equal(got[i], plain[i]) {
				t.Errorf("request %d: %v, alone %v", i, got[i], plain[i])
			}
		}
	}
}

// TestImagesAdapterOfTower: an adapter of the tower's layers is refused by name; only text layers have slots.
func TestImagesAdapterOfTower(t *testing.T) {
	f := seeingFamilies[0]
	dir := filepath.Join(t.TempDir(), f.name)
	f.write(t, dir)
	y := toy{dir: dir, on: ref.Opener{}, slabs: 16, build: models.Build{Vision: true, LoRA: models.LoRA{Slots: 1, Rank: 8}}, opts: engine.Options{
		MaxModelLen: 160, MaxNumSeqs: 4, MaxNumBatchedTokens: 64, BlockSize: 16, KVFormat: kernels.F32, ChunkedPrefill: true, Items: engine.ItemOptions{Patches: 144},
	}}
	e := y.open(t)
	adapter := writeAdapter(t, dir, 4, 1) // of the tower's input too
	if b, err := os.ReadFile(filepath.Join(adapter, "adapter_model.safetensors")); err != nil || !strings.Contains(string(b[:1<<14]), "vision_tower") {
		t.Fatalf("the adapter has no module of the tower: %v", err)
	}
	err := e.LoadAdapter(t.Context(), "a", adapter, false)
	var refused *engine.AdapterError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "vision_tower") {
		t.Errorf("%v", err)
	}
}

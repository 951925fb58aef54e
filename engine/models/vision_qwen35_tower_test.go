package models

import (
	"errors"
	"fmt"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// TestQwen35Tower records the tower for every number of ranks. It runs over the patches of the
// largest image, returns a quarter as many rows, and its weights are the published tensors.
func TestQwen35Tower(t *testing.T) {
	var published16 int64
	list, err := Tensors(alterConfig(t, qwen27, nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		if qwen35Skips(i.Name) && i.Name[:4] != "mtp." {
			published16 += i.Elements()
		}
	}
	for _, world := range []int{1, 2, 4, 8} {
		t.Run(fmt.Sprintf("tp%d", world), func(t *testing.T) {
			m := publishedModel(t, qwen27, Build{Vision: true, Shard: backend.Shard{Rank: world - 1, World: world}})
			p := towerPass(t, m)
			if p.Bucket.Tokens != 65536 || p.Bucket.Samples != 16384 {
				t.Errorf("%d patches, %d rows", p.Bucket.Tokens, p.Bucket.Samples)
			}
			for _, op := range p.Ops {
				if a, ok := op.(backend.Angles); ok && (p.Values[a.Across].Name != "down" || p.Values[a.Down].Name != "across" || !a.Joined) {
					t.Error("a head's first frequencies turn by columns, transformers has rows first")
				}
			}
			n := countOps(p)
			if n["attention"] != 27 || n["norm"] != 55 || n["linear"] != 27*4+3 || n["activate"] != 28 || n["all_reduce"] != (27*2+1)*min(1, world-1) {
				t.Errorf("%v", n)
			}
			for on, l := range layouts(t) {
				if _, err := dryRun(l, m, p); err != nil {
					t.Errorf("%s: %v", on, err)
				}
				if err := l.Runs(m.Weights(), p); err != nil {
					t.Errorf("%s: %v", on, err)
				}
			}
			var held int64
			for _, w := range m.Weights() {
				if w.Group == "vision" && w.Name != "vision.inv_freq" {
					held += w.Elems()
				}
			}
			if world == 1 && held != published16 {
				t.Errorf("%d elements, published are %d", held, published16)
			}
		})
	}
}

// TestQwen35MultimodalPositions checks that a build with the tower rotates text by three positions,
// and merges encoded rows into the embeddings of target and drafter.
func TestQwen35MultimodalPositions(t *testing.T) {
	p, err := recordStep(publishedModel(t, qwen27, Build{Vision: true, Draft: 2}), kernels.BF16, draftBucket(2))
	if err != nil {
		t.Fatal(err)
	}
	merged := 0
	for _, op := range p.Ops {
		switch o := op.(type) {
		case backend.Angles:
			if o.Sections != [3]int{11, 11, 10} {
				t.Errorf("sections %v", o.Sections)
			}
		case backend.Merge:
			if merged++; o.Next != (merged == 2) {
				t.Errorf("merge %d is of successors: %t", merged, o.Next)
			}
		}
	}
	if p.Axes != 3 || merged != 2 {
		t.Errorf("%d positions a token, %d merges", p.Axes, merged)
	}
	b := Build{Vision: true, Pipe: backend.Shard{Rank: 1, World: 2}}
	m := publishedModel(t, qwen27, b)
	if m.(Encoder).Patches() != 0 {
		t.Error("the second stage has a tower")
	}
	b.Draft = 2
	if publishedModel(t, qwen27, b).(Encoder).Patches() == 0 {
		t.Error("the stage of the head has no tower, whose rows the head reads")
	}
	var refused *UnsupportedError
	if _, err := m.(Encoder).RecordEncoder(&backend.Program{}); !errors.As(err, &refused) {
		t.Error(err)
	}
	_, err = buildModel(alterConfig(t, qwen27, map[string]any{"vision_config": nil}), Build{Vision: true})
	expectRefusal(t, "a vision tower", err)
}

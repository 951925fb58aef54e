package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/kv"
	"vapp.dev/engine/sample"
)

// TestBlockHook rebuilds the prefix cache from Hooks.Blocks while random requests run in an arena
// that is too small for them, some of which are cancelled.
func TestBlockHook(t *testing.T) {
	for _, name := range []string{"", "tiny-qwen35", "tiny-llama4"} {
		t.Run(name, func(t *testing.T) {
			y, rounds, evicted := newToy(t), 5, 5
			y.slabs, y.opts.MaxNumSeqs = least, 4
			if name != "" { // of small pages, which are never too few
				rounds, evicted = 3, 0
				y.dir = filepath.Join("models/testdata", name)
			}
			view, stored, removed := map[int]map[kv.Hash]bool{}, 0, 0 // of the loop, until CachedBlocks
			y.hooks.Blocks = &engine.BlockHook{Seed: "0", Changed: func(l kv.Layout, list []kv.Change) {
				for _, c := range list {
					switch c.Op {
					case kv.Cleared:
						clear(view)
					case kv.Stored:
						if stored++; len(c.Tokens) != l.Specs[c.Class].BlockSize || c.Origin.Salt != "a" && c.Origin.Salt != "b" {
							t.Errorf("%+v of %+v", c, l.Specs[c.Class])
						}
						if view[c.Class] == nil {
							view[c.Class] = map[kv.Hash]bool{}
						}
						view[c.Class][c.Hash] = true
					default:
						removed++
						if delete(view[c.Class], c.Hash); len(view[c.Class]) == 0 {
							delete(view, c.Class)
						}
					}
				}
			}}
			e := y.open(t)
			rng := rand.New(rand.NewPCG(1, 2))
			for range rounds {
				var open []*engine.Stream
				for range 4 {
					q := engine.Request{ID: fmt.Sprint(rng.Uint32()), Params: sample.Default(), Salt: string(rune('a' + rng.IntN(2)))}
					q.Params.MaxTokens = 1 + rng.IntN(8)
					q.Prompt = make([]int32, 1+rng.IntN(80))
					for i := range q.Prompt {
						q.Prompt[i] = 3 + int32(i/40*rng.IntN(2))
					}
					ctx, cancel := context.WithCancel(context.Background())
					s, err := e.Submit(ctx, q)
					if err != nil {
						t.Fatal(err)
					}
					defer cancel()
					if rng.IntN(4) == 0 {
						cancel()
					}
					open = append(open, s...)
				}
				for _, s := range open {
					collect(t, s)
				}
				if got := e.CachedBlocks(); !reflect.DeepEqual(got, view) {
					t.Fatalf("the cache has %v, its changes leave %v", got, view)
				}
			}
			if stored < 10 || removed < evicted {
				t.Errorf("%d blocks were stored and %d removed: that tests too little", stored, removed)
			}
		})
	}
}

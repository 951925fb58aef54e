//go:build cgo && linux

package engine_test

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/sample"
	"vapp.dev/kernels"
)

var long = flag.Int("long", 12<<10, "positions of TestLongContext; make soak takes 131072")

// TestLongContext runs one sequence to a long context in an arena of exactly its size. With all
// chunk sizes it gives the same tokens, and memory stays bounded. The same prompt again begins
// after its last cached block, also in models with recurrent states.
func TestLongContext(t *testing.T) {
	dense := filepath.Join(t.TempDir(), "dense")
	if err := enginetest.WriteLlama(dense, enginetest.Llama{Layers: 1, Heads: 2, KVHeads: 1, MaxPos: *long, RopeTheta: 1e6, Seed: 5}); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"dense": dense, "hybrid": "models/testdata/tiny-qwen35"} {
		t.Run(name, func(t *testing.T) {
			var first []int32
			for i, chunk := range []int{2048, 16 * 31} {
				y := &toy{dir: dir, on: cpu.Opener{}, slabs: least, opts: engine.Options{
					MaxModelLen: *long, MaxNumSeqs: 2, MaxNumBatchedTokens: chunk, BlockSize: 16,
					KVFormat: kernels.BF16, ChunkedPrefill: true, Overlap: true, PrefixCaching: i == 0,
				}}
				if i == 0 { // and as much again for checkpoints
					y.opts.KVBytes = 0
					m, err := engine.Inspect(engine.Source{Path: dir, Name: "toy", Format: "auto"})
					if err != nil {
						t.Fatal(err)
					}
					y.slabs = 2 * y.account(t, m).KV.SequenceSlabs(*long)
					m.Close()
				}
				got := y.toTheEnd(t)
				if first == nil {
					first = got
				}
				if !slices.Equal(got, first) {
					t.Errorf("in chunks of %d: %v, before %v", chunk, got, first)
				}
			}
		})
	}
}

// toTheEnd runs a prompt and generates up to the model length; with prefix caching it submits the
// prompt a second time.
func (y *toy) toTheEnd(t *testing.T) []int32 {
	t.Helper()
	const output = 24
	prompt := make([]int32, y.opts.MaxModelLen-output)
	for i := range prompt {
		prompt[i] = int32((i*i + i/7) % 253)
	}
	e := y.open(t)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	ask := func() ([]int32, int) {
		p := sample.Default()
		p.Temperature, p.MaxTokens, p.IgnoreEOS = 0, output, true
		s, err := e.Submit(context.Background(), engine.Request{ID: fmt.Sprint(len(prompt)), Prompt: prompt, Params: p, N: 1})
		if err != nil {
			t.Fatal(err)
		}
		tokens, cached := []int32(nil), 0
		for {
			evs, err := s[0].Next(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if len(evs) == 0 {
				break
			}
			for _, ev := range evs {
				if ev.Token >= 0 {
					tokens = append(tokens, ev.Token)
				}
				cached = max(cached, ev.Cached)
			}
		}
		if len(tokens) != output {
			t.Fatalf("%d tokens", len(tokens))
		}
		return tokens, cached
	}
	tokens, _ := ask()
	if y.opts.PrefixCaching {
		again, cached := ask()
		if !slices.Equal(again, tokens) || cached != (len(prompt)-1)/16*16 {
			t.Errorf("behind %d cached tokens of %d: %v, before %v", cached, len(prompt), again, tokens)
		}
	}
	if err := e.Check(context.Background()); err != nil {
		t.Error(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	// The bound covers two copies of the tokens, their block hashes and the test's own data; keys
	// and values are in the arena, which was allocated before.
	if grown, most := int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(8<<20+32*len(prompt)); grown > most {
		t.Errorf("the heap has grown by %d bytes, want %d at most", grown, most)
	}
	return tokens
}

package engine_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/sample"
	"vapp.dev/kernels"
)

// TestFamilies runs the small checkpoint of each family through the whole engine:
// windows that move, states that are carried, steps that overlap. What it
// generates is what transformers generated, whatever runs beside it, also where
// sequences are preempted or begin with a prefix that is still there.
func TestFamilies(t *testing.T) { families(t, ref.Opener{}) }

func families(t *testing.T, on backend.Opener) {
	for _, name := range []string{"tiny-qwen2", "tiny-qwen3", "tiny-gpt-oss", "tiny-gemma4", "tiny-gemma4-moe", "tiny-qwen35", "tiny-qwen35-fp8"} {
		t.Run(name, func(t *testing.T) {
			g, err := enginetest.ReadGolden(filepath.Join("models/testdata/golden", name+".safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				what    string
				slabs   int
				caching bool
			}{{"room", 40, false}, {"prefixes", 40, true}, {"little room", 0, true}} {
				t.Run(c.what, func(t *testing.T) {
					y := &toy{dir: filepath.Join("models/testdata", name), slabs: c.slabs, on: on, opts: engine.Options{
						MaxModelLen: g.Rows() + 1, MaxNumSeqs: 4, MaxNumBatchedTokens: 50, BlockSize: 16,
						KVFormat: kernels.F32, PrefixCaching: c.caching, ChunkedPrefill: true, Overlap: true,
					}}
					y.family(t, g)
				})
			}
		})
	}
}

// family runs a checkpoint; without slabs with as few as one sequence needs.
func (y *toy) family(t *testing.T, g *enginetest.Golden) {
	if y.slabs == 0 {
		y.slabs = y.least(t)
	}
	e := y.open(t)
	submit := func(prompt []int32, n int) *engine.Stream {
		p := sample.Default()
		p.Temperature, p.MaxTokens, p.IgnoreEOS = 0, n, true
		s, err := e.Submit(context.Background(), engine.Request{ID: fmt.Sprint(len(prompt), n), Prompt: prompt, Params: p, N: 1})
		if err != nil {
			t.Fatal(err)
		}
		return s[0]
	}
	for round := range 2 {
		streams := []*engine.Stream{submit(g.InputIDs, len(g.DecodeIDs)+1)}
		for i := 1; i <= 3; i++ { // the recorded run, begun later
			at := 10 * i
			streams = append(streams, submit(append(slices.Clone(g.InputIDs), g.DecodeIDs[:at]...), len(g.DecodeIDs)-at+1))
		}
		for i, s := range streams {
			got, _ := collect(t, s)
			if want := g.DecodeIDs[10*i:]; len(got) <= len(want) || !slices.Equal(got[:len(want)], want) {
				t.Errorf("round %d, begun after %d steps: %v, transformers %v", round, 10*i, got, want)
			}
		}
	}
	if err := e.Check(context.Background()); err != nil {
		t.Error(err)
	}
}

// least is the slabs that one sequence of the longest length needs.
func (y *toy) least(t *testing.T) int {
	m, err := engine.Inspect(engine.Source{Path: y.dir, Name: "toy", Format: "auto"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	acc := y.account(t, m)
	return acc.KV.SequenceSlabs(y.opts.MaxModelLen)
}

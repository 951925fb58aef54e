//go:build linux && cgo && cuda

package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/sample"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda/cudatest"
)

// TestGraphReplay: on the emulated driver, prompts of several lengths give the same tokens by
// single launches and by graphs of every mode, by dependent launches and by plain ones. Each mode runs the expected graphs and
// counts the reasons of steps without one.
func TestGraphReplay(t *testing.T) {
	cudatest.Use(t)
	dir := filepath.Join(t.TempDir(), "toy")
	if err := enginetest.WriteLlama(dir, enginetest.Llama{Layers: 2, KVHeads: 2, HeadDim: 64, Seed: 7}); err != nil {
		t.Fatal(err)
	}
	want, ran := replayed(t, dir, backend.Graphs{Mode: "none"})
	if len(ran) != 0 {
		t.Errorf("without graphs steps ran by %v", ran)
	}
	sizes := []int{1, 2, 4, 8}
	for mode, runs := range map[string][]string{
		"piecewise":          {"NONE too_many_tokens", "PIECEWISE "},
		"full":               {"FULL ", "NONE too_many_tokens"},
		"full_decode_only":   {"FULL ", "NONE not_decoding"},
		"full_and_piecewise": {"FULL ", "NONE too_many_tokens", "PIECEWISE "},
	} {
		got, ran := replayed(t, dir, backend.Graphs{Mode: mode, Sizes: sizes})
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: tokens %v, launch by launch %v", mode, got, want)
		}
		if have := slices.Sorted(maps.Keys(ran)); !slices.Equal(have, runs) {
			t.Errorf("%s: steps ran by %v, want %v", mode, have, runs)
		}
	}
	dependent := driver.Counted("dependent") // -1 on a device
	t.Setenv("VAPP_PLAIN_LAUNCHES", "1")
	for _, g := range []backend.Graphs{{Mode: "none"}, {Mode: "full_and_piecewise", Sizes: sizes}} {
		if got, _ := replayed(t, dir, g); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s, plain launches: tokens %v, by dependent ones %v", g.Mode, got, want)
		}
	}
	if n := driver.Counted("dependent"); dependent == 0 || n != dependent {
		t.Errorf("%d dependent launches, and %d more of those that are to be plain", dependent, n-dependent)
	}
}

// replayed returns the tokens of three prompts, and how steps ran. However the requests
// arrive, the first is in a step too large for a graph, and the last in a step with one.
func replayed(t *testing.T, dir string, g backend.Graphs) (tokens [][]int32, ran map[string]int) {
	o := engine.Options{
		MaxModelLen: 128, MaxNumSeqs: 4, MaxNumBatchedTokens: 16, BlockSize: 16, KVFormat: kernels.BF16,
		PrefixCaching: true, ChunkedPrefill: true, Overlap: true, Backend: backend.Settings{Graphs: g},
	}
	m, err := engine.Inspect(engine.Source{Path: dir, Name: "toy", Format: "auto"})
	if err != nil {
		t.Fatal(err)
	}
	f, err := cuda.Opener{}.Probe()
	if err != nil {
		t.Fatal(err)
	}
	account := func() *engine.Account {
		a, err := engine.NewAccount(o, m, cuda.Opener{}, f)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	o.KVBytes = 16 * account().KV.SlabBytes
	ran = map[string]int{}
	step := func(s engine.StepStats) {
		if s.Graph != "" {
			ran[s.Graph+" "+s.NoGraph]++
		}
	}
	e, err := engine.Open(context.Background(), engine.Config{Options: o, Model: m, Opener: cuda.Opener{}, Facts: f, Account: account(), Hooks: engine.Hooks{Step: step}})
	if err != nil {
		t.Fatal(err)
	}
	var streams []*engine.Stream
	for i, n := range []int{13, 3, 4} {
		p := sample.Default()
		p.Temperature, p.MaxTokens, p.IgnoreEOS = 0, 3+i, true
		ids := make([]int32, n)
		for k := range ids {
			ids[k] = int32((i*31 + k*7) % 300)
		}
		s, err := e.Submit(context.Background(), engine.Request{ID: fmt.Sprint(i), Prompt: ids, Params: p})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s...)
	}
	for _, s := range streams {
		tokens = append(tokens, drawn(t, s))
	}
	if n, ok := e.GraphBytes(); ok != (g.Mode != "none") || n < 0 {
		t.Errorf("%s: graphs of %d bytes, %v", g.Mode, n, ok)
	}
	if err := errors.Join(e.Close(), m.Close()); err != nil {
		t.Error(err)
	}
	return tokens, ran
}

// drawn returns the tokens of a stream.
func drawn(t *testing.T, s *engine.Stream) (tokens []int32) {
	t.Helper()
	for _, e := range read(t, s) {
		tokens = append(tokens, e.Token)
	}
	return tokens
}

// read returns the events of a stream that have a token.
func read(t *testing.T, s *engine.Stream) (out []engine.Event) {
	t.Helper()
	for {
		events, err := s.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if len(events) == 0 {
			return out
		}
		for _, e := range events {
			if e.Err != nil {
				t.Fatal(e.Err)
			}
			if e.Token >= 0 {
				out = append(out, e)
			}
		}
	}
}

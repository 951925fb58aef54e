//go:build linux && cgo && cuda

package engine_test

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/enginetest"
	"vapp.dev/kernels"
)

// deviceWays are ways to run the same requests on cuda that must not change any token in float32.
// Each combines several settings and checks that they took effect.
var deviceWays = []axis{
	{name: "overlapped, prefixes, chunks of 16, twice", rounds: 2, took: hits, change: func(y *toy) {
		y.opts.Overlap, y.opts.PrefixCaching, y.opts.MaxNumBatchedTokens = true, true, 16
	}},
	{name: "swapped, overlapped, prefixes, graphs", took: swapped, change: func(y *toy) {
		y.slabs, y.fat, y.opts.SwapBytes, y.opts.PrefixCaching, y.opts.Overlap = least, true, 64<<20, true, true
		y.opts.Backend.Graphs = graphs()[1]
	}},
	{name: "n-grams proposed, graphs", took: usedProposals, change: func(y *toy) {
		ngrams(2)(y)
		y.opts.Backend.Graphs = graphs()[1]
		y.opts.Backend.Graphs.Query = 3
	}},
}

// TestSettingsCUDA: greedy and seeded requests, with penalties, several choices and logprobs, get
// the results of ref with all settings of deviceWays.
func TestSettingsCUDA(t *testing.T) {
	emulate(t)
	plain := wayToy(t)
	want, logprobs := answered(t, mixedLoad(t, plain.open(t)))
	for _, w := range deviceWays {
		t.Run(w.name, func(t *testing.T) {
			y, r := wayToy(t), twinRun{}
			y.dir, y.on = plain.dir, cuda.Opener{}
			w.change(y)
			arrived := make(chan struct{}) // closed after all requests: together they run out of pages
			y.hooks.Step = func(s engine.StepStats) {
				<-arrived
				r.hits += s.CacheHits
				r.back += s.SwappedIn
				r.proposed += s.DraftTokens
				r.accepted += s.AcceptedTokens
			}
			e := y.open(t)
			ledgered(t, y, e)
			for round := range max(1, w.rounds) {
				streams := mixedLoad(t, e)
				if round == 0 {
					close(arrived)
				}
				got, p := answered(t, streams)
				for i := range want {
					if !slices.Equal(got[i], want[i]) {
						t.Errorf("choice %d: %v, ref %v", i, got[i], want[i])
					}
					for k := range min(len(p[i]), len(logprobs[i])) {
						if d := math.Abs(float64(p[i][k] - logprobs[i][k])); !(d < 1e-4) {
							t.Errorf("choice %d, token %d: a log probability of %g, ref %g", i, k, p[i][k], logprobs[i][k])
						}
					}
				}
			}
			if err := e.Check(context.Background()); err != nil { // also waits until all steps are reported
				t.Error(err)
			}
			r.stats = e.Stats()
			closed(t, e)
			if err := w.took(w.name, &r); err != nil {
				t.Error(err)
			}
		})
	}
}

// wayToy returns a Llama model in float32.
func wayToy(t *testing.T) *toy {
	t.Helper()
	y := smallRun(filepath.Join(t.TempDir(), "toy"))
	if err := enginetest.WriteLlama(y.dir, enginetest.Llama{Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 32, Seed: 7}); err != nil {
		t.Fatal(err)
	}
	y.opts.KVFormat, y.opts.Overlap = kernels.F32, false
	return &y
}

// mixedLoad submits requests of all kinds whose choices soon need another block.
func mixedLoad(t *testing.T, e *engine.Engine) (streams []*engine.Stream) {
	t.Helper()
	for i, n := range []int{12, 24, 27} {
		q := request(i)
		q.Prompt, q.Params.MaxTokens = make([]int32, n), 14+i
		for k := range q.Prompt {
			q.Prompt[k] = int32((i*31 + k*7) % 300)
		}
		if i == 2 { // few tokens, repeated
			q.Params.AllowedTokenIDs = []int32{5, 6, 7}
		}
		s, err := e.Submit(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s...)
	}
	return streams
}

// answered reads streams to their end and returns their tokens and requested logprobs.
func answered(t *testing.T, streams []*engine.Stream) (tokens [][]int32, logprobs [][]float32) {
	t.Helper()
	for _, s := range streams {
		var ids []int32
		var p []float32
		for evs := next(t, s); len(evs) > 0; evs = next(t, s) {
			for _, ev := range evs {
				if ev.Token >= 0 {
					ids = append(ids, ev.Token)
				}
				if ev.Logprob != nil {
					p = append(p, ev.Logprob.Logprob)
				}
			}
		}
		tokens, logprobs = append(tokens, ids), append(logprobs, p)
	}
	return tokens, logprobs
}

// next returns a stream's next events, none at its end.
func next(t *testing.T, s *engine.Stream) []engine.Event {
	t.Helper()
	evs, err := s.Next(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range evs {
		if ev.Err != nil {
			t.Fatal(ev.Err)
		}
	}
	return evs
}

// TestGrammarsCUDA: replies constrained by grammars are those of ref.
func TestGrammarsCUDA(t *testing.T) {
	emulate(t)
	c, tok := compiler(t)
	plain := wayToy(t)
	plain.opts.MaxModelLen = 128
	want := replies(t, plain.open(t), c, tok, 8)
	y := wayToy(t)
	y.dir, y.on, y.opts.MaxModelLen, y.opts.Overlap, y.opts.Backend.Graphs = plain.dir, cuda.Opener{}, 128, true, graphs()[1]
	e := y.open(t)
	if got := replies(t, e, c, tok, 8); !slices.Equal(got, want) {
		t.Errorf("%q, ref %q", got, want)
	}
	closed(t, e)
}

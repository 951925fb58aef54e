package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// poisons are the values of the bad token's embedding; the families use them in turn.
var poisons = []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}

// TestPoison gives every family a token whose embedding is NaN or infinite. Requests with it end with an
// error. Requests in the same steps, on pages that the bad ones have freed, and with the same
// prefixes get the tokens of the original checkpoint.
func TestPoison(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	poisoned(t, ref.Opener{}, backend.Settings{}, kernels.F32, kernels.BF16)
}

// poisoned runs all families, with the KV formats in turn.
func poisoned(t *testing.T, on backend.Opener, s backend.Settings, formats ...kernels.Format) {
	for i, name := range twinFamilies {
		g, err := enginetest.ReadGolden(filepath.Join("models/testdata/golden", name+".safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		y := &toy{dir: filepath.Join("models/testdata", name), slabs: least, fat: true, on: on, opts: engine.Options{
			MaxModelLen: max(g.Rows()+1, 100), MaxNumSeqs: 24, MaxNumBatchedTokens: 40, BlockSize: 16, KVFormat: formats[i%len(formats)],
			ChunkedPrefill: true, PrefixCaching: true, Overlap: i%2 == 0, SwapBytes: 1 << 20, Backend: s,
		}}
		if i%2 == 1 {
			ngrams(3)(y)
		}
		t.Run(name, func(t *testing.T) { poisonedRun(t, y, g, poisons[(i+i/3)%len(poisons)]) })
	}
	t.Run("own head", func(t *testing.T) {
		dir, g := recordedHead(t)
		y := &toy{dir: dir, slabs: least, fat: true, on: on, opts: engine.Options{
			MaxModelLen: 128, MaxNumSeqs: 24, MaxNumBatchedTokens: 40, BlockSize: 16, KVFormat: formats[0],
			ChunkedPrefill: true, PrefixCaching: true, Backend: s,
		}}
		head(3)(y)
		poisonedRun(t, y, g, poisons[0])
	})
}

// poisonedRun runs the requests of twinRequests on y's checkpoint, then on a copy with a bad token, one
// element of whose embedding is x, together with requests that contain it.
func poisonedRun(t *testing.T, y *toy, g *enginetest.Golden, x float32) {
	e := y.open(t)
	good := twinRequests(g)
	var want [][]int32
	seen := map[int32]bool{}
	for _, q := range good {
		tokens, _ := collect(t, submit(t, e, q)[0])
		want = append(want, tokens)
		for _, id := range append(slices.Clone(q.Prompt), tokens...) {
			seen[id] = true
		}
	}
	bad := int32(3)
	for seen[bad] {
		bad++
	}
	dir := filepath.Join(t.TempDir(), "poisoned")
	if err := enginetest.Poison(dir, y.dir, int(bad), x); err != nil {
		t.Fatal(err)
	}
	y.dir = dir
	arrived := make(chan struct{}) // closed after all requests: they share steps
	y.hooks.Step = func(engine.StepStats) { <-arrived }
	e = y.open(t)
	rounds := 1
	if longSoak || best(t, y.on, y.opts.Backend) {
		rounds = 2 // the second round reads the prefix cache
	}
	for round := range rounds {
		ill := badRequests(good[0].Prompt, bad)
		streams := make([][]*engine.Stream, len(good)+len(ill))
		for i := range good {
			if i < len(ill) {
				streams[len(good)+i] = submit(t, e, ill[i])
			}
			streams[i] = submit(t, e, good[i])
		}
		if round == 0 {
			close(arrived)
		}
		for i, tokens := range want {
			if got, last := collect(t, streams[i][0]); !slices.Equal(got, tokens) {
				t.Errorf("round %d, request %d of %d tokens: %v (%v, %v), without bad ones %v",
					round, i, len(good[i].Prompt), got, last.Finish, last.Err, tokens)
			}
		}
		for i, q := range ill {
			for _, s := range streams[len(good)+i] {
				got, last := collect(t, s)
				if last.Finish != engine.FinishError || !errors.Is(last.Err, engine.ErrNoToken) || !slices.Equal(got, q.Params.AllowedTokenIDs) {
					t.Errorf("round %d, %s: %v, ended with %v, %v", round, q.ID, got, last.Finish, last.Err)
				}
			}
		}
	}
	if err := errors.Join(e.Err(), e.Check(context.Background())); err != nil {
		t.Error(err)
	}
	if s := e.Stats(); s.Running+s.Waiting+s.Swapped != 0 || s.KVUsed != 0 || s.SwapUsed != 0 {
		t.Errorf("left over: %+v", s)
	}
}

func submit(t *testing.T, e *engine.Engine, q engine.Request) []*engine.Stream {
	t.Helper()
	s, err := e.Submit(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// badRequests returns requests with the bad token first, in the middle, last, alone, or generated:
// AllowedTokenIDs are the tokens that they give before they end.
func badRequests(prompt []int32, bad int32) []engine.Request {
	for len(prompt) < 70 {
		prompt = append(prompt[:len(prompt):len(prompt)], prompt...)
	}
	with := func(name string, n, at int, change func(*engine.Request)) engine.Request {
		p := sample.Default()
		p.MaxTokens, p.IgnoreEOS, p.Temperature = 8, true, 0
		q := engine.Request{ID: fmt.Sprintf("%s, token %d of %d", name, at, n), Prompt: slices.Clone(prompt[:n]), Params: p, N: 1}
		if at < n {
			q.Prompt[at] = bad
		}
		if change != nil {
			change(&q)
		}
		return q
	}
	return []engine.Request{
		with("greedy", 1, 0, nil), with("greedy", 65, 0, nil), with("greedy", 65, 20, nil), with("greedy", 40, 39, nil),
		with("of two choices", 50, 49, func(q *engine.Request) { q.N = 2 }),
		with("sampled", 66, 33, func(q *engine.Request) { q.Params.Temperature, q.Params.TopK = 1, 20 }),
		with("its prompt scored", 65, 20, func(q *engine.Request) { q.Params.PromptLogprobs = 1 }),
		with("generated", 30, 30, func(q *engine.Request) { q.Params.AllowedTokenIDs = []int32{bad} }),
	}
}

// TestPoisonedPrefix: blocks of a bad prompt that were cached before its error are found by prompts
// that begin with the same bad token, and only by those.
func TestPoisonedPrefix(t *testing.T) {
	for _, name := range twinFamilies {
		t.Run(name, func(t *testing.T) {
			g, err := enginetest.ReadGolden(filepath.Join("models/testdata/golden", name+".safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			y := &toy{dir: filepath.Join("models/testdata", name), slabs: 16, opts: engine.Options{
				MaxModelLen: 128, MaxNumSeqs: 4, MaxNumBatchedTokens: 16, BlockSize: 16, KVFormat: kernels.F32,
				ChunkedPrefill: true, PrefixCaching: true, Overlap: true,
			}}
			sound := twinRequests(g)[0]
			for len(sound.Prompt) < 70 {
				sound.Prompt = append(sound.Prompt, sound.Prompt...)
			}
			sound.Prompt, sound.Params.MaxTokens = sound.Prompt[:70], 8
			want, _ := collect(t, submit(t, y.open(t), sound)[0])
			bad := int32(3)
			for slices.Contains(sound.Prompt, bad) || slices.Contains(want, bad) {
				bad++
			}
			dir := filepath.Join(t.TempDir(), "poisoned")
			if err := enginetest.Poison(dir, y.dir, int(bad), float32(math.NaN())); err != nil {
				t.Fatal(err)
			}
			y.dir = dir
			e := y.open(t)
			ill := sound
			ill.Prompt = slices.Clone(sound.Prompt)
			ill.Prompt[35] = bad
			for _, c := range []struct {
				what   string
				q      engine.Request
				cached int // at most the blocks of the same tokens; the last token is always computed
			}{
				{"the bad prompt", ill, 0}, {"the bad prompt again", ill, 64}, {"the sound prompt", sound, 32}, {"the sound prompt again", sound, 64},
			} {
				got, first := began(t, submit(t, e, c.q)[0])
				if first.Cached > c.cached || c.cached == 64 && first.Cached == 0 {
					t.Errorf("%s: %d tokens from the cache, want up to %d", c.what, first.Cached, c.cached)
				}
				if c.q.Prompt[35] == bad && len(got) > 0 || c.q.Prompt[35] != bad && !slices.Equal(got, want) {
					t.Errorf("%s: %v, alone on the sound checkpoint %v", c.what, got, want)
				}
				t.Logf("%s: %d of %d tokens from the cache", c.what, first.Cached, len(c.q.Prompt))
			}
		})
	}
}

// began reads a stream to its end and returns its tokens and its first event.
func began(t *testing.T, s *engine.Stream) (tokens []int32, first engine.Event) {
	t.Helper()
	evs, err := s.Next(context.Background())
	if err != nil || len(evs) == 0 {
		t.Fatal("no event", err)
	}
	first = evs[0]
	for _, ev := range evs {
		if ev.Token >= 0 {
			tokens = append(tokens, ev.Token)
		}
	}
	more, _ := collect(t, s)
	return append(tokens, more...), first
}

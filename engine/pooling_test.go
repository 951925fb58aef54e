package engine_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/engine/sample"
	"vapp.dev/kernels"
)

// poolWays are ways to run the same requests that must not change any bit of their results.
var poolWays = []struct {
	name       string
	change     func(*toy)
	alone      bool
	rounds     int
	everywhere bool                           // runs on every backend and kernel variant, not only on the best
	took       func(engine.Stats, int64) bool // the second is how many tokens came from the prefix cache
}{
	{name: "alone, whole", alone: true, everywhere: true},
	{name: "in a batch, overlapped", change: func(y *toy) { y.opts.Overlap = true }},
	{name: "chunks of 16", everywhere: true, change: func(y *toy) { y.opts.Overlap, y.opts.MaxNumBatchedTokens = true, 16 }},
	{name: "few rows a step", change: func(y *toy) { y.opts.EveryRow, y.opts.MaxNumSeqs = false, 3 }},
	{name: "prefixes, twice", everywhere: true, rounds: 2, change: func(y *toy) { y.opts.PrefixCaching, y.opts.MaxNumBatchedTokens = true, 40 },
		took: func(_ engine.Stats, hits int64) bool { return hits > 0 }},
	{name: "short of pages", change: func(y *toy) { y.slabs, y.fat, y.opts.MaxNumBatchedTokens = least, true, 24 }},
	{name: "short of pages, prefixes, swap", rounds: 2, change: func(y *toy) {
		y.slabs, y.fat, y.opts.MaxNumBatchedTokens, y.opts.PrefixCaching, y.opts.SwapBytes, y.opts.Overlap = least, true, 24, true, 64<<20, true
	}},
}

// TestPooling: every family's last row is that of transformers' final norm, and the mean is that of all
// rows. Neither batch, chunks, prefixes nor a lack of pages changes a bit of any.
func TestPooling(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	pools(t, ref.Opener{}, backend.Settings{})
}

func pools(t *testing.T, on backend.Opener, s backend.Settings) {
	names := twinFamilies
	if longSoak || best(t, on, s) {
		names = slices.Concat(names, furtherFamilies(t, true))
	}
	for _, name := range names {
		if !enginetest.RunsOn(name, on.Name()) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			g := recorded(t, name)
			var plain [][]float32
			whole := longSoak || best(t, on, s) && slices.Contains(twinFamilies, name)
			for i, w := range poolWays {
				if !whole && !w.everywhere || racing && (i < 1 || i > 2) {
					continue
				}
				y := &toy{dir: checkpointOf(name), slabs: 16, on: on, build: models.Build{Dtype: kernels.F32, Pooling: models.Pooling{Head: models.Hidden}}, opts: engine.Options{
					MaxModelLen: len(g.InputIDs), MaxNumSeqs: 12, MaxNumBatchedTokens: 2048, BlockSize: 16, KVFormat: kernels.F32,
					ChunkedPrefill: true, EveryRow: true, Backend: s,
				}}
				if w.change != nil {
					w.change(y)
				}
				var hits atomic.Int64
				y.hooks.Step = func(s engine.StepStats) { hits.Add(int64(s.CacheHits)) }
				e := y.open(t)
				for range max(1, w.rounds) {
					got := poolRun(t, e, g, w.alone)
					if plain == nil {
						plain = got
						poolBound(t, got, g, roundsToBF16(s.Variant))
					}
					for i := range plain {
						if !slices.Equal(got[i], plain[i]) {
							t.Errorf("%s: request %d is another", w.name, i)
						}
					}
				}
				if err := e.Check(context.Background()); err != nil {
					t.Error(err)
				}
				if st := e.Stats(); w.took != nil && !w.took(st, hits.Load()) {
					t.Errorf("%s: %+v, %d hits", w.name, st, hits.Load())
				}
			}
		})
	}
}

// poolRun submits requests of every pooling mode, with common prefixes and without.
func poolRun(t *testing.T, e *engine.Engine, g *enginetest.Golden, alone bool) [][]float32 {
	t.Helper()
	var streams []*engine.Stream
	var out [][]float32
	read := func(s *engine.Stream) {
		_, last := collect(t, s)
		if last.Finish != engine.FinishStop || last.Err != nil {
			t.Errorf("ended with %v, %v", last.Finish, last.Err)
		}
		out = append(out, last.Pooled)
	}
	for i, part := range [][]int32{g.InputIDs, g.InputIDs, g.InputIDs, g.InputIDs, g.InputIDs[:1], g.InputIDs[:49], g.InputIDs[7:60], g.InputIDs[:49]} {
		how := []engine.PoolingMode{engine.PoolingLast, engine.PoolingAll, engine.PoolingMean, engine.PoolingFirst}[i%4]
		s, err := e.Submit(context.Background(), engine.Request{ID: fmt.Sprint(i), Prompt: part, Pooling: how})
		if err != nil {
			t.Fatal(err)
		}
		if streams = append(streams, s...); alone {
			read(s[0])
		}
	}
	for _, s := range streams {
		if !alone {
			read(s)
		}
	}
	return out
}

// poolBound compares the first four results, of one prompt, with the recorded row and each other.
func poolBound(t *testing.T, got [][]float32, g *enginetest.Golden, coarse bool) {
	t.Helper()
	last, all, mean, first := got[0], got[1], got[2], got[3]
	n := len(g.LastHidden)
	if len(last) != n || len(all) != n*len(g.InputIDs) || len(mean) != n || len(first) != n {
		t.Fatalf("%d, %d, %d, %d numbers of rows of %d, %d tokens", len(last), len(all), len(mean), len(first), n, len(g.InputIDs))
	}
	if !slices.Equal(last, all[len(all)-n:]) || !slices.Equal(first, all[:n]) {
		t.Error("the last and the first row are not those of all")
	}
	want := make([]float32, n)
	for i, x := range all {
		want[i%n] += x
	}
	for i := range want {
		want[i] /= float32(len(g.InputIDs))
	}
	if !slices.Equal(mean, want) {
		t.Error("the mean is not that of all rows")
	}
	bound := 1e-4
	if coarse {
		bound = 0.2
	}
	var diff, size float64
	for i, x := range g.LastHidden {
		diff += math.Pow(float64(last[i]-x), 2)
		size += math.Pow(float64(x), 2)
	}
	if d := math.Sqrt(diff / size); !(d <= bound) {
		t.Errorf("the last row is %g of its length away from transformers'", d)
	}
}

// TestPoolingRefuses: a pooling model refuses generation, and a generating one refuses pooling.
func TestPoolingRefuses(t *testing.T) {
	y := newToy(t)
	e := y.open(t)
	if _, err := e.Submit(context.Background(), engine.Request{Prompt: []int32{1}, Pooling: engine.PoolingLast}); err == nil {
		t.Error("a model that generates pools")
	}
	y = newToy(t)
	y.build.Pooling.Head = models.Hidden
	e = y.open(t)
	p := sample.Default()
	p.MaxTokens = 1
	if _, err := e.Submit(context.Background(), engine.Request{Prompt: []int32{1}, Params: p}); err == nil {
		t.Error("a model that pools generates")
	}
	long := make([]int32, y.opts.MaxModelLen)
	s, err := e.Submit(context.Background(), engine.Request{Prompt: long, Pooling: engine.PoolingLast})
	if err != nil {
		t.Fatal(err)
	}
	if _, last := collect(t, s[0]); len(last.Pooled) != e.Width() {
		t.Errorf("a prompt of the model length: %+v", last)
	}
	if _, err := e.Submit(context.Background(), engine.Request{Prompt: append(long, 1), Pooling: engine.PoolingLast}); err == nil {
		t.Error("a prompt longer than the model is taken")
	}
	for _, w := range y.model.Family.Weights() {
		if w.Group == "head" {
			t.Errorf("%s is loaded, which nothing reads", w.Name)
		}
	}
}

// TestPoolingClassifierTokens: a classifier made of two tokens of any family gives the logits of those
// tokens, which are those of transformers, one row a step.
func TestPoolingClassifierTokens(t *testing.T) {
	checkClassifierTokens(t, ref.Opener{}, backend.Settings{})
}

func checkClassifierTokens(t *testing.T, on backend.Opener, s backend.Settings) {
	for _, name := range slices.Concat(twinFamilies, furtherFamilies(t, true)) {
		t.Run(name, func(t *testing.T) {
			g := recorded(t, name)
			ids := [2]int32{g.SampleIDs[3], g.SampleIDs[len(g.SampleIDs)-1]}
			y := &toy{dir: checkpointOf(name), slabs: 16, on: on, build: models.Build{Dtype: kernels.F32, Pooling: models.Pooling{Head: models.TokenClassifier, Tokens: ids, Count: 2}}, opts: engine.Options{
				MaxModelLen: len(g.InputIDs), MaxNumSeqs: 2, MaxNumBatchedTokens: 64, BlockSize: 16, KVFormat: kernels.F32, ChunkedPrefill: true, EveryRow: true, Backend: s,
			}}
			e := y.open(t)
			st, err := e.Submit(context.Background(), engine.Request{ID: "r", Prompt: g.InputIDs, Pooling: engine.PoolingAll})
			if err != nil {
				t.Fatal(err)
			}
			_, last := collect(t, st[0])
			if e.Width() != 2 || len(last.Pooled) != 2*len(g.InputIDs) {
				t.Fatalf("%d numbers for %d tokens", len(last.Pooled), len(g.InputIDs))
			}
			bound := 5e-4 * g.Spread()
			for i := range g.InputIDs {
				for k, id := range ids {
					got := float64(last.Pooled[2*i+k])
					if cap := y.model.Config.FinalLogitSoftcap; cap > 0 { // a classifier has none
						got = cap * math.Tanh(got/cap)
					}
					want := float64(g.Row(i).Sample[slices.Index(g.SampleIDs, id)])
					if !(math.Abs(got-want) <= bound) {
						t.Fatalf("row %d: token %d has %g, recorded %g", i, id, got, want)
					}
				}
			}
			for _, w := range y.model.Family.Weights() {
				if w.Group == "head" && w.Rows != 2 {
					t.Errorf("%s has %d rows", w.Name, w.Rows)
				}
			}
		})
	}
}

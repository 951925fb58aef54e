package engine_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/sample"
	"vapp.dev/kernels"
)

// TestSoak puts mixed requests through every family: lengths of 1 to nearly the model's,
// many with a common beginning, several choices, stops and cancels, over so few pages
// that sequences are preempted and swapped. Every choice ends, once, and the books are
// right after it (after every step with the tag invariants). The tag soak makes it long.
func TestSoak(t *testing.T) {
	for _, name := range twinFamilies {
		t.Run(name, func(t *testing.T) { soak(t, name) })
	}
}

func soak(t *testing.T, name string) {
	var preempted, back, hits atomic.Int64
	y := &toy{dir: filepath.Join("models/testdata", name), slabs: least, fat: true, opts: engine.Options{
		MaxModelLen: 256, MaxNumSeqs: 24, MaxNumBatchedTokens: 256, BlockSize: 16, KVFormat: kernels.F32,
		ChunkedPrefill: true, PrefixCaching: true, Overlap: true, SwapBytes: 64 << 20,
	}}
	y.hooks.Step = func(s engine.StepStats) {
		preempted.Add(int64(s.Preempted))
		back.Add(int64(s.SwappedIn))
		hits.Add(int64(s.CacheHits))
	}
	e := y.open(t)
	var mu sync.Mutex
	ends := map[engine.Finish]int{}
	choices := 0
	room := make(chan struct{}, 32) // requests at once
	var wg sync.WaitGroup
	for i := range soakRequests {
		room <- struct{}{}
		q, cancel := soakRequest(i, y.opts.MaxModelLen)
		streams, err := e.Submit(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		choices += len(streams)
		wg.Go(func() {
			for _, s := range streams {
				if cancel {
					s.Cancel()
				}
				tokens, last := collect(t, s)
				if last.Finish == engine.NotFinished || last.Finish == engine.FinishError || len(tokens) > q.Params.MaxTokens {
					t.Errorf("request %d ended with %v after %d of %d tokens: %v", i, last.Finish, len(tokens), q.Params.MaxTokens, last.Err)
				}
				mu.Lock()
				ends[last.Finish]++
				mu.Unlock()
			}
			<-room
		})
	}
	wg.Wait()
	if err := e.Check(context.Background()); err != nil {
		t.Error(err)
	}
	s := e.Stats()
	if n := ends[engine.FinishLength] + ends[engine.FinishStop] + ends[engine.FinishAbort]; n != choices || s.Running+s.Waiting+s.Swapped != 0 || s.KVUsed != 0 || s.SwapUsed != 0 {
		t.Errorf("%d of %d choices ended (%v); left over: %+v", n, choices, ends, s)
	}
	t.Logf("%d requests, %d choices: %d by length, %d stopped, %d cancelled; %d steps, %d preemptions, %d back from swap space, %d prompt tokens from the cache",
		soakRequests, choices, ends[engine.FinishLength], ends[engine.FinishStop], ends[engine.FinishAbort], s.Steps, preempted.Load(), back.Load(), hits.Load())
}

// soakRequest is request i, and whether its reader goes away at once.
func soakRequest(i, longest int) (engine.Request, bool) {
	r := rand.New(rand.NewPCG(uint64(i), 11))
	p := sample.Default()
	p.MaxTokens = 1 + r.IntN(48)
	n := int(math.Exp(r.Float64() * math.Log(float64(longest-p.MaxTokens)))) // as many short as long
	prompt := make([]int32, max(1, n))
	common := r.IntN(4) // texts that many begin with
	for k := range prompt {
		if prompt[k] = int32(common*40 + k*7%200); k > 2*n/3 {
			prompt[k] = int32(r.IntN(250))
		}
	}
	if p.Temperature = float64(r.IntN(2)); p.Temperature > 0 {
		p.Seed, p.HasSeed = r.Uint64(), true
	}
	if r.IntN(3) == 0 {
		p.StopTokenIDs = []int32{int32(r.IntN(250)), int32(r.IntN(250)), int32(r.IntN(250))}
	}
	if r.IntN(10) == 0 {
		p.PromptLogprobs = 1
	}
	return engine.Request{ID: fmt.Sprint("soak", i), Prompt: prompt, Params: p, N: 1 + r.IntN(8)/7, Salt: []string{"", "", "other"}[r.IntN(3)]}, r.IntN(8) == 0
}

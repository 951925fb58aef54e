package engine_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/sched"
	"vapp.dev/kernels"
)

// soakLoad is the number of requests for each family.
type soakLoad struct {
	requests, short   int // on each family
	longest, shortest int // the engines' MaxModelLen
}

// TestSoak runs mixed requests on every family: lengths from 1 to nearly the model's, many common
// prefixes, several choices, priorities, stops, deadlines and cancels at any moment, with and
// without proposals, and so few pages that sequences are preempted and swapped. Every choice ends
// once with the right reason, and the scheduler's and pool's state is consistent at the end (with
// the tag invariants after every step). Some requests run again alone and give the same tokens.
// The tag soak makes it long.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	soakFamilies(t, ref.Opener{}, soakLoad{requests: 200, short: 14, longest: 512, shortest: 192})
}

func soakFamilies(t *testing.T, on backend.Opener, l soakLoad) {
	if !longSoak {
		l.requests, l.longest = l.short, l.shortest
	}
	for _, name := range twinFamilies {
		t.Run(name, func(t *testing.T) {
			dir, n := filepath.Join("models/testdata", name), l.requests/2
			t.Run("overlapped", func(t *testing.T) {
				newSoak(dir, on, l, func(y *toy) { y.opts.Overlap = true }).run(t, 0, n)
			})
			t.Run("n-grams", func(t *testing.T) { newSoak(dir, on, l, ngrams(4)).run(t, n, l.requests) })
			switch name { // and more
			case "tiny-qwen35":
				dir, _ := recordedHead(t)
				t.Run("own head", func(t *testing.T) { newSoak(dir, on, l, head(3)).run(t, l.requests, l.requests+n/2) })
			case "tiny-llama3-tied":
				t.Run("draft model", func(t *testing.T) {
					newSoak(dir, on, l, func(y *toy) { head(2)(y); y.draft = dir }).run(t, l.requests, l.requests+n/2)
				})
			}
		})
	}
}

// soaking is an engine under load with the results of its requests.
type soaking struct {
	toy   *toy
	e     *engine.Engine
	slots chan struct{} // requests at once

	mu    sync.Mutex
	sum   engine.StepStats // since it was opened, of counters only
	ends  map[engine.Finish]int
	lost  int           // choices that did not end, or not once
	again []soakRequest // to ask for alone
	want  [][]int32     // what they gave
}

func newSoak(dir string, on backend.Opener, l soakLoad, change func(*toy)) *soaking {
	seqs := 24
	if longSoak {
		seqs = 128
	}
	s := &soaking{ends: map[engine.Finish]int{}, slots: make(chan struct{}, seqs*4/3)}
	s.toy = &toy{dir: dir, on: on, slabs: least, fat: true, opts: engine.Options{
		MaxModelLen: l.longest, MaxNumSeqs: seqs, MaxNumBatchedTokens: 256, BlockSize: 16, KVFormat: kernels.F32,
		ChunkedPrefill: true, PrefixCaching: true, SwapBytes: 64 << 20,
		Backend: backend.Settings{Threads: 1}, // the models are small, and other tests run
	}}
	change(s.toy)
	s.toy.hooks.Step = s.step
	return s
}

func (s *soaking) step(st engine.StepStats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Preempted += st.Preempted
	s.sum.SwappedIn += st.SwappedIn
	s.sum.CacheHits += st.CacheHits
	s.sum.PromptTokens += st.PromptTokens
	s.sum.GenerationTokens += st.GenerationTokens
	s.sum.DraftTokens += st.DraftTokens
	s.sum.AcceptedTokens += st.AcceptedTokens
}

// run runs the requests from to to−1, with policy changes in between.
func (s *soaking) run(t *testing.T, from, to int) {
	s.e = s.toy.open(t)
	choices := 0
	var wg sync.WaitGroup
	for i := from; i < to; i++ {
		s.slots <- struct{}{}
		if i == (from+to)/2 {
			s.e.SetPolicy(sched.Priority)
		}
		q := newSoakRequest(i, s.toy.opts.MaxModelLen, s.toy.model.Family.Vocab())
		streams, err := s.e.Submit(context.Background(), q.Request)
		if err != nil {
			t.Fatal(err)
		}
		choices += len(streams)
		wg.Go(func() {
			for k, stream := range streams {
				s.read(t, &q, k, stream)
			}
			<-s.slots
		})
	}
	wg.Wait()
	s.left(t, choices)
	s.mu.Lock()
	sum, steps := s.sum, s.e.Stats().Steps
	s.mu.Unlock()
	s.alone(t)
	t.Logf("%d requests, %d choices: %d by length, %d stopped, %d aborted, %d lost; %d steps of %d prompt and %d generated tokens, %d preemptions, %d back from swap space, %d prompt tokens from the cache, %d of %d proposals accepted, %d asked again",
		to-from, choices, s.ends[engine.FinishLength], s.ends[engine.FinishStop], s.ends[engine.FinishAbort], s.lost,
		steps, sum.PromptTokens, sum.GenerationTokens, sum.Preempted, sum.SwappedIn, sum.CacheHits, sum.AcceptedTokens, sum.DraftTokens, len(s.again))
}

// left checks that no request, page or swap space is left in use.
func (s *soaking) left(t *testing.T, choices int) {
	t.Helper()
	if err := s.e.Check(context.Background()); err != nil {
		t.Error(err)
	}
	if err := s.e.Err(); err != nil {
		t.Error(err)
	}
	n := 0
	for _, k := range s.ends {
		n += k
	}
	st := s.e.Stats()
	if n != choices || s.lost > 0 || st.Running+st.Waiting+st.Swapped != 0 || st.KVUsed != 0 || st.SwapUsed != 0 {
		t.Errorf("%d of %d choices ended (%v), %d were lost; left over: %+v", n, choices, s.ends, s.lost, st)
	}
}

// alone runs some requests again, one at a time.
func (s *soaking) alone(t *testing.T) {
	for i, q := range s.again {
		streams, err := s.e.Submit(context.Background(), q.Request)
		if err != nil {
			t.Fatal(err)
		}
		for k, stream := range streams {
			if tokens, _ := collect(t, stream); k == 0 && !slices.Equal(tokens, s.want[i]) {
				t.Errorf("%s, of %d tokens: alone %v, under load %v", q.ID, len(q.Prompt), tokens, s.want[i])
			}
		}
	}
}

// String names the request in errors.
func (q *soakRequest) String() string {
	return fmt.Sprintf("%s (%d tokens and %d of output)", q.ID, len(q.Prompt), q.Params.MaxTokens)
}

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/engine/ranks"
	"vapp.dev/engine/sample"
	"vapp.dev/kernels"
)

// toy is a small Llama model with the options that most tests use.
type toy struct {
	dir      string
	opts     engine.Options
	slabs    int
	hooks    engine.Hooks
	on       backend.Opener // nil: ref
	build    models.Build
	pooling  engine.PoolingOptions
	draft    string        // directory of a model that proposes; "": none does
	fat      bool          // pages are larger than their content, see fat
	model    *engine.Model // set by open
	clock    func() time.Time
	stored   weights                            // replace the model's weights
	llama    enginetest.Llama                   // the model in dir, if the test wrote it
	world    ranks.Places                       // of ranks in this process; zero: one rank
	groups   func(ranks.Places) []backend.Group // connects them; nil: by goroutines
	weights  backend.PackedWeights              // of another engine; nil: it loads them
	progress func(engine.Progress)
	adapters []string // folders of adapters: continued loads number i as "i" and uses it for prompt i, the model alone for the last ones
}

// least is the number of slabs that one sequence of the longest length needs.
const least = -1

func newToy(t testing.TB) *toy {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "toy")
	// Pages of 128 KiB: the smallest arena holds one sequence of 128 tokens.
	if err := enginetest.WriteLlama(dir, enginetest.Llama{Layers: 4, KVHeads: 4, HeadDim: 64, Seed: 7}); err != nil {
		t.Fatal(err)
	}
	return &toy{dir: dir, slabs: 16, opts: engine.Options{
		MaxModelLen: 128, MaxNumSeqs: 8, MaxNumBatchedTokens: 64, BlockSize: 16,
		KVFormat: kernels.F32, PrefixCaching: true, ChunkedPrefill: true, Overlap: true,
	}}
}

// inspect reads the model with y's build.
func (y *toy) inspect(t testing.TB) *engine.Model {
	t.Helper()
	src := engine.Source{Path: y.dir, Name: "toy", Format: "auto", Build: y.build, Pooling: y.pooling}
	if y.draft != "" {
		src.Draft = &engine.Source{Path: y.draft, Name: "draft", Format: "auto"}
	}
	m, err := engine.Inspect(src)
	if err != nil {
		t.Fatal(err)
	}
	if y.stored != (weights{}) {
		if m, err = stored(m, y.stored); err != nil {
			t.Fatal(err)
		}
	}
	if y.fat {
		m.Family = fatten(m.Family)
	}
	return m
}

// open starts an engine whose KV arena has y.slabs slabs, by default the fewest possible.
func (y *toy) open(t testing.TB) *engine.Engine {
	t.Helper()
	if y.world.Tensor > 0 {
		return y.openRanks(t)
	}
	m := y.inspect(t)
	y.model = m
	kv := y.account(t, m).KV
	if y.slabs == least {
		y.slabs = kv.SequenceSlabs(y.opts.MaxModelLen)
	}
	y.opts.KVBytes = int64(y.slabs) * kv.SlabBytes
	acc := y.account(t, m)
	e, err := engine.Open(context.Background(), engine.Config{
		Options: y.opts, Model: m, Opener: y.opener(), Facts: y.facts(t), Account: acc, Hooks: y.hooks, Weights: y.weights, Progress: y.progress,
	}.WithClock(y.clock))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(e.Close(), m.Close()); err != nil {
			t.Error(err)
		}
	})
	return e
}

func (y *toy) opener() backend.Opener {
	if y.on != nil {
		return y.on
	}
	return ref.Opener{}
}

func (y *toy) facts(t testing.TB) backend.Facts {
	t.Helper()
	facts, err := y.opener().Probe()
	if err != nil {
		t.Fatal(err)
	}
	if y.fat { // no arena is rounded up to huge pages, which would hold more slabs
		facts.HugeBytes = 0
	}
	return facts
}

// account returns the account of an engine with y's options.
func (y *toy) account(t testing.TB, m *engine.Model) *engine.Account {
	t.Helper()
	acc, err := engine.NewAccount(y.opts, m, y.opener(), y.facts(t))
	if err != nil {
		t.Fatal(err)
	}
	return acc
}

// request returns request i of a mixed load: greedy and sampled, short and long.
func request(i int) engine.Request {
	prompt := make([]int32, 3+(i*17)%60)
	for k := range prompt {
		prompt[k] = int32((i*31 + k*7) % 300)
	}
	p := sample.Default()
	p.MaxTokens, p.IgnoreEOS = 5+(i*5)%25, true
	switch i % 3 {
	case 0:
		p.Temperature = 0
	case 1:
		p.Seed, p.HasSeed, p.TopP, p.Repetition = uint64(i), true, 0.9, 1.2
	case 2:
		p.Seed, p.HasSeed, p.Temperature, p.TopK, p.Frequency = uint64(i), true, 1.3, 40, 0.5
	}
	p.Logprobs = i%2 - 1
	return engine.Request{ID: fmt.Sprint("r", i), Prompt: prompt, Params: p, N: 1 + i%2}
}

// collect reads a stream to its end.
func collect(t testing.TB, s *engine.Stream) (tokens []int32, last engine.Event) {
	t.Helper()
	for {
		evs, err := s.Next(context.Background())
		if err != nil {
			t.Error(err)
			return tokens, last
		}
		if len(evs) == 0 {
			return tokens, last
		}
		for _, ev := range evs {
			if ev.Token >= 0 {
				tokens = append(tokens, ev.Token)
			}
			last = ev
		}
	}
}

// runAll submits requests all at once, or one after the other, and returns the tokens of every
// choice. It calls submitted after the last Submit.
func runAll(t *testing.T, e *engine.Engine, n int, together bool, submitted ...func()) [][]int32 {
	t.Helper()
	out := make([][]int32, 0, 2*n)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range n {
		streams, err := e.Submit(context.Background(), request(i))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range streams {
			mu.Lock()
			k := len(out)
			out = append(out, nil)
			mu.Unlock()
			wg.Go(func() {
				tokens, last := collect(t, s)
				mu.Lock()
				defer mu.Unlock()
				if want := request(i).Params.MaxTokens; last.Finish != engine.FinishLength || len(tokens) != want {
					t.Errorf("request %d ended with %v after %d tokens, want length after %d (%v)", i, last.Finish, len(tokens), want, last.Err)
				}
				out[k] = tokens
			})
			if !together {
				wg.Wait()
			}
		}
	}
	for _, f := range submitted {
		f()
	}
	wg.Wait()
	if err := e.Check(context.Background()); err != nil {
		t.Error(err)
	}
	return out
}

// TestTokensIndependentOfBatching runs the same requests alone, together, with and without
// overlap, without prefix cache, with chunks of 16 tokens, and with so few pages that sequences
// are preempted: every choice gets the same tokens.
func TestTokensIndependentOfBatching(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	const n = 24
	y := newToy(t)
	want := runAll(t, y.open(t), n, false)
	for name, change := range map[string]func(*toy){
		"together, overlapped": func(*toy) {},
		"together, plain":      func(y *toy) { y.opts.Overlap = false },
		"no prefix cache":      func(y *toy) { y.opts.PrefixCaching = false },
		"small chunks":         func(y *toy) { y.opts.MaxNumBatchedTokens = 16 },
		"few sequences":        func(y *toy) { y.opts.MaxNumSeqs = 3 },
		"preempted":            func(y *toy) { y.slabs = 1 },
		"preempted, plain":     func(y *toy) { y.slabs = 1; y.opts.Overlap = false },
	} {
		t.Run(name, func(t *testing.T) {
			y := newToy(t)
			change(y)
			e := y.open(t)
			got := runAll(t, e, n, true)
			for i := range want {
				if !slices.Equal(got[i], want[i]) {
					t.Errorf("choice %d: %v, alone %v", i, got[i], want[i])
				}
			}
			s := e.Stats()
			if few := y.slabs == 1; few != (s.Preemptions > 0) {
				t.Errorf("%d preemptions with %d slabs", s.Preemptions, y.slabs)
			}
			if s.Running != 0 || s.Waiting != 0 || s.KVUsed != 0 {
				t.Errorf("at the end %+v", s)
			}
		})
	}
}

// pause makes the loop of an engine that y opens wait after each step until goOn is called.
func (y *toy) pause() (goOn func()) {
	held := make(chan struct{})
	y.hooks.Step = func(engine.StepStats) { <-held }
	return func() { close(held) }
}

// TestCancelFreesPages cancels a running choice and a waiting one; their pages are free after at
// most one step.
func TestCancelFreesPages(t *testing.T) {
	y := newToy(t)
	y.opts.MaxNumSeqs = 1
	goOn := y.pause()
	e := y.open(t)
	r := request(0)
	r.N, r.Params.MaxTokens = 2, 60
	streams, err := e.Submit(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := streams[0].Next(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, s := range streams {
		s.Cancel()
		s.Cancel()
	}
	goOn()
	for _, s := range streams {
		if _, last := collect(t, s); last.Finish != engine.FinishAbort {
			t.Errorf("finish %v, want abort", last.Finish)
		}
	}
	if err := e.Check(context.Background()); err != nil {
		t.Error(err)
	}
	if s := e.Stats(); s.KVUsed != 0 {
		t.Errorf("pages in use after cancel: %+v", s)
	}
}

// TestDeadline: a request is aborted at its deadline.
func TestDeadline(t *testing.T) {
	e := newToy(t).open(t)
	r := request(0)
	r.Deadline = time.Now().Add(-time.Millisecond)
	streams, err := e.Submit(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	if _, last := collect(t, streams[0]); last.Finish != engine.FinishAbort {
		t.Errorf("finish %v, want abort", last.Finish)
	}
}

// TestRefusals checks the errors of Submit.
func TestRefusals(t *testing.T) {
	e := newToy(t).open(t)
	r := request(0)
	r.Params.MaxTokens = 128
	var long *engine.TooLongError
	if _, err := e.Submit(context.Background(), r); !errors.As(err, &long) || long.Limit != 128 {
		t.Errorf("too long: %v", err)
	}
	for _, id := range []int32{-1, 1 << 20} {
		r := request(0)
		r.Prompt = append([]int32{1}, id)
		if _, err := e.Submit(context.Background(), r); err == nil || !strings.Contains(err.Error(), "token 1 of the prompt") {
			t.Errorf("token %d: %v", id, err)
		}
	}
	if err := e.Err(); err != nil {
		t.Errorf("refusals ended the engine: %v", err)
	}
	if err := e.Drain(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := e.Submit(context.Background(), request(0)); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("after Drain: %v", err)
	}
}

// TestCloseAborts closes an engine with running and waiting choices: each gets a last event.
func TestCloseAborts(t *testing.T) {
	y := newToy(t)
	y.opts.MaxNumSeqs = 2
	goOn := y.pause()
	e := y.open(t)
	var all []*engine.Stream
	for i := range 6 {
		r := request(i)
		r.Params.MaxTokens = 60
		s, err := e.Submit(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s...)
	}
	if _, err := all[0].Next(context.Background()); err != nil {
		t.Fatal(err)
	}
	goOn()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if _, last := collect(t, s); last.Finish != engine.FinishAbort && last.Finish != engine.FinishLength {
			t.Errorf("finish %v", last.Finish)
		}
	}
}

package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
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
	"vapp.dev/engine/sample"
	"vapp.dev/engine/speculate"
	"vapp.dev/kernels"
)

// axes are the ways to run the same requests that must not change any token. The first is the
// reference for the others: one step at a time, one request at a time, no prefix cache, prompts
// not cut. A new way of running (swap, proposals, state snapshots) is one more entry. If it
// makes a backend compute other rows, it runs on every backend; if only the scheduling or the
// page allocation differs, it runs on the best one. The further checkpoints run those that every
// family has to.
var axes = []axis{
	{name: "plain, alone", alone: true, everywhere: true},
	{name: "in a batch", everywhere: true},
	{name: "overlapped", change: func(y *toy) { y.opts.Overlap = true }},
	{name: "prefixes, twice", rounds: 2, change: func(y *toy) { y.opts.Overlap, y.opts.PrefixCaching = true, true }, took: hits},
	{name: "prefixes, chunks of 16, twice", everywhere: true, rounds: 2, took: hits, change: func(y *toy) {
		y.opts.PrefixCaching, y.opts.MaxNumBatchedTokens = true, 16
	}},
	{name: "prefixes, chunks of 64, alone", alone: true, rounds: 2, took: hits, change: func(y *toy) {
		y.opts.Overlap, y.opts.PrefixCaching, y.opts.MaxNumBatchedTokens = true, true, 64
	}},
	{name: "chunks of 16", further: true, change: func(y *toy) { y.opts.Overlap, y.opts.MaxNumBatchedTokens = true, 16 }},
	{name: "chunks of 64, alone", alone: true, change: func(y *toy) { y.opts.MaxNumBatchedTokens = 64 }},
	{name: "preempted", further: true, change: func(y *toy) { y.slabs, y.fat = least, true }, took: preempted},
	{name: "preempted, overlapped, prefixes", took: preempted, change: func(y *toy) {
		y.slabs, y.fat, y.opts.PrefixCaching, y.opts.Overlap = least, true, true, true
	}},
	{name: "swapped", change: func(y *toy) { y.slabs, y.fat, y.opts.SwapBytes = least, true, 64<<20 }, took: swapped},
	{name: "swapped, overlapped, prefixes", took: swapped, change: func(y *toy) {
		y.slabs, y.fat, y.opts.SwapBytes, y.opts.PrefixCaching, y.opts.Overlap = least, true, 64<<20, true, true
	}},
	{name: "n-grams proposed", change: ngrams(4), took: usedProposals},
	{name: "n-grams proposed, alone, chunks of 16, prefixes", alone: true, took: usedProposals, change: func(y *toy) {
		ngrams(2)(y)
		y.opts.MaxNumBatchedTokens, y.opts.PrefixCaching = 16, true
	}},
	{name: "n-grams proposed, preempted", took: preempted, change: func(y *toy) {
		ngrams(3)(y)
		y.slabs, y.fat = least, true
	}},
	{name: "n-grams proposed, swapped, prefixes", everywhere: true, took: swapped, change: func(y *toy) {
		ngrams(3)(y)
		y.slabs, y.fat, y.opts.SwapBytes, y.opts.PrefixCaching = least, true, 64<<20, true
	}},
	{name: "chunks of a wild clock, overlapped", change: wild(true), took: cut},
	{name: "chunks of a wild clock, n-grams proposed, preempted", took: preempted, change: func(y *toy) {
		wild(false)(y)
		ngrams(3)(y)
		y.slabs, y.fat = least, true
	}},
	{name: "keys rebuilt, overlapped, chunks of 16, prefixes, twice", family: "tiny-gemma4", everywhere: true, rounds: 2, took: hits, change: func(y *toy) {
		rebuilds(y)
		y.opts.Overlap, y.opts.PrefixCaching, y.opts.MaxNumBatchedTokens = true, true, 16
	}},
	{name: "keys rebuilt, n-grams proposed, swapped", family: "tiny-gemma4", took: swapped, change: func(y *toy) {
		rebuilds(y)
		ngrams(3)(y)
		y.slabs, y.fat, y.opts.SwapBytes = least, true, 64<<20
	}},
}

// wild makes prefill chunks of all sizes while streams decode: it sets an ITL target and a clock
// with random steps.
func wild(lag bool) func(*toy) {
	return func(y *toy) {
		y.opts.Overlap, y.opts.ITLTarget, y.opts.MaxNumBatchedTokens = lag, 10*time.Millisecond, 96
		rng, at := rand.New(rand.NewPCG(3, 9)), time.Unix(1e9, 0)
		y.clock = func() time.Time {
			at = at.Add(time.Duration(rng.ExpFloat64() * float64([]time.Duration{time.Microsecond, time.Millisecond, 20 * time.Millisecond}[rng.IntN(3)])))
			return at
		}
	}
}

// rebuilds turns on the rebuilding of keys from values, so that pages store only the rest of the
// keys. With pages of F32 that changes no bit.
func rebuilds(y *toy) { y.build.Rebuild = true }

// ngrams makes a step verify up to n proposals by n-gram lookup.
func ngrams(n int) func(*toy) {
	return func(y *toy) {
		y.build.Verify, y.opts.Drafts, y.opts.Lookup = n, n, speculate.NGram{Min: 1, Max: 3}
	}
}

// axis is one way to run the requests.
type axis struct {
	name       string
	family     string     // the only family that runs it; "": all
	everywhere bool       // runs on every backend and kind of kernels, not only on the best
	further    bool       // runs also for furtherFamilies, on ref and the best
	change     func(*toy) // changes the plain options; nil: nothing
	alone      bool       // one request after the other, not all at once
	rounds     int        // how often one engine runs all requests; 0: once
	// took returns an error if what the axis tests did not happen, such as a preemption. nil:
	// no check.
	took func(name string, r *twinRun) error
}

// twinRun is the result of a run.
type twinRun struct {
	tokens [][]int32 // of each request
	hits   int       // prompt tokens that were not computed
	back   int       // sequences whose pages came back from swap space
	stats  engine.Stats
	// proposed tokens, and how many of them were accepted
	proposed, accepted int
	chunks             map[int]bool // tokens of prompts in a step
	beyond             int          // steps that took longer than the target
}

func hits(_ string, r *twinRun) error {
	if r.hits == 0 {
		return fmt.Errorf("no prefix was found again")
	}
	return nil
}

func cut(_ string, r *twinRun) error {
	if len(r.chunks) < 5 || r.beyond == 0 {
		return fmt.Errorf("steps of %d sizes, %d beyond the target", len(r.chunks), r.beyond)
	}
	return nil
}

func preempted(_ string, r *twinRun) error {
	if r.stats.Preemptions == 0 {
		return fmt.Errorf("nothing was preempted")
	}
	return nil
}

func swapped(_ string, r *twinRun) error {
	if r.back == 0 || r.stats.Swapped > 0 || r.stats.SwapUsed > 0 {
		return fmt.Errorf("%d sequences came back from swap space, %d are there still with %g of it", r.back, r.stats.Swapped, r.stats.SwapUsed)
	}
	return nil
}

func usedProposals(_ string, r *twinRun) error {
	if r.accepted == 0 || r.accepted == r.proposed {
		return fmt.Errorf("%d of %d proposals were accepted", r.accepted, r.proposed)
	}
	return nil
}

// TestFamilies runs the small checkpoints of each family through the whole engine in all ways of
// axes. Each way gives the tokens of the plain one, which are those of transformers.
func TestFamilies(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	families(t, ref.Opener{}, backend.Settings{})
}

func families(t *testing.T, on backend.Opener, s backend.Settings) {
	names := twinFamilies
	if longSoak || best(t, on, s) {
		names = slices.Concat(names, furtherFamilies(t, false))
	}
	for _, name := range names {
		if !enginetest.RunsOn(name, on.Name()) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			g := recorded(t, name)
			twin := slices.Contains(twinFamilies, name)
			whole := longSoak || best(t, on, s) && twin
			ways := slices.DeleteFunc(slices.Clone(axes), func(a axis) bool {
				return a.family != "" && a.family != name || !whole && !a.everywhere && (twin || !a.further)
			})
			like := toy{dir: checkpointOf(name), on: on, opts: engine.Options{MaxModelLen: g.Rows() + 1, Backend: s}}
			twins(t, ways, like, g)
		})
	}
}

// furtherFamilies returns the recorded small checkpoints beside twinFamilies: the recipes, the
// mixtures and the forms of weights. They share their ops with twinFamilies. once: one of each
// architecture that twinFamilies lack. Under the race detector there are none, because no kind of
// page is new in them.
func furtherFamilies(t testing.TB, once bool) []string {
	t.Helper()
	all, err := enginetest.Recorded("models/testdata/golden")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, name := range twinFamilies {
		seen[recorded(t, name).Facts.Architecture] = once
	}
	return slices.DeleteFunc(all, func(name string) bool {
		if racing || slices.Contains(twinFamilies, name) || strings.HasSuffix(name, "-x8") { // the activations of another one
			return true
		}
		arch := recorded(t, name).Facts.Architecture
		known := seen[arch]
		seen[arch] = once
		return known
	})
}

// recorded reads the golden file of a small checkpoint.
func recorded(t testing.TB, name string) *enginetest.Golden {
	t.Helper()
	g, err := enginetest.ReadGolden(filepath.Join("models/testdata/golden", name+".safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// checkpointOf returns the folder, or the GGUF file, of a small checkpoint.
func checkpointOf(name string) string {
	dir := filepath.Join("models/testdata", name)
	if file := filepath.Join(dir, "model.gguf"); exists(file) {
		return file
	}
	return dir
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// roundsToBF16 reports whether a variant of the kernels multiplies numbers rounded to bf16 or to 15
// bits.
func roundsToBF16(variant string) bool {
	return slices.Contains([]string{"amx", "avx512bf16", "dotprod", "i8mm"}, variant)
}

// twins runs like in every way of axes: each gives the tokens of the first way, whose first
// request gives the recorded ones.
func twins(t *testing.T, ways []axis, like toy, g *enginetest.Golden) {
	like.slabs = 16
	o := &like.opts
	o.MaxNumSeqs, o.MaxNumBatchedTokens, o.BlockSize, o.KVFormat, o.ChunkedPrefill = 16, 2048, 16, kernels.F32, true
	var plain [][]int32
	for _, a := range ways {
		t.Run(a.name, func(t *testing.T) {
			y := like
			got := a.run(t, &y, g)
			if plain == nil {
				plain = got
				if want := g.DecodeIDs; !roundsToBF16(o.Backend.Variant) && !slices.Equal(got[0][:len(want)], want) {
					t.Errorf("%v, transformers %v", got[0], want)
				}
				return
			}
			for i := range plain {
				if !slices.Equal(got[i], plain[i]) {
					t.Errorf("request %d: %v, plain %v", i, got[i], plain[i])
				}
			}
		})
	}
}

// fat is a family whose pages are larger than their content, so that a slab has few pages.
type fat struct{ models.Model }

func (f fat) Classes(blockSize int, format kernels.Format) []backend.KVClass {
	const pages = 6
	out := f.Model.Classes(blockSize, format)
	for i := range out {
		for out[i].PageBytes() < 1<<20/pages {
			out[i].Layers++ // a layer that no op uses
		}
	}
	return out
}

// fatSeeing is fat for a family with a vision tower.
type fatSeeing struct {
	fat
	models.Encoder
}

// fatten returns m with pages that are larger than their content.
func fatten(m models.Model) models.Model {
	if e, sees := m.(models.Encoder); sees {
		return fatSeeing{fat{m}, e}
	}
	return fat{m}
}

// run opens an engine and submits the requests in the way of the axis.
func (a axis) run(t *testing.T, y *toy, g *enginetest.Golden) [][]int32 {
	t.Helper()
	r := &twinRun{chunks: map[int]bool{}}
	if a.change != nil {
		a.change(y)
	}
	var mu sync.Mutex
	// The step of a request of its own waits for all others, so that these start together.
	started, arrived := make(chan struct{}), make(chan struct{})
	if a.alone {
		close(arrived)
	}
	begin := sync.OnceFunc(func() { close(started) })
	y.hooks.Step = func(s engine.StepStats) {
		begin()
		<-arrived
		mu.Lock()
		defer mu.Unlock()
		r.hits += s.CacheHits
		r.back += s.SwappedIn
		r.proposed += s.DraftTokens
		r.accepted += s.AcceptedTokens
		r.chunks[s.PromptTokens] = true
		if s.BeyondTarget {
			r.beyond++
		}
	}
	e := y.open(t)
	if !a.alone {
		p := sample.Default()
		p.Temperature, p.MaxTokens = 0, 1
		s, err := e.Submit(context.Background(), engine.Request{ID: "first", Prompt: g.InputIDs[:1], Params: p, N: 1})
		if err != nil {
			t.Fatal(err)
		}
		<-started
		defer func() { collect(t, s[0]) }()
	}
	for round := range max(a.rounds, 1) {
		var streams []*engine.Stream
		tokens := make([][]int32, len(twinRequests(g)))
		for i, q := range twinRequests(g) {
			s, err := e.Submit(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			if streams = append(streams, s...); a.alone {
				tokens[i], _ = collect(t, s[0])
			}
		}
		if round == 0 && !a.alone {
			close(arrived)
		}
		for i, s := range streams {
			if !a.alone {
				tokens[i], _ = collect(t, s)
			}
		}
		if r.tokens != nil && !slices.EqualFunc(r.tokens, tokens, slices.Equal[[]int32]) {
			t.Errorf("another round gives other tokens: %v, then %v", r.tokens, tokens)
		}
		r.tokens = tokens
	}
	if err := e.Check(context.Background()); err != nil {
		t.Error(err)
	}
	r.stats = e.Stats()
	mu.Lock()
	defer mu.Unlock()
	if a.took != nil {
		if err := a.took(a.name, r); err != nil {
			t.Error(err)
		}
	}
	return r.tokens
}

// twinRequests returns 16 requests over a recorded run: the run itself, its prefixes, and parts
// from other places, greedy and sampled. They exceed the sizes of blocks, windows and chunks, and
// some repeat few tokens. Some are short and generate many tokens: they start together, and
// their pages run out.
func twinRequests(g *enginetest.Golden) []engine.Request {
	all := append(slices.Clone(g.InputIDs), g.DecodeIDs...)
	for len(all) < 100 { // repeat a short run
		all = append(all, all...)
	}
	out := make([]engine.Request, 16)
	for i := range out {
		p := sample.Default()
		p.Temperature, p.MaxTokens, p.IgnoreEOS = 0, 9+i%5, true
		from, n := 0, 15+(i*23)%57
		if i%4 == 3 {
			from = 5 * i
		}
		if i >= 1 && i <= 5 {
			from, n, p.MaxTokens = 2*i, 14, 36
		}
		switch {
		case i == 0:
			n, p.MaxTokens = len(g.InputIDs), len(g.DecodeIDs)+1
		case i%3 == 1:
			p.Seed, p.HasSeed, p.Temperature, p.TopP, p.Repetition = uint64(i), true, 0.9, 0.9, 1.2
		case i%3 == 2:
			p.Seed, p.HasSeed, p.Temperature, p.TopK, p.Frequency = uint64(i), true, 1.3, 40, 0.5
		}
		if i%8 >= 6 { // few tokens, repeated
			p.AllowedTokenIDs, p.MinTokens = slices.Clone(g.InputIDs[:3]), 6
			p.StopTokenIDs = p.AllowedTokenIDs[2:]
		}
		out[i] = engine.Request{ID: fmt.Sprint("r", i), Prompt: slices.Clone(all[from : from+n]), Params: p, N: 1}
	}
	return out
}

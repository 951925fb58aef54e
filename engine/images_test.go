package engine_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/engine/sample"
	"vapp.dev/kernels"
)

// seeing is a family with a vision tower: the small checkpoint of its text model, and how its images
// become tokens.
type seeing struct {
	name   string
	side   int  // patches of a token across, and as many down
	square bool // patches are in the order of squares of that size, otherwise row by row
	cols   int  // numbers of a patch
	seed   uint64
	slow   bool // on ref
	vocab  int  // ids of prompts are less; 0: they are
	whole  bool // the small checkpoint has a tower
	// become makes a checkpoint of a text model one with a tower; nil: it is.
	become func(t testing.TB, config []byte, list []enginetest.Tensor) ([]byte, []enginetest.Tensor)
}

var seeingFamilies = []seeing{
	{name: "tiny-gemma4", side: 3, cols: 3 * 4 * 4, seed: 1},
	{name: "tiny-qwen35", side: 2, square: true, cols: 3 * 2 * 4 * 4, seed: 2, slow: true},
}

// towerSeeing is a checkpoint with its tower, whose replies transformers recorded.
var towerSeeing = seeing{name: "tiny-gemma4-tower", side: 3, cols: 3 * 4 * 4, seed: 1, vocab: 128, whole: true}

// folder returns the folder of the family's checkpoint, which is written under another one unless it is whole.
func (f seeing) folder(t testing.TB, under string) string {
	t.Helper()
	if f.whole {
		return filepath.Join("models/testdata", f.name)
	}
	dir := filepath.Join(under, f.name)
	f.write(t, dir)
	return dir
}

// write writes the family's checkpoint with a tower of random weights.
func (f seeing) write(t testing.TB, dir string) {
	t.Helper()
	from := filepath.Join("models/testdata", f.name)
	c, err := checkpoint.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	list, err := enginetest.ReadTensors(c)
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(from, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	parsed := c.Config()
	if f.become != nil {
		config, list = f.become(t, config, list)
		if parsed, err = checkpoint.ParseConfig("config.json", config); err != nil {
			t.Fatal(err)
		}
	}
	all, err := models.Tensors(parsed)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(f.seed, 7))
	for _, info := range all {
		if !strings.HasPrefix(info.Name, "model.vision_tower.") && !strings.HasPrefix(info.Name, "model.embed_vision.") && !strings.HasPrefix(info.Name, "model.visual.") {
			continue
		}
		list = append(list, drawnTensor(t, rng, info))
	}
	if err = os.MkdirAll(dir, 0o755); err == nil {
		err = enginetest.WriteTensors(dir, config, list)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// drawnTensor returns a tensor of random numbers of the sizes that a trained one has.
func drawnTensor(t testing.TB, rng *rand.Rand, info checkpoint.TensorInfo) enginetest.Tensor {
	t.Helper()
	out := enginetest.Tensor{Name: info.Name, Shape: info.Shape, Format: info.Format}
	width := 1.0
	for _, n := range info.Shape[1:] {
		width *= float64(n)
	}
	for range info.Elements() {
		x := rng.NormFloat64()
		switch {
		case strings.HasSuffix(info.Name, "bias"), strings.Contains(info.Name, "table"), strings.Contains(info.Name, "pos_embed"):
			x *= 0.3
		case len(info.Shape) == 1:
			x = 1 + 0.2*x
		default:
			x *= 1.3 / math.Sqrt(width)
		}
		bits := math.Float32bits(float32(x))
		switch info.Format {
		case kernels.BF16:
			out.Data = binary.LittleEndian.AppendUint16(out.Data, uint16(bits>>16))
		case kernels.F32:
			out.Data = binary.LittleEndian.AppendUint32(out.Data, bits)
		default:
			t.Fatalf("%s: %v", info.Name, info.Format)
		}
	}
	return out
}

// image returns an image of wide × tall tokens with random colours.
func (f seeing) image(seed byte, wide, tall int) engine.Item {
	rng := rand.New(rand.NewPCG(uint64(seed), 3))
	across, down := wide*f.side, tall*f.side
	m := engine.Item{Hash: [32]byte{seed, byte(wide), byte(tall)}, Tokens: wide * tall, Pixels: make([]byte, across*down*f.cols), Colours: new([256]float32)}
	for b := range m.Colours {
		m.Colours[b] = rng.Float32()
	}
	for i := range m.Pixels {
		m.Pixels[i] = byte(rng.Uint32())
	}
	for i := range across * down {
		x, y := i%across, i/across
		if f.square {
			square := f.side * f.side
			x = i/square%wide*f.side + i%square%f.side
			y = i/square/wide*f.side + i%square/f.side
		}
		m.Across, m.Down = append(m.Across, int32(x)), append(m.Down, int32(y))
	}
	return m
}

// roomy reports whether the arena for one sequence of the longest length has more slabs than that needs.
func (y toy) roomy(t *testing.T) bool {
	t.Helper()
	m := y.inspect(t)
	defer m.Close()
	l := y.account(t, m).KV
	n := l.SequenceSlabs(y.opts.MaxModelLen)
	y.opts.KVBytes = int64(n) * l.SlabBytes
	a := y.account(t, m)
	return a.Slabs(a.Reservation.Arenas[backend.KV]) > n
}

// placeholder is the token that stands for each row of an image.
const placeholder = 7

// prompt returns the tokens of parts, which are numbers of text tokens and images, and the images at their
// places.
func prompt(seed int, parts ...any) (tokens []int32, items []engine.Item) {
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			for range p {
				tokens = append(tokens, int32(10+(seed*31+len(tokens)*7)%200))
			}
		case engine.Item:
			p.At = len(tokens)
			items = append(items, p)
			tokens = append(tokens, slices.Repeat([]int32{placeholder}, p.Tokens)...)
		}
	}
	return tokens, items
}

// requests returns requests with images first, in the middle, at the end, several, equal ones and adjacent
// ones, beside requests of text alone, greedy and sampled. Requests 0 and 1 differ in the image only.
func (f seeing) requests() []engine.Request {
	a, b, c, d := f.image(1, 2, 2), f.image(2, 4, 3), f.image(3, 3, 4), f.image(4, 4, 4)
	var out []engine.Request
	for i, parts := range [][]any{
		{5, b, 9}, {5, c, 9}, {5, b, 9, a, 4}, {20, d, 1}, {3, a, 40, b, 2, c, 5}, {31, a}, {2, a, a, 6, d, 9}, {60, c, 20}, {a, 3}, {7, a}, {2, a, 1, a}, {12}, {4, d, 3}, {b, 6},
	} {
		p := sample.Default()
		p.Temperature, p.MaxTokens, p.IgnoreEOS = 0, 8+i%5, true
		if i%4 >= 2 {
			p.Seed, p.HasSeed, p.Temperature, p.TopP, p.Repetition = uint64(i), true, 0.9, 0.95, 1.1
		}
		if i >= 8 { // short prompts whose pages run out, the last ones first
			p.MaxTokens = 40
		}
		seed := i
		if i <= 2 {
			seed = 0
		}
		r := engine.Request{ID: fmt.Sprint("r", i), Params: p, N: 1}
		r.Prompt, r.Items = prompt(seed, parts...)
		for k := range r.Prompt {
			if f.vocab > 0 {
				r.Prompt[k] %= int32(f.vocab)
			}
		}
		if i == 10 || i == 11 { // few tokens, repeated
			r.Params.AllowedTokenIDs = []int32{11, 12, 13}
		}
		out = append(out, r)
	}
	return out
}

// imageRun is the result of a run.
type imageRun struct {
	tokens                     [][]int32
	hits, items, encoded, back int
	accepted                   int
	later                      int // items encoded in later rounds
	stats                      engine.Stats
}

// imageAxis is one way to run the requests.
type imageAxis struct {
	name       string
	everywhere bool // runs for slow families on ref too
	change     func(*toy)
	alone      bool
	rounds     int
	took       func(*imageRun) bool // what the way tests has happened; nil: no check
}

// imageAxes are the ways to run the requests that must not change any token. The first is the reference.
var imageAxes = []imageAxis{
	{name: "plain, alone", everywhere: true, alone: true},
	{name: "in a batch", everywhere: true},
	{name: "overlapped, chunks of 16", change: func(y *toy) { y.opts.Overlap, y.opts.MaxNumBatchedTokens = true, 16 }},
	{name: "chunks of 24, alone, a small cache", alone: true, change: func(y *toy) {
		y.opts.MaxNumBatchedTokens, y.opts.Items.Rows = 24, 16
	}},
	{name: "the encoder cache, twice", rounds: 2, took: func(r *imageRun) bool { return r.later == 0 && r.items > r.encoded }, change: func(y *toy) { y.opts.Overlap = true }},
	{name: "prefixes, twice", rounds: 2, took: func(r *imageRun) bool { return r.hits > 0 && r.later == 0 }, change: func(y *toy) {
		y.opts.Overlap, y.opts.PrefixCaching = true, true
	}},
	{name: "prefixes, chunks of 16, alone, twice", everywhere: true, alone: true, rounds: 2, took: func(r *imageRun) bool { return r.hits > 0 }, change: func(y *toy) {
		y.opts.PrefixCaching, y.opts.MaxNumBatchedTokens = true, 16
	}},
	{name: "preempted, overlapped", everywhere: true, took: func(r *imageRun) bool { return r.stats.Preemptions > 0 }, change: func(y *toy) {
		y.slabs, y.fat, y.opts.Overlap, y.opts.Items.Rows = least, true, true, 16
	}},
	{name: "swapped", took: func(r *imageRun) bool { return r.back > 0 }, change: func(y *toy) {
		y.slabs, y.fat, y.opts.SwapBytes = least, true, 64<<20
	}},
	{name: "n-grams proposed, preempted", took: func(r *imageRun) bool { return r.accepted > 0 && r.stats.Preemptions > 0 }, change: func(y *toy) {
		ngrams(3)(y)
		y.slabs, y.fat = least, true
	}},
	{name: "n-grams proposed, prefixes, chunks of 16, twice", everywhere: true, rounds: 2, took: func(r *imageRun) bool { return r.accepted > 0 && r.hits > 0 }, change: func(y *toy) {
		ngrams(2)(y)
		y.opts.PrefixCaching, y.opts.MaxNumBatchedTokens = true, 16
	}},
	{name: "chunks of a wild clock, overlapped", change: wild(true)},
	{name: "prompts not cut", change: func(y *toy) { y.opts.ChunkedPrefill, y.opts.Items.Rows = false, 16 }},
}

// TestImages runs requests with images through the whole engine in all ways of imageAxes. Each way
// gives the tokens of the plain one.
func TestImages(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	images(t, ref.Opener{}, backend.Settings{}, seeingFamilies)
}

func images(t *testing.T, on backend.Opener, s backend.Settings, families []seeing) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			like := toy{dir: f.folder(t, t.TempDir()), on: on, slabs: 16, build: models.Build{Vision: true}, opts: engine.Options{
				MaxModelLen: 160, MaxNumSeqs: 16, MaxNumBatchedTokens: 2048, BlockSize: 16, KVFormat: kernels.F32, ChunkedPrefill: true,
				Backend: s, Items: engine.ItemOptions{Patches: 16 * f.side * f.side},
			}}
			if on.Name() == "cuda" {
				like.build.Dtype = kernels.F32 // products of matrix units round their inputs
			}
			var plain [][]int32
			for _, a := range imageAxes {
				if f.slow && on.Name() == "ref" && !a.everywhere && !longSoak {
					continue
				}
				t.Run(a.name, func(t *testing.T) {
					y := like
					if a.change != nil {
						a.change(&y)
					}
					if y.slabs == least && y.roomy(t) {
						t.Skip("not run: the arena, which the backend rounds up, has pages for all; on ranks they run out")
					}
					r := f.run(t, &y, a.alone, a.rounds)
					if a.took != nil && !a.took(r) {
						t.Errorf("%d prompt tokens cached, %d images of which %d encoded, %d in later rounds, %d proposals accepted, %d swapped in, %d preempted: this tests too little", r.hits, r.items, r.encoded, r.later, r.accepted, r.back, r.stats.Preemptions)
					}
					if plain == nil {
						if plain = r.tokens; slices.Equal(plain[0], plain[1]) {
							t.Errorf("two images give the same tokens %v: this tests too little", plain[0])
						}
						return
					}
					for i := range plain {
						if !slices.Equal(r.tokens[i], plain[i]) {
							t.Errorf("request %d: %v, plain %v", i, r.tokens[i], plain[i])
						}
					}
				})
			}
		})
	}
}

// run opens an engine and submits the requests, one after the other or all at once.
func (f seeing) run(t *testing.T, y *toy, alone bool, rounds int) *imageRun {
	t.Helper()
	r := &imageRun{}
	var mu sync.Mutex
	arrived := make(chan struct{}) // the first step waits for all requests, so that these run together
	if alone {
		close(arrived)
	}
	y.hooks.Step = func(s engine.StepStats) {
		<-arrived
		mu.Lock()
		defer mu.Unlock()
		r.hits += s.CacheHits
		r.items += s.Items
		r.encoded += s.EncodedItems
		r.back += s.SwappedIn
		r.accepted += s.AcceptedTokens
	}
	e := y.open(t)
	for round := range max(rounds, 1) {
		requests := f.requests()
		streams, tokens := make([]*engine.Stream, len(requests)), make([][]int32, len(requests))
		mu.Lock()
		before := r.encoded
		mu.Unlock()
		for i, q := range requests {
			s, err := e.Submit(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			if streams[i] = s[0]; alone {
				tokens[i] = replied(t, s[0])
			}
		}
		if round == 0 && !alone {
			close(arrived)
		}
		for i, s := range streams {
			if !alone {
				tokens[i] = replied(t, s)
			}
		}
		if r.tokens != nil && !slices.EqualFunc(r.tokens, tokens, slices.Equal[[]int32]) {
			t.Errorf("another round gives other tokens: %v, then %v", r.tokens, tokens)
		}
		r.tokens = tokens
		mu.Lock()
		if round > 0 {
			r.later += r.encoded - before
		}
		mu.Unlock()
	}
	if err := e.Check(context.Background()); err != nil {
		t.Error(err)
	}
	r.stats = e.Stats()
	mu.Lock()
	defer mu.Unlock()
	return r
}

// replied reads a stream to its end, which must not be an error.
func replied(t *testing.T, s *engine.Stream) []int32 {
	t.Helper()
	tokens, last := collect(t, s)
	if last.Finish != engine.FinishLength {
		t.Errorf("ended with %v after %d tokens: %v", last.Finish, len(tokens), last.Err)
	}
	return tokens
}

// TestImagesOfTextModels refuses images for a model that runs without a vision tower, and items that are no
// images of a tower, by name. Nothing is queued.
func TestImagesOfTextModels(t *testing.T) {
	f := seeingFamilies[0]
	submit := func(e *engine.Engine, m engine.Item, change func(*engine.Request)) error {
		p := sample.Default()
		p.MaxTokens = 1
		r := engine.Request{Params: p, N: 1}
		r.Prompt, r.Items = prompt(1, 3, m, 2)
		change(&r)
		_, err := e.Submit(context.Background(), r)
		return err
	}
	refused := func(e *engine.Engine, name string, m engine.Item, change func(*engine.Request), want string) {
		t.Helper()
		var wrong *engine.ItemError
		if err := submit(e, m, change); !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	none := func(*engine.Request) {}
	text := newToy(t).open(t)
	refused(text, "a text model", f.image(1, 2, 2), none, "without a vision tower")
	y := toy{dir: filepath.Join(t.TempDir(), f.name), slabs: 16, build: models.Build{Vision: true}, opts: engine.Options{
		MaxModelLen: 160, MaxNumSeqs: 4, MaxNumBatchedTokens: 64, BlockSize: 16, KVFormat: kernels.F32, ChunkedPrefill: true, Items: engine.ItemOptions{Patches: 144},
	}}
	f.write(t, y.dir)
	m := y.inspect(t)
	defer m.Close()
	if why := y.account(t, m).PlanOnly; why != nil {
		t.Skipf("not run: the backend plans images only: %v", why)
	}
	e := y.open(t)
	turned := f.image(1, 2, 2)
	turned.Across, turned.Down = turned.Down, turned.Across
	short := f.image(1, 2, 2)
	short.Pixels = short.Pixels[1:]
	plain := f.image(1, 2, 2)
	plain.Colours = nil
	fewer := f.image(1, 2, 2)
	fewer.Tokens = 3
	refused(e, "more patches than the largest", f.image(1, 5, 4), none, "at most 144")
	refused(e, "pixels missing", short, none, "numbers")
	refused(e, "colours missing", plain, none, "have no colours")
	refused(e, "places in another order", turned, none, "patch 1 is in column 0, row 1")
	refused(e, "another number of tokens", fewer, none, "36 patches give 4")
	refused(e, "beyond the prompt", f.image(1, 2, 2), func(r *engine.Request) { r.Items[0].At = 6 }, "exceed the prompt of 9 tokens")
	refused(e, "prompt logprobs", f.image(1, 2, 2), func(r *engine.Request) { r.Params.PromptLogprobs = 0 }, "leave out prompt_logprobs")
	if err := submit(e, f.image(1, 2, 2), none); err != nil {
		t.Error(err)
	}
	if n := e.Stats(); n.EncodedRows != 64 {
		t.Errorf("%+v", n)
	}
}

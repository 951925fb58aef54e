package engine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/local"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/engine/ranks"
	"vapp.dev/engine/sample"
	"vapp.dev/kernels"
)

// rebuilt are models whose weights outlive an engine, one for each way to store or to use weights.
var rebuilt = []struct {
	name string
	toy  func(t *testing.T) toy
}{
	{"float32", func(t *testing.T) toy { return smallRun(writeSmall(t, 7)) }},
	{"GGUF", func(t *testing.T) toy {
		path := filepath.Join(t.TempDir(), "toy.gguf")
		llama := enginetest.Llama{Hidden: 256, HeadDim: 64, Heads: 4, KVHeads: 2, Layers: 2, Intermediate: 256, Seed: 9}
		if err := enginetest.WriteGGUF(path, llama, enginetest.GGUF{}); err != nil {
			t.Fatal(err)
		}
		return smallRun(path)
	}},
	{"fp8", func(*testing.T) toy { return smallRun(checkpointOf("tiny-qwen35-fp8")) }},
	{"MXFP4", func(*testing.T) toy { return smallRun(checkpointOf("tiny-gpt-oss")) }},
	{"own head", func(t *testing.T) toy {
		dir, _ := recordedHead(t)
		y := smallRun(dir)
		y.opts.Overlap = false
		head(2)(&y)
		return y
	}},
	{"draft model", func(t *testing.T) toy {
		y := smallRun(writeSmall(t, 7))
		y.build, y.opts.Drafts, y.opts.Overlap = models.Build{Draft: 2, Verify: 2}, 2, false
		y.draft = writeSmall(t, 8)
		return y
	}},
}

// writeSmall writes a model of one layer.
func writeSmall(t *testing.T, seed uint64) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "small")
	if err := enginetest.WriteLlama(dir, enginetest.Llama{Layers: 1, Hidden: 64, Heads: 2, KVHeads: 1, HeadDim: 32, Intermediate: 64, Seed: seed}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestRebuild: an engine with the weights of another one, and with more pages, loads nothing and continues like that one: beside it,
// and after either is closed.
func TestRebuild(t *testing.T) { rebuild(t, ref.Opener{}, backend.Settings{}, kernels.F32) }

func rebuild(t *testing.T, on backend.Opener, s backend.Settings, pages kernels.Format, without ...string) {
	for _, c := range rebuilt {
		if slices.Contains(without, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			y := c.toy(t)
			y.on, y.opts.Backend, y.opts.KVFormat = on, s, pages
			a := y.open(t)
			want := answer(t, ask(t, a, ""))
			w := weightsOf(t, a)
			next := y
			next.weights, next.slabs, next.opts.MaxNumSeqs = w, y.slabs+8, y.opts.MaxNumSeqs+1
			next.progress = func(p engine.Progress) {
				if !p.Capturing {
					t.Errorf("it loads: %+v", p)
				}
			}
			b := next.open(t)
			if ua, ub := a.Usage(), b.Usage(); ua[backend.Weights] != ub[backend.Weights] || w.Bytes() != ua[backend.Weights] {
				t.Errorf("arenas of %v and %v bytes, weights of %d", ua, ub, w.Bytes())
			}
			ia, _ := a.WeightsInfo()
			if ib, ok := b.WeightsInfo(); !ok || ia != ib || ib.Devices != 2 {
				t.Errorf("%+v and %+v", ia, ib)
			}
			of, on := ask(t, a, ""), ask(t, b, "") // both run
			if x, z := answer(t, of), answer(t, on); !slices.Equal(x, want) || !slices.Equal(z, want) {
				t.Errorf("together %v and %v, alone %v", x, z, want)
			}
			ended(t, a)
			if got := answer(t, ask(t, b, "")); !slices.Equal(got, want) {
				t.Errorf("after the first Close %v, before %v", got, want)
			}
			third := next.open(t) // and the other order
			ended(t, third)
			if got := answer(t, ask(t, b, "")); !slices.Equal(got, want) {
				t.Errorf("after Close of the third %v, before %v", got, want)
			}
			ended(t, b)
			if err := w.Close(); err != nil || w.Bytes() != 0 {
				t.Errorf("the last Close: %v, %d bytes", err, w.Bytes())
			}
			if _, err := b.Weights(); err == nil {
				t.Error("Weights of freed memory: no error")
			}
		})
	}
}

// smallRun returns a model in a folder or file that runs in chunks of 32 with pages of bf16.
func smallRun(dir string) toy {
	return toy{dir: dir, slabs: 16, opts: engine.Options{
		MaxModelLen: 64, MaxNumSeqs: 4, MaxNumBatchedTokens: 32, BlockSize: 16, KVFormat: kernels.BF16, ChunkedPrefill: true, Overlap: true,
	}}
}

// ask submits a greedy request.
func ask(t *testing.T, e *engine.Engine, adapter string) *engine.Stream {
	t.Helper()
	p := sample.Default()
	p.Temperature, p.MaxTokens, p.IgnoreEOS = 0, 6, true
	q := engine.Request{Prompt: make([]int32, 37), Params: p, Adapter: adapter}
	for i := range q.Prompt {
		q.Prompt[i] = int32(3 + i*i*7%60)
	}
	s, err := e.Submit(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	return s[0]
}

// answer returns the tokens of a stream.
func answer(t *testing.T, s *engine.Stream) []int32 {
	t.Helper()
	tokens, last := collect(t, s)
	if last.Err != nil || len(tokens) != 6 {
		t.Fatalf("%v, %v", tokens, last.Err)
	}
	return tokens
}

func weightsOf(t *testing.T, e *engine.Engine) backend.PackedWeights {
	t.Helper()
	w, err := e.Weights()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func ended(t *testing.T, e *engine.Engine) {
	t.Helper()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// reopen opens an engine that is expected to fail.
func (y toy) reopen(t *testing.T, w backend.PackedWeights) error {
	t.Helper()
	m := y.inspect(t)
	defer m.Close()
	kv := y.account(t, m).KV
	y.opts.KVBytes = int64(max(1, y.slabs)) * kv.SlabBytes
	e, err := engine.Open(context.Background(), engine.Config{Options: y.opts, Model: m, Opener: y.opener(), Facts: y.facts(t), Account: y.account(t, m), Weights: w})
	if err == nil {
		ended(t, e)
	}
	return err
}

// refusedWeights fails the test unless err is a *backend.WeightsError of the kind in one line.
func refusedWeights(t *testing.T, err error, kind backend.WeightsKind) {
	t.Helper()
	var w *backend.WeightsError
	if !errors.As(err, &w) || w.Kind != kind || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v, want kind %d", err, kind)
	}
}

// TestRebuildAdapters: weights with slots of adapters serve one engine at a time, and the next one begins with empty
// slots.
func TestRebuildAdapters(t *testing.T) { rebuildAdapters(t, ref.Opener{}, backend.Settings{}) }

func rebuildAdapters(t *testing.T, on backend.Opener, s backend.Settings) {
	y := adapted(on, s, 2)
	dir := writeAdapter(t, y.dir, 8, 1)
	a := y.open(t)
	load(t, a, "one", dir)
	plain, with := answer(t, ask(t, a, "")), answer(t, ask(t, a, "one"))
	if slices.Equal(plain, with) {
		t.Fatal("the adapter changes nothing: this test would prove nothing")
	}
	w := weightsOf(t, a)
	next := *y
	next.weights, next.slabs = w, y.slabs+8
	refusedWeights(t, next.reopen(t, w), backend.WeightsInUse)
	if got := answer(t, ask(t, a, "one")); !slices.Equal(got, with) {
		t.Errorf("after a refused Open %v, before %v", got, with)
	}
	ended(t, a)
	b := next.open(t)
	if list := b.Adapters(); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	load(t, b, "two", writeAdapter(t, y.dir, 4, 2))
	load(t, b, "again", dir)
	if x, z := answer(t, ask(t, b, "")), answer(t, ask(t, b, "again")); !slices.Equal(x, plain) || !slices.Equal(z, with) {
		t.Errorf("%v and %v, before %v and %v", x, z, plain, with)
	}
}

// TestRebuildRefused: weights of other files, of another layout, and a group of ranks.
func TestRebuildRefused(t *testing.T) {
	y := *newToy(t)
	a := y.open(t)
	w := weightsOf(t, a)
	other := y
	other.build.Dtype = kernels.BF16
	refusedWeights(t, other.reopen(t, w), backend.WeightsLayout)
	longer := y
	longer.opts.Backend.Activations = backend.FP8Activations
	refusedWeights(t, longer.reopen(t, w), backend.WeightsLayout)
	files, err := filepath.Glob(filepath.Join(y.dir, "*.safetensors"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	if err := os.Chtimes(files[0], time.Time{}, time.Unix(1e9, 0)); err != nil {
		t.Fatal(err)
	}
	refusedWeights(t, y.reopen(t, w), backend.WeightsSource)
	if i := w.Info(); i.Devices != 1 || i.Holders != 1 {
		t.Errorf("refused engines use the weights: %+v", i)
	}
	grouped := y
	grouped.opts.Backend.Group = local.New(1, 1)[0]
	if err := grouped.reopen(t, w); !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), "several ranks") {
		t.Errorf("in a group: %v", err)
	}
	ranked := *newToy(t)
	ranked.world = ranks.Places{Tensor: 2, Pipeline: 1}
	ranked.opts.PrefixCaching = false
	if _, err := ranked.open(t).Weights(); !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), "several ranks") {
		t.Errorf("of a group: %v", err)
	}
	y.on = deaf{ref.Opener{}}
	if err := y.reopen(t, w); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("of a backend that does not share: %v", err)
	}
}

// deaf is a backend that does not know Settings.Weights.
type deaf struct{ backend.Opener }

func (d deaf) Open(f backend.Facts, s backend.Settings, r backend.Reservation) (backend.Device, error) {
	s.Weights = nil
	return d.Opener.Open(f, s, r)
}

package engine_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/models"
	"vapp.dev/engine/sample"
	"vapp.dev/kernels"
)

// writeAdapter writes an adapter of random numbers for all linear layers of a checkpoint.
func writeAdapter(t testing.TB, base string, rank int, seed uint64) string {
	t.Helper()
	ck, err := checkpoint.Open(base)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	rng := rand.New(rand.NewPCG(seed, 5))
	head, data := map[string]any{}, []byte(nil)
	add := func(name string, rows, cols int, scale float64) {
		from := len(data)
		for range rows * cols {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(scale*rng.NormFloat64())))
		}
		head[name] = map[string]any{"dtype": "F32", "shape": []int{rows, cols}, "data_offsets": []int{from, len(data)}}
	}
	for _, one := range ck.Tensors() {
		if module, ok := strings.CutSuffix(one.Name, "_proj.weight"); ok {
			out, in := int(one.Shape[0]), int(one.Shape[1])
			add("base_model.model."+module+"_proj.lora_A.weight", rank, in, 1/math.Sqrt(float64(in)))
			add("base_model.model."+module+"_proj.lora_B.weight", out, rank, 0.5)
		}
	}
	text, err := json.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	file := append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), data...)
	dir := t.TempDir()
	config := fmt.Sprintf(`{"peft_type": "LORA", "r": %d, "lora_alpha": %d}`, rank, 2*rank)
	for name, b := range map[string][]byte{"adapter_config.json": []byte(config), "adapter_model.safetensors": file} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// adapted is a toy engine with slots.
func adapted(on backend.Opener, s backend.Settings, slots int) *toy {
	return &toy{dir: "models/testdata/tiny-llama3-tied", on: on, slabs: 16, build: models.Build{LoRA: models.LoRA{Slots: slots, Rank: 8}}, opts: engine.Options{
		MaxModelLen: 128, MaxNumSeqs: 16, MaxNumBatchedTokens: 256, BlockSize: 16, KVFormat: kernels.F32, ChunkedPrefill: true, Backend: s,
	}}
}

func load(t testing.TB, e *engine.Engine, name, dir string) {
	t.Helper()
	if err := e.LoadAdapter(context.Background(), name, dir, false); err != nil {
		t.Fatal(err)
	}
}

// PlaceAdapter implements models.Adaptable.
func (f fat) PlaceAdapter(a *checkpoint.Adapter, slot int, write func(w backend.WeightID, row0 int, data []byte) error) error {
	return f.Model.(models.Adaptable).PlaceAdapter(a, slot, write)
}

// adapterRequests returns two requests for each adapter and two without, of one prompt's prefixes.
func adapterRequests(n int) []engine.Request {
	var out []engine.Request
	for i := range 2 * (n + 1) {
		p := sample.Default()
		p.Temperature, p.IgnoreEOS = 0, true
		r := engine.Request{ID: fmt.Sprint(i), Params: p, N: 1}
		if a := i % (n + 1); a > 0 {
			r.Adapter = fmt.Sprint("a", a)
		}
		tokens := 14 // short ones start together and generate much: their pages run out
		if r.Params.MaxTokens = 36; i > n {
			tokens, r.Params.MaxTokens = 47, 12
		}
		for k := range tokens {
			r.Prompt = append(r.Prompt, int32(3+k*k%200))
		}
		out = append(out, r)
	}
	return out
}

// TestAdapters runs eight adapters and the model alone in every way: all in a batch, each alone, in
// chunks, with prefixes, preempted. Each way gives the same tokens, and those without an adapter are those of an
// engine without slots.
func TestAdapters(t *testing.T) { adapterTwins(t, ref.Opener{}, backend.Settings{}) }

func adapterTwins(t *testing.T, on backend.Opener, s backend.Settings) {
	const n = 8
	var dirs []string
	for i := range n {
		dirs = append(dirs, writeAdapter(t, "models/testdata/tiny-llama3-tied", []int{8, 4, 1}[i%3], uint64(i)))
	}
	var plain [][]int32
	for _, way := range []struct {
		name   string
		alone  bool
		rounds int
		change func(*toy)
		check  func(engine.Stats, int) bool // stats, prompt tokens from the prefix cache
	}{
		{name: "alone", alone: true},
		{name: "in a batch"},
		{name: "overlapped, chunks of 16", change: func(y *toy) { y.opts.Overlap, y.opts.MaxNumBatchedTokens = true, 16 }},
		{name: "prefixes, twice", rounds: 2, change: func(y *toy) { y.opts.PrefixCaching, y.opts.Overlap = true, true }, check: func(_ engine.Stats, hits int) bool { return hits > 0 }},
		{name: "preempted", change: func(y *toy) { y.slabs, y.fat = least, true }, check: func(s engine.Stats, _ int) bool { return s.Preemptions > 0 }},
		{name: "n-grams proposed", change: ngrams(3)},
	} {
		t.Run(way.name, func(t *testing.T) {
			y := adapted(on, s, n)
			if way.change != nil {
				way.change(y)
			}
			hits := 0
			y.hooks.Finished = func(r engine.RequestStats) { hits += r.CachedTokens }
			arrived := make(chan struct{}) // closed after all requests
			if way.alone {
				close(arrived)
			}
			y.hooks.Step = func(engine.StepStats) { <-arrived }
			e := y.open(t)
			for i, dir := range dirs {
				load(t, e, fmt.Sprint("a", i+1), dir)
			}
			var got [][]int32
			for round := range max(1, way.rounds) {
				var streams []*engine.Stream
				got = nil
				for _, q := range adapterRequests(n) {
					one, err := e.Submit(context.Background(), q)
					if err != nil {
						t.Fatal(err)
					}
					if way.alone {
						tokens, _ := collect(t, one[0])
						got = append(got, tokens)
						continue
					}
					streams = append(streams, one...)
				}
				if round == 0 && !way.alone {
					close(arrived)
				}
				for _, one := range streams {
					tokens, _ := collect(t, one)
					got = append(got, tokens)
				}
				if plain == nil {
					plain = got
				}
				if !slices.EqualFunc(got, plain, slices.Equal[[]int32]) {
					t.Errorf("round %d: %v, alone %v", round, got, plain)
				}
			}
			stats := e.Stats()
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			if way.check != nil && !way.check(stats, hits) {
				t.Errorf("it did not happen: %+v, %d tokens from the prefix cache", stats, hits)
			}
		})
	}
	seen := map[string]bool{}
	for _, tokens := range plain[:n+1] {
		seen[fmt.Sprint(tokens)] = true
	}
	if len(seen) < n {
		t.Errorf("%d adapters and the model alone give %d texts", n, len(seen))
	}
	y := adapted(on, s, n)
	y.build.LoRA = models.LoRA{}
	e := y.open(t)
	for i, q := range adapterRequests(n) {
		if q.Adapter != "" {
			continue
		}
		one, err := e.Submit(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		if tokens, _ := collect(t, one[0]); !slices.Equal(tokens, plain[i]) {
			t.Errorf("request %d without slots: %v, with slots %v", i, tokens, plain[i])
		}
	}
}

// TestAdapterLife loads, replaces and unloads adapters, and names each refusal.
func TestAdapterLife(t *testing.T) {
	ctx := context.Background()
	base := "models/testdata/tiny-llama3-tied"
	one, two := writeAdapter(t, base, 4, 1), writeAdapter(t, base, 8, 2)
	y := adapted(ref.Opener{}, backend.Settings{}, 2)
	y.opts.PrefixCaching = true
	e := y.open(t)
	refused := func(err error, kind engine.AdapterKind, words string) {
		t.Helper()
		var a *engine.AdapterError
		if !errors.As(err, &a) || a.Kind != kind || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want kind %d with %q", err, kind, words)
		}
	}
	tokens := func(adapter string) []int32 {
		t.Helper()
		q := adapterRequests(0)[1]
		q.Adapter = adapter
		s, err := e.Submit(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		out, _ := collect(t, s[0])
		return out
	}
	_, err := e.Submit(ctx, engine.Request{Prompt: []int32{3}, Params: sample.Default(), Adapter: "a"})
	refused(err, engine.AdapterUnknown, "is not loaded")
	load(t, e, "a", one)
	refused(e.LoadAdapter(ctx, "a", two, false), engine.AdapterExists, "load in place")
	load(t, e, "b", two)
	refused(e.LoadAdapter(ctx, "c", one, false), engine.AdapterFull, "lora.maxLoras")
	refused(e.LoadAdapter(ctx, "a", t.TempDir(), true), engine.AdapterInvalid, "adapter_config.json")
	refused(e.UnloadAdapter(ctx, "c"), engine.AdapterUnknown, "is not loaded")
	first, second := tokens("a"), tokens("b")
	if slices.Equal(first, second) || slices.Equal(first, tokens("")) {
		t.Errorf("adapters give %v and %v, the model alone %v", first, second, tokens(""))
	}
	if got := e.Adapters(); len(got) != 2 || got[0].Name != "a" || got[0].Path != one || got[0].Rank != 4 || got[0].Slot == got[1].Slot {
		t.Errorf("%+v", got)
	}
	// Another adapter under the name: nothing cached for the first one is used.
	if err := e.LoadAdapter(ctx, "a", two, true); err != nil {
		t.Fatal(err)
	}
	if got := tokens("a"); !slices.Equal(got, second) {
		t.Errorf("replaced: %v, want %v", got, second)
	}
	// A running request keeps its adapter: unloading waits for it, and refuses others.
	q := adapterRequests(0)[1]
	q.Adapter, q.Params.MaxTokens = "b", 80
	s, err := e.Submit(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, time.Nanosecond)
	defer cancel()
	<-short.Done()
	if err := e.UnloadAdapter(short, "b"); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	out, _ := collect(t, s[0])
	if !slices.Equal(out[:len(second)], second) {
		t.Errorf("a running request: %v, want %v", out, second)
	}
	for _, a := range e.Adapters() {
		if err := e.UnloadAdapter(ctx, a.Name); err != nil {
			t.Error(err)
		}
	}
	load(t, e, "c", one)
	load(t, e, "d", two)
	if got := tokens("c"); !slices.Equal(got, first) {
		t.Errorf("loaded again: %v, want %v", got, first)
	}
	if got := e.Adapters(); len(got) != 2 || got[0].Running != 0 || got[0].Waiting != 0 {
		t.Errorf("%+v", got)
	}
	y = adapted(ref.Opener{}, backend.Settings{}, 0)
	y.build.LoRA = models.LoRA{}
	e = y.open(t)
	refused(e.LoadAdapter(ctx, "a", one, false), engine.AdapterUnsupported, "lora.maxLoras")
	_, err = e.Submit(ctx, engine.Request{Prompt: []int32{3}, Params: sample.Default(), Adapter: "a"})
	refused(err, engine.AdapterUnknown, "is not loaded")
}

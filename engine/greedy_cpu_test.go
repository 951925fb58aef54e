//go:build cgo && linux

package engine_test

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/sample"
	"vapp.dev/kernels"
	kcpu "vapp.dev/kernels/cpu"
)

// greedyWays are the settings of weights on backend cpu beyond a plain format; a new one is one
// more entry.
var greedyWays = []struct {
	name   string
	of     []kernels.Format // that have it; nil: all others
	change func(*toy)
}{
	{name: "stored"},
	{name: "a scale for each tensor", of: []kernels.Format{kernels.F8E4M3}, change: scaled(`{"quant_method": "fp8"}`)},
	{name: "a scale for each channel", of: []kernels.Format{kernels.F8E4M3}, change: scaled(`{"quant_method": "fbgemm_fp8"}`)},
	{name: "a scale for each block", of: []kernels.Format{kernels.F8E4M3}, change: scaled(`{"quant_method": "fp8", "weight_block_size": [128, 128]}`)},
	{name: "a scale for each tensor", of: []kernels.Format{kernels.I8}, change: scaled(compressedInt8("tensor", "null", "null"))},
	{name: "a scale for each channel", of: []kernels.Format{kernels.I8}, change: scaled(compressedInt8("channel", "null", "null"))},
	{name: "a scale for each group", of: []kernels.Format{kernels.I8}, change: scaled(compressedInt8("group", "64", "null"))},
	{name: "a scale for each token too", of: []kernels.Format{kernels.I8}, change: scaled(compressedInt8("channel", "null", `{"num_bits": 8, "type": "int", "strategy": "token", "dynamic": true}`))},
	{name: "a scale for each 16 inputs", of: []kernels.Format{kernels.NVFP4}, change: scaled(`{"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}`)},
	{name: "int8 activations", of: []kernels.Format{kernels.Q8_0, kernels.Q4_0, kernels.Q4_1, kernels.Q4_K, kernels.Q6_K, kernels.Q5_0, kernels.Q5_1, kernels.Q5_K}, change: func(y *toy) { y.opts.Backend.Activations = "int8" }},
	{name: "quantized at load", of: []kernels.Format{kernels.BF16}, change: func(y *toy) { y.build.Quantize = kernels.F8E4M3 }},
}

// compressedInt8 returns the quantization_config of int8 weights, with the given activations or null.
func compressedInt8(strategy, group, inputs string) string {
	return fmt.Sprintf(`{"quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"],
		"weights": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": %q, "group_size": %s}, "input_activations": %s}}}`, strategy, group, inputs)
}

// scaled gives 8-bit weights the scales of a quantization_config.
func scaled(config string) func(*toy) { return func(y *toy) { y.stored.scales = config } }

// unread are formats that the kernels multiply but no checkpoint uses.
var unread = []kernels.Format{kernels.F8E5M2}

// alike are formats whose blocks are unpacked to what those of IQ3_S, IQ2_XS or TQ1_0 are.
var alike = []kernels.Format{kernels.IQ3_XXS, kernels.IQ2_XXS, kernels.IQ2_S, kernels.IQ1_S, kernels.IQ1_M, kernels.TQ2_0}

// TestGreedy checks batch invariance: for every kernel variant of this machine and every format,
// 16 prompts of different lengths give the same greedy tokens all at once and one after the other,
// with logprobs equal to the bit. Without the tag soak outputs are shorter, and the slow plain C
// variant has a smaller model and shorter prompts.
func TestGreedy(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	for i, v := range variantsHere(t) {
		if racing && i > 0 {
			break // the race detector does not see the arithmetic
		}
		threads := 1
		if i == 0 {
			threads = 2 // who wait for each other, long on a busy machine
		}
		for _, f := range kcpu.SupportedFormats(v) {
			for _, w := range greedyWays {
				if slices.Contains(unread, f) || slices.Contains(alike, f) && !longSoak || w.of != nil && !slices.Contains(w.of, f) || w.of == nil && (f == kernels.F8E4M3 || f == kernels.I8 || f == kernels.NVFP4) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%v/%s", v, f, w.name), func(t *testing.T) {
					y := greedyToy(v)
					y.opts.Backend.Threads, y.stored.format = threads, f
					if w.change != nil {
						w.change(y)
					}
					greedy(t, y)
				})
			}
		}
	}
}

// greedyToy returns a model whose rows are whole blocks of every format.
func greedyToy(variant string) *toy {
	y := &toy{on: cpu.Opener{}, slabs: 16, llama: enginetest.Llama{Hidden: 256, HeadDim: 64, Intermediate: 512, Vocab: 500, Seed: 5}}
	y.opts = engine.Options{
		MaxModelLen: 160, MaxNumSeqs: 16, MaxNumBatchedTokens: 256, BlockSize: 16, KVFormat: kernels.BF16, ChunkedPrefill: true,
		Backend: backend.Settings{Variant: variant},
	}
	if brief(y) {
		y.llama.Layers, y.llama.Intermediate = 1, 256
	}
	return y
}

func brief(y *toy) bool { return y.opts.Backend.Variant == "generic" && !longSoak }

func greedy(t *testing.T, y *toy) {
	y.dir = filepath.Join(t.TempDir(), "toy")
	if err := enginetest.WriteLlama(y.dir, y.llama); err != nil {
		t.Fatal(err)
	}
	arrived, together := make(chan struct{}), false
	most := 0
	y.hooks.Step = func(s engine.StepStats) {
		if together {
			<-arrived
		}
		most = max(most, s.GenerationTokens)
	}
	e := y.open(t)
	var alone [16][]drawn
	for i := range alone {
		alone[i] = drawnOf(t, submitGreedy(t, e, i, brief(y)))
	}
	if err := e.Check(context.Background()); err != nil { // between two steps: together is the loop's to read
		t.Fatal(err)
	}
	together = true
	var streams [16]*engine.Stream
	for i := range streams {
		streams[i] = submitGreedy(t, e, i, brief(y))
	}
	close(arrived)
	kinds := map[int32]bool{}
	for i := range streams {
		got := drawnOf(t, streams[i])
		for k := range min(len(got), len(alone[i])) {
			kinds[got[k].id] = true
			if got[k] != alone[i][k] {
				t.Fatalf("prompt %d, token %d: %d at %x in the batch, %d at %x alone", i, k, got[k].id, got[k].logprob, alone[i][k].id, alone[i][k].logprob)
			}
		}
		if len(got) != len(alone[i]) {
			t.Fatalf("prompt %d: %d tokens in the batch, %d alone", i, len(got), len(alone[i]))
		}
	}
	if err := e.Check(context.Background()); err != nil {
		t.Fatal(err)
	}
	if most < 16 || len(kinds) < 2 {
		t.Errorf("%d sequences in a step, %d different tokens: the run tests too little", most, len(kinds))
	}
}

// drawn is a sampled token and the bits of its logprob.
type drawn struct {
	id      int32
	logprob uint32
}

func submitGreedy(t *testing.T, e *engine.Engine, i int, brief bool) *engine.Stream {
	t.Helper()
	prompt := make([]int32, []int{1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 32, 33, 47, 64, 65, 100}[i])
	if brief {
		prompt = prompt[:min(len(prompt), 33)]
	}
	for k := range prompt {
		prompt[k] = int32((i*31 + k*k*7 + k*13) % 490)
	}
	p := sample.Default()
	p.Temperature, p.MaxTokens, p.IgnoreEOS, p.Logprobs = 0, 12+i%7, true, 1
	if longSoak {
		p.MaxTokens = 32 + i%7
	}
	if brief {
		p.MaxTokens = 8
	}
	s, err := e.Submit(context.Background(), engine.Request{ID: fmt.Sprint(i), Prompt: prompt, Params: p, N: 1})
	if err != nil {
		t.Fatal(err)
	}
	return s[0]
}

func drawnOf(t *testing.T, s *engine.Stream) (out []drawn) {
	t.Helper()
	for {
		evs, err := s.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if len(evs) == 0 {
			return out
		}
		for _, ev := range evs {
			if ev.Err != nil || ev.Token < 0 || ev.Logprob == nil {
				t.Fatalf("%+v", ev)
			}
			out = append(out, drawn{ev.Token, math.Float32bits(ev.Logprob.Logprob)})
		}
	}
}

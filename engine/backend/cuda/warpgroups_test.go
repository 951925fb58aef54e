//go:build linux && cgo && cuda

package cuda_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/engine/sample"
	"vapp.dev/kernels"
	kernelcuda "vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cudatest"
	kernelref "vapp.dev/kernels/ref"
)

// TestWarpgroups: a prompt computed in one step of 150 rows uses the warpgroup kernels of sm_90a, with weights in bf16, in
// fp8 with a KV cache in fp8, and with inputs in fp8 too. It continues with tokens that are as likely on ref, but for the rounding of
// activations, keys and values. gpu-check runs it; TestWarpgroupsCUDA (engine) has the formats of real checkpoints.
func TestWarpgroups(t *testing.T) {
	cudatest.Use(t)
	if os.Getenv("VAPP_GPU") == "" {
		emulate(t, fmt.Sprintf("reset,sms=8,e4m3=%d", kernelref.SumBitsE4M3)) // sums as a device has them
		defer emulate(t, "reset")
	}
	dir := filepath.Join(t.TempDir(), "toy")
	if err := enginetest.WriteLlama(dir, enginetest.Llama{Layers: 1, Hidden: 128, Intermediate: 256, KVHeads: 2, HeadDim: 64, DType: kernels.BF16, Seed: 7}); err != nil {
		t.Fatal(err)
	}
	prompt := make([]int32, 150)
	for i := range prompt {
		prompt[i] = int32(i * i * 7 % 250)
	}
	for kernel, c := range map[string]struct {
		build       models.Build
		activations string
		gap         float32 // how much less likely on ref a token may be than its best
		kv          kernels.Format
	}{
		"linear_bf16_wide":       {gap: 0.05, kv: kernels.BF16},
		"linear_f8_e4m3_wide":    {build: models.Build{Quantize: kernels.F8E4M3}, gap: 0.05, kv: kernels.F8E4M3},                                   // ref keeps keys and values in bf16
		"linear_f8_e4m3_x8_wide": {build: models.Build{Quantize: kernels.F8E4M3}, activations: backend.FP8Activations, gap: 0.2, kv: kernels.BF16}, // an activation may be rounded to another code
	} {
		t.Run(kernel, func(t *testing.T) {
			m, err := engine.Inspect(engine.Source{Path: dir, Name: "toy", Format: "auto", Build: c.build})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			o := engine.Options{MaxModelLen: 192, MaxNumSeqs: 2, MaxNumBatchedTokens: 256, BlockSize: 16, KVFormat: c.kv, ChunkedPrefill: true}
			o.Backend.Activations = c.activations
			attention := "attention_" + kernelcuda.StoredName(c.kv) + "_64_wide"
			before, attended := driver.Counted(kernelcuda.Prefix+kernel), driver.Counted(kernelcuda.Prefix+attention)
			got := generate(t, m, cuda.Opener{}, o, prompt, 4)
			if n := driver.Counted(kernelcuda.Prefix + kernel); n >= 0 && n == before {
				t.Errorf("%s was not launched", kernel)
			}
			if n := driver.Counted(kernelcuda.Prefix + attention); n >= 0 && n == attended {
				t.Errorf("%s was not launched", attention)
			}
			o.EveryRow, o.KVFormat = true, kernels.BF16
			var ids []int32
			for _, e := range got {
				ids = append(ids, e.Token)
			}
			want := generate(t, m, ref.Opener{}, o, slices.Concat(prompt, ids), 1)[0].Prompt[len(prompt)-1:]
			for i, lp := range want {
				if behind := lp.Top[0].Logprob - lp.Logprob; lp.Token != ids[i] || behind > c.gap {
					t.Errorf("token %d is %d, %g behind ref's %d; the bound is %g", i, ids[i], behind, lp.Top[0].Token, c.gap)
				}
			}
		})
	}
}

// generate returns the events of n greedy tokens after a prompt; the first has the prompt's logprobs if o has every row.
func generate(t *testing.T, m *engine.Model, on backend.Opener, o engine.Options, prompt []int32, n int) []engine.Event {
	t.Helper()
	f, err := on.Probe()
	if err != nil {
		t.Fatal(err)
	}
	a, err := engine.NewAccount(o, m, on, f)
	if err != nil {
		t.Fatal(err)
	}
	o.KVBytes = 32 * a.KV.SlabBytes
	if a, err = engine.NewAccount(o, m, on, f); err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(context.Background(), engine.Config{Options: o, Model: m, Opener: on, Facts: f, Account: a})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	p := sample.Default()
	p.Temperature, p.MaxTokens, p.IgnoreEOS = 0, n, true
	if o.EveryRow {
		p.PromptLogprobs = 1
	}
	s, err := e.Submit(context.Background(), engine.Request{Prompt: prompt, Params: p})
	if err != nil {
		t.Fatal(err)
	}
	return read(t, s[0])
}

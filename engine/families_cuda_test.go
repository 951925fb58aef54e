//go:build linux && cgo && cuda

package engine_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/engine/enginetest"
	"vapp.dev/kernels"
	kernelcuda "vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cudatest"
)

// inFloat32 are families that the kernels compute in float32: their tokens are those of ref.
// TestMTPCUDA has one more.
var inFloat32 = []string{"tiny-llama3-tied", "tiny-qwen2", "tiny-qwen3", "tiny-gemma4", "tiny-gemma4-moe", "tiny-gpt-oss", "tiny-deepseek-v3"}

// inBF16 are checkpoints in their stored format, whose products round activations to bf16. One
// checkpoint of each further family joins them. Their tokens are those of ref, unless ref's two largest logits are closer than the checkpoint's
// bound.
var inBF16 = []string{
	"tiny-mistral", "tiny-gpt-oss", "tiny-gemma4", "tiny-gemma4-moe", "tiny-qwen35", "tiny-qwen35-fp8", "tiny-w8a16", "tiny-w8a8",
	"tiny-mha-q8_0", "tiny-mha-q4_1", "tiny-qwen2-gguf", "tiny-gpt-oss-gguf",
}

// TestFamiliesCUDA: a small model of every family generates the tokens of ref, with single
// launches and with graphs, and the device's memory is that of the plan.
func TestFamiliesCUDA(t *testing.T) {
	emulate(t)
	for _, name := range inFloat32 {
		t.Run(name+"/f32", func(t *testing.T) {
			y, g := smallModel(t, name)
			if name == "tiny-gpt-oss" {
				y.dir = dequantized(t, y.dir)
			}
			y.build.Dtype, y.opts.KVFormat = kernels.F32, kernels.F32
			likeRef(t, y, y, promptsOf(g), 0)
		})
	}
	others := slices.DeleteFunc(furtherFamilies(t, true), func(name string) bool {
		return slices.Contains(inBF16, name) || !enginetest.RunsOn(name, "cuda")
	})
	for _, name := range slices.Concat(inBF16, others) {
		t.Run(name, func(t *testing.T) {
			y, g := smallModel(t, name)
			likeRef(t, y, y, promptsOf(g), enginetest.BoundCUDA(name, kernels.BF16).Times(g.Spread()).Gap)
		})
	}
}

// TestWarpgroupsCUDA: a prompt computed in one large step uses the warpgroup kernels of sm_90a, in
// mixtures with more than 128 rows of an expert. It continues as on ref, unless ref's two largest
// logits are closer than the checkpoint's bound.
func TestWarpgroupsCUDA(t *testing.T) {
	emulate(t)
	for name, products := range map[string][]string{
		"tiny-gpt-oss": {"linear_bf16_wide", "linear_mxfp4_picks_wide"}, "tiny-gpt-oss-gguf": {"linear_q8_0_wide", "linear_mxfp4_picks_wide"},
	} {
		t.Run(name, func(t *testing.T) {
			y, g := smallModel(t, name)
			y.opts.MaxModelLen, y.opts.MaxNumBatchedTokens, y.slabs = 384, 512, least
			prompt := make([]int32, 350)
			for i := range prompt {
				prompt[i] = int32(i * i * 7 % 250)
			}
			run, prompts, ran := y, [][]int32{prompt}, make([]int64, len(products))
			for i, k := range products {
				ran[i] = driver.Counted(kernelcuda.Prefix + k)
			}
			run.on = cuda.Opener{}
			got := continued(t, &run, prompts)
			likely(t, y, prompts, got, enginetest.BoundCUDA(name, kernels.BF16).Times(g.Spread()).Gap)
			for i, k := range products {
				if n := driver.Counted(kernelcuda.Prefix + k); n >= 0 && n == ran[i] {
					t.Errorf("%s was not launched", k)
				}
			}
		})
	}
}

// TestLibraryCUDA: dense models whose large steps are multiplied by an emulated cuBLASLt, with
// row-major weights, generate the tokens of ref within the bound of bf16 products. They run with
// single launches and with graphs, and the device's memory is that of the plan. Models have
// biases, tied embeddings or fp16 weights. With weights in fp8, quantized at load or stored with
// block scales, inputs rounded to fp8 and all else in float32, the tokens are those of ref.
func TestLibraryCUDA(t *testing.T) {
	emulate(t)
	if os.Getenv("VAPP_GPU") == "" {
		t.Setenv("VAPP_LIBCUBLASLT", cudatest.BLAS(t))
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
	} else if os.Getenv("VAPP_LIBCUBLASLT") == "" {
		t.Skip("not run: VAPP_LIBCUBLASLT does not name the machine's library")
	}
	for _, c := range []struct {
		name  string
		dtype kernels.Format
	}{
		{"tiny-mistral", kernels.BF16}, {"tiny-llama3-tied", kernels.BF16}, {"tiny-qwen2", kernels.BF16}, {"tiny-qwen3", kernels.F16},
		{"tiny-mistral", kernels.F8E4M3}, {"tiny-qwen2", kernels.F8E4M3}, {"tiny-qwen35-fp8", kernels.F8E4M3},
	} {
		t.Run(fmt.Sprintf("%s %v", c.name, c.dtype), func(t *testing.T) {
			y, g := smallModel(t, c.name)
			y.build.Dtype, y.opts.Backend.Linear = c.dtype, backend.CUBLASLt
			gap := enginetest.BoundCUDA(c.name, kernels.BF16).Times(g.Spread()).Gap
			if c.dtype == kernels.F8E4M3 {
				y.build.Dtype, y.opts.KVFormat = kernels.F32, kernels.F32
				y.opts.Backend.Activations, gap = backend.FP8Activations, 0
				if c.name != "tiny-qwen35-fp8" { // stored in fp8
					y.build.Quantize = c.dtype
				}
			}
			before := driver.Counted("vapp_emulated_host")
			likeRef(t, y, y, promptsOf(g), gap)
			if driver.Counted("vapp_emulated_host") == before && before >= 0 {
				t.Error("the library has multiplied nothing")
			}
			if n := driver.Counted(kernelcuda.Prefix + "linear_f8_e4m3_x8_plain_8"); c.dtype == kernels.F8E4M3 && n == 0 {
				t.Error("weights in fp8 do not lie row by row")
			}
			if n := driver.Counted(kernelcuda.Prefix + kernelcuda.LinearBias); c.name == "tiny-qwen2" && c.dtype == kernels.F8E4M3 && n == 0 {
				t.Error("no bias was added to the library's products")
			}
		})
	}
}

// TestFP8ActivationsCUDA: weights in fp8, with block scales as stored and channel scales as made
// at load, and inputs rounded to fp8, give the tokens of ref. ref rounds alike, and everything
// else is in float32.
func TestFP8ActivationsCUDA(t *testing.T) {
	emulate(t)
	for name, quantize := range map[string]kernels.Format{"tiny-qwen35-fp8": kernels.Invalid, "tiny-qwen3": kernels.F8E4M3} {
		t.Run(name, func(t *testing.T) {
			y, g := smallModel(t, name)
			y.build.Dtype, y.build.Quantize, y.opts.KVFormat = kernels.F32, quantize, kernels.F32
			y.opts.Backend.Activations = backend.FP8Activations
			likeRef(t, y, y, promptsOf(g), 0)
		})
	}
}

// smallModel returns a recorded checkpoint that runs in chunks of 32 with pages of bf16.
func smallModel(t *testing.T, name string) (toy, *enginetest.Golden) {
	t.Helper()
	return smallRun(checkpointOf(name)), recorded(t, name)
}

// promptsOf returns parts of a recorded run: short ones, and ones longer than windows, blocks and
// chunks.
func promptsOf(g *enginetest.Golden) [][]int32 {
	ids := slices.Concat(g.InputIDs, g.DecodeIDs)
	return [][]int32{ids[:37], ids[3:12], ids[7:10]}
}

// TestMTPCUDA: a float32 model with an MTP head gives, with and without proposals, the tokens of
// ref without proposals.
func TestMTPCUDA(t *testing.T) {
	emulate(t)
	dir, g := recordedHead(t)
	y := smallRun(dir)
	y.opts.KVFormat = kernels.F32
	drafting := y
	drafting.opts.Overlap = false // the next step must know what was accepted
	head(2)(&drafting)
	likeRef(t, y, y, promptsOf(g), 0)
	likeRef(t, y, drafting, promptsOf(g), 0)
}

// TestPoolingGoldenCUDA is TestPoolingGolden with float32 products.
func TestPoolingGoldenCUDA(t *testing.T) {
	emulate(t)
	poolGoldens(t, cuda.Opener{}, backend.Settings{}, 2e-5)
}

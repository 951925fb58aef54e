package cost

// Published is a measurement of another engine's or library's kernel, or of a step, that its authors published.
type Published struct {
	What, GPU, Source string
	Bytes, Flops      float64 // that it has to read, to multiply
	Unit              Unit
	Launches          int     // 0: the launch itself is not in the measured time, or does not count
	Seconds           float64 // measured
}

// Predict returns the seconds that the rates of the table give.
func (p Published) Predict() (float64, bool) {
	g, ok := Find(p.GPU)
	if !ok {
		return 0, false
	}
	return max(p.Bytes/(g.Bandwidth*g.Shares.Memory), p.Flops/g.rate(p.Unit)) + float64(p.Launches)*(g.Shares.Gap+g.Shares.Ramp), true
}

const (
	a100    = "NVIDIA A100-SXM4-80GB"
	rtx4090 = "NVIDIA GeForce RTX 4090"
	h100    = "NVIDIA H100 80GB HBM3"
	b200    = "NVIDIA B200"
	gib     = 1 << 30
)

// attend are the operations of attention without a mask over 16,384 tokens with 16 heads of 128.
const attend = 4 * 16 * 128 * 16384.0 * 16384

// layers7B are the launches of a decode step of a Llama of 32 layers as vapp makes them, 12 a layer: the published
// engines have about as many, which their authors do not state.
const layers7B = 12*32 + 10

// Measured lists published measurements that the rates were not made from, except where Source says so.
func Measured() []Published {
	return []Published{
		{"FlashMLA, decode, bound by memory: 3,000 GB/s on H800 (the share of memory is from it)", h100, "github.com/deepseek-ai/FlashMLA, README", 3000e9, 0, Sync, 0, 1},
		{"FlashMLA, decode, bound by products: 660 TFLOP/s on H800", h100, "github.com/deepseek-ai/FlashMLA, README", 0, 660e12, Warpgroup, 0, 1},
		{"DeepGEMM, fp8: 1,550 TFLOP/s on H800", h100, "github.com/deepseek-ai/DeepGEMM, README", 0, 1550e12, Group8, 0, 1},
		{"FlashAttention-3, 16K tokens, 16 heads of 128: 620.7 TFLOP/s", h100, "github.com/pytorch/benchmark, pull request 2391", 0, attend, Warpgroup, 1, attend / 620.73e12},
		{"Triton's FlashAttention-2, the same shape: 476.8 TFLOP/s", h100, "github.com/pytorch/benchmark, pull request 2391", 0, attend, Warpgroup, 1, attend / 476.75e12},
		{"FMHA of CUTLASS, forward: 1,460 TFLOP/s", b200, "github.com/deepseek-ai/FlashMLA, README", 0, 1460e12, Warpgroup, 0, 1},
		{"llama.cpp, 7B f16, decode: 61.03 tokens/s", rtx4090, "github.com/ggml-org/llama.cpp, pull request 4766", 12.55 * gib, 2 * 6.74e9, Sync, layers7B, 1 / 61.03},
		{"llama.cpp, 7B q8_0, decode: 98.13 tokens/s", rtx4090, "github.com/ggml-org/llama.cpp, pull request 4766", 6.67 * gib, 2 * 6.74e9, Sync, layers7B, 1 / 98.13},
		{"llama.cpp, 7B f16, prompt of 512: 11,048 tokens/s", rtx4090, "github.com/ggml-org/llama.cpp, pull request 4766", 12.55 * gib, 2 * 6.74e9 * 512, Sync, layers7B, 512 / 11048.22},
		{"gpt-fast, Llama-2-7B bf16, decode: 104.9 tokens/s at 330 W", a100, "github.com/pytorch-labs/gpt-fast, README", 1397.31e9 / 104.9, 2 * 6.74e9, Sync, layers7B, 1 / 104.9},
		{"gpt-fast, Llama-2-7B int8, decode: 155.58 tokens/s at 330 W", a100, "github.com/pytorch-labs/gpt-fast, README", 1069.20e9 / 155.58, 2 * 6.74e9, Sync, layers7B, 1 / 155.58},
		{"gpt-fast, Llama-2-70B int8, decode: 19.13 tokens/s at 330 W", a100, "github.com/pytorch-labs/gpt-fast, README", 1322.58e9 / 19.13, 2 * 69e9, Sync, 12*80 + 10, 1 / 19.13},
	}
}

package cost

import "slices"

// Published is a measurement of another engine's or library's kernel, or of a step, that its authors published.
type Published struct {
	What, GPU, Source string
	Bytes, Flops      float64 // that it has to read and write, to multiply
	Unit              Unit
	Launches          int     // 0: the launch itself is not in the measured time, or does not count
	Seconds           float64 // measured
	// Like is the kernel of vapp whose loop, on 8 warps, stands for that of attention, Tiles of it for each block of rows; empty: products
	// alone count. InTurn: it waits for each group of products before it goes on.
	Like   string
	Tiles  float64
	InTurn bool
}

// Predict returns the seconds that the rates of the table give.
func (p Published) Predict() (float64, bool) {
	g, ok := Find(p.GPU)
	if !ok {
		return 0, false
	}
	products := p.Flops / g.rate(p.Unit)
	if c, ok := CodeOf(p.Like); ok {
		const warps = 8
		if p.InTurn {
			c.Turn, c.Ends = inTurn(c.Turn), inTurn(c.Ends)
		}
		turn, ends := g.turn(c, warps, 0) // the others' loads are copies of whole tiles by one thread
		products = p.Flops / (warps * c.Ops) * (turn + ends/p.Tiles) / float64(g.SMs)
	}
	return max(p.Bytes/(g.Bandwidth*g.Shares.Memory), products) + float64(p.Launches)*(g.Shares.Gap+g.Shares.Ramp), true
}

// inTurn returns steps that wait for each group of products.
func inTurn(steps []Step) []Step {
	steps = slices.Clone(steps)
	for i := range steps {
		if steps[i].Ops > 0 {
			steps[i].Leaves = 0
		}
	}
	return steps
}

const (
	a100    = "NVIDIA A100-SXM4-80GB"
	rtx4090 = "NVIDIA GeForce RTX 4090"
	h100    = "NVIDIA H100 80GB HBM3"
	b200    = "NVIDIA B200"
	gib     = 1 << 30
)

// prompts is a kernel whose loop does what those of FlashAttention do: products, the softmax of a tile, products.
const prompts = "attention_f16_128_wide"

// layers7B are the launches of a decode step of a Llama of 32 layers as vapp makes them, 12 a layer: the published
// engines have about as many, which their authors do not state.
const layers7B = 12*32 + 10

const (
	flashMLA  = "github.com/deepseek-ai/FlashMLA, README"
	llamaCPP  = "github.com/ggml-org/llama.cpp, pull request 4766"
	gptFast   = "github.com/pytorch-labs/gpt-fast, README"
	fastCU    = "github.com/pranjalssh/fast.cu, README"
	benchmark = "github.com/pytorch/benchmark, pull request 2391"
	reference = "github.com/waynehacking8/blackwell-tensorcore-kernels, results/reference"
)

func other(what, gpu, source string, bytes, flops float64, unit Unit, launches int, seconds float64) Published {
	return Published{what, gpu, source, bytes, flops, unit, launches, seconds, "", 0, false}
}

// attended returns a measurement of attention without a mask: 16,384 tokens in sequences of a length, 16 heads of 128.
func attended(what, source string, length, tera float64, inTurn bool) Published {
	work := 4 * 16 * 128 * 16384 * length
	return Published{what, h100, source, 0, work, Warpgroup, 1, work / (tera * 1e12), prompts, length / 128, inTurn}
}

// product returns a measurement of a product of bf16 numbers.
func product(what, source string, rows, out, in, seconds float64) Published {
	return other(what, h100, source, 2*(rows*in+out*in+rows*out), 2*rows*out*in, Warpgroup, 0, seconds)
}

// Measured lists published measurements that the rates were not made from, except where Source says so.
func Measured() []Published {
	return []Published{
		other("FlashMLA, decode, bound by memory: 3,000 GB/s on H800 (the share of memory is from it)", h100, flashMLA, 3000e9, 0, Sync, 0, 1),
		other("FlashMLA, decode, bound by products: 660 TFLOP/s on H800", h100, flashMLA, 0, 660e12, Warpgroup, 0, 1),
		other("DeepGEMM, fp8: 1,550 TFLOP/s on H800", h100, "github.com/deepseek-ai/DeepGEMM, README", 0, 1550e12, Group8, 0, 1),
		product("DeepGEMM, bf16, 1 row, 16,384 to 7,168", reference, 1, 7168, 16384, 89.3e-6),
		product("the same, 128 rows", reference, 128, 7168, 16384, 89.8e-6),
		product("the same, 4,096 rows", reference, 4096, 7168, 16384, 1167e-6),
		product("DeepGEMM, bf16, 4,096 rows, 7,168 to 4,096", reference, 4096, 4096, 7168, 293.9e-6),
		product("the same, 2,048 to 7,168", reference, 4096, 7168, 2048, 158.9e-6),
		product("the same, 512 to 32,768", reference, 4096, 32768, 512, 212.1e-6),
		product("cuBLAS, bf16, 4,096³: 716 TFLOP/s", fastCU, 4096, 4096, 4096, 2*4096*4096*4096/716e12),
		product("cuBLAS, bf16, 8,192³: 795 TFLOP/s", fastCU, 8192, 8192, 8192, 2*8192*8192*8192/795e12),
		attended("FlashAttention-3, 16K tokens, 16 heads of 128: 620.7 TFLOP/s", benchmark, 16384, 620.73, false),
		attended("the same, 8 sequences of 2,048: 565.5 TFLOP/s", benchmark, 2048, 565.544, false),
		attended("the same, 32 sequences of 512: 430.3 TFLOP/s", benchmark, 512, 430.32, false),
		attended("a later FlashAttention-3, 2 sequences of 8,192: 756.9 TFLOP/s", reference, 8192, 756.9, false),
		attended("Triton's FlashAttention-2, 16K tokens: 476.8 TFLOP/s", benchmark, 16384, 476.753, true),
		attended("the same, 32 sequences of 512: 328.9 TFLOP/s", benchmark, 512, 328.882, true),
		other("FMHA of CUTLASS, forward: 1,460 TFLOP/s", b200, flashMLA, 0, 1460e12, Warpgroup, 0, 1),
		other("llama.cpp, 7B f16, decode: 61.03 tokens/s", rtx4090, llamaCPP, 12.55*gib, 2*6.74e9, Sync, layers7B, 1/61.03),
		other("llama.cpp, 7B q8_0, decode: 98.13 tokens/s", rtx4090, llamaCPP, 6.67*gib, 2*6.74e9, Sync, layers7B, 1/98.13),
		other("llama.cpp, 7B f16, prompt of 512: 11,048 tokens/s", rtx4090, llamaCPP, 12.55*gib, 2*6.74e9*512, Sync, layers7B, 512/11048.22),
		other("gpt-fast, Llama-2-7B bf16, decode: 104.9 tokens/s at 330 W", a100, gptFast, 1397.31e9/104.9, 2*6.74e9, Sync, layers7B, 1/104.9),
		other("gpt-fast, Llama-2-7B int8, decode: 155.58 tokens/s at 330 W", a100, gptFast, 1069.20e9/155.58, 2*6.74e9, Sync, layers7B, 1/155.58),
		other("gpt-fast, Llama-2-70B int8, decode: 19.13 tokens/s at 330 W", a100, gptFast, 1322.58e9/19.13, 2*69e9, Sync, 12*80+10, 1/19.13),
	}
}

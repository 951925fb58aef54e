package cuda

import (
	"fmt"
	"slices"
	"strconv"
	"unsafe"

	"vapp.dev/kernels"
)

// Architecture is a GPU architecture for which there is machine code.
type Architecture struct {
	Name   string
	Shared int // bytes of shared memory that a block may request
}

// Architectures are those of scripts/kernels.sh. CodeFor says which device loads which.
func Architectures() []Architecture {
	const k = 1 << 10
	return []Architecture{{"sm_80", 163 * k}, {"sm_89", 99 * k}, {"sm_90a", 227 * k}, {"sm_100", 227 * k}, {"sm_120", 99 * k}}
}

// Kernel is one compiled kernel.
type Kernel struct {
	Name    string
	Op      string // as in backend.OpName, or a part of it
	Format  string // of weights, of keys and values, of tables; "" for others
	Stem    string // of the .cu file
	Args    int    // bytes of its struct
	Threads int    // largest number of threads of a block
	Shared  int    // largest number of bytes of dynamic shared memory
	// Bytes and Flops describe what a launch moves and computes, with the names of Args.
	Bytes, Flops string
	Test         string // the test that compares it with kernels/ref
}

// On reports whether an architecture has the shared memory for the kernel's blocks, and the
// units or scales that the kernel is for.
func (k Kernel) On(a Architecture) bool {
	hopper := k.Stem == "linear_wide" || k.Stem == "linear_mid" || k.Stem == "linear_picks" || k.Stem == "attention_wide" || k.Name == ChoosePlain(kernels.F8E4M3, DecodeRows+1).Kernel
	return k.Shared <= a.Shared && (!hopper || a.Name == "sm_90a")
}

func sizeOf[T any]() int {
	var v T
	return int(unsafe.Sizeof(v))
}

// Stems are the files of the kernels, without extension; each is compiled separately.
func Stems() []string {
	var out []string
	for _, k := range Catalogue() {
		out = append(out, k.Stem)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Catalogue returns all kernels, by op.
func Catalogue() []Kernel {
	return slices.Concat(rowKernels(), panelKernels(), linearKernels(), adaptKernels(), attentionKernels(), expertKernels(), stateKernels(), tokenKernels(), visionKernels())
}

func rowKernels() []Kernel {
	out := []Kernel{
		{"gather", "gather", "", "embed", sizeOf[GatherArgs](), 256, 0, "8·rows·cols", "0", "TestGather"},
		{"tokens", "tokens", "", "embed", sizeOf[TokensArgs](), 256, 0, "12·rows", "0", "TestGather"},
		{"norm", "norm", "", "norm", sizeOf[NormArgs](), 1024, 0, "8·rows·cols; 16· with a residual", "4·rows·cols", "TestNorm"},
		{"norm_rows", "norm", "", "norm", sizeOf[NormArgs](), rowThreads, 0, "8·rows·cols; 16· with a residual", "4·rows·cols", "TestNorm"},
		{"add", "add", "", "norm", sizeOf[AddArgs](), 256, 0, "12·n", "2·n", "TestElements"},
		{"reorder", "reorder", "", "norm", sizeOf[ConcatArgs](), 256, 0, "8·rows·cols + 4·cols", "0", "TestElements"},
		{"concat", "concat", "", "norm", sizeOf[ConcatArgs](), 256, 0, "8·rows·(a+b)", "0", "TestElements"},
		{"sum_ranks", "all_reduce", "", "norm", sizeOf[SumRanksArgs](), 256, 0, "4·rows·cols·(world+1)/world", "rows·cols·(world−1)/world", "TestRanks"},
		{"join_ranks", "all_gather", "", "norm", sizeOf[JoinRanksArgs](), 256, 0, "8·rows·cols·world", "0", "TestRanks"},
		{"angles", "angles", "", "rope", sizeOf[AnglesArgs](), 256, 0, "8·rows·half", "2·rows·half sines", "TestAngles"},
		{"glu", "glu", "", "glu", sizeOf[GLUArgs](), 256, 0, "12·rows·cols", "6·rows·cols", "TestGLU"},
		{"glu4", "glu", "", "glu", sizeOf[GLUArgs](), 256, 0, "12·rows·cols", "6·rows·cols", "TestGLU"},
		{"activate", "activate", "", "glu", sizeOf[ElementsArgs](), 256, 0, "8·n", "5·n", "TestElements"},
		{"gate", "gate", "", "glu", sizeOf[ElementsArgs](), 256, 0, "12·n", "4·n", "TestElements"},
		{"softcap", "softcap", "", "glu", sizeOf[ElementsArgs](), 256, 0, "8·n", "3·n", "TestElements"},
		{"store_tokens", "store_tokens", "", "pages", sizeOf[StoreArgs](), 256, 0, "8·rows", "0", "TestStoreKV"},
	}
	for _, f := range []string{"f32", "f16", "bf16"} {
		out = append(out, Kernel{"embed_" + f, "embed", f, "embed", sizeOf[EmbedArgs](), 256, 0, "(4 + format)·rows·cols", "rows·cols", "TestEmbed"})
	}
	for _, f := range []string{"f32", "f16", "bf16", "e4m3", "e5m2"} {
		out = append(out, Kernel{"latent_rope_" + f, "latent_rope", f, "rope", sizeOf[LatentRopeArgs](), 256, 0, "(8·heads·rotary + (4 + format)·(rank + rotary))·rows", "(6·heads·rotary + 4·rank)·rows", "TestLatentRope"})
		out = append(out, Kernel{"rope_" + f, "rope", f, "rope", sizeOf[RopeArgs](), 256, 0, "(8·heads + (8 + 2·format)·kv_heads)·rows·head_dim", "6·rows·heads·head_dim", "TestRope"})
	}
	for i, f := range []string{"e4m3, e5m2", "bf16, f16", "f32"} {
		bits := 8 << i
		out = append(out, Kernel{"store_kv_" + strconv.Itoa(bits), "store_kv", f, "pages", sizeOf[StoreArgs](), 128, StoreShared(512, bits/8), "4·format·rows·kv_heads·head_dim", "0", "TestStoreKV"})
	}
	return out
}

func panelKernels() []Kernel {
	out := []Kernel{{"panels", "load", "all in panels", "panels", sizeOf[PanelArgs](), PanelThreads, 0, "2·W", "0", "TestPanels, TestMadePanels"}}
	for _, f := range []kernels.Format{kernels.F32, kernels.F16, kernels.BF16} {
		out = append(out, Kernel{QuantizeKernel(f), "load", f.String() + " to f8_e4m3", "panels", sizeOf[QuantizeArgs](), PanelThreads, 0, "(2·format + 1)·rows·in", "2·rows·in", "TestQuantizePanels"})
	}
	return out
}

// PackedFormats returns the formats of matrices in panels.
func PackedFormats() []kernels.Format {
	return []kernels.Format{
		kernels.BF16, kernels.F16, kernels.F8E4M3, kernels.F8E5M2, kernels.I8, kernels.MXFP4,
		kernels.Q8_0, kernels.Q4_0, kernels.Q4_1, kernels.IQ4_NL, kernels.Q5_0, kernels.Q5_1,
		kernels.Q2_K, kernels.Q3_K, kernels.Q4_K, kernels.Q5_K, kernels.Q6_K, kernels.I4, kernels.NVFP4,
	}
}

func attentionKernels() []Kernel {
	const bytes = "2·format·kv_heads·head_dim·positions, for each block of rows; 8·T·heads·head_dim"
	var out []Kernel
	for _, f := range []kernels.Format{kernels.BF16, kernels.F16, kernels.F8E4M3, kernels.F8E5M2} {
		for _, dim := range []int{64, 128, 256, 512} {
			for i := range 3 {
				if i == 2 && dim < 256 {
					continue
				}
				a, _ := ChooseAttention(f, dim, i > 0, []int{0, 1 << 20, 0}[i])
				out = append(out, Kernel{a.Kernel, "attention", StoredName(f), "attention", sizeOf[AttentionArgs](), a.Threads, a.Shared, bytes, "4·T·heads·head_dim·positions", "TestAttention"})
			}
		}
	}
	for _, f := range []kernels.Format{kernels.BF16, kernels.F16, kernels.F8E4M3, kernels.F8E5M2} {
		for _, dim := range []int{64, 128, 256, 512} {
			a, ok := ChooseAttentionWide(f, dim)
			if !ok {
				continue
			}
			out = append(out, Kernel{a.Kernel, "attention", StoredName(f), "attention_wide", sizeOf[AttentionArgs](), a.Threads, a.Shared, bytes, "4·T·heads·head_dim·positions", "TestAttentionWide"})
		}
	}
	const keys = "format·(rank + rotary)·positions, for each block of rows; 4·T·heads·(2·rank + rotary)"
	for _, f := range []kernels.Format{kernels.BF16, kernels.F16, kernels.F8E4M3, kernels.F8E5M2} {
		for i := range 3 {
			a, _ := ChooseLatent(f, LatentRank, LatentRotary, i > 0, []int{0, 1 << 20, 0}[i])
			out = append(out, Kernel{a.Kernel, "attention, latent keys", StoredName(f), "attention_latent", sizeOf[AttentionArgs](), a.Threads, a.Shared, keys, "2·T·heads·(2·rank + rotary)·positions", "TestLatentAttention"})
		}
	}
	wide, _ := ChooseAttention(kernels.F32, 512, false, 0)
	return append(out,
		Kernel{wide.Kernel, "attention", "f32", "attention", sizeOf[AttentionArgs](), wide.Threads, wide.Shared, bytes, "4·T·heads·head_dim·positions", "TestAttention, TestLatentAttention"},
		Kernel{"ahead", "attention", "", "attention", sizeOf[AheadArgs](), 256, 0, "8·seqs + 4·tables", "0", "TestAhead"},
		Kernel{"attention_join", "attention, gate, store_kv", "", "attention", sizeOf[JoinArgs](), 256, StoreShared(512, 4), "4·T·heads·splits·(head_dim + 2); keys and values as store_kv", "2·T·heads·splits·head_dim", "TestAttention, TestStoreKV"})
}

func expertKernels() []Kernel {
	out := []Kernel{
		{"route", "route", "", "experts", sizeOf[RouteArgs](), 256, 0, "4·rows·(experts + 2·top)", "rows·experts·top", "TestRoute"},
		{"route_order", "route, experts", "", "experts", sizeOf[RouteOrderArgs](), 1024, 8 * 1024, "4·rows·(experts + 2·top) + 20·picks", "rows·experts·top", "TestRoute"},
		{"experts_order", "experts", "", "experts", sizeOf[OrderArgs](), 1024, 8 * 1024, "20·picks", "0", "TestExperts"},
		{"experts_combine", "experts", "", "experts", sizeOf[CombineArgs](), 256, 0, "4·rows·cols·(top + 1)", "2·rows·cols·top", "TestExperts"},
	}
	for _, rows := range []int{DecodeRows, DecodeRows + 1} {
		l := ChooseExperts(rows)
		bytes := fmt.Sprintf("4·(out·in·rows/%d + rows·(in + out))", l.Rows)
		out = append(out, Kernel{l.Kernel, "experts", "f32", "experts", sizeOf[ExpertsArgs](), l.Threads, l.Shared, bytes, "2·rows·in·out", "TestExpertsF32"})
	}
	return out
}

func stateKernels() []Kernel {
	var out []Kernel
	for _, f := range []string{"f32", "f16", "bf16"} {
		out = append(out, Kernel{"conv_" + f, "conv", f, "delta", sizeOf[ConvArgs](), 256, 0, "8·T·cols + 2·states", "2·T·cols·kernel", "TestConv"})
	}
	return append(out,
		Kernel{"delta", "delta_net", "", "delta", sizeOf[DeltaArgs](), 128, 0, "4·T·(2·key_heads·key_dim + 2·value_heads·value_dim) + 2·states", "8·T·value_heads·key_dim·value_dim", "TestDelta"},
		Kernel{"delta_128", "delta_net", "", "delta", sizeOf[DeltaArgs](), 128, 0, "4·T·(2·key_heads·128 + 2·value_heads·128) + 2·states", "8·T·value_heads·128·128", "TestDelta"},
		Kernel{"delta_chunks", "delta_net", "", "delta", sizeOf[DeltaArgs](), 128, DeltaChunksShared, "T·(key_heads·16·key_dim + value_heads·516)", "T·(key_heads·256·key_dim + value_heads·4096)", "TestDeltaChunks"},
		Kernel{"delta_prompt", "delta_net", "", "delta", sizeOf[DeltaArgs](), 128, DeltaPromptShared, "T·value_heads·(value_dim/64·(8·key_dim + 512) + 8·value_dim) + 2·states", "T·value_heads·value_dim·(6·key_dim + 256)", "TestDeltaChunks"})
}

func tokenKernels() []Kernel {
	return []Kernel{
		{"sample_edit", "sample", "", "sample", sizeOf[SampleArgs](), 1024, SampleShared, "4·vocab·rows; 12· with edits", "0", "TestSample, TestSampleDraws"},
		{"sample_weigh", "sample", "", "sample", sizeOf[SampleArgs](), 1024, 0, "4·vocab·rows", "vocab·rows exponentials", "TestSample, TestSampleDraws"},
		{"sample_draw", "sample", "", "sample", sizeOf[SampleArgs](), SampleDrawThreads, SampleDrawShared, "4·vocab·rows", "vocab·rows exponentials", "TestSample, TestSampleDraws"},
		{"sample_report", "sample", "", "sample", sizeOf[SampleArgs](), 1024, 0, "4·(1 + logprobs)·vocab·rows", "0", "TestSample"},
		{"drafted", "drafted", "", "draft", sizeOf[DraftArgs](), 1024, 0, "16·T", "0", "TestDraft"},
		{"verify", "verify", "", "draft", sizeOf[DraftArgs](), 1024, 0, "16·T", "0", "TestDraft"},
		{"propose", "propose", "", "draft", sizeOf[ProposeArgs](), 1024, 0, "4·seqs·vocab", "0", "TestPropose"},
	}
}

func visionKernels() []Kernel {
	out := []Kernel{
		{"patches", "patches", "", "vision", sizeOf[PatchesArgs](), 256, 0, "5·T·cols", "2·T·cols", "TestPatches"},
		{"pool", "pool", "", "vision", sizeOf[PoolArgs](), 256, 0, "4·(T + rows)·cols + 8·T·rows", "T·cols", "TestPool"},
		{"standardize", "standardize", "", "vision", sizeOf[StandardizeArgs](), 256, 0, "8·rows·cols", "2·rows·cols", "TestMerge"},
		{"merge", "merge", "", "vision", sizeOf[MergeArgs](), 256, 0, "8·rows·cols", "0", "TestMerge"},
		{"store_encoded", "encoder_output", "", "vision", sizeOf[StoreEncodedArgs](), 256, 0, "8·rows·cols", "0", "TestMerge"},
	}
	for _, f := range []string{"f32", "f16", "bf16"} {
		out = append(out, Kernel{"resample_" + f, "resample", f, "vision", sizeOf[ResampleArgs](), 256, 0, "(8 + 4·format)·T·cols", "9·T·cols", "TestResample"})
	}
	return out
}

package compat

import "strings"

// paging has what the pages of a KV cache depend on, besides the layers.
type paging struct {
	rel         Release
	block       int64 // tokens
	flight      int64 // tokens that are scheduled and not yet processed
	spec        int64 // draft tokens
	checkpoints int64 // blocks for states inside a prefill
	mode        string
	whole       bool // sliding windows keep all tokens: the hybrid manager is off
	stages      int64
}

func (in *run) paging() paging {
	r := in.r
	p := paging{
		rel: in.rel, block: int64(r.BlockSize), flight: int64(r.MaxNumBatchedTokens), spec: int64(r.Speculative.Tokens),
		mode: in.mambaMode(), whole: r.NoHybridManager, stages: int64(r.PipelineParallel),
	}
	if in.rel.atLeast(V033) {
		p.flight *= p.stages + 1 // asynchronous scheduling: one batch more than stages
		if p.mode == "align" && in.checkpointsStates() {
			p.checkpoints = 1
		}
	}
	return p
}

// checkpointsStates reports whether vllm-0.33 computes a delta net's prefill with FlashInfer, which
// can store a state inside the prefill. Its wheel is built for CUDA 13.
func (in *run) checkpointsStates() bool {
	switch in.d.Major {
	case 9:
		return in.d.Minor == 0
	case 10, 12:
		return in.shape.keyDim == 128
	}
	return false
}

// step returns the tokens of which a block that holds a state is a multiple.
func (p paging) step() int64 {
	switch {
	case p.checkpoints > 0:
		return lcm(max(16, p.block), 64)
	case p.rel.atLeast(V033):
		return max(16, p.block)
	case p.mode == "all":
		return 64 // least common multiple of the delta net's chunk and 16
	}
	return 16
}

func lcm(a, b int64) int64 {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// mambaMode returns mamba_cache_mode: align with prefix caching, otherwise none. Prefix caching of
// models with states is on by default since vllm-0.33, and off before.
func (in *run) mambaMode() string {
	switch r := in.r; {
	case r.MambaCacheMode != "":
		return r.MambaCacheMode
	case r.PrefixCaching == "on" || r.PrefixCaching == "" && in.rel.atLeast(V033):
		return "align"
	}
	return "none"
}

// utilization returns the default of gpu_memory_utilization.
func (r Release) utilization() float64 {
	if r.atLeast(V033) {
		return 0.92
	}
	return 0.9
}

// reserved returns the blocks that no request gets when the release checks that one fits: the null
// block.
func (r Release) reserved() int64 {
	if r.atLeast(V033) {
		return 1
	}
	return 0
}

// estimates reports whether the budget subtracts an estimate of the graphs.
func (in *run) estimates() bool {
	return in.rel.atLeast(V033) || in.rel.atLeast(V017) && in.r.Cudagraph.Estimate
}

// defaultBlock returns the block size in tokens where none is given: 16, or what the kernels of
// latent attention need.
func (in *run) defaultBlock() int {
	if in.shape.latent == nil {
		return 16
	}
	fp8 := strings.HasPrefix(in.r.KVCacheDtype, "fp8")
	switch {
	case in.d.Major == 10:
		return 32 // FlashInfer
	case in.d.Major == 9 && fp8:
		return 64 // FlashMLA; FlashAttention has no fp8
	}
	return 16
}

package compat

import (
	"math"
	"strings"
)

// Device is a GPU, by the properties that a release reads.
type Device struct {
	Name       string // "a100" in it changes the default batch limits
	TotalBytes int64  // as reported by the driver, which is less than advertised
	SMs        int    // streaming multiprocessors
	Major      int    // compute capability, 8 of 8.0
	Minor      int
}

func (d Device) capability() int { return 10*d.Major + d.Minor }

// Speculative is speculative_config.
type Speculative struct {
	Method string // "", "mtp", "ngram"
	Tokens int    // num_speculative_tokens
}

// Cudagraph has the CUDA graph options of a profile.
type Cudagraph struct {
	EnforceEager bool
	Mode         string // cudagraph_mode: "" (the release's default), none, piecewise, full, full_decode_only, full_and_piecewise
	Sizes        []int  // cudagraph_capture_sizes, nil for the release's default
	// Estimate is VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1, vllm-0.33's default.
	Estimate bool
	// EstimateBytes is the measured value of that estimate; 0: fitted.
	EstimateBytes int64
}

// Request has the options of a profile or a command line. Zero values are the release's defaults.
type Request struct {
	Dtype               string  // auto, bfloat16, float16, float32
	Quantization        string  // "" (the checkpoint's), fp8, mxfp4
	KVCacheDtype        string  // auto, fp8, fp8_e4m3, fp8_e5m2, bfloat16, float16
	Utilization         float64 // gpu_memory_utilization, 0: 0.92 in vllm-0.33, 0.9 before
	KVBytes             int64   // given KV cache bytes per GPU; 0: computed
	MaxModelLen         int     // 0: the config's, -1: the longest that fits
	MaxNumSeqs          int
	MaxNumBatchedTokens int
	BlockSize           int
	TensorParallel      int
	PipelineParallel    int
	Speculative         Speculative
	Cudagraph           Cudagraph
	NonTorchBytes       int64  // measured, 0: fitted
	SwapSpace           int64  // bytes, 0: 4 GiB, -1: none; vllm-0.7 only
	PrefixCaching       string // "" (on, off in vllm-0.7), on, off
	MambaCacheMode      string // "" (align with prefix caching, else none), none, align, all
	ChunkedPrefill      string // "" (on; in vllm-0.7 above 32768 tokens), on, off
	NoHybridManager     bool   // disable_hybrid_kv_cache_manager
	LibraryUse          bool   // the LLM class: other batch limits than the server
	TextOnly            bool   // every multimodal limit is 0
	NoImages, NoVideo   bool   // this limit alone is 0
	ImageTokens         int    // max_soft_tokens of Gemma 4; 0: the config's
	MaxPixels           int64  // size.longest_edge of Qwen3.5; 0: the published processor's
}

// Bounds of a request.
const (
	maxBatch  = 1 << 20
	maxLength = 1 << 28
	maxBytes  = 1 << 50
	maxBlock  = 1 << 16
	maxRanks  = 1024
)

// check checks the bounds of every field and sets defaults that do not depend on the model.
func (r *Request) check(rel Release, d Device) error {
	if r.Utilization == 0 {
		r.Utilization = rel.utilization()
	}
	if math.IsNaN(r.Utilization) || r.Utilization <= 0 || r.Utilization > 1 {
		return fault("memory.utilization", "is %v, allowed is above 0 to 1", r.Utilization)
	}
	for _, b := range []struct {
		field  string
		n      *int
		lo, hi int
		absent int
	}{
		{"maxModelLen", &r.MaxModelLen, -1, maxLength, 0},
		{"scheduler.maxNumSeqs", &r.MaxNumSeqs, 1, maxBatch, 0},
		{"scheduler.maxNumBatchedTokens", &r.MaxNumBatchedTokens, 1, maxBatch << 4, 0},
		{"memory.blockSize", &r.BlockSize, 1, maxBlock, 0},
		{"parallel.tensor", &r.TensorParallel, 1, maxRanks, 1},
		{"parallel.pipeline", &r.PipelineParallel, 1, maxRanks, 1},
		{"speculative.numTokens", &r.Speculative.Tokens, 1, 256, 0},
		{"multimodal.image.tokens", &r.ImageTokens, 1, 1120, 0},
	} {
		if *b.n == 0 {
			*b.n = b.absent
			continue
		}
		if *b.n < b.lo || *b.n > b.hi {
			return fault(b.field, "is %d, allowed are %d to %d", *b.n, b.lo, b.hi)
		}
	}
	if r.MaxPixels < 0 || r.MaxPixels > maxLength {
		return fault("multimodal.image.maxPixels", "is %d, allowed are 1 to %d", r.MaxPixels, maxLength)
	}
	if r.KVBytes < 0 || r.KVBytes > maxBytes {
		return fault("memory.kvCache", "is %d bytes, allowed are 1 to %d", r.KVBytes, int64(maxBytes))
	}
	if r.NonTorchBytes < 0 || r.NonTorchBytes > maxBytes || r.Cudagraph.EstimateBytes < 0 || r.Cudagraph.EstimateBytes > maxBytes {
		return fault("memory", "measured bytes are negative or absurd")
	}
	if r.SwapSpace < -1 || r.SwapSpace > maxBytes {
		return fault("memory.swapSpace", "is %d bytes, allowed are 0 to %d", r.SwapSpace, int64(maxBytes))
	}
	if d.TotalBytes <= 0 || d.TotalBytes > maxBytes {
		return fault("device", "has %d bytes, allowed are 1 to %d", d.TotalBytes, int64(maxBytes))
	}
	if d.SMs < 1 || d.SMs > 4096 || d.Major < 1 || d.Major > 99 || d.Minor < 0 || d.Minor > 9 {
		return fault("device", "%q has %d SMs and compute capability %d.%d: no NVIDIA GPU, and this release's figures are known for those alone", clip(d.Name), d.SMs, d.Major, d.Minor)
	}
	return nil
}

// batch sets the batch limits of the release: memory-planning section 1. item is the number of tokens
// of the largest image or video that a batch holds whole.
func (r *Request) batch(rel Release, d Device, length, item int64, chunked bool) {
	big := d.TotalBytes >= 70<<30 && !strings.Contains(strings.ToLower(d.Name), "a100")
	tokens, seqs := 2048, 256
	if rel.atLeast(V033) {
		big = big && d.capability() != 121 // a GB10 has the memory of a large GPU, not its speed
	}
	switch {
	case rel == V07:
	case rel.atLeast(V033) && d.TotalBytes >= 160<<30:
		tokens, seqs = 16384, 1024
	case big && r.LibraryUse:
		tokens, seqs = 16384, 1024
	case big:
		tokens, seqs = 8192, 1024
	case r.LibraryUse:
		tokens = 8192
	}
	if !chunked {
		tokens = max(tokens, int(length))
	}
	if r.MaxNumBatchedTokens == 0 {
		r.MaxNumBatchedTokens = max(tokens, r.MaxNumSeqs)
		if rel.atLeast(V033) {
			r.MaxNumBatchedTokens = r.batch033(max(tokens, int(item)), seqs, length)
		}
	}
	if r.MaxNumSeqs == 0 {
		r.MaxNumSeqs = min(seqs, r.MaxNumBatchedTokens)
	}
}

// batch033 returns max_num_batched_tokens of vllm-0.33 for a device's defaults: no more than
// max_num_seqs sequences have.
func (r *Request) batch033(tokens, seqs int, length int64) int {
	if r.MaxNumSeqs > 0 {
		seqs = r.MaxNumSeqs
	}
	return max(1, int(min(int64(tokens), int64(seqs)*length)))
}

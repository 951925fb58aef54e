package cost

import "slices"

// GPU has the rates of a GPU. Peaks are the vendor's, of dense products summed in float32; clocks are boost clocks.
type GPU struct {
	Name       string // as the driver prints it
	Capability string
	SMs        int
	Clock      float64 // Hz
	Bandwidth  float64 // of memory, bytes a second
	L2         float64 // bytes of the second cache
	BF16, FP8  float64 // peak of the matrix units, operations a second; FP8 0: none
	Source     string
	Shares     Shares
}

// Shares are what an architecture reaches of its peaks, and its latencies.
type Shares struct {
	Memory    float64 // of Bandwidth, by a kernel that only reads
	Sync      float64 // of the matrix rate, by mma.sync
	Warpgroup float64 // of the matrix rate, by wgmma and by libraries
	Issue     float64 // of four instructions a clock and multiprocessor
	L2        float64 // rate of the second cache as a multiple of Bandwidth
	SM        float64 // bytes a clock that one multiprocessor reads at most
	Gap       float64 // seconds from the end of a launch to the begin of the next in a graph
	Ramp      float64 // seconds in which a launch's first bytes come and its last results leave
	Latency   float64 // seconds of a read of memory
	Meet      float64 // clocks from the last warp's arrival at a barrier to the next instruction of the others
	Banks     float64 // bytes a clock that one multiprocessor's shared memory moves
	// Dependent is Gap where a kernel is launched while the kernel before it runs; 0: it cannot be.
	Dependent float64
}

// The shares, with their sources:
//
//   - Memory 0.90: DeepSeek FlashMLA reads 3.0 of 3.35 TB/s on H800 (its README).
//   - Sync on Hopper 0.62: mma.sync's part of the peak in "Benchmarking and Dissecting the Nvidia Hopper GPU
//     Architecture" (arXiv 2402.13499). Before Hopper mma.sync is what reaches the peak; 0.90 is assumed.
//   - Sync on sm_100 0.25 is assumed: its peak is that of tcgen05, and mma.sync keeps about Hopper's rate.
//   - Warpgroup 0.80: 790 of 989 TFLOP/s are assumed for large products of cuBLASLt within the power limit.
//   - Issue 0.70 is assumed: dependences, banks and barriers leave a part of the slots empty.
//   - L2 2 is assumed; SM 64 is the width of the path from the second cache ("Dissecting the NVIDIA Hopper
//     Architecture", arXiv 2501.12084).
//   - Gap 1.3 µs: "Look Ma, No Bubbles" (Hazy Research, 2025) measured it for empty kernels in CUDA graphs on H100.
//   - Latency 0.35 µs: a read of memory takes 690 clocks on GH200 (github.com/markdewing/AI_kernels, latency), at 1.98 GHz.
//   - Ramp 1.0 µs is assumed: two dependent reads of memory and the last writes.
//   - Meet 30 clocks is assumed: a barrier is about as far as shared memory, of which a read takes 29 (arXiv 2402.13499).
//   - Banks 128: 32 banks of 4 bytes a clock (CUDA C++ Programming Guide, shared memory of compute capability 5.x and on).
//   - Dependent 0.5 µs: such a launch takes 0.96 µs off the gap between two empty kernels of a graph, on GPUs at 1.755 GHz
//     (github.com/pegainfer-project/pegainfer, issue 569, which calls it a ceiling); 0.8 are assumed. llama.cpp's gain is of that
//     size: 0.32 ms a token of gpt-oss-20b (pull request 22522, RTX PRO 6000), whose launches are not stated.
var (
	ampere    = Shares{Memory: 0.90, Sync: 0.90, Warpgroup: 0.90, Issue: 0.70, L2: 2, SM: 64, Gap: 1.3e-6, Ramp: 1.0e-6, Latency: 0.35e-6, Meet: 30, Banks: 128}
	hopper    = Shares{Memory: 0.90, Sync: 0.62, Warpgroup: 0.80, Issue: 0.70, L2: 2, SM: 64, Gap: 1.3e-6, Ramp: 1.0e-6, Latency: 0.35e-6, Meet: 30, Banks: 128, Dependent: 0.5e-6}
	blackwell = Shares{Memory: 0.90, Sync: 0.25, Warpgroup: 0.80, Issue: 0.70, L2: 2, SM: 64, Gap: 1.3e-6, Ramp: 1.0e-6, Latency: 0.35e-6, Meet: 30, Banks: 128, Dependent: 0.5e-6}
	geforce12 = Shares{Memory: 0.90, Sync: 0.90, Warpgroup: 0.90, Issue: 0.70, L2: 2, SM: 64, Gap: 1.3e-6, Ramp: 1.0e-6, Latency: 0.35e-6, Meet: 30, Banks: 128, Dependent: 0.5e-6}
)

// capacity is what a multiprocessor has for blocks, by compute capability: warps, and KiB of shared memory, of which each block takes one besides its
// own (CUDA C++ Programming Guide, technical specifications per compute capability). All have 65,536 registers.
var capacity = map[string]struct{ warps, shared int }{"8.0": {64, 164}, "8.6": {48, 100}, "8.9": {48, 100}, "9.0": {64, 228}, "10.0": {64, 228}, "12.0": {48, 100}}

// gpus is the table of GPUs. Multiprocessors, bandwidth, cache and peaks are those of engine/backend/devices.
var gpus = []GPU{
	{"NVIDIA A100-SXM4-80GB", "8.0", 108, 1.410e9, 2039e9, 40 << 20, 312e12, 0, "A100 80GB SXM datasheet", ampere},
	{"NVIDIA A100-SXM4-40GB", "8.0", 108, 1.410e9, 1555e9, 40 << 20, 312e12, 0, "A100 40GB SXM datasheet", ampere},
	{"NVIDIA A10", "8.6", 72, 1.695e9, 600e9, 6 << 20, 125e12, 0, "A10 datasheet, dense", ampere},
	{"NVIDIA GeForce RTX 3090", "8.6", 82, 1.695e9, 936.2e9, 6 << 20, 71e12, 0, "GA102 whitepaper, sums in float32", ampere},
	{"NVIDIA L4", "8.9", 58, 2.040e9, 300e9, 48 << 20, 121e12, 242e12, "L4 datasheet, dense", ampere},
	{"NVIDIA L40S", "8.9", 142, 2.520e9, 864e9, 96 << 20, 362e12, 733e12, "L40S datasheet, dense", ampere},
	{"NVIDIA GeForce RTX 4090", "8.9", 128, 2.520e9, 1008e9, 72 << 20, 165.2e12, 330.3e12, "Ada architecture whitepaper, sums in float32", ampere},
	{"NVIDIA H100 80GB HBM3", "9.0", 132, 1.830e9, 3352e9, 50 << 20, 989.4e12, 1978.9e12, "H100 SXM5 datasheet", hopper},
	{"NVIDIA H200", "9.0", 132, 1.830e9, 4800e9, 60 << 20, 989.4e12, 1978.9e12, "H200 SXM datasheet", hopper},
	{"NVIDIA GeForce RTX 5090", "12.0", 170, 2.407e9, 1792e9, 96 << 20, 209.5e12, 419e12, "RTX Blackwell whitepaper, sums in float32; mma.sync reaches the peak", geforce12},
	{"NVIDIA B200", "10.0", 148, 1.965e9, 7672e9, 132644864, 2250e12, 4500e12, "HGX B200 datasheet", blackwell},
}

// GPUs returns the table.
func GPUs() []GPU { return slices.Clone(gpus) }

// Find returns the row of a GPU by the name that its driver prints.
func Find(name string) (GPU, bool) {
	i := slices.IndexFunc(gpus, func(g GPU) bool { return g.Name == name })
	if i < 0 {
		return GPU{}, false
	}
	return gpus[i], true
}

// The macros and functions that every kernel of this folder uses. NVRTC compiles them as CUDA. A
// host compiler includes emulation/emulate.h instead, so that tests run the same source without
// a GPU.
#pragma once
#include <stdint.h>

#if defined(__CUDACC__)
#define DEVICE __device__ __forceinline__
#define METHOD static __device__ __forceinline__
#define DEVICE_METHOD __device__ __forceinline__  // of a class
#define DYNAMIC_SHARED(name) unsigned char *name = dynamic_shared
extern __shared__ __align__(128) unsigned char dynamic_shared[];
#define INFINITY_F __int_as_float(0x7f800000)
#else
#include "emulation/emulate.h"
#define DEVICE static inline
#define METHOD static inline
#define DEVICE_METHOD inline
#define DYNAMIC_SHARED(name) unsigned char *name = emulation::current()->block->shared
#define INFINITY_F std::numeric_limits<float>::infinity()
#endif

// Dependent launches (design.md): from sm_90 on a kernel may be launched while the one before it still runs. begin_kernel
// lets the next one be launched once all blocks of this one are there, and waits until the one before has ended and
// what it wrote can be seen. What comes before the wait is Prefetch, which reads nothing.

// Run is memory that no kernel writes: `bytes` of it, 0 or more. Both are multiples of 16.
struct Run {
  const void *at;
  uint32_t bytes;
};
// A Prefetch has the number of runs that a block of eight warps reads first, at most its threads, and run(a, i), which is
// the i-th by the arguments' values alone. NoPrefetch has none.
struct NoPrefetch {
  static constexpr int kRuns = 0;
};

// The blocks that run at once: two on each of the 148 multiprocessors of a B200. Those behind begin when there is nothing
// left to wait for, and what they would prefetch they load at once.
constexpr unsigned kFirstBlocks = 296;

// first_run returns what this thread prefetches. The lanes of a warp prefetch one after the other, so all warps do.
template <class Prefetch, class Args>
DEVICE Run first_run(const Args &a) {
  if constexpr (Prefetch::kRuns > 0) {
    constexpr int kWarps = 8, kEach = (Prefetch::kRuns + kWarps - 1) / kWarps;
    int lane = threadIdx.x & 31, i = int(threadIdx.x >> 5) * kEach + lane;
    if (lane < kEach && i < Prefetch::kRuns && blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z) < kFirstBlocks)
      return Prefetch::run(a, i);
  }
  return {nullptr, 0};
}

// immutable loads what no kernel writes, such as weights.
template <class T>
DEVICE T immutable(const T *p) {
  return __ldg(p);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
template <class Prefetch, class Args>
DEVICE void begin_kernel(const Args &a) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  if (Run r = first_run<Prefetch>(a); r.bytes > 0)
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(r.at)), "r"(r.bytes) : "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
// The load of __ldg is for memory that does not change while a kernel runs, and a kernel may run now while the one before
// still writes. So it is a plain load here, which stays behind the wait.
template <class T>
DEVICE T load_plain(const T *p) {
  __builtin_assume(__isGlobal(p));
  return *p;
}
#define __ldg(p) load_plain(p)
#endif

// KERNEL begins a kernel. It takes one struct, a, in constant memory. Its symbol has a prefix,
// because some of the names are functions of CUDA. KERNEL_OF also asks that a multiprocessor can
// run `blocks` blocks at once, and KERNEL_PREFETCH names a Prefetch too.
#define KERNEL(name, Args, threads) KERNEL_OF(name, Args, threads, 1)
#define KERNEL_OF(name, Args, threads, blocks) KERNEL_PREFETCH(name, Args, threads, blocks, NoPrefetch)
#if !defined(__CUDACC__)
#define KERNEL_PREFETCH(name, Args, threads, blocks, ...)                                                        \
  static void vapp_##name(const Args &a);                                                                         \
  static const emulation::Registration registered_##name(                                                         \
      "vapp_" #name, sizeof(Args), threads,                                                                       \
      [](const void *args) {                                                                                      \
        emulation::wait_for_kernel();                                                                             \
        vapp_##name(*(const Args *)args);                                                                         \
      },                                                                                                          \
      __VA_ARGS__::kRuns,                                                                                         \
      [](const void *args) {                                                                                      \
        Run r = first_run<__VA_ARGS__>(*(const Args *)args);                                                      \
        emulation::prefetch(r.at, r.bytes);                                                                       \
      });                                                                                                         \
  static void vapp_##name(const Args &a)
#elif __CUDA_ARCH__ >= 900
#define KERNEL_PREFETCH(name, Args, threads, blocks, ...)                                                          \
  DEVICE void body_##name(const Args &a);                                                                          \
  extern "C" __global__ void __launch_bounds__(threads, blocks) vapp_##name(const __grid_constant__ Args a) {        \
    begin_kernel<__VA_ARGS__>(a);                                                                                  \
    body_##name(a);                                                                                                \
  }                                                                                                                \
  DEVICE void body_##name(const Args &a)
#else
#define KERNEL_PREFETCH(name, Args, threads, blocks, ...) \
  extern "C" __global__ void __launch_bounds__(threads, blocks) vapp_##name(const __grid_constant__ Args a)
#endif

constexpr unsigned kAllLanes = 0xffffffffu;

DEVICE int ceil_div(int n, int d) { return (n + d - 1) / d; }

DEVICE float warp_sum(float v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(kAllLanes, v, o);
  return v;
}

DEVICE float warp_max(float v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(kAllLanes, v, o));
  return v;
}

// block_sum returns Σ v over the block's threads: at most 1024, in whole warps. The order
// depends only on the block's size. scratch holds 32 floats. All threads get the sum, and may
// reuse scratch.
DEVICE float block_sum(float v, float *scratch) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  v = warp_sum(v);
  if (lane == 0) scratch[warp] = v;
  __syncthreads();
  v = warp_sum(lane < warps ? scratch[lane] : 0.0f);
  __syncthreads();
  return v;
}

// part_of finds element `target` of n concatenated lists: its list, and its index in that list.
// count gives the length of a list. It returns false if there are fewer elements. All lanes of
// a warp call it.
template <class Count>
DEVICE bool part_of(int n, int target, int *list, int *element, Count count) {
  int lane = threadIdx.x & 31, before = 0;
  for (int l0 = 0; l0 < n; l0 += 32) {
    int many = l0 + lane < n ? count(l0 + lane) : 0, sum = many;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
      int v = __shfl_up_sync(kAllLanes, sum, o);
      if (lane >= o) sum += v;
    }
    unsigned behind = __ballot_sync(kAllLanes, before + sum > target);
    if (behind) {
      int l = __ffs(int(behind)) - 1;
      *list = l0 + l;
      *element = target - before - __shfl_sync(kAllLanes, sum - many, l);
      return true;
    }
    before += __shfl_sync(kAllLanes, sum, 31);
  }
  return false;
}

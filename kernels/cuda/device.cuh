// The macros and functions that every kernel of this folder uses. nvcc compiles them as CUDA. A
// host compiler includes emulation/emulate.h instead, so that tests run the same source without
// a GPU.
#pragma once
#include <stdint.h>

#if defined(__CUDACC__)
#define DEVICE __device__ __forceinline__
#define METHOD static __device__ __forceinline__
#define DEVICE_METHOD __device__ __forceinline__  // of a class
// KERNEL begins a kernel. It takes one struct, a, in constant memory. Its symbol has a prefix,
// because some of the names are functions of CUDA.
#define KERNEL(name, Args, threads) KERNEL_OF(name, Args, threads, 1)
// KERNEL_OF also asks that a multiprocessor can run `blocks` blocks at once.
#define KERNEL_OF(name, Args, threads, blocks) \
  extern "C" __global__ void __launch_bounds__(threads, blocks) vapp_##name(const __grid_constant__ Args a)
#define DYNAMIC_SHARED(name) unsigned char *name = dynamic_shared
extern __shared__ __align__(128) unsigned char dynamic_shared[];
#define INFINITY_F __int_as_float(0x7f800000)
#else
#include "emulation/emulate.h"
#define DEVICE static inline
#define METHOD static inline
#define DEVICE_METHOD inline
#define KERNEL(name, Args, threads)                                                                               \
  static void vapp_##name(const Args &a);                                                                         \
  static const emulation::Registration registered_##name("vapp_" #name, sizeof(Args), threads, [](const void *args) {      \
    vapp_##name(*(const Args *)args);                                                                             \
  });                                                                                                             \
  static void vapp_##name(const Args &a)
#define KERNEL_OF(name, Args, threads, blocks) KERNEL(name, Args, threads)
#define DYNAMIC_SHARED(name) unsigned char *name = emulation::current()->block->shared
#define INFINITY_F std::numeric_limits<float>::infinity()
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

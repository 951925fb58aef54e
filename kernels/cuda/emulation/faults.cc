// Kernels with one fault each, which the emulation must report. Only the tests' device has
// them.
#include "../mma.cuh"

struct FaultArgs {
  float *x;
};

KERNEL(fault_none, FaultArgs, 64) {
  __shared__ float v[64];
  v[threadIdx.x] = float(threadIdx.x);
  __syncthreads();
  a.x[threadIdx.x] = v[63 - threadIdx.x];
}

KERNEL(fault_divergent_barrier, FaultArgs, 64) {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
  a.x[threadIdx.x] = 0;
}

KERNEL(fault_left_before_barrier, FaultArgs, 64) {
  if (threadIdx.x == 40) return;
  __syncthreads();
  a.x[threadIdx.x] = 0;
}

KERNEL(fault_lane_left, FaultArgs, 64) {
  if (threadIdx.x == 40) return;
  a.x[threadIdx.x] = warp_sum(1.0f);
}

KERNEL(fault_divergent_shuffle, FaultArgs, 64) {
  float v = 1.0f;
  if (threadIdx.x % 32 < 16) v = __shfl_xor_sync(kAllLanes, v, 1);
  a.x[threadIdx.x] = v;
}

KERNEL(fault_beyond, FaultArgs, 64) { a.x[64 + threadIdx.x % 2] = 1.0f; }

KERNEL(fault_unaligned, FaultArgs, 64) {
  const float4 v = __ldg((const float4 *)(a.x + 1));
  a.x[threadIdx.x] = v.x;
}

KERNEL(fault_copy_not_waited_for, FaultArgs, 64) {
  DYNAMIC_SHARED(memory);
  if (threadIdx.x < 16) {
    copy_async(memory + 16 * threadIdx.x, a.x + 4 * threadIdx.x, 16);
    copy_commit();
  }
  __syncthreads();
  a.x[threadIdx.x] = ((float *)memory)[threadIdx.x];
}

// Gives 1 everywhere with a wait before the barrier, NaN if the wait leaves out a group.
KERNEL(fault_wait_leaves_one, FaultArgs, 64) {
  DYNAMIC_SHARED(memory);
  if (threadIdx.x < 16) {
    copy_async(memory + 16 * threadIdx.x, a.x + 4 * threadIdx.x, 16);
    copy_commit();
  }
  copy_wait<1>();
  __syncthreads();
  float v = ((float *)memory)[threadIdx.x];
  copy_wait<0>();
  a.x[threadIdx.x] = v;
}

// There is no barrier between the write and another warp's read.
KERNEL(fault_race, FaultArgs, 64) {
  DYNAMIC_SHARED(memory);
  float *v = (float *)memory;
  v[threadIdx.x] = float(threadIdx.x);
  __syncwarp();
  a.x[threadIdx.x] = v[63 - threadIdx.x];
}

// What comes before the wait for the kernel before: it reads, or it prefetches what is no memory.
struct ReadingPrefetch {
  static constexpr int kRuns = 1;
  METHOD Run run(const FaultArgs &a, int) { return {a.x, a.x[0] > 0 ? 16u : 32u}; }
};
KERNEL_PREFETCH(fault_prefetch_reads, FaultArgs, 64, 1, ReadingPrefetch) { a.x[threadIdx.x] = 0; }

template <int At, int Bytes>
struct WrongPrefetch {
  static constexpr int kRuns = 1;
  METHOD Run run(const FaultArgs &a, int) { return {a.x + At, Bytes}; }
};
KERNEL_PREFETCH(fault_prefetch_beyond, FaultArgs, 64, 1, WrongPrefetch<4, 256>) { a.x[threadIdx.x] = 0; }
KERNEL_PREFETCH(fault_prefetch_unaligned, FaultArgs, 64, 1, WrongPrefetch<1, 16>) { a.x[threadIdx.x] = 0; }

// What a .cu file of this folder needs from CUDA, for a host compiler: keywords, built-in
// variables, shuffles and atomics. Kernels register themselves by name; main.cc launches them.
#pragma once
#include "block.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#define __host__
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __constant__ static
#define __shared__ static thread_local
#define __align__(n) alignas(n)

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

namespace emulation {

// Kernel is a kernel that a launch can name.
struct Kernel {
  const char *name;
  size_t args;
  int threads;  // largest number of threads of a block
  void (*run)(const void *args);
  int runs;  // that a block prefetches before it waits for the kernel before
  void (*prefetch)(const void *args);
};

inline std::vector<Kernel> &kernels() {
  static std::vector<Kernel> all;
  return all;
}

struct Registration {
  Registration(const char *name, size_t args, int threads, void (*run)(const void *), int runs, void (*prefetch)(const void *)) {
    kernels().push_back({name, args, threads, run, runs, prefetch});
  }
};

// wait_for_kernel is a thread's wait for the kernel before.
inline void wait_for_kernel() { current()->block->waited++; }

// Before that wait nothing may be read or written. So every address in the arguments of a Prefetch is kFar away from where
// it belongs, where no memory is; prefetch brings it back.
constexpr uint64_t kFar = 1ull << 62;

// Prefetched is memory that a block prefetched.
struct Prefetched {
  uint64_t at, bytes;
};
inline thread_local std::vector<Prefetched> prefetched;

inline void prefetch(const void *p, uint32_t bytes) {
  uint64_t at = uint64_t(p);
  if (bytes == 0) return;
  if (at < kFar) die("a prefetch of what is in no argument");
  if (at % 16 != 0 || bytes % 16 != 0) die("a prefetch that is not in units of 16 bytes");
  prefetched.push_back({at - kFar, bytes});
}

// run_prefetch runs what comes before the wait in all blocks of a launch with these arguments, whose block is set up. inside
// says whether memory is there. It returns what is wrong, or "".
template <class Inside>
std::string run_prefetch(const Kernel &k, const void *args, Inside inside) {
  prefetched.clear();
  if (k.runs == 0) return "";
  std::vector<uint64_t> far((k.args + 7) / 8);
  memcpy(far.data(), args, k.args);
  for (uint64_t &v : far)
    if (inside(v, 0)) v += kFar;
  Block &b = block;
  char why[512] = "";
  Block kept = b;
  b.body = k.prefetch;
  b.args = far.data();
  b.fault = why;
  b.fault_size = sizeof why;
  b.prefetching = true;
  for (b.index.z = 0; b.index.z < b.grid.z; b.index.z++)
    for (b.index.y = 0; b.index.y < b.grid.y; b.index.y++)
      for (b.index.x = 0; b.index.x < b.grid.x && why[0] == 0; b.index.x++) run_block();
  b = kept;
  for (const Prefetched &p : prefetched)
    if (why[0] == 0 && !inside(p.at, p.bytes)) snprintf(why, sizeof why, "%s: a prefetch of memory that is not there", k.name);
  return why;
}

// Collectives of a warp; those of mma.cuh follow kUnits.
enum Collective { kSync, kVote, kShuffle, kShuffleXor, kShuffleDown, kShuffleUp, kUnits };

// Shuffled is what a lane brings to a shuffle.
template <class T>
struct Shuffled {
  T value, answer;
  int from;
};

template <class T>
void shuffle(Meeting &m) {
  for (uint32_t left = m.mask; left != 0; left &= left - 1) {
    auto &mine = m.lane<Shuffled<T>>(__builtin_ctz(left));
    if (!(m.mask >> mine.from & 1)) die("a shuffle reads a lane that its mask does not name");
    mine.answer = m.lane<Shuffled<T>>(mine.from).value;
  }
}

template <class T>
T exchange(uint32_t mask, T value, int from, Collective op, int line) {
  Shuffled<T> mine{value, value, from};
  meet(mask, op, &mine, shuffle<T>, "a shuffle", line);
  return mine.answer;
}

inline void vote(Meeting &m) {
  uint32_t all = 0;
  for (uint32_t left = m.mask; left != 0; left &= left - 1) all |= m.lane<uint32_t>(__builtin_ctz(left));
  for (uint32_t left = m.mask; left != 0; left &= left - 1) m.lane<uint32_t>(__builtin_ctz(left)) = all;
}

inline uint32_t ballot(uint32_t mask, bool yes, int line) {
  uint32_t mine = uint32_t(yes) << current()->lane;
  meet(mask, kVote, &mine, vote, "a vote", line);
  return mine;
}

inline void sync_warp(uint32_t mask, int line) { meet(mask, kSync, nullptr, nullptr, "__syncwarp", line); }

}  // namespace emulation

#define threadIdx (emulation::current()->thread)
#define blockIdx (emulation::current()->block->index)
#define blockDim (emulation::current()->block->size)
#define gridDim (emulation::current()->block->grid)

#define __syncthreads() emulation::barrier(__FILE__, __LINE__)
static inline void __syncwarp(uint32_t mask = 0xffffffffu, int line = __builtin_LINE()) { emulation::sync_warp(mask, line); }
template <class T>
static inline T __shfl_sync(uint32_t mask, T v, int lane, int width = 32, int line = __builtin_LINE()) {
  int me = emulation::current()->lane;
  return emulation::exchange(mask, v, (me & ~(width - 1)) | (lane & (width - 1)), emulation::kShuffle, line);
}
template <class T>
static inline T __shfl_xor_sync(uint32_t mask, T v, int x, int width = 32, int line = __builtin_LINE()) {
  int me = emulation::current()->lane, to = me ^ x;
  return emulation::exchange(mask, v, to / width == me / width ? to : me, emulation::kShuffleXor, line);
}
template <class T>
static inline T __shfl_down_sync(uint32_t mask, T v, int n, int width = 32, int line = __builtin_LINE()) {
  int me = emulation::current()->lane, to = me + n;
  return emulation::exchange(mask, v, to / width == me / width ? to : me, emulation::kShuffleDown, line);
}
template <class T>
static inline T __shfl_up_sync(uint32_t mask, T v, int n, int width = 32, int line = __builtin_LINE()) {
  int me = emulation::current()->lane, to = me - n;
  return emulation::exchange(mask, v, to >= me / width * width ? to : me, emulation::kShuffleUp, line);
}
static inline uint32_t __ballot_sync(uint32_t mask, int yes, int line = __builtin_LINE()) { return emulation::ballot(mask, yes != 0, line); }
static inline int __any_sync(uint32_t mask, int yes, int line = __builtin_LINE()) { return emulation::ballot(mask, yes != 0, line) != 0; }
static inline int __all_sync(uint32_t mask, int yes, int line = __builtin_LINE()) { return emulation::ballot(mask, yes == 0, line) == 0; }

// Threads of a block switch only at collectives; blocks may run on several host threads.
template <class T, class F>
static inline T atomic_change(T *p, F f) {
  T old, next;
  __atomic_load(p, &old, __ATOMIC_ACQUIRE);
  do
    next = f(old);
  while (!__atomic_compare_exchange(p, &old, &next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
  return old;
}
template <class T>
static inline T atomicAdd(T *p, T v) {
  return atomic_change(p, [&](T old) { return T(old + v); });
}
template <class T>
static inline T atomicMax(T *p, T v) {
  return atomic_change(p, [&](T old) { return std::max(old, v); });
}
template <class T>
static inline T atomicMin(T *p, T v) {
  return atomic_change(p, [&](T old) { return std::min(old, v); });
}
static inline unsigned atomicOr(unsigned *p, unsigned v) {
  return atomic_change(p, [&](unsigned old) { return old | v; });
}
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

template <class T>
static inline T __ldg(const T *p) {
  if (uintptr_t(p) % alignof(T) != 0) emulation::die("a load is not aligned to its size");
  return *p;
}
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __clz(int v) { return v ? __builtin_clz(unsigned(v)) : 32; }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float __uint_as_float(unsigned u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline unsigned __float_as_uint(float f) {
  unsigned u;
  memcpy(&u, &f, 4);
  return u;
}
using std::max;
using std::min;

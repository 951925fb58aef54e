// How kernels read activations, and how the threads of a block share a row: four neighbouring lanes have a step of 32
// columns. All kernels that sum the squares of whole rows use it, so they agree to the bit.
#pragma once
#include "numbers.cuh"

constexpr int kPackThreads = 512;

// Numbers are activations in bf16, or in float32. pair and four are one load, for memory that is aligned for it and that the
// kernel does not write.
struct Numbers {
  const void *from;
  bool bf16;
  DEVICE_METHOD Numbers operator+(size_t n) const { return {(const char *)from + (bf16 ? 2 : 4) * n, bf16}; }
  DEVICE_METHOD float operator[](size_t i) const { return bf16 ? from_bf16(((const uint16_t *)from)[i]) : ((const float *)from)[i]; }
  // pair returns numbers i, which is even, and i+1.
  DEVICE_METHOD float2 pair(size_t i) const {
    if (!bf16) return __ldg((const float2 *)from + i / 2);
    uint32_t w = __ldg((const uint32_t *)from + i / 2);
    return make_float2(from_bf16(uint16_t(w)), from_bf16(uint16_t(w >> 16)));
  }
  // four returns numbers i, a multiple of 4, to i+3.
  DEVICE_METHOD float4 four(size_t i) const {
    if (!bf16) return __ldg((const float4 *)from + i / 4);
    uint2 w = __ldg((const uint2 *)from + i / 4);
    return make_float4(from_bf16(uint16_t(w.x)), from_bf16(uint16_t(w.x >> 16)), from_bf16(uint16_t(w.y)), from_bf16(uint16_t(w.y >> 16)));
  }
};

// each_step calls f with the steps of this thread. All lanes of a warp take part, also for
// steps past the last, which are zeros.
template <class F>
DEVICE void each_step(int steps, F f) {
  for (int s = threadIdx.x >> 5 << 3; s < steps; s += blockDim.x >> 2) f(s + (int(threadIdx.x & 31) >> 2));
}

// each_number calls f with the columns of this thread's steps.
template <class F>
DEVICE void each_number(int in, F f) {
  each_step(ceil_div(in, 32), [&](int s) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
      int col = 32 * s + 8 * (i / 2) + 2 * (threadIdx.x & 3) + i % 2;
      if (col < in) f(col);
    }
  });
}

// How the threads of a block share a row: four neighbouring lanes have a step of 32 columns. All
// kernels that sum the squares of whole rows use it, so they agree to the bit.
#pragma once
#include "numbers.cuh"

constexpr int kPackThreads = 512;

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

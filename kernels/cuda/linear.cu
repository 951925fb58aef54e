// Products with weights that are numbers or blocks of 32.
#include "linear_tile.cuh"

LINEAR(bf16, WeightsBF16, 2, 2)
LINEAR(f16, WeightsF16, 2, 2)
LINEAR(f8_e4m3, WeightsE4M3, 2, 2)
LINEAR(f8_e5m2, WeightsE5M2, 2, 2)
LINEAR(i8, WeightsI8, 2, 2)
LINEAR(mxfp4, WeightsMXFP4, 4, 2)
LINEAR(q8_0, WeightsQ8_0, 2, 2)
LINEAR(q4_0, WeightsQ4_0, 4, 2)
LINEAR(q4_1, WeightsQ4_1, 4, 1)
LINEAR(iq4_nl, WeightsIQ4_NL, 4, 2)
LINEAR(q5_0, WeightsQ5_0, 4, 1)
LINEAR(q5_1, WeightsQ5_1, 4, 1)
LINEAR(i4, WeightsI4, 4, 1)

// X in the same 8-bit format as W.
LINEAR_OF(f8_e4m3_x8, WeightsE4M3, NarrowE4M3, 2, 2)
LINEAR_OF(i8_x8, WeightsI8, NarrowI8, 2, 2)

// linear_f32: W [out, in] and X [rows, in], both F32 and row by row. A warp computes one
// feature of four rows. grid: rows/4, features/8.
KERNEL(linear_f32, LinearArgs, 256) {
  int lane = threadIdx.x & 31, feature = blockIdx.y * kWarps + (threadIdx.x >> 5), row0 = blockIdx.x * 4;
  if (feature >= a.out) return;
  const float *w = (const float *)a.w + size_t(feature) * a.in, *x = (const float *)a.x;
  float sum[4] = {};
  int whole = a.in % 4 == 0 ? a.in / 4 : 0;  // rows begin at multiples of 16 bytes
#pragma unroll 4
  for (int k = lane; k < whole; k += 32) {
    float4 v = __ldg((const float4 *)w + k);
#pragma unroll
    for (int r = 0; r < 4; r++) {
      float4 u = __ldg((const float4 *)(x + size_t(min(row0 + r, a.rows - 1)) * a.in) + k);
      sum[r] = fmaf(v.w, u.w, fmaf(v.z, u.z, fmaf(v.y, u.y, fmaf(v.x, u.x, sum[r]))));
    }
  }
  for (int k = 4 * whole + lane; k < a.in; k += 32) {
    float v = __ldg(w + k);
#pragma unroll
    for (int r = 0; r < 4; r++) sum[r] = fmaf(v, __ldg(x + size_t(min(row0 + r, a.rows - 1)) * a.in + k), sum[r]);
  }
#pragma unroll
  for (int r = 0; r < 4; r++) {
    float v = warp_sum(sum[r]);
    if (lane == 0 && row0 + r < a.rows) a.y[size_t(row0 + r) * a.out + feature] = v + (a.bias ? a.bias[feature] : 0.0f);
  }
}


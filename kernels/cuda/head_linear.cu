// Products of each head with a matrix of its own (latent attention): y of head h = x of head h · w[h]ᵀ.
#include "weights.cuh"

struct HeadLinearArgs {
  const unsigned char *w;  // [heads] matrices, packed as in weights.cuh; F32 row by row
  const float *x;          // [rows, x_cols]; a head begins each x_head columns, and its first `in` are read
  float *y;                // [rows, y_cols]; a head begins each y_head columns, and its first `out` are written
  long long head_bytes;    // from one matrix to the next
  int rows, in, out;
  int x_cols, x_head, y_cols, y_head;
  int pad;
};

constexpr int kHeadWarps = 8;

DEVICE float within_f16(float v) { return fminf(fmaxf(v, -65504.0f), 65504.0f); }

// fetch_heads rounds the inputs of Steps steps of 32 of a block's rows to the matrix units' format.
// Rows and columns past the end are zeros.
template <bool Half, int Rows, int Steps>
DEVICE void fetch_heads(const HeadLinearArgs &a, int row0, int column0, uint16_t *tile) {
  constexpr int wide = 32 * Steps, stride = wide + 8, fours = wide / 4;
  const float *x = a.x + size_t(blockIdx.z) * a.x_head;
  bool whole = (a.in | a.x_cols | a.x_head) % 4 == 0;  // rows begin at multiples of 16 bytes
#pragma unroll 4
  for (int i = threadIdx.x; i < Rows * fours; i += 32 * kHeadWarps) {
    int r = i / fours, column = column0 + i % fours * 4, left = row0 + r < a.rows ? a.in - column : 0;
    const float *from = x + size_t(row0 + r) * a.x_cols + column;
    float4 v = make_float4(0, 0, 0, 0);
    if (whole && left > 0) {
      v = __ldg((const float4 *)from);
    } else {
      if (left > 0) v.x = __ldg(from);
      if (left > 1) v.y = __ldg(from + 1);
      if (left > 2) v.z = __ldg(from + 2);
      if (left > 3) v.w = __ldg(from + 3);
    }
    if (Half) {  // above the largest fp16 there is only infinity
      v = make_float4(within_f16(v.x), within_f16(v.y), within_f16(v.z), within_f16(v.w));
      *(uint2 *)(tile + r * stride + i % fours * 4) = make_uint2(to_f16x2(v.x, v.y), to_f16x2(v.z, v.w));
    } else {
      *(uint2 *)(tile + r * stride + i % fours * 4) = make_uint2(to_bf16x2(v.x, v.y), to_bf16x2(v.z, v.w));
    }
  }
}

// head_linear: a block computes 128 features of one head for 8·N rows. A warp has a panel of features,
// which it reads once, Steps steps at the same time. A row's sum is in the order of the inputs,
// whatever the other rows are. Grid: row blocks, feature blocks, heads. Shared memory: 8 · N ·
// (32·Steps + 8) · 2 bytes.
template <class W, int N, int Steps>
DEVICE void head_linear(const HeadLinearArgs &a) {
  DYNAMIC_SHARED(memory);
  uint16_t *tile = (uint16_t *)memory;
  constexpr int stride = 32 * Steps + 8;
  int lane = threadIdx.x & 31, head = blockIdx.z, m = lane >> 3, r = lane & 7;
  int panel = blockIdx.y * kHeadWarps + (threadIdx.x >> 5), steps = ceil_div(a.in, 32), row0 = blockIdx.x * 8 * N;
  const unsigned char *w = a.w + head * a.head_bytes + size_t(panel) * steps * W::kUnitBytes;
  bool idle = 16 * panel >= a.out;
  float d[N][4] = {};
  for (int step0 = 0; step0 < steps; step0 += Steps) {
    typename W::Raw raw[Steps];
    if (!idle) {
#pragma unroll
      for (int s = 0; s < Steps; s++)  // steps past the end are multiplied with zeros
        raw[s] = W::template load<kGlobal>(w + size_t(min(step0 + s, steps - 1)) * W::kUnitBytes, lane);
    }
    fetch_heads<W::kHalf, 8 * N, Steps>(a, row0, 32 * step0, tile);
    __syncthreads();
    if (!idle) {
#pragma unroll
      for (int s = 0; s < Steps; s++) {
        uint32_t first[4], second[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          first[i] = W::fragment(raw[s], 0, i);
          second[i] = W::fragment(raw[s], 1, i);
        }
#pragma unroll
        for (int n = 0; n < N; n++) {
          uint32_t b[4];
          load_matrix(b, tile + (8 * n + r) * stride + 32 * s + 8 * m);
          if (W::kHalf) {
            multiply_f16(d[n], first, b[0], b[1]);
            multiply_f16(d[n], second, b[2], b[3]);
          } else {
            multiply_bf16(d[n], first, b[0], b[1]);
            multiply_bf16(d[n], second, b[2], b[3]);
          }
        }
      }
    }
    __syncthreads();  // all warps are done with the tile
  }
  float *y = a.y + size_t(head) * a.y_head;
#pragma unroll
  for (int n = 0; n < N; n++)
#pragma unroll
    for (int c = 0; c < 4; c++) {
      int feature = 16 * panel + (lane >> 2) + c / 2 * 8, row = row0 + 8 * n + (lane & 3) * 2 + c % 2;
      if (feature < a.out && row < a.rows) y[size_t(row) * a.y_cols + feature] = d[n][c];
    }
}

#define HEAD_LINEAR(name, W)                                                          \
  KERNEL_OF(head_linear_##name##_16, HeadLinearArgs, 256, 2) { head_linear<W, 2, 4>(a); } \
  KERNEL_OF(head_linear_##name##_64, HeadLinearArgs, 256, 2) { head_linear<W, 8, 2>(a); }
HEAD_LINEAR(bf16, WeightsBF16)
HEAD_LINEAR(f16, WeightsF16)

// head_linear_f32: W and X in F32, row by row. A warp computes one feature of four rows. Grid:
// rows/4, features/8, heads.
KERNEL(head_linear_f32, HeadLinearArgs, 256) {
  int lane = threadIdx.x & 31, feature = blockIdx.y * kHeadWarps + (threadIdx.x >> 5), row0 = blockIdx.x * 4, head = blockIdx.z;
  if (feature >= a.out) return;
  const float *w = (const float *)(a.w + head * a.head_bytes) + size_t(feature) * a.in, *x = a.x + size_t(head) * a.x_head;
  float sum[4] = {};
#pragma unroll 4
  for (int k = lane; k < a.in; k += 32) {
    float v = __ldg(w + k);
#pragma unroll
    for (int r = 0; r < 4; r++) sum[r] = fmaf(v, __ldg(x + size_t(min(row0 + r, a.rows - 1)) * a.x_cols + k), sum[r]);
  }
#pragma unroll
  for (int r = 0; r < 4; r++) {
    float v = warp_sum(sum[r]);
    if (lane == 0 && row0 + r < a.rows) a.y[size_t(row0 + r) * a.y_cols + size_t(head) * a.y_head + feature] = v;
  }
}

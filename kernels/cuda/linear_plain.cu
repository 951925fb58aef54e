// Products of few rows with weights stored row by row, as cuBLASLt takes them: [out, in] of
// 16-bit numbers or E4M3, in a multiple of 32, and X [rows, in] of the same type (pack.cu:
// words 2). With half, a block takes its rows of W from both halves.
#include "linear_tile.cuh"

// The types of W and X. A unit is 64 bytes of a row, 16 for each of the four lanes that share
// it, and two multiplications. first and second are fragments of W, x is one of X.
template <bool Half>
struct Rows16 {
  static constexpr int kColumns = 8;  // columns in 16 bytes
  static constexpr bool kScaled = false;
  METHOD void multiply(float (&d)[4], const uint32_t (&first)[4], const uint32_t (&second)[4], const uint4 &x) {
    if (Half) {
      multiply_f16(d, first, x.x, x.y);
      multiply_f16(d, second, x.z, x.w);
    } else {
      multiply_bf16(d, first, x.x, x.y);
      multiply_bf16(d, second, x.z, x.w);
    }
  }
};
struct RowsE4M3 {
  static constexpr int kColumns = 16;
  static constexpr bool kScaled = true;
  METHOD void multiply(float (&d)[4], const uint32_t (&first)[4], const uint32_t (&second)[4], const uint4 &x) {
    multiply_e4m3(d, first, x.x, x.y);
    multiply_e4m3(d, second, x.z, x.w);
  }
};

// kAheadPlain are the units that a warp loads at the same time, with N tiles of rows.
template <class Numbers, int N>
constexpr int kAheadPlain = (N == 1 ? 4 : 3) - Numbers::kScaled;

// PlainPrefetch is what the blocks of linear_plain load first: of each feature the units of the warps, 64 bytes each, which
// follow each other without splits.
template <class Numbers, int P, int N>
struct PlainPrefetch {
  static constexpr int kFeatures = 16 * P, kPieces = kAheadPlain<Numbers, N>, kRuns = kFeatures * kPieces, kBytes = kWarps * 64;
  METHOD Run run(const LinearArgs &a, int i) {
    int r = blockIdx.y * kFeatures + i / kPieces, piece = i % kPieces, row = a.in / Numbers::kColumns * 16;
    int at = (piece * a.splits + blockIdx.z) * kBytes, bytes = a.splits > 1 ? kBytes : piece == 0 ? kPieces * kBytes : 0;
    return {a.w + size_t(feature_of(a, r)) * row + at, blockIdx.x == 0 && r < a.out && at < row ? uint32_t(min(bytes, row - at)) : 0};
  }
};

// linear_plain computes P panels of features for 8·N rows in a block. Its eight warps and the
// grid's splits share the units as those of linear_rows share steps. The order of input
// features in a multiplication is free as long as W and X agree: with g = lane/4 and q =
// lane%4, a lane takes bytes 16·q to 16·q+15 of a unit of feature g, of feature g+8 and of row
// g. With 8-bit numbers the last unit may be half a unit; X is zero in the other half. The sums
// of a unit of 8-bit numbers are scaled in float32 by both scales, each of which covers whole
// units. Grid and shared memory are those of linear_rows.
template <class Numbers, int P, int N>
DEVICE void linear_plain(const LinearArgs &a) {
  DYNAMIC_SHARED(memory);
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, q = lane & 3;
  int row_words = a.in / Numbers::kColumns, units = ceil_div(row_words, 4);
  Tile<P, N> tile(a, units, 1);
  const uint4 *w[P][2], *x[N];
  const float *by[P][2];  // scales of the features
#pragma unroll
  for (int i = 0; i < 2 * P; i++) {
    int feature = feature_of(a, min(16 * (tile.panel0 + i / 2) + i % 2 * 8 + g, a.out - 1));
    w[i / 2][i % 2] = (const uint4 *)a.w + size_t(feature) * row_words;
    by[i / 2][i % 2] = Numbers::kScaled ? scale_row<WeightsE4M3>(a, a.scales, feature) : nullptr;
  }
#pragma unroll
  for (int n = 0; n < N; n++) x[n] = (const uint4 *)a.x + size_t(8 * (tile.tile0 + n) + g) * row_words;
  float d[P][N][4] = {};
  constexpr int kAhead = kAheadPlain<Numbers, N>;
  int stride = kWarps * a.splits, groups = Numbers::kScaled ? ceil_div(steps_of(a.in), a.x_steps) : 0;
  for (int unit0 = blockIdx.z * kWarps + warp; unit0 < units; unit0 += kAhead * stride) {
    uint4 raw[kAhead][P][2], rows[kAhead][N];
    float scales[kAhead][P][2];
    float2 of_x[kAhead][N];
#pragma unroll
    for (int j = 0; j < kAhead; j++) {
      int word = 4 * (unit0 + j * stride) + q, at = min(word, row_words - 1);
#pragma unroll
      for (int i = 0; i < 2 * P; i++) raw[j][i / 2][i % 2] = stream16(w[i / 2][i % 2] + at);
#pragma unroll
      for (int n = 0; n < N; n++)  // rows and units past the end are zeros and are not loaded
        rows[j][n] = word < row_words && 8 * (tile.tile0 + n) + g < a.rows ? __ldg(x[n] + at) : make_uint4(0, 0, 0, 0);
      if (!Numbers::kScaled) continue;
      int step = 2 * min(unit0 + j * stride, units - 1);
#pragma unroll
      for (int i = 0; i < 2 * P; i++) scales[j][i / 2][i % 2] = immutable(by[i / 2][i % 2] + 32 * step / a.scale_cols);
#pragma unroll
      for (int n = 0; n < N; n++)
        of_x[j][n] = __ldg((const float2 *)(a.sums + (size_t(min(tile.tile0 + n, tile.tiles - 1)) * groups + step / a.x_steps) * 8 + 2 * q));
    }
#pragma unroll
    for (int j = 0; j < kAhead; j++) {
#pragma unroll
      for (int i = 0; i < P; i++) {
        const uint4 &u = raw[j][i][0], &v = raw[j][i][1];
        const uint32_t first[4] = {u.x, v.x, u.y, v.y}, second[4] = {u.z, v.z, u.w, v.w};
#pragma unroll
        for (int n = 0; n < N; n++) {
          if (!Numbers::kScaled) {
            Numbers::multiply(d[i][n], first, second, rows[j][n]);
            continue;
          }
          float t[4] = {0.0f, 0.0f, 0.0f, 0.0f};
          Numbers::multiply(t, first, second, rows[j][n]);
#pragma unroll
          for (int c = 0; c < 4; c++) d[i][n][c] = fmaf(scales[j][i][c / 2] * (c % 2 ? of_x[j][n].y : of_x[j][n].x), t[c], d[i][n][c]);
        }
      }
    }
  }
  // The sums of the warps in order, one piece for each of the first warps; then those of
  // the splits.
  constexpr int kPieces = P * N;
  float4 *scratch = (float4 *)memory;
#pragma unroll
  for (int i = 0; i < kPieces; i++) {
    const float *s = d[i / N][i % N];
    scratch[(warp * kPieces + i) * 32 + lane] = make_float4(s[0], s[1], s[2], s[3]);
  }
  __syncthreads();
  float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int k = 0; warp < kPieces && k < kWarps; k++) {
    float4 v = scratch[(k * kPieces + warp) * 32 + lane];
    sum[0] += v.x;
    sum[1] += v.y;
    sum[2] += v.z;
    sum[3] += v.w;
  }
  // A warp without a piece gets one after the last row.
  tile.template finish<1>(a, [&](int) { return warp < kPieces ? int2{warp / N, warp % N} : int2{0, tile.tiles}; }, [&](int) { return sum; }, nullptr);
}

#define LINEAR_PLAIN(name, numbers, blocks)                                                     \
  KERNEL_PREFETCH(linear_##name##_plain_8, LinearArgs, 256, blocks, PlainPrefetch<numbers, 2, 1>) { linear_plain<numbers, 2, 1>(a); } \
  KERNEL_PREFETCH(linear_##name##_plain_16, LinearArgs, 256, blocks, PlainPrefetch<numbers, 2, 2>) { linear_plain<numbers, 2, 2>(a); }
LINEAR_PLAIN(bf16, Rows16<false>, 2)
LINEAR_PLAIN(f16, Rows16<true>, 2)
LINEAR_PLAIN(f8_e4m3_x8, RowsE4M3, LINEAR_BLOCKS(2))

// linear_bias: y [rows, out] += bias [out], for cuBLASLt's products of 8-bit numbers. A thread
// for each four elements of y.
struct LinearBiasArgs {
  float4 *y;
  const float4 *bias;
  long long n;  // fours of y
  int out, pad;  // fours of a row
};

KERNEL(linear_bias, LinearBiasArgs, 256) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= a.n) return;
  float4 v = a.y[i], b = immutable(a.bias + i % a.out);
  a.y[i] = make_float4(v.x + b.x, v.y + b.y, v.z + b.z, v.w + b.w);
}

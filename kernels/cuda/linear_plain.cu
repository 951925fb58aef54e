// Products of few rows with weights that lie row by row, as cuBLASLt takes them: [out, in] of
// 16-bit numbers, in a multiple of 32, and X [rows, in] of the same (pack.cu: words 2).
#include "linear_tile.cuh"

// linear_plain computes P panels of features for 8·N rows a block, its eight warps and the grid's
// splits sharing the steps as those of linear_rows do. Which input feature stands where in a
// multiplication is free as long as W and X agree: with g = lane/4 and q = lane%4, a lane takes
// input features 8·q to 8·q+7 of a step, 16 bytes of feature g, of g+8 and of row g. Grid and
// shared memory are linear_rows'.
template <bool Half, int P, int N>
DEVICE void linear_plain(const LinearArgs &a) {
  DYNAMIC_SHARED(memory);
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, row_words = a.in / 8;
  Tile<P, N> tile(a, 0, steps_of(a.in), 1);
  const uint4 *w[P][2], *x[N];
#pragma unroll
  for (int i = 0; i < 2 * P; i++)
    w[i / 2][i % 2] = (const uint4 *)a.w + size_t(min(16 * (tile.panel0 + i / 2) + i % 2 * 8 + g, a.out - 1)) * row_words + (lane & 3);
#pragma unroll
  for (int n = 0; n < N; n++) x[n] = (const uint4 *)a.x + size_t(8 * (tile.tile0 + n) + g) * row_words + (lane & 3);
  float d[P][N][4] = {};
  constexpr int kAhead = N == 1 ? 4 : 3;  // steps whose loads are under way together
  int steps = steps_of(a.in), stride = kWarps * a.splits;
  for (int step0 = blockIdx.z * kWarps + warp; step0 < steps; step0 += kAhead * stride) {
    uint4 raw[kAhead][P][2], rows[kAhead][N];
#pragma unroll
    for (int j = 0; j < kAhead; j++) {
      bool there = step0 + j * stride < steps;
      int at = 4 * (there ? step0 + j * stride : steps - 1);
#pragma unroll
      for (int i = 0; i < 2 * P; i++) raw[j][i / 2][i % 2] = stream16(w[i / 2][i % 2] + at);
#pragma unroll
      for (int n = 0; n < N; n++)  // rows and steps that there are not are zeros without a load
        rows[j][n] = there && 8 * (tile.tile0 + n) + g < a.rows ? __ldg(x[n] + at) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int j = 0; j < kAhead; j++) {
#pragma unroll
      for (int i = 0; i < P; i++) {
        const uint4 &u = raw[j][i][0], &v = raw[j][i][1];
        const uint32_t first[4] = {u.x, v.x, u.y, v.y}, second[4] = {u.z, v.z, u.w, v.w};
#pragma unroll
        for (int n = 0; n < N; n++) {
          if (Half) {
            multiply_f16(d[i][n], first, rows[j][n].x, rows[j][n].y);
            multiply_f16(d[i][n], second, rows[j][n].z, rows[j][n].w);
          } else {
            multiply_bf16(d[i][n], first, rows[j][n].x, rows[j][n].y);
            multiply_bf16(d[i][n], second, rows[j][n].z, rows[j][n].w);
          }
        }
      }
    }
  }
  // The warps' sums, in their order, a piece by each of the first warps; then the splits'.
  constexpr int kPieces = P * N;
  float4 *room = (float4 *)memory;
#pragma unroll
  for (int i = 0; i < kPieces; i++) {
    const float *s = d[i / N][i % N];
    room[(warp * kPieces + i) * 32 + lane] = make_float4(s[0], s[1], s[2], s[3]);
  }
  __syncthreads();
  float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int k = 0; warp < kPieces && k < kWarps; k++) {
    float4 v = room[(k * kPieces + warp) * 32 + lane];
    sum[0] += v.x;
    sum[1] += v.y;
    sum[2] += v.z;
    sum[3] += v.w;
  }
  // A warp without a piece has one behind the last row.
  tile.template finish<1>(a, [&](int) { return warp < kPieces ? int2{warp / N, warp % N} : int2{0, tile.tiles}; }, [&](int) { return sum; });
}

#define LINEAR_PLAIN(name, half)                                                            \
  KERNEL_OF(linear_##name##_plain_8, LinearArgs, 256, 2) { linear_plain<half, 2, 1>(a); } \
  KERNEL_OF(linear_##name##_plain_16, LinearArgs, 256, 2) { linear_plain<half, 2, 2>(a); }
LINEAR_PLAIN(bf16, false)
LINEAR_PLAIN(f16, true)

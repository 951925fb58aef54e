// Y = X·Wᵀ + bias for every format of W, on the matrix units. X is rounded to bf16 (fp16
// for fp16 weights) and packed as fragments first; quants go through the units as they
// are, exactly, and their scales multiply the sums of 32 (Q6_K: 16) in float32.
#include "weights.cuh"

struct PackArgs {
  const float *x;     // [_, in]
  uint4 *y;           // [tiles, in/32, 32] 16 bytes a lane
  float *sums;        // [tiles, in/32, 8] of the rounded numbers of a step; null: not wanted
  const int *order;   // [rows] which row of x, −1: zeros; null: as they lie
  int rows, in;       // rows behind the last are zeros up to a whole tile of 8
};

// linear_pack: a warp for each tile of 8 rows and step of 32 columns: grid.x shares out
// the steps, grid.y is the tiles.
template <bool Half>
DEVICE void linear_pack(const PackArgs &a) {
  int lane = threadIdx.x & 31, g = lane >> 2, q = lane & 3, steps = a.in / 32;
  int step = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5), row = blockIdx.y * 8 + g;
  if (step >= steps) return;
  int from = row < a.rows ? (a.order ? a.order[row] : row) : -1;
  const float2 *x = (const float2 *)(a.x + size_t(max(from, 0)) * a.in + 32 * step + 2 * q);
  uint32_t w[4];
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float2 v = from >= 0 ? __ldg(x + 4 * i) : make_float2(0, 0);
    if (Half) {  // beyond the largest number of fp16 there is only infinity
      v.x = fminf(fmaxf(v.x, -65504.0f), 65504.0f);
      v.y = fminf(fmaxf(v.y, -65504.0f), 65504.0f);
      w[i] = to_f16x2(v.x, v.y);
    } else {
      w[i] = to_bf16x2(v.x, v.y);
      sum += from_bf16(uint16_t(w[i])) + from_bf16(uint16_t(w[i] >> 16));
    }
  }
  size_t at = size_t(blockIdx.y) * steps + step;
  a.y[at * 32 + lane] = make_uint4(w[0], w[1], w[2], w[3]);
  if (Half || a.sums == nullptr) return;
  sum += __shfl_xor_sync(kAllLanes, sum, 1);
  sum += __shfl_xor_sync(kAllLanes, sum, 2);
  if (q == 0) a.sums[at * 8 + g] = sum;
}

KERNEL(linear_pack_bf16, PackArgs, 256) { linear_pack<false>(a); }
KERNEL(linear_pack_f16, PackArgs, 256) { linear_pack<true>(a); }

constexpr int kParts = 4;

struct LinearArgs {
  const unsigned char *w;  // packed, see weights.cuh
  const uint4 *x;          // linear_pack's
  const float *sums;       // linear_pack's, for formats with minima
  const float *scales;     // of 8-bit floats: [_, scale_across]; null: ones
  const float *bias;       // [out] or null
  float *y;                // [rows, out]
  const int *experts;      // which of several matrices a block of rows is for, −1: none; null: one matrix
  float *partial;          // with splits > 1: [splits, blocks of grid.y, blocks of grid.x, what a block gives]
  unsigned *arrived;       // with splits > 1: [blocks of grid.y, blocks of grid.x], zero before and after
  long long expert_bytes;  // from one matrix to the next
  long long expert_scales, expert_bias;
  int rows, in, out, splits;
  int scale_rows, scale_cols, scale_across, parts;  // a scale is of this many rows and columns of a part
  int part_row[kParts], part_scale[kParts];         // where parts begin: output feature, row of scales
};

// A lane's part of W at one step of a panel.
template <class W>
struct Panel {
  const unsigned char *base;  // of the panel
  const float *scales[2];     // the rows of scales of features g and g+8, or null
};

template <class W>
DEVICE const float *scale_row(const LinearArgs &a, const float *scales, int feature) {
  if (!W::kExternal || scales == nullptr) return nullptr;
  int part = 0;
  for (int i = 1; i < a.parts; i++)
    if (feature >= a.part_row[i]) part = i;
  return scales + size_t(a.part_scale[part] + (feature - a.part_row[part]) / a.scale_rows) * a.scale_across;
}

template <class W>
DEVICE Panel<W> panel_at(const LinearArgs &a, int panel, int expert) {
  size_t bytes = size_t(a.in / 32 / W::kUnit) * W::kUnitBytes;
  int g = (threadIdx.x & 31) >> 2, last = a.out - 1;
  const float *scales = a.scales ? a.scales + expert * a.expert_scales : nullptr;
  Panel<W> p;
  p.base = a.w + expert * a.expert_bytes + panel * bytes;
  p.scales[0] = scale_row<W>(a, scales, min(16 * panel + g, last));
  p.scales[1] = scale_row<W>(a, scales, min(16 * panel + g + 8, last));
  return p;
}

template <class W>
DEVICE const unsigned char *quants_at(const Panel<W> &p, int step) {
  return p.base + size_t(step / W::kUnit) * W::kUnitBytes + step % W::kUnit * W::kQuants;
}

template <class W>
DEVICE Factors factors_at(const LinearArgs &a, const Panel<W> &p, int step) {
  if (W::kExternal) {
    Factors f{};
    int column = 32 * step / a.scale_cols;
    f.scale[0][0] = p.scales[0] ? __ldg(p.scales[0] + column) : 1.0f;
    f.scale[1][0] = p.scales[1] ? __ldg(p.scales[1] + column) : 1.0f;
    return f;
  }
  return W::factors(p.base + size_t(step / W::kUnit) * W::kUnitBytes, step % W::kUnit, (threadIdx.x & 31) >> 2);
}

template <class W>
DEVICE void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if (W::kHalf)
    multiply_f16(d, a, b0, b1);
  else
    multiply_bf16(d, a, b0, b1);
}

// accumulate adds a step of 16 features and 8 rows to d.
template <class W>
DEVICE void accumulate(float (&d)[4], const uint32_t (&w)[2][4], uint4 x, const Factors &f, float2 sums) {
  if (W::kScales == 0) {
    multiply<W>(d, w[0], x.x, x.y);
    multiply<W>(d, w[1], x.z, x.w);
    return;
  }
  float t[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  multiply<W>(t, w[0], x.x, x.y);
  if (W::kScales == 2) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      d[i] = fmaf(f.scale[i / 2][0], t[i], d[i]);
      t[i] = 0.0f;
    }
  }
  multiply<W>(t, w[1], x.z, x.w);
#pragma unroll
  for (int i = 0; i < 4; i++) d[i] = fmaf(f.scale[i / 2][W::kScales - 1], t[i], d[i]);
  if (W::kMinimum) {
#pragma unroll
    for (int i = 0; i < 4; i++) d[i] = fmaf(f.minimum[i / 2], i % 2 ? sums.y : sums.x, d[i]);
  }
}

template <class W>
DEVICE void fragments(const typename W::Raw &raw, uint32_t (&w)[2][4]) {
#pragma unroll
  for (int i = 0; i < 8; i++) w[i / 4][i % 4] = W::fragment(raw, i / 4, i % 4);
}

constexpr int kWarps = 8;

// linear_rows is for few rows: a block computes P panels of features for 8·N rows, its
// eight warps (and the grid's splits) sharing the steps by their number, so that the sum
// of a row does not depend on how many there are. Weights go from memory to registers.
// grid: panels/P, tiles/N, splits. Shared: 8 · P · N · 512 bytes.
template <class W, int P, int N>
DEVICE void linear_rows(const LinearArgs &a) {
  DYNAMIC_SHARED(memory);
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, q = lane & 3;
  int expert = a.experts ? a.experts[blockIdx.y] : 0;
  if (expert < 0) return;
  int panels = ceil_div(a.out, 16), panel0 = blockIdx.x * P, steps = a.in / 32, units = steps / W::kUnit;
  int tiles = ceil_div(a.rows, 8), tile0 = blockIdx.y * N;
  Panel<W> p[P];
#pragma unroll
  for (int i = 0; i < P; i++) p[i] = panel_at<W>(a, min(panel0 + i, panels - 1), expert);
  float d[P][N][4] = {};
  constexpr int kAhead = W::kUnit == 1 ? 4 : 2;  // units whose loads are under way together
  int stride = kWarps * a.splits;
  for (int unit0 = blockIdx.z * kWarps + warp; unit0 < units; unit0 += kAhead * stride) {
#pragma unroll W::kUnit == 1 ? 1 : 2
    for (int s = 0; s < W::kUnit; s++) {
      typename W::Raw raw[kAhead][P];
      uint4 x[kAhead][N];
      float2 sums[kAhead][N];
#pragma unroll
      for (int j = 0; j < kAhead; j++) {
        int step = min(unit0 + j * stride, units - 1) * W::kUnit + s;
#pragma unroll
        for (int i = 0; i < P; i++) raw[j][i] = W::template load<kGlobal>(quants_at<W>(p[i], step), lane);
#pragma unroll
        for (int n = 0; n < N; n++) {
          size_t at = size_t(min(tile0 + n, tiles - 1)) * steps + step;
          x[j][n] = __ldg(a.x + at * 32 + lane);
          sums[j][n] = W::kMinimum ? __ldg((const float2 *)(a.sums + at * 8 + 2 * q)) : make_float2(0, 0);
        }
      }
#pragma unroll
      for (int j = 0; j < kAhead; j++) {
        if (unit0 + j * stride >= units) break;
#pragma unroll
        for (int i = 0; i < P; i++) {
          uint32_t w[2][4];
          fragments<W>(raw[j][i], w);
          Factors f = factors_at<W>(a, p[i], (unit0 + j * stride) * W::kUnit + s);
#pragma unroll
          for (int n = 0; n < N; n++) accumulate<W>(d[i][n], w, x[j][n], f, sums[j][n]);
        }
      }
    }
  }
  // The warps' sums, in their order; then the splits', by whoever comes last.
  constexpr int kPieces = P * N * 32;
  float4 *room = (float4 *)memory;
#pragma unroll
  for (int i = 0; i < P; i++)
#pragma unroll
    for (int n = 0; n < N; n++)
      room[warp * kPieces + (i * N + n) * 32 + lane] = make_float4(d[i][n][0], d[i][n][1], d[i][n][2], d[i][n][3]);
  __syncthreads();
  __shared__ unsigned count;
  size_t block = size_t(blockIdx.y) * gridDim.x + blockIdx.x, blocks = size_t(gridDim.x) * gridDim.y;
  float4 *partial = (float4 *)a.partial;
  if (a.splits > 1) {
    for (int j = threadIdx.x; j < kPieces; j += blockDim.x) {
      float4 v = room[j];
      for (int k = 1; k < kWarps; k++) {
        float4 u = room[k * kPieces + j];
        v = make_float4(v.x + u.x, v.y + u.y, v.z + u.z, v.w + u.w);
      }
      partial[(blockIdx.z * blocks + block) * kPieces + j] = v;
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) count = atomicAdd(a.arrived + block, 1u);
    __syncthreads();
    if (count + 1 < unsigned(a.splits)) return;
    if (threadIdx.x == 0) a.arrived[block] = 0;
    __threadfence();
  }
  const float *bias = a.bias ? a.bias + expert * a.expert_bias : nullptr;
  int many = a.splits > 1 ? a.splits : kWarps;
  for (int j = threadIdx.x; j < kPieces; j += blockDim.x) {
    float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int k = 0; k < many; k++) {
      float4 u = a.splits > 1 ? partial[(k * blocks + block) * kPieces + j] : room[k * kPieces + j];
      v[0] += u.x;
      v[1] += u.y;
      v[2] += u.z;
      v[3] += u.w;
    }
    int l = j & 31, n = j / 32 % N, i = j / 32 / N;
#pragma unroll
    for (int c = 0; c < 4; c++) {
      int feature = 16 * (panel0 + i) + (l >> 2) + c / 2 * 8, row = 8 * (tile0 + n) + (l & 3) * 2 + c % 2;
      if (feature < a.out && row < a.rows) a.y[size_t(row) * a.out + feature] = v[c] + (bias ? bias[feature] : 0.0f);
    }
  }
}

// linear_tile is for many rows: a block computes 128 features for 128 rows, its warps 64 ×
// 32 each; quants and X come through a ring of kStages steps in shared memory. grid:
// features/128, rows/128. Shared: kStages · (8·kQuants + 8192) bytes.
constexpr int kStages = 4, kTilePanels = 8, kTileRows = 16;

template <class W>
DEVICE void linear_tile(const LinearArgs &a) {
  DYNAMIC_SHARED(memory);
  constexpr int kW = kTilePanels * W::kQuants, kX = kTileRows * 512, kStage = kW + kX;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, q = lane & 3;
  int expert = a.experts ? a.experts[blockIdx.y] : 0;
  if (expert < 0) return;
  int panels = ceil_div(a.out, 16), panel0 = blockIdx.x * kTilePanels, steps = a.in / 32;
  int tiles = ceil_div(a.rows, 8), tile0 = blockIdx.y * kTileRows;
  size_t panel_bytes = size_t(steps / W::kUnit) * W::kUnitBytes;
  const unsigned char *w0 = a.w + expert * a.expert_bytes;
  auto fetch = [&](int step) {
    unsigned char *stage = memory + step % kStages * kStage;
    size_t at = size_t(step / W::kUnit) * W::kUnitBytes + step % W::kUnit * W::kQuants;
    for (int c = threadIdx.x; c < kStage / 16; c += blockDim.x) {
      int off = 16 * c;
      if (off < kW) {
        int panel = panel0 + off / W::kQuants;
        copy_async(stage + off, w0 + min(panel, panels - 1) * panel_bytes + at + off % W::kQuants, panel < panels ? 16 : 0);
      } else {
        int tile = tile0 + (off - kW) / 512;
        copy_async(stage + off, (const unsigned char *)a.x + (size_t(min(tile, tiles - 1)) * steps + step) * 512 + (off - kW) % 512, tile < tiles ? 16 : 0);
      }
    }
  };
  int panel1 = warp % 2 * 4, tile1 = warp / 2 * 4;  // of this warp, within the block
  Panel<W> p[4];
#pragma unroll
  for (int i = 0; i < 4; i++) p[i] = panel_at<W>(a, min(panel0 + panel1 + i, panels - 1), expert);
  float d[4][4][4] = {};
  for (int s = 0; s < kStages - 1; s++) {
    if (s < steps) fetch(s);
    copy_commit();
  }
  for (int step = 0; step < steps; step++) {
    copy_wait<kStages - 2>();
    __syncthreads();
    if (step + kStages - 1 < steps) fetch(step + kStages - 1);
    copy_commit();
    const unsigned char *stage = memory + step % kStages * kStage;
    uint4 x[4];
    float2 sums[4];
#pragma unroll
    for (int n = 0; n < 4; n++) {
      x[n] = ((const uint4 *)(stage + kW))[(tile1 + n) * 32 + lane];
      size_t at = size_t(min(tile0 + tile1 + n, tiles - 1)) * steps + step;
      sums[n] = W::kMinimum ? __ldg((const float2 *)(a.sums + at * 8 + 2 * q)) : make_float2(0, 0);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      typename W::Raw raw = W::template load<kShared>(stage + (panel1 + i) * W::kQuants, lane);
      uint32_t w[2][4];
      fragments<W>(raw, w);
      Factors f = factors_at<W>(a, p[i], step);
#pragma unroll
      for (int n = 0; n < 4; n++) accumulate<W>(d[i][n], w, x[n], f, sums[n]);
    }
  }
  copy_wait<0>();
  const float *bias = a.bias ? a.bias + expert * a.expert_bias : nullptr;
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
      for (int c = 0; c < 4; c++) {
        int feature = 16 * (panel0 + panel1 + i) + (lane >> 2) + c / 2 * 8, row = 8 * (tile0 + tile1 + n) + 2 * q + c % 2;
        if (feature < a.out && row < a.rows) a.y[size_t(row) * a.out + feature] = d[i][n][c] + (bias ? bias[feature] : 0.0f);
      }
}

#define LINEAR(name, W, P)                                                       \
  KERNEL(linear_##name##_8, LinearArgs, 256) { linear_rows<W, P, 1>(a); }        \
  KERNEL(linear_##name##_16, LinearArgs, 256) { linear_rows<W, 2, 2>(a); }       \
  KERNEL(linear_##name##_32, LinearArgs, 256) { linear_rows<W, 2, 4>(a); }       \
  KERNEL(linear_##name##_tile, LinearArgs, 256) { linear_tile<W>(a); }

LINEAR(bf16, WeightsBF16, 2)
LINEAR(f16, WeightsF16, 2)
LINEAR(f8_e4m3, WeightsE4M3, 2)
LINEAR(f8_e5m2, WeightsE5M2, 2)
LINEAR(mxfp4, WeightsMXFP4, 4)
LINEAR(q8_0, WeightsQ8_0, 2)
LINEAR(q4_0, WeightsQ4_0, 4)
LINEAR(q4_1, WeightsQ4_1, 4)
LINEAR(q4_k, WeightsQ4_K, 4)
LINEAR(q6_k, WeightsQ6_K, 2)

// linear_f32: W [out, in] and X [rows, in] as they lie, both F32: a warp computes one
// feature of four rows. grid: features/8, rows/4.
KERNEL(linear_f32, LinearArgs, 256) {
  int lane = threadIdx.x & 31, feature = blockIdx.x * kWarps + (threadIdx.x >> 5), row0 = blockIdx.y * 4;
  if (feature >= a.out) return;
  const float *w = (const float *)a.w + size_t(feature) * a.in, *x = (const float *)a.x;
  float sum[4] = {};
  for (int k = lane; k < a.in; k += 32) {
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

// embed from packed tables: tied embeddings have one copy. A block for each row, a warp
// for each step in turn; the four lanes that hold the row write it.
struct EmbedPackedArgs {
  const int *ids;
  LinearArgs table;  // w, scales and the shape alone are read
  float *y;          // [rows, in]
  float scale;
  int row0;
};

template <class W>
DEVICE void embed_packed(const EmbedPackedArgs &a) {
  int lane = threadIdx.x & 31, row = a.ids[blockIdx.x] - a.row0, in = a.table.in;
  float *y = a.y + size_t(blockIdx.x) * in;
  bool there = row >= 0 && row < a.table.out;
  Panel<W> p = panel_at<W>(a.table, there ? row / 16 : 0, 0);
  int upper = there ? row % 16 / 8 : 0, q = lane & 3;
  if (lane >> 2 != (there ? row % 8 : 0)) return;
  for (int step = threadIdx.x >> 5; step < in / 32; step += blockDim.x >> 5) {
    typename W::Raw raw = W::template load<kGlobal>(quants_at<W>(p, step), lane);
    Factors f = factors_at<W>(a.table, p, step);
#pragma unroll
    for (int i = 0; i < 4; i++) {  // the registers of this half: t = i/2, columns 8·(i%2) on
      uint32_t v = W::fragment(raw, i / 2, 2 * (i % 2) + upper);
      float s = W::kScales == 0 ? 1.0f : f.scale[upper][W::kScales == 2 ? i / 2 : 0], m = W::kMinimum ? f.minimum[upper] : 0.0f;
      float lo = W::kHalf ? from_f16(uint16_t(v)) : from_bf16(uint16_t(v)), hi = W::kHalf ? from_f16(uint16_t(v >> 16)) : from_bf16(uint16_t(v >> 16));
      int at = 32 * step + 16 * (i / 2) + 8 * (i % 2) + 2 * q;
      y[at] = there ? (s * lo + m) * a.scale : 0.0f;
      y[at + 1] = there ? (s * hi + m) * a.scale : 0.0f;
    }
  }
}

#define EMBED(name, W) \
  KERNEL(embed_packed_##name, EmbedPackedArgs, 256) { embed_packed<W>(a); }

EMBED(bf16, WeightsBF16)
EMBED(f16, WeightsF16)
EMBED(f8_e4m3, WeightsE4M3)
EMBED(f8_e5m2, WeightsE5M2)
EMBED(mxfp4, WeightsMXFP4)
EMBED(q8_0, WeightsQ8_0)
EMBED(q4_0, WeightsQ4_0)
EMBED(q4_1, WeightsQ4_1)
EMBED(q4_k, WeightsQ4_K)
EMBED(q6_k, WeightsQ6_K)

// Y = X·Wᵀ + bias for every format of W, on the matrix units. pack.cu first rounds X to bf16
// (to fp16 for fp16 weights) and packs it as fragments. Quants are multiplied exactly, and the
// sums of 32 of them (for some K quants and NVFP4 16) are scaled in float32, those of NVFP4 once
// more at the end. linear_wide.cu multiplies the power-of-two scales of MXFP4 into the weights
// instead, which is as exact.
#pragma once
#include "glu.cuh"
#include "packed.cuh"
#include "weights.cuh"

constexpr int kParts = 4;

struct LinearArgs {
  const unsigned char *w;  // packed, see weights.cuh
  const void *x;           // packed by pack.cu
  const float *sums;       // from pack.cu: for formats with minima, or the scales of 8-bit x
  const float *scales;     // of 8-bit floats: [_, scale_across]; null: ones
  const float *bias;       // [out] or null
  float *y;                // [rows, out], or of bf16
  const int *experts;      // the matrix of each block of rows, −1: none; null: there is one matrix
  float *partial;          // with splits > 1: [splits, blocks, results of a block]
  unsigned *arrived;       // with splits > 1: [blocks], zero before and after
  long long expert_bytes;  // from one matrix to the next
  long long expert_scales, expert_bias;
  int rows, in, out, splits;
  int scale_rows, scale_cols, scale_across, parts;  // rows and columns of a part that share a scale
  int part_row[kParts], part_scale[kParts];         // where parts begin: output feature, row of scales
  int x_steps;                                      // for 8-bit x: steps that share a scale
  int half;     // a panel has 8 gates of the first half features and then their 8 ups; 0: features in their order
  void *gated;  // null; or, instead of y, [rows, out/2] gated and packed for the next product, in whole steps
  int act, paired;            // as in GLUArgs: paired without half, else half is out/2
  float limit, alpha, shift;  // as in GLUArgs
  int words, f16;             // how gated is packed: PackArgs.words; fp16, else bf16
  int y_bf16;                 // 1: y is bf16
  // Of the kernels of warpgroups with 8-bit x: null; or gated is E4M3 in groups of 128 columns with these scales, [tiles, groups, 8],
  // and y is where its numbers pass, [rows, out/2]. arrived counts the blocks of a group that are done, [groups, blocks of
  // rows]: zero before and after.
  float *gated_scales;
  unsigned *gated_arrived;
};

// feature_of returns the output feature of row r of the panels.
DEVICE int feature_of(const LinearArgs &a, int r) { return a.half ? r % 16 / 8 * a.half + r / 16 * 8 + r % 8 : r; }

// bias_of returns the bias of the block's expert, or null. The expert's number is read once more: it would take a register in the loops of products.
DEVICE const float *bias_of(const LinearArgs &a) {
  if (a.bias == nullptr || a.experts == nullptr) return a.bias;
  return a.bias + uint32_t(a.experts[blockIdx.x]) * a.expert_bias;
}

// Lines is how a lane stores its sums of the pieces of a panel, 16 features by a tile of 8 rows, one tile after the other: those of
// features g and g+8 of the panel. To is Stored of the type of y.
template <class To>
struct Lines {
  using T = typename To::type;
  float bias[2];
  T *at[2];     // where the lane's first number of the next tile goes
  int row;      // its row
  int rows[2];  // of the product; none where it has no such feature
  DEVICE_METHOD Lines(const LinearArgs &a, int panel, int tile, const float *factors) {
    int lane = threadIdx.x & 31;
    row = 8 * tile + 2 * (lane & 3);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int r = 16 * panel + (lane >> 2) + 8 * i, feature = feature_of(a, r);
      at[i] = (T *)a.y + (size_t(row) * a.out + feature);
      rows[i] = r < a.out ? a.rows : 0;
      bias[i] = factors && r < a.out ? factors[feature] : 0.0f;
    }
  }
  // store writes d, a lane's part of the next tile's piece.
  DEVICE_METHOD void store(const LinearArgs &a, const float (&d)[4]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      if (row < rows[i]) at[i][0] = To::write(d[2 * i] + bias[i]);
      if (row + 1 < rows[i]) at[i][a.out] = To::write(d[2 * i + 1] + bias[i]);
      at[i] += 8 * (long long)a.out;
    }
    row += 8;
  }
};

// store_sums writes a lane's part d of a piece.
DEVICE void store_sums(const LinearArgs &a, int panel, int tile, const float *bias, const float (&d)[4]) {
  if (a.y_bf16)
    Lines<Stored<kBF16>>(a, panel, tile, bias).store(a, d);
  else
    Lines<Stored<kF32>>(a, panel, tile, bias).store(a, d);
}

// Gates is how a lane gates the pieces of a panel, one tile after the other: it has gates and ups of one feature, or those of a
// pair are in neighbours. Then lanes of two neighbouring results exchange one each, and write a word. With Narrow they may be written
// to y instead, for round_gated. All lanes of a warp call store.
template <bool Narrow>
struct Gates {
  GLUArgs glu;
  float bias[2];      // of gate and up
  int row;            // the lane's first row of the next tile
  unsigned char *at;  // where its result of that tile goes
  long long further;  // bytes to that of the tile behind
  DEVICE_METHOD Gates(const LinearArgs &a, int panel, int tile, const float *factors) {
    int lane = threadIdx.x & 31, g = lane >> 2, k = a.paired ? 4 * (g & 1) + g / 2 : g, half = a.out / 2;
    glu = GLUArgs{};
    glu.limit = a.limit;
    glu.alpha = a.alpha;
    glu.shift = a.shift;
#pragma unroll
    for (int i = 0; i < 2; i++) bias[i] = factors ? factors[feature_of(a, 16 * panel + g + 8 * i)] : 0.0f;
    row = 8 * tile + 2 * (lane & 3);
    at = (unsigned char *)a.gated + 4 * word_at(a.words, half, row + upper(a), 8 * panel + k / 2 * 2);
    further = 512 * (long long)ceil_div(half, 32);  // whole steps, whatever words is
    if (to_y(a)) {
      at = (unsigned char *)(a.y + (size_t(row) * half + 8 * panel + k));
      further = 32 * (long long)half;
    }
  }
  METHOD bool to_y(const LinearArgs &a) { return Narrow && a.gated_scales != nullptr; }
  // upper says whether the lane writes the word of the second of two rows.
  METHOD bool upper(const LinearArgs &a) { return threadIdx.x & (a.paired ? 8 : 4); }

  // store gates d, a lane's part of the next tile's piece.
  DEVICE_METHOD void store(const LinearArgs &a, const float (&d)[4]) {
    bool odd = threadIdx.x & 4;
    float gate[2], up[2], y[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      gate[i] = d[i] + bias[0];
      up[i] = d[2 + i] + bias[1];
      if (a.paired) {
        float got = __shfl_xor_sync(kAllLanes, odd ? gate[i] : up[i], 4);
        (odd ? gate[i] : up[i]) = got;
      }
    }
    auto both = [&](int act) {
      glu.act = act;
#pragma unroll
      for (int i = 0; i < 2; i++) y[i] = gated_activation(glu, gate[i], up[i]);
    };
    if (a.act == kSiLU)
      both(kSiLU);
    else if (a.act == kGELUTanh)
      both(kGELUTanh);
    else
      both(kGELU);
    if (to_y(a)) {
      if (row < a.rows) *(float *)at = y[0];
      if (row + 1 < a.rows) ((float *)at)[a.out / 2] = y[1];
    } else {
#pragma unroll
      for (int i = 0; i < 2; i++) y[i] = row + i < a.rows ? y[i] : 0.0f;
      bool second = upper(a);
      float got = __shfl_xor_sync(kAllLanes, second ? y[0] : y[1], a.paired ? 8 : 4);
      *(uint32_t *)at = packed_pair(a.f16, second ? got : y[0], second ? y[1] : got);
    }
    row += 8;
    at += further;
  }
};

// store_gated gates a piece. All lanes of a warp call it.
template <bool Narrow = false>
DEVICE void store_gated(const LinearArgs &a, int panel, int tile, const float *bias, const float (&d)[4]) {
  if (16 * panel >= a.out || 8 * tile >= a.rows) return;
  Gates<Narrow>(a, panel, tile, bias).store(a, d);
}

// steps_of returns the number of steps of a matrix with `in` input features.
DEVICE int steps_of(int in) { return ceil_div(in, 32); }

// A lane's part of W at one step of a panel.
template <class W>
struct Panel {
  const unsigned char *base;  // of the panel
  const float *scales[2];     // the rows of scales of features g and g+8, or null
};

template <class W>
DEVICE const float *scale_row(const LinearArgs &a, const float *scales, int feature) {
  if ((!W::kExternal && kOutputScale<W> == 0) || scales == nullptr) return nullptr;
  int part = 0;
  for (int i = 1; i < a.parts; i++)
    if (feature >= a.part_row[i]) part = i;
  return scales + size_t(a.part_scale[part] + (feature - a.part_row[part]) / a.scale_rows) * a.scale_across;
}

template <class W>
DEVICE Panel<W> panel_at(const LinearArgs &a, int panel, int expert) {
  size_t bytes = size_t(steps_of(a.in) / W::kUnit) * W::kUnitBytes;
  int g = (threadIdx.x & 31) >> 2, last = a.out - 1;
  const float *scales = a.scales ? a.scales + expert * a.expert_scales : nullptr;
  Panel<W> p;
  p.base = a.w + expert * a.expert_bytes + panel * bytes;
  p.scales[0] = scale_row<W>(a, scales, feature_of(a, min(16 * panel + g, last)));
  p.scales[1] = scale_row<W>(a, scales, feature_of(a, min(16 * panel + g + 8, last)));
  return p;
}

template <class W>
DEVICE const unsigned char *quants_at(const Panel<W> &p, int step) {
  return p.base + size_t(step / W::kUnit) * W::kUnitBytes + step % W::kUnit * W::kQuants;
}

// unit_run returns `count` units of a panel from `unit` on, of those that there are. The first block of rows prefetches them
// for the others; experts are known by what the kernel before wrote.
template <class W>
DEVICE Run unit_run(const LinearArgs &a, int panel, int unit, int count) {
  int units = steps_of(a.in) / W::kUnit;
  bool there = blockIdx.x == 0 && a.experts == nullptr && 16 * panel < a.out && unit < units;
  return {a.w + (size_t(panel) * units + unit) * W::kUnitBytes, there ? uint32_t(min(count, units - unit)) * W::kUnitBytes : 0};
}

template <class W>
DEVICE Factors factors_at(const LinearArgs &a, const Panel<W> &p, int step) {
  if (W::kExternal) {
    Factors f{};
    int column = 32 * step / a.scale_cols;
    f.scale[0][0] = p.scales[0] ? immutable(p.scales[0] + column) : 1.0f;
    f.scale[1][0] = p.scales[1] ? immutable(p.scales[1] + column) : 1.0f;
    return f;
  }
  return W::factors(p.base + size_t(step / W::kUnit) * W::kUnitBytes, step % W::kUnit, (threadIdx.x & 31) >> 2);
}

// output_scale returns the factor of whole sums of feature g + 8·i of a panel.
template <class W>
DEVICE float output_scale(const Panel<W> &p, int i) {
  return p.scales[i] ? kOutputScale<W> * immutable(p.scales[i]) : kOutputScale<W>;
}

// scale_outputs multiplies whole sums with the scales of their outputs.
template <class W>
DEVICE void scale_outputs(const Panel<W> &p, float (&d)[4]) {
  float scale[2] = {output_scale(p, 0), output_scale(p, 1)};
#pragma unroll
  for (int i = 0; i < 4; i++) d[i] *= scale[i / 2];
}

// A lane's part of a tile of 8 rows of X at one step. 8-bit numbers have the order of those of
// W, so that both are multiplied as they were loaded.
struct Wide {  // 16-bit numbers
  static constexpr int kBytes = 512;
  static constexpr bool kScaled = false;
  using Raw = uint4;
  METHOD Raw none() { return make_uint4(0, 0, 0, 0); }
};
struct Narrow {
  static constexpr int kBytes = 256;
  static constexpr bool kScaled = true;
  using Raw = uint2;
  METHOD Raw none() { return make_uint2(0, 0); }
};
struct NarrowE4M3 : Narrow {
  METHOD void multiply(float (&t)[4], const uint32_t (&w)[4], uint2 x) { multiply_e4m3(t, w, x.x, x.y); }
};
struct NarrowI8 : Narrow {
  METHOD void multiply(float (&t)[4], const uint32_t (&w)[4], uint2 x) {
    int n[4] = {0, 0, 0, 0};
    multiply_s8(n, w, x.x, x.y);
#pragma unroll
    for (int i = 0; i < 4; i++) t[i] = float(n[i]);
  }
};

template <class W>
DEVICE void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if (W::kHalf)
    multiply_f16(d, a, b0, b1);
  else
    multiply_bf16(d, a, b0, b1);
}

// Extra is what a product needs besides X, for each half of a step and the lane's two rows of
// X: sums if W has minima, scales if X has them.
struct Extra {
  float2 of[2];
};

template <class W, class X>
DEVICE Extra extra_at(const LinearArgs &a, int tile, int step, int steps, const typename X::Raw &x) {
  Extra e{};
  int q = threadIdx.x & 3;
  if constexpr (X::kScaled) {
    e.of[0] = __ldg((const float2 *)(a.sums + (size_t(tile) * ceil_div(steps, a.x_steps) + step / a.x_steps) * 8 + 2 * q));
  } else if constexpr (W::kMinimum && W::kScales == 2) {  // sums of 16: a product with ones
    const uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
    float t[2][4] = {};
    multiply_bf16(t[0], ones, x.x, x.y);
    multiply_bf16(t[1], ones, x.z, x.w);
    e.of[0] = make_float2(t[0][0], t[0][1]);
    e.of[1] = make_float2(t[1][0], t[1][1]);
  } else if constexpr (W::kMinimum) {
    e.of[0] = __ldg((const float2 *)(a.sums + (size_t(tile) * steps + step) * 8 + 2 * q));
  }
  return e;
}

// Fragments is a lane's part of W at one step, as the matrix units take it.
template <class W, class X>
struct Fragments {
  uint32_t w[X::kScaled ? 1 : 2][4];
};

template <class W, class X>
DEVICE Fragments<W, X> fragments(const typename W::Raw &raw) {
  Fragments<W, X> f;
  if constexpr (X::kScaled) {
#pragma unroll
    for (int i = 0; i < 4; i++) f.w[0][i] = pick_bytes(raw.w[i / 2 * 2], raw.w[i / 2 * 2 + 1], i % 2 ? 0x7632 : 0x5410);
  } else {
#pragma unroll
    for (int i = 0; i < 8; i++) f.w[i / 4][i % 4] = W::fragment(raw, i / 4, i % 4);
  }
  return f;
}

// accumulate adds the products of a step, 16 features by 8 rows, to d.
template <class W, class X>
DEVICE void accumulate(float (&d)[4], const Fragments<W, X> &w, const typename X::Raw &x, const Factors &f, const Extra &e) {
  if constexpr (X::kScaled) {
    float t[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    X::multiply(t, w.w[0], x);
#pragma unroll
    for (int i = 0; i < 4; i++) d[i] = fmaf(f.scale[i / 2][0] * (i % 2 ? e.of[0].y : e.of[0].x), t[i], d[i]);
  } else if constexpr (W::kScales == 0) {
    multiply<W>(d, w.w[0], x.x, x.y);
    multiply<W>(d, w.w[1], x.z, x.w);
  } else {
    float t[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    multiply<W>(t, w.w[0], x.x, x.y);
    if (W::kScales == 2) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        d[i] = fmaf(f.scale[i / 2][0], t[i], d[i]);
        t[i] = 0.0f;
      }
    }
    multiply<W>(t, w.w[1], x.z, x.w);
#pragma unroll
    for (int i = 0; i < 4; i++) d[i] = fmaf(f.scale[i / 2][W::kScales - 1], t[i], d[i]);
    if (W::kMinimum) {
#pragma unroll
      for (int h = 0; h < W::kScales; h++)
#pragma unroll
        for (int i = 0; i < 4; i++) d[i] = fmaf(f.minimum[i / 2][h], i % 2 ? e.of[h].y : e.of[h].x, d[i]);
    }
  }
}

// last_split reports whether a block is the last of its splits to finish: then all their
// results are in partial. It resets the counter to zero.
DEVICE bool last_split(const LinearArgs &a, size_t block) {
  __shared__ unsigned count;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) count = atomicAdd(a.arrived + block, 1u);
  __syncthreads();
  if (count + 1 < unsigned(a.splits)) return false;
  if (threadIdx.x == 0) a.arrived[block] = 0;
  __threadfence();
  return true;
}

constexpr int kWarps = 8;

// kAheadUnits are the units that a warp of linear_rows loads at the same time.
template <class W>
constexpr int kAheadUnits = W::kUnit == 1 ? 4 : 2;

// RowsPrefetch is what the blocks of linear_rows load first.
template <class W, int P>
struct RowsPrefetch {
  static constexpr int kRuns = P * kAheadUnits<W>;
  METHOD Run run(const LinearArgs &a, int i) {
    return unit_run<W>(a, blockIdx.y * P + i % P, (i / P * a.splits + blockIdx.z) * kWarps, kWarps);
  }
};

// linear_rows, for few rows: a block computes P panels of features for 8·N rows. Its eight
// warps and the grid's splits share the steps by step number, so that the sum of a row does not
// depend on the number of rows. Weights go from memory to registers. Grid (for all products):
// row blocks, feature blocks, splits. Blocks of the same features run at the same time, so that
// W is read from memory once and X from the second cache. Here the grid is features/(16·P),
// rows/(8·N). Shared memory: 8 · P · N · 512 bytes.
template <class W, class X, int P, int N>
DEVICE void linear_rows(const LinearArgs &a) {
  DYNAMIC_SHARED(memory);
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int expert = a.experts ? a.experts[blockIdx.x] : 0;
  if (expert < 0) return;
  int panels = ceil_div(a.out, 16), panel0 = blockIdx.y * P, steps = steps_of(a.in), units = steps / W::kUnit;
  int tile0 = blockIdx.x * N, row0 = 8 * tile0 + (lane >> 2);
  Panel<W> p[P];
#pragma unroll
  for (int i = 0; i < P; i++) p[i] = panel_at<W>(a, min(panel0 + i, panels - 1), expert);
  float d[P][N][4] = {};
  constexpr int kAhead = kAheadUnits<W>;
  int stride = kWarps * a.splits;
  for (int unit0 = blockIdx.z * kWarps + warp; unit0 < units; unit0 += kAhead * stride) {
#pragma unroll W::kUnit == 1 ? 1 : 2
    for (int s = 0; s < W::kUnit; s++) {
      typename W::Raw raw[kAhead][P];
      Factors f[kAhead][P];
      typename X::Raw x[kAhead][N];
      Extra e[kAhead][N];
#pragma unroll
      for (int j = 0; j < kAhead; j++) {
        bool there = unit0 + j * stride < units;
        int step = (there ? unit0 + j * stride : units - 1) * W::kUnit + s;
#pragma unroll
        for (int i = 0; i < P; i++) {
          raw[j][i] = W::template load<kGlobal>(quants_at<W>(p[i], step), lane);
          f[j][i] = factors_at<W>(a, p[i], step);
        }
#pragma unroll
        for (int n = 0; n < N; n++) {  // rows and units past the end are zeros and are not loaded
          size_t at = (size_t(tile0 + n) * steps + step) * 32 + lane;
          x[j][n] = there && row0 + 8 * n < a.rows ? __ldg((const typename X::Raw *)a.x + at) : X::none();
          e[j][n] = extra_at<W, X>(a, min(tile0 + n, int(uint32_t(a.rows - 1) / 8)), step, steps, x[j][n]);
          if (!X::kScaled && !there) e[j][n] = Extra{};
        }
      }
#pragma unroll
      for (int j = 0; j < kAhead; j++) {
#pragma unroll
        for (int i = 0; i < P; i++) {
          Fragments<W, X> w = fragments<W, X>(raw[j][i]);
#pragma unroll
          for (int n = 0; n < N; n++) accumulate<W, X>(d[i][n], w, x[j][n], f[j][i], e[j][n]);
        }
      }
    }
  }
  if constexpr (kOutputScale<W> != 0) {
#pragma unroll
    for (int i = 0; i < P; i++) {
      Panel<W> q = panel_at<W>(a, min(panel0 + i, panels - 1), expert);
#pragma unroll
      for (int n = 0; n < N; n++) scale_outputs(q, d[i][n]);
    }
  }
  // The sums of the warps in order; then those of the splits, by the block that finishes
  // last.
  constexpr int kPieces = P * N * 32;
  float4 *scratch = (float4 *)memory;
#pragma unroll
  for (int i = 0; i < P; i++)
#pragma unroll
    for (int n = 0; n < N; n++)
      scratch[warp * kPieces + (i * N + n) * 32 + lane] = make_float4(d[i][n][0], d[i][n][1], d[i][n][2], d[i][n][3]);
  __syncthreads();
  size_t block = size_t(blockIdx.y) * gridDim.x + blockIdx.x, blocks = size_t(gridDim.x) * gridDim.y;
  float4 *partial = (float4 *)a.partial;
  if (a.splits > 1) {
    for (int j = threadIdx.x; j < kPieces; j += blockDim.x) {
      float4 v = scratch[j];
      for (int k = 1; k < kWarps; k++) {
        float4 u = scratch[k * kPieces + j];
        v = make_float4(v.x + u.x, v.y + u.y, v.z + u.z, v.w + u.w);
      }
      partial[(blockIdx.z * blocks + block) * kPieces + j] = v;
    }
    if (!last_split(a, block)) return;
  }
  const float *bias = bias_of(a);
  int many = a.splits > 1 ? a.splits : kWarps;
  for (int j = threadIdx.x; j < kPieces; j += blockDim.x) {
    float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int k = 0; k < many; k++) {
      float4 u = a.splits > 1 ? partial[(k * blocks + block) * kPieces + j] : scratch[k * kPieces + j];
      v[0] += u.x;
      v[1] += u.y;
      v[2] += u.z;
      v[3] += u.w;
    }
    int panel = panel0 + j / 32 / N, tile = tile0 + j / 32 % N;
    if (a.gated)
      store_gated(a, panel, tile, bias, v);
    else
      store_sums(a, panel, tile, bias, v);
  }
}

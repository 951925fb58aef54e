// Products by the warpgroups of sm_90a. W goes from shared memory through registers, where it is
// converted; the units read X from shared memory.
#pragma once
#include "linear_tile.cuh"
#include "rounding.cuh"

#if !defined(__CUDACC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// How a format is multiplied: in fp16, in bf16, or with X as E4M3 too.
template <class W, class X, int N>
DEVICE void wgmma(float (&d)[N], const uint32_t (&a)[4], uint64_t b, int add) {
  if constexpr (X::kScaled)
    wgmma_e4m3(d, a, b, add);
  else if constexpr (W::kHalf)
    wgmma_f16(d, a, b, add);
  else
    wgmma_bf16(d, a, b, add);
}

// The number of columns that share a scale and are summed separately; 0: all are summed
// together. A power-of-two scale is multiplied into the fragments, which stay exact.
template <class W>
constexpr bool kPowers = false;
template <>
constexpr bool kPowers<WeightsMXFP4> = true;
template <class W>
constexpr int kApart = W::kScales == 0 || kPowers<W> ? 0 : W::kExternal ? 128 : 32;

// Exponents are those of a lane's two features at a step of a panel.
struct Exponents {
  uint32_t of[2];
};
template <class W>
DEVICE Exponents exponents(const unsigned char *unit, int lane) {
  return {{unit[W::kQuants + (lane >> 2)], unit[W::kQuants + (lane >> 2) + 8]}};
}

// step_exponents reads those of a step of a warp's panels for weights with powers of two: unit(m) is panel m's. It reports whether all of the warp
// are below 128, scales below 2.
template <class W, int M, class Unit>
DEVICE bool step_exponents(Exponents (&of)[M], int lane, Unit unit) {
  if constexpr (kPowers<W>) {
    uint32_t all = 0;
#pragma unroll
    for (int m = 0; m < M; m++) {
      of[m] = exponents<W>(unit(m), lane);
      all |= of[m].of[0] | of[m].of[1];
    }
    return !__any_sync(kAllLanes, all >= 128);
  }
  return true;
}

// wide_fragments returns the fragments of a step of a panel in shared memory. For weights with
// powers of two `small` is what step_exponents reported: then one multiplication gives the same
// numbers.
template <class W, class X>
DEVICE Fragments<W, X> wide_fragments(const unsigned char *unit, int lane, const Exponents &e, bool small) {
  typename W::Raw raw = W::template load<kShared>(unit, lane);
  if constexpr (kPowers<W>) {
    Fragments<W, X> f;
    if (small) {
      const uint32_t power[2] = {W::code_power(e.of[0]), W::code_power(e.of[1])};
#pragma unroll
      for (int i = 0; i < 8; i++) f.w[i / 4][i % 4] = fma_bf16x2(W::code(raw, i / 4, i % 4), power[i % 2], kMinusZero);
    } else {
      const uint32_t power[2] = {W::power_bf16x2(e.of[0]), W::power_bf16x2(e.of[1])};
#pragma unroll
      for (int i = 0; i < 8; i++) f.w[i / 4][i % 4] = fma_bf16x2(W::fragment(raw, i / 4, i % 4), power[i % 2], kMinusZero);
    }
    return f;
  } else {
    return fragments<W, X>(raw);
  }
}

// Bytes of a ring if a multiprocessor runs two blocks, and if it runs one, which has 128 rows.
template <int N>
constexpr int kRing = N < 16 ? 112 << 10 : 216 << 10;

// Shape describes the blocks of a product with 8·N rows: 128·M features. A stage has kSteps
// steps of them, so between two barriers a warp converts four or eight. The ring is that of a block with 8·Across rows.
// Where sums of many rows are scaled, those of one half of the rows are while the other half is multiplied.
template <class W, class X, int N, int Across = N>
struct Shape {
  static constexpr bool kScaled = kApart<W> > 0, kBlocks = kApart<W> == 32;  // sums are scaled; those of each step are
  static constexpr bool kHalves = kScaled && N == 16;
  static constexpr int M = kScaled ? 1 : 2, kPanels = 8 * M, kSteps = M == 2 && N >= 8 ? 2 : 4;
  static constexpr int kScales = kHalves && X::kScaled ? 32 * N : 0;  // bytes of the scales of X
  static constexpr int kW = kPanels * kSteps * W::kUnitBytes, kX = N * kSteps * X::kBytes, kStage = kW + kX + kScales;
  static constexpr int kWhole = kW + Across * kSteps * X::kBytes + kScales, kBytes = (kRing<Across> / kWhole < 8 ? kRing<Across> / kWhole : 8) * kWhole;
  static constexpr int kStages = kBytes / kStage < 8 ? kBytes / kStage : 8;
  // Stages that are loading: where all sums are scaled at once, the products of a stage end before the next.
  static constexpr int kAhead = kStages - (kScaled && !kHalves ? 1 : 2);
  static_assert(kAhead > 0, "the ring is too small");
};

// PanelCopies are the copies of W for a stage: of each of Count panels a run of Bytes, which follow each
// other in shared memory. A warp copies every eighth of them. Panels past the end become zeros.
template <int Bytes, int Count>
struct PanelCopies {
  const unsigned char *from[Count / kWarps];
  bool there[Count / kWarps];

  // The first of `many` is at base, the others follow `stride` bytes apart.
  DEVICE_METHOD PanelCopies(const unsigned char *base, size_t stride, int first, int many) {
#pragma unroll
    for (int i = 0; i < Count / kWarps; i++) {
      int which = first + int(threadIdx.x >> 5) + kWarps * i;
      there[i] = which < many;
      from[i] = base + min(which, many - 1) * stride + 16 * (threadIdx.x & 31);
    }
  }
  // copy_run copies the next `bytes` of every run; those behind them become zeros.
  DEVICE_METHOD void copy_run(unsigned char *to, int bytes) {
    int at = 16 * (threadIdx.x & 31);
#pragma unroll
    for (int i = 0; i < Count / kWarps; i++) {
#pragma unroll
      for (int n = 0; n < Bytes; n += 512)
        if (n + 512 <= Bytes || at < Bytes - n)
          copy_async(to + Bytes * (int(threadIdx.x >> 5) + kWarps * i) + at + n, from[i] + n, there[i] && at + n < bytes ? 16 : 0);
      from[i] += Bytes;
    }
  }
};

// TileCopies are the copies of X for a stage, likewise, by all threads. Tiles past the end have the last one: nothing reads their sums.
template <int Bytes, int Count>
struct TileCopies {
  static constexpr int kThreads = 32 * kWarps, kEach = Bytes / 16, kPieces = Count * kEach, kApart = kThreads / kEach;
  static_assert(kThreads % kEach == 0, "a thread copies the same part of all");
  static constexpr int kMany = (kPieces + kThreads - 1) / kThreads;
  const unsigned char *from;
  uint32_t begins[kMany];  // of the thread's tiles, in 16 bytes
  DEVICE_METHOD TileCopies(const unsigned char *base, size_t stride, int first, int many) {
    from = base + threadIdx.x % kEach * 16;
#pragma unroll
    for (int i = 0; i < kMany; i++) begins[i] = uint32_t(min(first + int(threadIdx.x / kEach) + kApart * i, many - 1)) * uint32_t(stride / 16);
  }
  DEVICE_METHOD void copy_run(unsigned char *to, int bytes) {
    int size = int(threadIdx.x % kEach * 16) < bytes ? 16 : 0;
#pragma unroll
    for (int i = 0; i < kMany; i++)
      if (unsigned piece = threadIdx.x + kThreads * i; kPieces % kThreads == 0 || piece < kPieces)
        copy_async(to + 16 * piece, from + 16 * size_t(begins[i]), size);
    from += Bytes;
  }
};

// round_gated rounds the gated numbers of 128 columns to E4M3 and packs them, as glu_pack does: the block that is the last of
// theirs, for its 8·N rows. Sixteen lanes have a row.
template <int Panels, int N>
DEVICE void round_gated(const LinearArgs &a) {
  constexpr int kBlocks = 128 / (8 * Panels);
  static_assert(kBlocks * 8 * Panels == 128, "whole blocks have a group");
  __shared__ unsigned count;
  int group = blockIdx.y / kBlocks, groups = a.out / 256, lane = threadIdx.x & 31, q = lane & 3, step = 4 * group + lane % 16 / 4;
  unsigned *arrived = a.gated_arrived + size_t(group) * gridDim.x + blockIdx.x;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) count = atomicAdd(arrived, 1u);
  __syncthreads();
  if (count + 1 < kBlocks) return;
  if (threadIdx.x == 0) *arrived = 0;
  __threadfence();
#pragma unroll 1
  for (int i = 2 * (threadIdx.x >> 5) + lane / 16; i < 8 * N; i += 2 * kWarps) {
    int tile = N * blockIdx.x + i / 8, g = i % 8, row = 8 * tile + g;
    if (8 * tile >= a.rows) return;  // a warp's two rows are of one tile
    const float2 *from = (const float2 *)(a.y + size_t(row) * (a.out / 2) + 32 * step + 2 * q);
    float2 v[4];
    uint32_t most = 0, w[2];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      v[j] = row < a.rows ? from[4 * j] : make_float2(0, 0);
      most = max(most, max(__float_as_uint(v[j].x) & 0x7fffffffu, __float_as_uint(v[j].y) & 0x7fffffffu));
    }
#pragma unroll
    for (int o = 1; o < 16; o <<= 1) most = max(most, __shfl_xor_sync(kAllLanes, most, o));
    Rounding<CodesE4M3> r(most);
#pragma unroll
    for (int j = 0; j < 2; j++) w[j] = codes_of<CodesE4M3>(v[2 * j], v[2 * j + 1], r.by);
    uint32_t *y = (uint32_t *)a.gated + (size_t(tile) * 4 * groups + step) * 64;
    if (a.words) {
      y[4 * g + q] = w[0];
      y[32 + 4 * g + q] = w[1];
    } else {
      ((uint2 *)y)[4 * g + q] = make_uint2(w[0], w[1]);
    }
    if (lane % 16 == 0) a.gated_scales[(size_t(tile) * groups + group) * 8 + g] = r.scale;
  }
}

// Ring is a block's stages in shared memory. x copies those of X.
template <class W, class X, int N, int Across, class Rows>
struct Ring {
  using S = Shape<W, X, N, Across>;
  PanelCopies<S::kSteps * W::kUnitBytes, S::kPanels> w;
  Rows x;
  unsigned char *memory;
  int left;                    // steps that are not fetched yet
  uint32_t put = 0, take = 0;  // offsets of stages

  METHOD uint32_t after(uint32_t at) { return at + S::kStage < S::kStages * S::kStage ? at + S::kStage : 0u; }
  DEVICE_METHOD void fetch() {
    if (left > 0) {
      int many = min(left, S::kSteps);
      w.copy_run(memory + put, many * W::kUnitBytes);
      x.copy_run(memory + put + S::kW, many * X::kBytes);
      left -= S::kSteps;
      put = after(put);
    }
    copy_commit();
  }
  // next returns the next stage when it has arrived and no warp reads the one that is overwritten next. Behind the last it is any.
  DEVICE_METHOD const unsigned char *next() {
    copy_wait<S::kAhead - 1>();
    shared_for_wgmma();
    __syncthreads();
    const unsigned char *stage = memory + take;
    take = after(take);
    return stage;
  }
  // right returns the right operand of a stage's first step; the next is X::kBytes further.
  METHOD uint64_t right(const unsigned char *stage) { return wgmma_matrix(stage + S::kW, S::kSteps * X::kBytes); }
  // unit returns a step of the warp's panel m.
  METHOD const unsigned char *unit(const unsigned char *stage, int mine, int h, int m) { return stage + ((mine + 4 * m) * S::kSteps + h) * W::kUnitBytes; }
};

// FeatureScales are those of a lane's two features in a stage of 128 columns, which are read when they change.
template <class W>
struct FeatureScales {
  Panel<W> p;
  Factors f{};
  int next, columns;
  unsigned until;  // the first column for which f is outdated
  DEVICE_METHOD FeatureScales(const LinearArgs &a, const Panel<W> &p, int from)
      : p(p), next(W::kExternal ? 128 * from / a.scale_cols : 0), columns(a.scale_cols), until(unsigned(next) * columns) {}
  DEVICE_METHOD void read(int stage) {
    if (128u * stage < until) return;
#pragma unroll
    for (int i = 0; i < 2; i++) f.scale[i][0] = p.scales[i] ? immutable(p.scales[i] + next) : 1.0f;
    next++;
    until += columns;
  }
};

// RowScales is where the scales of a row of X are, in order of the groups of columns that share one.
template <class X>
struct RowScales {
  const float *at;
  int until, steps, groups;  // the first step of the next group; the steps of one
  DEVICE_METHOD RowScales(const LinearArgs &a, int step, int tile, int row)
      : steps(a.x_steps), groups(X::kScaled ? ceil_div(steps_of(a.in), a.x_steps) : 0) {
    int group = X::kScaled ? step / steps : 0;
    until = (group + 1) * steps;
    at = a.sums + (size_t(tile) * groups + group) * 8 + row;
  }
  DEVICE_METHOD void move(int step) {
    if (step < until) return;
    until += steps;
    at += 8;
  }
};

// sum_whole adds up the products of a block; where sums are scaled, t has those that are not yet.
template <class W, class X, int N, class Ring, class S = typename Ring::S>
DEVICE void sum_whole(float (&d)[S::M][4 * N], Ring &ring, const LinearArgs &a, const Tile<S::kPanels, N> &block, int mine, const Panel<W> &p) {
  constexpr int M = S::M, kTurns = X::kScaled ? 1 : 2, kSums = 4 * N;
  int lane = threadIdx.x & 31;
  float t[kSums];
  Fragments<W, X> set[2][M];
  Factors factors[2];  // of the steps of each set
  FeatureScales<W> features(a, p, block.from);
  RowScales<X> rows(a, block.from * S::kSteps, block.tile0, 2 * (lane & 3));
  auto add = [&](int h) {
    wgmma_wait<0>();
    wgmma_sums(t);
#pragma unroll
    for (int i = 0; i < kSums; i++) d[0][i] = fmaf(factors[h].scale[i % 4 / 2][0], t[i], d[0][i]);
  };
#pragma unroll 1
  for (int at = block.from; at < block.to; at++) {
    const unsigned char *stage = ring.next();
    ring.fetch();
    if constexpr (S::kScaled && !S::kBlocks) features.read(at);
    if constexpr (X::kScaled) rows.move(at * S::kSteps);
    uint64_t right = ring.right(stage);
    float2 e[N];
#pragma unroll
    for (int h = 0; h < S::kSteps; h++) {
      if constexpr (X::kScaled)
        if (h == S::kSteps - 1) {
          const float *from = rows.at;
#pragma unroll
          for (int n = 0; n < N; n++) {
            e[n] = __ldg((const float2 *)from);
            if (block.tile0 + n + 1 < block.tiles) from += 8 * rows.groups;
          }
        }
      Exponents of[M];
      bool small = step_exponents<W>(of, lane, [&](int m) { return ring.unit(stage, mine, h, m); });
      if constexpr (!S::kBlocks) wgmma_wait<1>();  // the products of this set are done
#pragma unroll
      for (int m = 0; m < M; m++) set[h % 2][m] = wide_fragments<W, X>(ring.unit(stage, mine, h, m), lane, of[m], small);
      if constexpr (S::kBlocks) factors[h % 2] = W::template factors<kShared>(ring.unit(stage, mine, h, 0), 0, lane >> 2);
      if constexpr (S::kBlocks)
        if (h > 0) add((h - 1) % 2);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kTurns; k++)
#pragma unroll
        for (int m = 0; m < M; m++) {
          uint64_t b = right + (h * X::kBytes >> 4) + k * (256 >> 4);
          if constexpr (S::kBlocks)
            wgmma<W, X>(t, set[h % 2][m].w[k], b, k > 0);
          else if constexpr (S::kScaled)
            wgmma<W, X>(t, set[h % 2][m].w[k], b, h + k > 0);
          else
            wgmma<W, X>(d[m], set[h % 2][m].w[k], b, 1);
        }
      wgmma_commit();
    }
    if constexpr (S::kBlocks) {
      add((S::kSteps - 1) % 2);
    } else if constexpr (S::kScaled) {
      wgmma_wait<0>();
      wgmma_sums(t);
#pragma unroll
      for (int i = 0; i < kSums; i++) {
        float scale = features.f.scale[i % 4 / 2][0];
        if constexpr (X::kScaled) scale *= i % 2 ? e[i / 4].y : e[i / 4].x;
        d[0][i] = fmaf(scale, t[i], d[0][i]);
      }
    }
  }
  wgmma_wait<0>();
}

// sum_halves does it for 128 rows whose sums are scaled: the units work on one half of the rows while the sums of the other are
// scaled, so both have the registers of one. ptxas keeps products apart whose sums are read in the loop's next turn while others are under
// way, so a turn begins with a wait; what is to be done before it overlaps with the last products. Orders of sums are those of sum_whole.
template <class W, class X, int N, class Ring, class S = typename Ring::S>
DEVICE void sum_halves(float (&d)[S::M][4 * N], Ring &ring, const LinearArgs &a, const Tile<S::kPanels, N> &block, int mine, const Panel<W> &p) {
  static_assert(S::kSteps == 4 && S::M == 1, "steps are written out");
  constexpr int kTurns = X::kScaled ? 1 : 2, kPart = 2 * N, kSets = S::kBlocks ? 2 : 4;
  int lane = threadIdx.x & 31;
  float t[2][kPart];
  Fragments<W, X> set[kSets];
  Factors factors[2];  // of the steps of each set
  uint64_t right;
  const unsigned char *stage;
  auto convert = [&](int h) {
    set[h % kSets] = wide_fragments<W, X>(ring.unit(stage, mine, h, 0), lane, {}, true);
    if constexpr (S::kBlocks) factors[h % 2] = W::template factors<kShared>(ring.unit(stage, mine, h, 0), 0, lane >> 2);
  };
  auto multiply = [&](int part, int from, int to) {  // begins the products of steps for half of the rows
#pragma unroll
    for (int h = from; h < to; h++)
#pragma unroll
      for (int k = 0; k < kTurns; k++)
        wgmma<W, X>(t[part], set[h % kSets].w[k], right + ((N / 2 * part * S::kSteps + h) * X::kBytes >> 4) + k * (256 >> 4), (S::kBlocks ? 0 : h) + k > 0);
    wgmma_commit();
  };
  // add scales their sums. scales are those of X, in the stage: of a lane's rows of two tiles together.
  auto add = [&](int part, const Factors &f, const unsigned char *scales) {
    wgmma_sums(t[part]);
#pragma unroll
    for (int n = 0; n < N / 4; n++) {
      float4 e;
      if constexpr (X::kScaled) e = ((const float4 *)scales)[N * part + 4 * n + (lane & 3)];
#pragma unroll
      for (int i = 0; i < 8; i++) {
        float scale = f.scale[i % 4 / 2][0];
        if constexpr (X::kScaled) scale *= i < 4 ? (i % 2 ? e.y : e.x) : (i % 2 ? e.w : e.z);
        float &to = d[0][kPart * part + 8 * n + i];
        to = fmaf(scale, t[part][8 * n + i], to);
      }
    }
  };
  if constexpr (S::kBlocks) {
#pragma unroll
    for (int i = 0; i < kPart; i++) t[1][i] = 0.0f;
    factors[1] = Factors{};
    stage = ring.next();
    right = ring.right(stage);
    convert(0);
#pragma unroll 1
    for (int at = block.from; at < block.to; at++) {
      wgmma_wait<0>();
#pragma unroll
      for (int h = 0; h < S::kSteps; h++) {
        wgmma_fence();
        multiply(0, h, h + 1);
        wgmma_wait<1>();
        add(1, factors[(h + 1) % 2], nullptr);  // of the step before
        wgmma_fence();
        multiply(1, h, h + 1);
        if (h == 0) ring.fetch();
        if (h == S::kSteps - 1) stage = ring.next();
        convert((h + 1) % S::kSteps);
        wgmma_wait<1>();
        add(0, factors[h % 2], nullptr);
      }
      right = ring.right(stage);
    }
    wgmma_wait<0>();
    add(1, factors[1], nullptr);
  } else {
    // A thread copies a scale of X of each stage to shared memory, a turn after it has read it.
    int i = threadIdx.x;
    FeatureScales<W> features(a, p, block.from);
    RowScales<X> rows(a, block.from * S::kSteps, min(block.tile0 + i / 16 * 2 + i / 2 % 2, block.tiles - 1), i / 4 % 4 * 2 + i % 2);
    float scale = 0.0f;
    auto copy_scales = [&](int at) {
      if constexpr (X::kScaled)
        if (i < 8 * N) {
          ((float *)(ring.memory + ring.take + S::kW + S::kX))[i] = scale;
          rows.move((at + 1) * S::kSteps);
          if (at + 1 < block.to) scale = __ldg(rows.at);
        }
    };
    if constexpr (X::kScaled)
      if (i < 8 * N && block.from < block.to) scale = __ldg(rows.at);
    copy_scales(block.from);
    stage = ring.next();
    right = ring.right(stage);
#pragma unroll
    for (int h = 0; h < S::kSteps; h++) convert(h);
    wgmma_fence();
    multiply(0, 0, 2);
#pragma unroll 1
    for (int at = block.from; at < block.to; at++) {
      wgmma_wait<0>();
      wgmma_fence();
      multiply(0, 2, 4);
      multiply(1, 0, 2);
      multiply(1, 2, 4);
      features.read(at);
      ring.fetch();
      wgmma_wait<2>();
      const unsigned char *scales = stage + S::kW + S::kX;
      add(0, features.f, scales);
      copy_scales(at + 1);
      stage = ring.next();
      right = ring.right(stage);
      wgmma_wait<1>();
      convert(0);
      convert(1);
      wgmma_fence();
      multiply(0, 0, 2);  // of the next stage; behind the last nothing reads its sums
      wgmma_wait<1>();
      add(1, features.f, scales);
      convert(2);
      convert(3);
    }
    wgmma_wait<0>();
  }
}

// multiply_block computes a block's sums over the steps of its split and stores them. x copies its
// stages of X.
template <class W, class X, int N, int Across, class Rows>
DEVICE void multiply_block(const LinearArgs &a, const Tile<Shape<W, X, N, Across>::kPanels, N> &block, int expert, Rows x) {
  using S = Shape<W, X, N, Across>;
  static_assert(W::kUnit == 1 && W::kUnitBytes % 16 == 0 && !W::kMinimum && W::kScales < 2, "steps of a panel follow each other, with a scale each");
  DYNAMIC_SHARED(memory);
  constexpr int M = S::M;
  int warp = threadIdx.x >> 5, panels = ceil_div(a.out, 16), steps = steps_of(a.in), first = block.from * S::kSteps;
  Ring<W, X, N, Across, Rows> ring{
      {a.w + expert * a.expert_bytes + size_t(first) * W::kUnitBytes, size_t(steps) * W::kUnitBytes, block.panel0, panels},
      x,
      memory,
      min(steps, block.to * S::kSteps) - first};
  int mine = warp / 4 * 4 * M + warp % 4;  // this warp's first panel of the block; the others are 4 panels apart
  Panel<W> p = panel_at<W>(a, min(block.panel0 + mine, panels - 1), expert);  // of which scales are read: M is 1 then
  float d[M][4 * N];
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int i = 0; i < 4 * N; i++) d[m][i] = 0.0f;
#pragma unroll 1
  for (int s = 0; s < S::kAhead; s++) ring.fetch();
  if constexpr (S::kHalves)
    sum_halves<W, X, N>(d, ring, a, block, mine, p);
  else
    sum_whole<W, X, N>(d, ring, a, block, mine, p);
  copy_wait<0>();
#pragma unroll
  for (int m = 0; m < M; m++) wgmma_sums(d[m]);
  if (a.gated != nullptr) __syncthreads();  // all warps are done with the stages
  static_assert(S::kStages * S::kStage >= (M * N < kGated ? M * N : kGated) * kPieceThreads * 16, "the stages hold the pieces that are gated");
  bool stored = block.template finish<M * N, X::kScaled>(
      a, [&](int i) { return int2{mine + 4 * (i / N), i % N}; }, [&](int i) { return &d[i / N][4 * (i % N)]; }, memory);
  if constexpr (X::kScaled)
    if (a.gated_scales != nullptr && stored) round_gated<S::kPanels, N>(a);
}

// GroupPrefetch is what the blocks of linear_group load first: the first stages.
template <class W, class X, int N>
struct GroupPrefetch {
  using S = Shape<W, X, N>;
  static constexpr int kRuns = S::kPanels;
  METHOD Run run(const LinearArgs &a, int i) {
    int each = ceil_div(ceil_div(steps_of(a.in), S::kSteps), a.splits);  // stages, as Tile has them
    return unit_run<W>(a, blockIdx.y * S::kPanels + i, blockIdx.z * each * S::kSteps, min(each, S::kAhead) * S::kSteps);
  }
};

// linear_group: a block's two warpgroups compute 64·M features each, for 8·N rows; X is in word order
// (PackArgs.words). The products of a step run while the weights of the next are converted. The
// sums of 128 columns of 8-bit floats, and of 32 of blocks with a scale, are waited for and scaled.
//
// Sums of 16-bit products are float32. The units keep only 14 bits of sums of E4M3 products
// (_x8): those of 128 columns, four products of 32, are added up by them, and then in float32. A
// product loses less than 2⁻¹³ of its largest term or sum for the sum before, for the sum after
// and for each term below 1/64 of that: kernels/ref.SumErrorE4M3 is the bound, and the emulation
// computes so with Block.e4m3.
template <class W, class X, int N>
DEVICE void linear_group(const LinearArgs &a) {
  using S = Shape<W, X, N>;
  int steps = steps_of(a.in), expert = a.experts ? a.experts[blockIdx.x] : 0;
  if (expert < 0) return;
  Tile<S::kPanels, N> block(a, ceil_div(steps, S::kSteps), 1);  // units: stages
  const unsigned char *x = (const unsigned char *)a.x + size_t(block.from) * S::kSteps * X::kBytes;
  multiply_block<W, X, N, N>(a, block, expert, TileCopies<S::kSteps * X::kBytes, N>(x, size_t(steps) * X::kBytes, block.tile0, block.tiles));
}

#endif

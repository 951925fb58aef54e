// Products of 9 to 64 rows with quantized weights by the warpgroups of sm_90a. A weight is
// converted once for all rows of a block, as in linear_wide.cu; blocks have fewer rows, and a ring
// of many stages keeps the memory busy.
#include "linear_wide.cuh"

#if !defined(__CUDACC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Bytes of a ring if a multiprocessor runs two blocks.
constexpr int kMidShared = 112 << 10;

// Shape describes the blocks of a product with 8·N rows: 128·M features. A stage has kSteps
// steps of them, so between two barriers a warp converts four or eight.
template <class W, class X, int N>
struct Shape {
  static constexpr bool kScaled = kApart<W> > 0, kBlocks = kApart<W> == 32;  // sums are scaled; those of each step are
  static constexpr int M = kScaled ? 1 : 2, kPanels = 8 * M, kSteps = M == 2 && N == 8 ? 2 : 4;
  static constexpr int kW = kPanels * kSteps * W::kUnitBytes, kX = N * kSteps * X::kBytes, kStage = kW + kX;
  static constexpr int kStages = kMidShared / kStage < 8 ? kMidShared / kStage : 8;
  // Stages that are loading: where sums are scaled, the products of a stage end before the next.
  static constexpr int kAhead = kStages - (kScaled ? 1 : 2);
  static_assert(kAhead > 0, "the ring is too small");
};

// Panels are the copies of W for a stage: of each of Count panels a run of Bytes, which follow each
// other in shared memory. A warp copies every eighth of them. Panels past the end become zeros.
template <int Bytes, int Count>
struct Panels {
  const unsigned char *from[Count / kWarps];
  bool there[Count / kWarps];

  // The first of `many` is at base, the others follow `stride` bytes apart.
  DEVICE_METHOD Panels(const unsigned char *base, size_t stride, int first, int many) {
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

// Tiles are the copies of X for a stage, likewise, by all threads.
template <int Bytes, int Count>
struct Tiles {
  static constexpr int kThreads = 32 * kWarps, kEach = Bytes / 16, kPieces = Count * kEach, kApart = kThreads / kEach;
  static_assert(kThreads % kEach == 0, "a thread copies the same part of all");
  const unsigned char *from;
  uint32_t further;  // offset from one of the thread's tiles to the next
  int left;          // tiles from its first one on
  DEVICE_METHOD Tiles(const unsigned char *base, size_t stride, int first, int many) {
    int which = first + threadIdx.x / kEach;
    left = many - which;
    from = base + min(which, many - 1) * stride + threadIdx.x % kEach * 16;
    further = kApart * uint32_t(stride);
  }
  DEVICE_METHOD void copy_run(unsigned char *to, int bytes) {
    bool within = int(threadIdx.x % kEach * 16) < bytes;
#pragma unroll
    for (int i = 0; i < ceil_div(kPieces, kThreads); i++) {
      bool there = kApart * i < left;
      if (unsigned piece = threadIdx.x + kThreads * i; kPieces % kThreads == 0 || piece < kPieces)
        copy_async(to + 16 * piece, from + (there ? i * size_t(further) : 0), there && within ? 16 : 0);
    }
    from += Bytes;
  }
};

// multiply_mid computes a block's sums over the steps of its split and stores them. x copies its
// stages of X.
template <class W, class X, int N, class Rows>
DEVICE void multiply_mid(const LinearArgs &a, const Tile<Shape<W, X, N>::kPanels, N> &block, int expert, Rows x) {
  using S = Shape<W, X, N>;
  static_assert(W::kUnit == 1 && W::kUnitBytes % 16 == 0 && !W::kMinimum && W::kScales < 2, "steps of a panel follow each other, with a scale each");
  DYNAMIC_SHARED(memory);
  constexpr int M = S::M, kTurns = X::kScaled ? 1 : 2, kSums = 4 * N;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, panels = ceil_div(a.out, 16), steps = steps_of(a.in);
  int first = block.from * S::kSteps, left = min(steps, block.to * S::kSteps) - first;  // steps that are not fetched yet
  Panels<S::kSteps * W::kUnitBytes, S::kPanels> w(
      a.w + expert * a.expert_bytes + size_t(first) * W::kUnitBytes, size_t(steps) * W::kUnitBytes, block.panel0, panels);
  uint32_t put = 0, take = 0;  // offsets of stages
  auto after = [](uint32_t at) { return at + S::kStage < S::kStages * S::kStage ? at + S::kStage : 0u; };
  auto fetch = [&] {
    if (left > 0) {
      int many = min(left, S::kSteps);
      w.copy_run(memory + put, many * W::kUnitBytes);
      x.copy_run(memory + put + S::kW, many * X::kBytes);
      left -= S::kSteps;
      put = after(put);
    }
    copy_commit();
  };
  int mine = warp / 4 * 4 * M + warp % 4;  // this warp's first panel of the block; the others are 4 panels apart
  Panel<W> p = panel_at<W>(a, min(block.panel0 + mine, panels - 1), expert);  // of which scales are read: M is 1 then
  float d[M][kSums], t[kSums];  // t: not scaled yet
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int i = 0; i < kSums; i++) d[m][i] = 0.0f;
#pragma unroll 1
  for (int s = 0; s < S::kAhead; s++) fetch();
  Fragments<W, X> set[2][M];
  Factors factors[2], f{};  // of the steps of each set; of a stage
  Extra e[N];
  unsigned scaled = 0;  // the first column for which f is outdated
  int scaled_x = 0;     // the first step for which e is
  auto add = [&](int h) {
    wgmma_wait<0>();
    wgmma_sums(t);
#pragma unroll
    for (int i = 0; i < kSums; i++) d[0][i] = fmaf(factors[h].scale[i % 4 / 2][0], t[i], d[0][i]);
  };
#pragma unroll 1
  for (int at = block.from; at < block.to; at++) {
    copy_wait<S::kAhead - 1>();
    shared_for_wgmma();
    __syncthreads();  // this stage has arrived, and no warp reads the one that is overwritten next
    fetch();
    const unsigned char *stage = memory + take;
    take = after(take);
    if constexpr (S::kScaled && !S::kBlocks) {  // a stage is 128 columns; scales are read when they change
      if (unsigned column = 128 * at; column >= scaled) {
        scaled = (column / a.scale_cols + 1) * a.scale_cols;
        f = factors_at<W>(a, p, at * S::kSteps);
      }
      if constexpr (X::kScaled)
        if (at * S::kSteps >= scaled_x) {
          scaled_x = (at * S::kSteps / a.x_steps + 1) * a.x_steps;
#pragma unroll
          for (int n = 0; n < N; n++) e[n] = extra_at<W, X>(a, min(block.tile0 + n, block.tiles - 1), at * S::kSteps, steps, X::none());
        }
    }
    auto unit = [&](int h, int m) { return stage + ((mine + 4 * m) * S::kSteps + h) * W::kUnitBytes; };
#pragma unroll
    for (int h = 0; h < S::kSteps; h++) {
      Exponents of[M];
      bool small = true;
      if constexpr (kPowers<W>) {
        uint32_t all = 0;
#pragma unroll
        for (int m = 0; m < M; m++) {
          of[m] = exponents<W>(unit(h, m), lane);
          all |= of[m].of[0] | of[m].of[1];
        }
        small = !__any_sync(kAllLanes, all >= 128);
      }
      if constexpr (!S::kBlocks) wgmma_wait<1>();  // the products of this set are done
#pragma unroll
      for (int m = 0; m < M; m++) set[h % 2][m] = wide_fragments<W, X>(unit(h, m), lane, of[m], small);
      if constexpr (S::kBlocks) factors[h % 2] = W::template factors<kShared>(unit(h, 0), 0, lane >> 2);
      if constexpr (S::kBlocks)
        if (h > 0) add((h - 1) % 2);
      uint64_t right = wgmma_matrix(stage + S::kW + h * X::kBytes, S::kSteps * X::kBytes);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kTurns; k++)
#pragma unroll
        for (int m = 0; m < M; m++) {
          if constexpr (S::kBlocks)
            wgmma<W, X>(t, set[h % 2][m].w[k], right + k * (256 >> 4), k > 0);
          else if constexpr (S::kScaled)
            wgmma<W, X>(t, set[h % 2][m].w[k], right + k * (256 >> 4), h + k > 0);
          else
            wgmma<W, X>(d[m], set[h % 2][m].w[k], right + k * (256 >> 4), 1);
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
        float scale = f.scale[i % 4 / 2][0];
        if constexpr (X::kScaled) scale *= i % 2 ? e[i / 4].of[0].y : e[i / 4].of[0].x;
        d[0][i] = fmaf(scale, t[i], d[0][i]);
      }
    }
  }
  wgmma_wait<0>();
  copy_wait<0>();
#pragma unroll
  for (int m = 0; m < M; m++) wgmma_sums(d[m]);
  block.template finish<M * N>(
      a, [&](int i) { return int2{mine + 4 * (i / N), i % N}; }, [&](int i) { return &d[i / N][4 * (i % N)]; });
}

// linear_mid: a block computes Shape's features for 8·N rows; X is in word order
// (PackArgs.words). The sums of 128 columns of 8-bit floats, and of 32 of blocks with a scale, are
// scaled in float32, as in linear_wide.
template <class W, class X, int N>
DEVICE void linear_mid(const LinearArgs &a) {
  using S = Shape<W, X, N>;
  int steps = steps_of(a.in), expert = a.experts ? a.experts[blockIdx.x] : 0;
  if (expert < 0) return;
  Tile<S::kPanels, N> block(a, expert, ceil_div(steps, S::kSteps), 1);  // units: stages
  const unsigned char *x = (const unsigned char *)a.x + size_t(block.from) * S::kSteps * X::kBytes;
  multiply_mid<W, X, N>(a, block, expert, Tiles<S::kSteps * X::kBytes, N>(x, size_t(steps) * X::kBytes, block.tile0, block.tiles));
}

#define LINEAR_MID(name, W, X)                                                            \
  KERNEL_OF(linear_##name##_mid_16, LinearArgs, 256, 2) { linear_mid<W, X, 2>(a); } \
  KERNEL_OF(linear_##name##_mid_32, LinearArgs, 256, 2) { linear_mid<W, X, 4>(a); } \
  KERNEL_OF(linear_##name##_mid_64, LinearArgs, 256, 2) { linear_mid<W, X, 8>(a); }
LINEAR_MID(f8_e4m3, WeightsE4M3, Wide)
LINEAR_MID(mxfp4, WeightsMXFP4, Wide)
LINEAR_MID(q8_0, WeightsQ8_0, Wide)
LINEAR_MID(q4_0, WeightsQ4_0, Wide)
LINEAR_MID(iq4_nl, WeightsIQ4_NL, Wide)
LINEAR_MID(f8_e4m3_x8, WeightsE4M3, NarrowE4M3)

#endif

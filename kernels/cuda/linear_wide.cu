// Products of many rows by the warpgroups of sm_90a. W goes from shared memory through
// registers, where it is converted; the units read X from shared memory. Other architectures
// use linear_tile, also sm_100 and sm_120, whose own units are not used.
#include "linear_wide.cuh"

#if !defined(__CUDACC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// copy_steps copies two steps of Count panels or tiles, Bytes each, from `first` of `many` on.
// A warp copies every eighth of them, which is contiguous. Those past the end become zeros.
template <int Bytes, int Count>
DEVICE void copy_steps(unsigned char *to, const unsigned char *from, int first, int many, int pair, int steps) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, bytes = min(2, steps - 2 * pair) * Bytes;
#pragma unroll
  for (int i = 0; i < Count; i += kWarps) {
    int which = first + i + warp, there = which < many ? bytes : 0;
    const unsigned char *run = from + (there ? (size_t(which) * steps + 2 * pair) * Bytes : 0);
#pragma unroll
    for (int at = 16 * lane, n = 0; n < ceil_div(2 * Bytes, 512); n++, at += 512)
      if (at < 2 * Bytes) copy_async(to + 2 * Bytes * (i + warp) + at, at < there ? run + at : from, at < there ? 16 : 0);
  }
}

// linear_wide: a block computes 128·M features for 128 rows, each of its two warpgroups 64·M; M
// is 2 if all columns are summed together. X is in word order (PackArgs.words). There are four
// stages of two steps, including block scales. The products of a step run while the weights of
// the next are converted. The sums of 128 columns are waited for and scaled. With block scales,
// the sums of the first step of a pair are scaled while the products of the second run. Shared
// memory: 4 · 2 · (8·M·kUnitBytes + 16·kBytes of X).
//
// Sums of 16-bit products are float32. The units keep only 14 bits of sums of E4M3 products
// (_x8): those of 128 columns, four products of 32, are added up by them, and then in float32. A
// product loses less than 2⁻¹³ of its largest term or sum for the sum before, for the sum after
// and for each term below 1/64 of that: kernels/ref.SumErrorE4M3 is the bound, and the emulation
// computes so with Block.e4m3.
template <class W, class X>
DEVICE void linear_wide(const LinearArgs &a) {
  static_assert(W::kUnit == 1 && W::kUnitBytes % 16 == 0 && !W::kMinimum && W::kScales < 2, "steps of a panel follow each other, with a scale each");
  DYNAMIC_SHARED(memory);
  constexpr bool kScaled = kApart<W> > 0, kBlocks = kApart<W> == 32;  // a scale for each step
  constexpr int M = kScaled ? 1 : 2, kPanels = 8 * M, kTurns = X::kScaled ? 1 : 2, kTiles = 16;
  constexpr int kStages = 4, kW = kPanels * 2 * W::kUnitBytes, kX = kTiles * 2 * X::kBytes, kStage = kW + kX;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int expert = a.experts ? a.experts[blockIdx.x] : 0;
  if (expert < 0) return;
  int panels = ceil_div(a.out, 16), steps = steps_of(a.in);
  Tile<kPanels, kTiles> block(a, expert, ceil_div(steps, 2), 2);  // units: pairs of steps, scaled by two
  int panel0 = block.panel0, tile0 = block.tile0, tiles = block.tiles, pairs = block.to;
  const unsigned char *w0 = a.w + expert * a.expert_bytes, *x0 = (const unsigned char *)a.x;
  auto fetch = [&](int pair) {
    unsigned char *stage = memory + pair % kStages * kStage;
    copy_steps<W::kUnitBytes, kPanels>(stage, w0, panel0, panels, pair, steps);
    copy_steps<X::kBytes, kTiles>(stage + kW, x0, tile0, tiles, pair, steps);
  };
  int mine = warp / 4 * 4 * M + warp % 4;  // this warp's first panel of the block; the others are 4 panels apart
  Panel<W> p[M];
#pragma unroll
  for (int m = 0; m < M; m++) p[m] = panel_at<W>(a, min(panel0 + mine + 4 * m, panels - 1), expert);
  constexpr int T = kBlocks ? 2 : kScaled ? 1 : M;
  float d[M][64], t[T][64];  // t: not scaled yet
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int i = 0; i < 64; i++) d[m][i] = 0.0f;
  for (int s = block.from; s < block.from + 2; s++) {
    if (s < pairs) fetch(s);
    copy_commit();
  }
  Fragments<W, X> set[2][M];
  Factors factors[2];  // of blocks, for each set
  auto add = [&](int h) {
    wgmma_sums(t[h % T]);
#pragma unroll
    for (int i = 0; i < 64; i++) d[0][i] = fmaf(factors[h].scale[i % 4 / 2][0], t[h % T][i], d[0][i]);
  };
  for (int pair = block.from; pair < pairs; pair++) {
    copy_wait<1>();
    shared_for_wgmma();
    __syncthreads();  // this stage has arrived, and all warps are done with the one before the previous one
    if (pair + 2 < pairs) fetch(pair + 2);
    copy_commit();
    const unsigned char *stage = memory + pair % kStages * kStage;
    auto unit = [&](int h, int m) { return stage + (2 * (mine + 4 * m) + h) * W::kUnitBytes; };
#pragma unroll
    for (int h = 0; h < 2; h++) {
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
      if constexpr (!kBlocks) wgmma_wait<1>();  // the products of set[h] are done
#pragma unroll
      for (int m = 0; m < M; m++) set[h][m] = wide_fragments<W, X>(unit(h, m), lane, of[m], small);
      if constexpr (kBlocks) factors[h] = W::template factors<kShared>(unit(h, 0), 0, lane >> 2);
      uint64_t x = wgmma_matrix(stage + kW + h * X::kBytes, 2 * X::kBytes);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kTurns; k++)
#pragma unroll
        for (int m = 0; m < M; m++) {
          if constexpr (kBlocks)
            wgmma<W, X>(t[h], set[h][m].w[k], x + k * (256 >> 4), k > 0);
          else if constexpr (kScaled)
            wgmma<W, X>(t[m], set[h][m].w[k], x + k * (256 >> 4), pair % 2 + h + k > 0);
          else
            wgmma<W, X>(d[m], set[h][m].w[k], x + k * (256 >> 4), 1);
        }
      wgmma_commit();
    }
    if constexpr (kBlocks) {
      wgmma_wait<1>();
      add(0);
      wgmma_wait<0>();
      add(1);
    }
    if constexpr (kScaled && !kBlocks) {
      if (pair % 2 == 0 && pair + 1 < pairs) continue;
      wgmma_wait<0>();
      wgmma_sums(t[0]);
      int step = pair / 2 * 4;
      Factors f = factors_at<W>(a, p[0], step);
#pragma unroll
      for (int n = 0; n < kTiles; n++) {
        Extra e{{make_float2(1, 1)}};
        if constexpr (X::kScaled) e = extra_at<W, X>(a, min(tile0 + n, tiles - 1), step, steps, X::none());
#pragma unroll
        for (int i = 0; i < 4; i++) d[0][4 * n + i] = fmaf(f.scale[i / 2][0] * (i % 2 ? e.of[0].y : e.of[0].x), t[0][4 * n + i], d[0][4 * n + i]);
      }
    }
  }
  wgmma_wait<0>();
  copy_wait<0>();
#pragma unroll
  for (int m = 0; m < M; m++) wgmma_sums(d[m]);
  if (a.gated != nullptr) __syncthreads();  // all warps are done with the stages
  static_assert(kStages * kStage >= kGated * kPieceThreads * 16, "the stages hold the pieces that are gated");
  block.template finish<M * kTiles>(
      a, [&](int i) { return int2{mine + 4 * (i / kTiles), i % kTiles}; }, [&](int i) { return &d[i / kTiles][4 * (i % kTiles)]; }, memory);
}

KERNEL(linear_bf16_wide, LinearArgs, 256) { linear_wide<WeightsBF16, Wide>(a); }
KERNEL(linear_f16_wide, LinearArgs, 256) { linear_wide<WeightsF16, Wide>(a); }
KERNEL(linear_f8_e4m3_wide, LinearArgs, 256) { linear_wide<WeightsE4M3, Wide>(a); }
KERNEL(linear_f8_e5m2_wide, LinearArgs, 256) { linear_wide<WeightsE5M2, Wide>(a); }
KERNEL(linear_mxfp4_wide, LinearArgs, 256) { linear_wide<WeightsMXFP4, Wide>(a); }
KERNEL(linear_q8_0_wide, LinearArgs, 256) { linear_wide<WeightsQ8_0, Wide>(a); }
KERNEL(linear_q4_0_wide, LinearArgs, 256) { linear_wide<WeightsQ4_0, Wide>(a); }
KERNEL(linear_iq4_nl_wide, LinearArgs, 256) { linear_wide<WeightsIQ4_NL, Wide>(a); }
KERNEL(linear_q5_0_wide, LinearArgs, 256) { linear_wide<WeightsQ5_0, Wide>(a); }
KERNEL(linear_f8_e4m3_x8_wide, LinearArgs, 256) { linear_wide<WeightsE4M3, NarrowE4M3>(a); }

#endif

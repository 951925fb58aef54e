// Products of experts by the warpgroups of sm_90a. They read the rows of X by the order of places, so no launch writes them
// in that order before; dense products have kernels without it (linear_wide.cu, linear_mid.cu).
#include "linear_wide.cuh"
#include "warpgroup.cuh"

#if !defined(__CUDACC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct PicksArgs {
  LinearArgs product;  // of experts, without splits
  const int *order;    // [rows] the row of X in this place, −1: none
  int gathers, pad;    // 1: X is row by row (PackArgs.words is 2), and order says which; 0: it is in word order, by places
};

// PickCopies are the copies of X for a stage, in pieces of 16 bytes, which are 8 columns of a row. Where its rows begin
// a thread looks up once. Neighbouring threads read 32 bytes of a row. A place without a row has the first one: nothing reads its sums.
template <int Steps, int Count>
struct PickCopies {
  static constexpr int kThreads = 32 * kWarps, kEach = 32 * Steps, kApart = kThreads / kEach, kMany = Count / kApart;
  static_assert(kThreads % kEach == 0 && Count % kApart == 0, "a thread copies the same part of all tiles");
  const unsigned char *from;
  uint32_t begins[kMany];  // of the thread's rows, in pieces
  uint32_t to, next;       // offset of the thread's first piece in a stage; from a stage to the next in X
  int part;                // offset of its columns in the stage of a tile
  DEVICE_METHOD PickCopies(const PicksArgs &p, int tile0, int steps) {
    int tile = threadIdx.x / kEach, e = threadIdx.x % kEach, g = e % 8, piece = e / 8;
    if (p.gathers) g = e / 2 % 8, piece = e / 16 * 2 + e % 2;
#pragma unroll
    for (int i = 0; i < kMany; i++) {
      int place = 8 * (tile0 + tile + kApart * i) + g;
      begins[i] = p.gathers ? uint32_t(max(p.order[place], 0)) * 4 * steps : uint32_t(place / 8 * steps * 32 + g);
    }
    part = 128 * piece;
    to = kEach * 16 * tile + part + 16 * g;
    from = (const unsigned char *)p.product.x + piece * (p.gathers ? 16 : 128);
    next = Steps * (p.gathers ? 64 : 512);
  }
  DEVICE_METHOD void copy_run(unsigned char *stage, int bytes) {
    int size = part < bytes ? 16 : 0;
#pragma unroll
    for (int i = 0; i < kMany; i++) copy_async(stage + to + 16 * kThreads * i, from + 16 * size_t(begins[i]), size);
    from += next;
  }
};

// linear_picks is linear_group for experts.
template <class W, int N>
DEVICE void linear_picks(const PicksArgs &p) {
  using S = Shape<W, Wide, N>;
  int expert = p.product.experts[blockIdx.x];
  if (expert < 0) return;
  int steps = steps_of(p.product.in);
  Tile<S::kPanels, N> block(p.product, ceil_div(steps, S::kSteps), 1);  // units: stages
  multiply_block<W, Wide, N, N>(p.product, block, expert, PickCopies<S::kSteps, N>(p, block.tile0, steps));
}

// What follows is for blocks of 128 rows. The grid is fixed, a block on each multiprocessor, and each takes its share of all tiles.
// One warpgroup loads, through a ring of stages and without waiting for tiles to end. The two that multiply follow each other
// by kBehind stages: so one stores the sums of a tile while the other multiplies.

// RowTile is a tile: the features from a panel on, for 128 rows, or for the first 64 of them if half is 1.
struct RowTile {
  int block, panel0, expert, half;
};

// Walk is where a warp is in its block's share of the tiles. It is in shared memory: registers are for products.
struct Walk {
  RowTile tile;
  int item, last, first, before;  // the item, the panels at which it ends, the block of rows of lane 0, the items before those of the next 32
  int2 looked[32];                // of each lane's block of rows: the expert, its complement if 64 rows are enough; the items up to its end
};

// TileRing is the shared memory: stages, in which the weights of a tile's features are before X, the numbers that each thread gates at a time,
// and the barriers, two for each stage: it is there, it was read; and the one by which the warpgroups follow each other.
template <class W>
struct TileRing {
  using S = Shape<W, Wide, 16>;
  static constexpr int kRows = 128, kGates = 4, kThreads = 256, kScratch = kGates * kThreads * 16;
  static constexpr int kMore = S::M == 2 ? 232 : 224, kLess = 3 * 168 - 2 * kMore;  // registers of a thread that multiplies, and of one that loads
  static constexpr int kMost = (208 << 10) / S::kStage, kStages = kMost < 8 ? kMost : 8;
  static constexpr int kBehind = kStages / 2 - 1;  // so loads are ahead of both warpgroups by as much and more
  static_assert(kBehind > 0, "the ring is too small");
  METHOD float4 *scratch(unsigned char *memory) { return (float4 *)(memory + kStages * S::kStage); }
  METHOD Barrier *barriers(unsigned char *memory) { return (Barrier *)(memory + kStages * S::kStage + kScratch); }
  METHOD Walk *walks(unsigned char *memory) { return (Walk *)(memory + kStages * S::kStage + kScratch + 256); }
  int stage = 0;
  unsigned lap = 0;  // how often the ring was gone round before
  DEVICE_METHOD void next() {
    if (++stage < kStages) return;
    stage = 0;
    lap++;
  }
};

// each_tile gives f the tiles of this block of the grid, one after the other. All tiles are a list of equal items: for a block of rows after the other
// each strip of Panels panels, or two for a block of 64 rows. So the weights of an expert, and its rows, are read in one stretch of
// time; the n-th block has every item n modulo the grid. Lanes look up 32 blocks of rows at once. All lanes of a warp call it.
template <int Panels, class F>
DEVICE void each_tile(const PicksArgs &p, Walk *walks, F f) {
  Walk &w = walks[threadIdx.x >> 5];
  int lane = threadIdx.x & 31, item = blockIdx.x, before = 0;
#pragma unroll 1
  for (int first = 0; first < p.product.rows / 128; first += 32) {
    int b = first + lane, expert = b < p.product.rows / 128 ? p.product.experts[b] : -1, half = expert >= 0 && p.order[128 * size_t(b) + 64] < 0;
    int strips = ceil_div(p.product.out, 16 * Panels), many = expert < 0 ? 0 : half ? ceil_div(strips, 2) : strips, until = many;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
      int v = __shfl_up_sync(kAllLanes, until, o);
      if (lane >= o) until += v;
    }
    until += before;
    w.looked[lane] = int2{half ? ~expert : expert, until};
    before = __shfl_sync(kAllLanes, until, 31);
    __syncwarp();
#pragma unroll 1
    for (; item < before; item += gridDim.x) {
      int l = __ffs(int(__ballot_sync(kAllLanes, w.looked[lane].y > item))) - 1;
      int2 found = w.looked[l];
      int strips = ceil_div(p.product.out, 16 * Panels), half = found.x < 0, begin = item - found.y + (half ? ceil_div(strips, 2) : strips);
      int panel = (half ? 2 * begin : begin) * Panels, last = half ? min(2 * begin + 2, strips) * Panels : panel + Panels;
      if (lane == 0) {
        w.tile = {first + l, panel, half ? ~found.x : found.x, half};
        w.item = item, w.last = last, w.first = first, w.before = before;
      }
#pragma unroll 1
      do {
        __syncwarp();
        f(w.tile);
        __syncwarp();  // all lanes are done with the tile
        panel = w.tile.panel0 + Panels, last = w.last;
        __syncwarp();
        if (lane == 0) w.tile.panel0 = panel;
      } while (panel < last);
      item = w.item, first = w.first, before = w.before;
      __syncwarp();
    }
  }
}

// RowCopies are the copies of 128 rows of X for a stage by 128 threads: two neighbours copy a row and the one 64 behind it, 32 bytes at a
// time. So a thread has two addresses, and what it copies of a stage is at constants behind them.
template <int Steps, bool Gathers>
struct RowCopies {
  static constexpr int kStep = Gathers ? 64 : 512;  // bytes from a step of a row to the next
  const unsigned char *from[2];
  uint32_t to;
  DEVICE_METHOD RowCopies(const PicksArgs &p, int row0, int steps) {
    int which = threadIdx.x & 1, row = threadIdx.x >> 1 & 63;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int place = row0 + row + 64 * i;
      size_t begin = Gathers ? size_t(max(p.order[place], 0)) * steps * 64 : size_t(place / 8) * steps * 512 + place % 8 * 16;
      from[i] = (const unsigned char *)p.product.x + begin + (Gathers ? 16 : 128) * which;
    }
    to = row / 8 * (Steps * 512) + row % 8 * 16 + 128 * which;
  }
  // copy_steps copies the next `many` steps; those behind them become zeros. half: of the first 64 rows.
  DEVICE_METHOD void copy_steps(unsigned char *stage, int many, bool half) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      if (i == 0 || !half) {
#pragma unroll
        for (int k = 0; k < 2 * Steps; k++)
          copy_async(stage + to + i * (8 * Steps * 512) + 256 * k, from[i] + k * (kStep / 2), k / 2 < many ? 16 : 0);
      }
      from[i] += Steps * kStep;
    }
  }
};

// RunCopies are the copies of W for a stage by 128 threads: of each of Count panels Steps of UnitBytes, which follow each other in shared
// memory. A warp copies every fourth panel. Panels past the end become zeros.
template <int UnitBytes, int Steps, int Count>
struct RunCopies {
  static constexpr int kBytes = Steps * UnitBytes;
  const unsigned char *from;
  uint32_t apart;  // from one of the warp's panels to the next
  int many;        // of them are there
  DEVICE_METHOD RunCopies(const unsigned char *base, uint32_t stride, int first, int panels) {
    int which = first + int(threadIdx.x >> 5 & 3);
    many = max(0, ceil_div(panels - which, 4));
    apart = 4 * stride;
    from = base + size_t(min(which, panels - 1)) * stride + 16 * (threadIdx.x & 31);
  }
  // copy_steps copies the next `steps` steps of every panel; those behind them become zeros.
  DEVICE_METHOD void copy_steps(unsigned char *to, int steps) {
    int at = 16 * (threadIdx.x & 31);
    to += kBytes * int(threadIdx.x >> 5 & 3) + at;
    const unsigned char *run = from;
#pragma unroll
    for (int i = 0; i < Count / 4; i++) {
#pragma unroll
      for (int n = 0; n < kBytes; n += 512) {
        bool there = UnitBytes % 512 == 0 ? n / UnitBytes < steps : at + n < steps * UnitBytes;
        if (n + 512 <= kBytes || at < kBytes - n) copy_async(to + 4 * kBytes * i + n, run + n, i < many && there ? 16 : 0);
      }
      if (i + 1 < many) run += apart;
    }
    from += kBytes;
  }
};

// load_stages is what the first warpgroup does.
template <class W, bool Gathers>
DEVICE void load_stages(const PicksArgs &p, unsigned char *memory) {
  using R = TileRing<W>;
  using S = typename R::S;
  const LinearArgs &a = p.product;
  Barrier *barriers = R::barriers(memory);
  R at;
  each_tile<S::kPanels>(p, R::walks(memory), [&](const RowTile &t) {
    int steps = steps_of(a.in), panels = ceil_div(a.out, 16);
    RunCopies<W::kUnitBytes, S::kSteps, S::kPanels> w(a.w + t.expert * a.expert_bytes, uint32_t(steps) * W::kUnitBytes, t.panel0, panels);
    RowCopies<S::kSteps, Gathers> x(p, R::kRows * t.block, steps);
#pragma unroll 1
    for (int left = steps; left > 0; left -= S::kSteps, at.next()) {
      Barrier *there = barriers + 2 * at.stage;
      if (at.lap > 0) barrier_wait(there + 1, at.lap - 1);
      int many = min(left, S::kSteps);
      unsigned char *stage = memory + at.stage * S::kStage;
      w.copy_steps(stage, many);
      x.copy_steps(stage + S::kW, many, t.half);
      barrier_arrive_copied(there);
    }
  });
}

// store_tile stores a warp's sums: of panels from `panel` on, each 4 after the one before, for the tile's 128 rows or for 64.
template <class R, int M>
DEVICE void store_tile(const LinearArgs &a, const RowTile &t, int panel, float (&d)[M][64], float4 *scratch) {
  const float *bias = a.bias ? a.bias + t.expert * a.expert_bias : nullptr;
  if (16 * panel >= a.out) return;
  if (a.gated == nullptr && 16 * (panel + 4 * (M - 1) + 1) <= a.out) {  // all its features are there
#pragma unroll
    for (int first = 0; first < 16; first += 8) {
      if (first > 0 && t.half) return;
      store_pieces<8 * M, 8>(
          a, panel, R::kRows / 8 * t.block + first, bias, [](int i) { return int2{4 * (i / 8), i % 8}; }, [&](int i) { return &d[i / 8][4 * (first + i % 8)]; });
    }
    return;
  }
  // The code of gating is long and registers have no index: pieces pass through the thread's own places in shared memory, as do those of a warp
  // whose features end.
  float4 *own = scratch + threadIdx.x % R::kThreads;
#pragma unroll
  for (int n = 0; n < 16; n += R::kGates / M) {
    if (n == 8 && t.half) return;
#pragma unroll
    for (int i = 0; i < R::kGates; i++) {
      const float *s = &d[i % M][4 * (n + i / M)];
      own[i * R::kThreads] = make_float4(s[0], s[1], s[2], s[3]);
    }
#pragma unroll 1
    for (int i = 0; i < R::kGates; i++) {
      float4 v = own[i * R::kThreads];
      const float s[4] = {v.x, v.y, v.z, v.w};
      int below = panel + 4 * (i % M), tile = R::kRows / 8 * t.block + n + i / M;
      if (a.gated == nullptr)
        store_sums(a, below, tile, bias, s);
      else
        store_gated(a, below, tile, bias, s);
    }
  }
}

// sum_stages adds the products of a tile to the first 4·N numbers of each d: the sums of multiply_block, in its order.
template <class W, int N>
DEVICE void sum_stages(const LinearArgs &a, const RowTile &t, TileRing<W> &at, unsigned tiles, unsigned char *memory, float (&d)[TileRing<W>::S::M][64]) {
  using R = TileRing<W>;
  using S = Shape<W, Wide, N, 16>;
  static_assert(S::kSteps == R::S::kSteps && S::kW == R::S::kW, "stages of blocks of 64 rows are in the same places");
  constexpr int M = S::M, kSums = 4 * N;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3, which = int(threadIdx.x >> 7) - 1, mine = which * 4 * M + warp;
  int stages = ceil_div(steps_of(a.in), S::kSteps);
  Barrier *barriers = R::barriers(memory), *follow = barriers + 2 * R::kStages;
  Panel<W> panel = panel_at<W>(a, min(t.panel0 + mine, ceil_div(a.out, 16) - 1), t.expert);  // of which scales are read: M is 1 then
  float part[kSums];  // not scaled yet
  Fragments<W, Wide> set[2][M];
  Factors factors[2], f{};  // of the steps of each set; of a stage
  f.scale[0][0] = f.scale[1][0] = 1.0f;
  int scaled = 0;  // the first column for which f is outdated
  auto sums = [&](int m) -> float(&)[kSums] { return *(float(*)[kSums])d[m]; };
  auto add = [&](int h) {
    wgmma_wait<0>();
    wgmma_sums(part);
#pragma unroll
    for (int i = 0; i < kSums; i++) d[0][i] = fmaf(factors[h].scale[i % 4 / 2][0], part[i], d[0][i]);
  };
  auto release = [&](int stage) {
    if (lane == 0) barrier_arrive(barriers + 2 * stage + 1);
  };
#pragma unroll 1
  for (int i = 0; i < stages; i++) {
    barrier_wait(barriers + 2 * at.stage, at.lap);
    shared_for_wgmma();
    const unsigned char *stage = memory + at.stage * R::S::kStage;
    if constexpr (S::kScaled && !S::kBlocks) {  // a stage is 128 columns, of one scale; it is read when it changes
      if (128 * i >= scaled) {
#pragma unroll
        for (int h = 0; h < 2; h++)
          if (panel.scales[h]) f.scale[h][0] = immutable(panel.scales[h]++);
        scaled += a.scale_cols;
      }
    }
    uint64_t x = wgmma_matrix(stage + S::kW, S::kSteps * Wide::kBytes);
    auto unit = [&](int h, int m) { return stage + ((mine + 4 * m) * S::kSteps + h) * W::kUnitBytes; };
#pragma unroll
    for (int h = 0; h < S::kSteps; h++) {
      Exponents of[M];
      bool small = step_exponents<W>(of, lane, [&](int m) { return unit(h, m); });
      if constexpr (!S::kBlocks) wgmma_wait<1>();  // the products of this set are done
      if constexpr (!S::kScaled)
        if (h == S::kSteps - 1 && i > 0) release((at.stage > 0 ? at.stage : R::kStages) - 1);  // and all of the stage before
#pragma unroll
      for (int m = 0; m < M; m++) set[h % 2][m] = wide_fragments<W, Wide>(unit(h, m), lane, of[m], small);
      if constexpr (S::kBlocks) factors[h % 2] = W::template factors<kShared>(unit(h, 0), 0, lane >> 2);
      if constexpr (S::kBlocks)
        if (h > 0) add((h - 1) % 2);
      uint64_t right = x + h * (Wide::kBytes >> 4);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 2; k++)
#pragma unroll
        for (int m = 0; m < M; m++) {
          if constexpr (S::kBlocks)
            wgmma<W, Wide>(part, set[h % 2][m].w[k], right + k * (256 >> 4), k > 0);
          else if constexpr (S::kScaled)
            wgmma<W, Wide>(part, set[h % 2][m].w[k], right + k * (256 >> 4), h + k > 0);
          else
            wgmma<W, Wide>(sums(m), set[h % 2][m].w[k], right + k * (256 >> 4), 1);
        }
      wgmma_commit();
    }
    if constexpr (S::kBlocks) {
      add((S::kSteps - 1) % 2);
      release(at.stage);
    } else if constexpr (S::kScaled) {
      wgmma_wait<0>();
      wgmma_sums(part);
      release(at.stage);
#pragma unroll
      for (int i = 0; i < kSums; i++) d[0][i] = fmaf(f.scale[i % 4 / 2][0], part[i], d[0][i]);
    }
    at.next();
    if (which == 0 && lane == 0 && i == min(R::kBehind, stages) - 1) {
      if (tiles > 0) barrier_wait(follow, tiles - 1);
      barrier_arrive(follow);
    }
  }
  wgmma_wait<0>();
#pragma unroll
  for (int m = 0; m < M; m++) wgmma_sums(sums(m));
  if constexpr (!S::kScaled) release((at.stage > 0 ? at.stage : R::kStages) - 1);
}

// multiply_tile computes the features of a tile.
template <class W>
DEVICE void multiply_tile(const LinearArgs &a, const RowTile &t, TileRing<W> &at, unsigned tiles, unsigned char *memory) {
  using R = TileRing<W>;
  constexpr int M = R::S::M;
  int warp = threadIdx.x >> 5 & 3, which = int(threadIdx.x >> 7) - 1;
  float d[M][64];
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int i = 0; i < 64; i++) d[m][i] = 0.0f;
  if (which == 1) {
    Barrier *follow = R::barriers(memory) + 2 * R::kStages;
    if ((threadIdx.x & 31) == 0) barrier_arrive(follow);
    barrier_wait(follow, tiles);
  }
  if (t.half)
    sum_stages<W, 8>(a, t, at, tiles, memory, d);
  else
    sum_stages<W, 16>(a, t, at, tiles, memory, d);
  store_tile<R, M>(a, t, t.panel0 + which * 4 * M + warp, d, R::scratch(memory));
}

template <class W>
DEVICE void linear_picks_wide(const PicksArgs &p) {
  using R = TileRing<W>;
  DYNAMIC_SHARED(memory);
  Barrier *barriers = R::barriers(memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < R::kStages; s++) {
      barrier_init(barriers + 2 * s, 128);   // threads that load
      barrier_init(barriers + 2 * s + 1, 8);  // warps that multiply
    }
    barrier_init(barriers + 2 * R::kStages, 8);
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    registers_less<R::kLess>();
    if (p.gathers)
      load_stages<W, true>(p, memory);
    else
      load_stages<W, false>(p, memory);
  } else {
    registers_more<R::kMore>();
    R at;
    unsigned tiles = 0;  // done before
    each_tile<R::S::kPanels>(p, R::walks(memory), [&](const RowTile &t) {
      multiply_tile<W>(p.product, t, at, tiles++, memory);
    });
  }
}

#define LINEAR_PICKS(name, W) \
  KERNEL(linear_##name##_picks_wide, PicksArgs, 384) { linear_picks_wide<W>(a); }
#define LINEAR_PICKS_MID(name, W)                                                       \
  KERNEL_OF(linear_##name##_picks_mid_16, PicksArgs, 256, 2) { linear_picks<W, 2>(a); } \
  KERNEL_OF(linear_##name##_picks_mid_32, PicksArgs, 256, 2) { linear_picks<W, 4>(a); } \
  KERNEL_OF(linear_##name##_picks_mid_64, PicksArgs, 256, 2) { linear_picks<W, 8>(a); } \
  LINEAR_PICKS(name, W)
LINEAR_PICKS_MID(f8_e4m3, WeightsE4M3)
LINEAR_PICKS_MID(mxfp4, WeightsMXFP4)
LINEAR_PICKS_MID(q8_0, WeightsQ8_0)
LINEAR_PICKS_MID(q4_0, WeightsQ4_0)
LINEAR_PICKS_MID(iq4_nl, WeightsIQ4_NL)
LINEAR_PICKS(bf16, WeightsBF16)
LINEAR_PICKS(f16, WeightsF16)
LINEAR_PICKS(f8_e5m2, WeightsE5M2)
LINEAR_PICKS(q5_0, WeightsQ5_0)

#endif

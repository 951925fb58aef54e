// Products of many rows in tiles, and the list of kernels of a format.
#pragma once
#include "linear.cuh"

constexpr int kGated = 16, kPieceThreads = 256;  // pieces of a thread that are gated at a time

// store_whole writes N pieces of a warp without an end in them: place(i) is piece i's panel and tile behind panel0 and tile0, sums(i) is the lane's
// part of it; Across tiles of a panel follow each other. A lane's features and rows have the same distances in every piece, so an address
// is a row's and a constant. To is Stored of the type of y. Halves: features are in the order of LinearArgs.half.
template <class To, int N, int Across, bool Halves, class Place, class Sums>
DEVICE void store_whole(const LinearArgs &a, int panel0, int tile0, const float *bias, Place place, Sums sums) {
  using T = typename To::type;
  constexpr int kDown = N / Across, kPanel = Halves ? 8 : 16, kBytes = sizeof(T);  // kPanel: features from a panel to the next
  int lane = threadIdx.x & 31, feature = kPanel * (panel0 + place(0).x) + (lane >> 2), further = Halves ? a.half : 8;
  auto behind = [&](int m) { return kPanel * (place(m * Across).x - place(0).x); };  // features from the first panel to panel m
  float more[kDown][2];
#pragma unroll
  for (int i = 0; i < 2 * kDown; i++) more[i / 2][i % 2] = bias ? bias[feature + behind(i / 2) + i % 2 * further] : 0.0f;
  unsigned char *to = (unsigned char *)((T *)a.y + (size_t(8 * (tile0 + place(0).y) + 2 * (lane & 3)) * a.out + feature));
#pragma unroll
  for (int j = 0; j < 2 * Across; j++) {
    int row = 8 * (place(j / 2).y - place(0).y) + j % 2;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      T *at = (T *)(to + i * kBytes * (long long)further + row * (long long)(kBytes * a.out));
#pragma unroll
      for (int m = 0; m < kDown; m++) at[behind(m)] = To::write(sums(m * Across + j / 2)[2 * i + j % 2] + more[m][i]);
    }
  }
}

// store_pieces is store_whole with what the arguments say of y.
template <int N, int Across, class Place, class Sums>
DEVICE void store_pieces(const LinearArgs &a, int panel0, int tile0, const float *bias, Place place, Sums sums) {
  auto store = [&](auto to) {
    if (a.half == 0)
      store_whole<decltype(to), N, Across, false>(a, panel0, tile0, bias, place, sums);
    else
      store_whole<decltype(to), N, Across, true>(a, panel0, tile0, bias, place, sums);
  };
  if (a.y_bf16)
    store(Stored<kBF16>{});
  else
    store(Stored<kF32>{});
}

// Tile is the place of a block of many rows in the product: 16·Panels features, 8·Tiles rows,
// and the input features of its split: units [from, to) of kUnit steps.
template <int Panels, int Tiles>
struct Tile {
  int panel0, tile0, tiles, from, to;
  size_t block, blocks;

  // Splits begin at multiples of align units. An expert is looked up again at the end: kept, it would take a register in the loops of products.
  DEVICE_METHOD Tile(const LinearArgs &a, int units, int align) {
    panel0 = blockIdx.y * Panels;
    tile0 = blockIdx.x * Tiles;
    tiles = ceil_div(a.rows, 8);
    int each = ceil_div(ceil_div(units, a.splits), align) * align;
    from = min(units, int(blockIdx.z) * each);
    to = min(units, from + each);
    block = size_t(blockIdx.y) * gridDim.x + blockIdx.x;
    blocks = size_t(gridDim.x) * gridDim.y;
  }

  // partial_at returns a lane's first sums of a split in a.partial; those of the next piece are kPiece bytes behind.
  static constexpr uint32_t kPiece = 32 * 16, kPieces = Panels * Tiles * kPiece;
  DEVICE_METHOD unsigned char *partial_at(const LinearArgs &a, int split) const {
    return (unsigned char *)a.partial + (split * blocks + block) * kPieces + (threadIdx.x & 31) * 16;
  }

  // join adds up the sums of all splits in order: those of Across tiles from `first` on, a panel and a tile within the block. A tile past the end has those of
  // the last one: nothing stores them.
  template <int Across>
  DEVICE_METHOD void join(const LinearArgs &a, int2 first, float4 (&d)[Across]) const {
    const unsigned char *from = partial_at(a, 0);
    uint32_t at[Across];
#pragma unroll
    for (int n = 0; n < Across; n++) {
      d[n] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      at[n] = (first.x * Tiles + min(first.y + n, tiles - 1 - tile0)) * kPiece;
    }
#pragma unroll 1
    for (int k = 0; k < a.splits; k++, from += blocks * kPieces) {
#pragma unroll
      for (int n = 0; n < Across; n++) {
        float4 u = *(const float4 *)(from + at[n]);
        d[n] = make_float4(d[n].x + u.x, d[n].y + u.y, d[n].z + u.z, d[n].w + u.w);
      }
    }
  }

  // finish stores N pieces; with splits, the last block adds up those of all splits in
  // order. place(i) is piece i's panel and tile within the block, sums(i) is the thread's
  // part of it; Across tiles of a panel follow each other. shared is memory of the block, 256·min(N, kGated) of 16 bytes, that no
  // warp uses any more if the sums are gated. finish returns whether this block has stored.
  template <int N, bool Narrow = false, int Across = (N < Tiles ? N : Tiles), class Place, class Sums>
  DEVICE_METHOD bool finish(const LinearArgs &a, Place place, Sums sums, unsigned char *shared) const {
    static_assert(N % Across == 0 && Across <= kGated, "a thread has whole panels");
    auto sums4 = [&](int i) {
      const float *d = sums(i);
      return make_float4(d[0], d[1], d[2], d[3]);
    };
    if (a.splits > 1) {
      unsigned char *to = partial_at(a, blockIdx.z);
#pragma unroll
      for (int i = 0; i < N; i++)
        if (int2 p = place(i); tile0 + p.y < tiles) *(float4 *)(to + (p.x * Tiles + p.y) * kPiece) = sums4(i);
      if (!last_split(a, block)) return false;
    }
    const float *bias = bias_of(a);
    if constexpr (N == 1) {
      float4 d[1] = {sums4(0)};
      if (a.splits > 1) join(a, place(0), d);
      const float v[4] = {d[0].x, d[0].y, d[0].z, d[0].w};
      if (a.gated != nullptr)
        store_gated<Narrow>(a, panel0 + place(0).x, tile0 + place(0).y, bias, v);
      else
        store_sums(a, panel0 + place(0).x, tile0 + place(0).y, bias, v);
      return true;
    }
    if (a.gated == nullptr && a.splits <= 1) {
      if (8 * (tile0 + Tiles) <= a.rows && 16 * (panel0 + Panels) <= a.out) {
        store_pieces<N, Across>(a, panel0, tile0, bias, place, sums);
        return true;
      }
      __syncthreads();  // all warps are done with shared
    }
    // Registers have no index: a panel's pieces pass through the thread's place in shared memory, so that the code for one piece serves all.
    float4 *own = (float4 *)shared + threadIdx.x;
#pragma unroll 1
    for (int m = 0; m < N / Across; m++) {
      int2 first = place(m * Across);
      int panel = panel0 + first.x, tile = tile0 + first.y, many = min(Across, tiles - tile);
      if (16 * panel >= a.out) break;
      if (a.splits > 1) {
        float4 d[Across];
        join(a, first, d);
#pragma unroll
        for (int n = 0; n < Across; n++) own[n * kPieceThreads] = d[n];
      } else {
#pragma unroll
        for (int i = 0; i < N; i++)
          if (i / Across == m) own[i % Across * kPieceThreads] = sums4(i);
      }
      auto each = [&](auto to) {
#pragma unroll 1
        for (int n = 0; n < many; n++) {
          float4 v = own[n * kPieceThreads];
          const float d[4] = {v.x, v.y, v.z, v.w};
          to.store(a, d);
        }
      };
      if (a.gated != nullptr)
        each(Gates<Narrow>(a, panel, tile, bias));
      else if (a.y_bf16)
        each(Lines<Stored<kBF16>>(a, panel, tile, bias));
      else
        each(Lines<Stored<kF32>>(a, panel, tile, bias));
    }
    return true;
  }
};

// Copies are a thread's copies for one stage: Count panels or tiles at one step, Bytes each,
// one after the other; the thread copies 16 bytes of every kThreads · 16. Addresses are
// computed once, and each step advances all of them alike. Panels or tiles past the end become
// zeros.
template <int Bytes, int Count>
struct Copies {
  static constexpr int kThreads = 32 * kWarps, kEach = Bytes / 16, kPieces = Count * kEach, kMany = (kPieces + kThreads - 1) / kThreads;
  static_assert(kMany == 1 || kThreads % kEach == 0, "a thread copies the same part of all");
  const unsigned char *from;
  uint32_t further[kMany];  // offsets from the first to the others: at most 128 bytes for each column
  bool there[kMany];

  // The first of `many` is at base, the others follow `stride` bytes apart.
  DEVICE_METHOD Copies(const unsigned char *base, size_t stride, int first, int many) {
    int which = first + threadIdx.x / kEach;
    from = base + min(which, many - 1) * stride + threadIdx.x % kEach * 16;
#pragma unroll
    for (int i = 0; i < kMany; i++) {
      there[i] = which + kThreads / kEach * i < many;
      further[i] = there[i] ? i * (kThreads / kEach * uint32_t(stride)) : 0;
    }
  }

  DEVICE_METHOD void copy_step(unsigned char *to) const {
#pragma unroll
    for (int i = 0; i < kMany; i++)
      if (unsigned piece = threadIdx.x + kThreads * i; kPieces % kThreads == 0 || piece < kPieces)
        copy_async(to + 16 * piece, from + further[i], there[i] ? 16 : 0);
  }
};

// linear_tile, for many rows: a block computes 128 features for 8·Tiles rows, each warp 64
// features for 2·Tiles rows. Quants and X pass through a ring of one-step stages in shared
// memory, as many as fit in RingBytes, which hides the memory's latency. Addresses advance with
// the steps; scales that several steps share are read when they change.
constexpr int kTilePanels = 8;
template <class W, class X, int Tiles, int RingBytes>
constexpr int kTileStages = RingBytes / (kTilePanels * W::kQuants + Tiles * X::kBytes) < 8 ? RingBytes / (kTilePanels * W::kQuants + Tiles * X::kBytes) : 8;

// TilePrefetch is what the blocks of linear_tile load first: the units of the first stages.
template <class W, class X, int Tiles, int RingBytes>
struct TilePrefetch {
  static constexpr int kRuns = kTilePanels, kUnits = (kTileStages<W, X, Tiles, RingBytes> + W::kUnit - 2) / W::kUnit;
  METHOD Run run(const LinearArgs &a, int i) {
    int each = ceil_div(steps_of(a.in) / W::kUnit, a.splits);  // as Tile has it
    return unit_run<W>(a, blockIdx.y * kTilePanels + i, blockIdx.z * each, min(each, kUnits));
  }
};

template <class W, class X, int Tiles, int RingBytes>
DEVICE void linear_tile(const LinearArgs &a) {
  DYNAMIC_SHARED(memory);
  constexpr int kW = kTilePanels * W::kQuants, kX = Tiles * X::kBytes, kStage = kW + kX, T = Tiles / 4;
  constexpr int kStages = kTileStages<W, X, Tiles, RingBytes>;
  constexpr bool kSums = W::kMinimum && W::kScales == 1;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int expert = a.experts ? a.experts[blockIdx.x] : 0;
  if (expert < 0) return;
  int panels = ceil_div(a.out, 16), steps = steps_of(a.in);
  Tile<kTilePanels, Tiles> t(a, steps / W::kUnit, 1);
  unsigned from = t.from * W::kUnit, to = t.to * W::kUnit;
  size_t skipped = size_t(t.from) * W::kUnitBytes;
  Copies<W::kQuants, kTilePanels> w(a.w + expert * a.expert_bytes + skipped, size_t(steps / W::kUnit) * W::kUnitBytes, t.panel0, panels);
  Copies<X::kBytes, Tiles> xs((const unsigned char *)a.x + size_t(from) * X::kBytes, size_t(steps) * X::kBytes, t.tile0, t.tiles);
  static_assert(kStages * kStage >= (4 * T < kGated ? 4 * T : kGated) * kPieceThreads * 16, "the ring holds the pieces that are gated");
  auto after = [](unsigned stage) { return stage < (kStages - 1) * kStage ? stage + kStage : 0; };
  unsigned next = from, put = 0, take = 0;
  auto fetch = [&]() {
    if (next < to) {
      w.copy_step(memory + put);
      xs.copy_step(memory + put + kW);
      next++;
      w.from += next % W::kUnit == 0 ? W::kUnitBytes - (W::kUnit - 1) * W::kQuants : W::kQuants;
      xs.from += X::kBytes;
      put = after(put);
    }
    copy_commit();
  };
  int panel1 = warp % 2 * 4, tile1 = warp / 2 * T;  // of this warp, within the block
  Panel<W> p[4];
  Factors f[4];
  typename X::Raw x[T];
  Extra e[T];
  const float2 *sums[T];  // of formats with a minimum for each 32 columns
#pragma unroll
  for (int i = 0; i < 4; i++) {
    p[i] = panel_at<W>(a, min(t.panel0 + panel1 + i, panels - 1), expert);
    p[i].base += skipped + kBytesOf<W> * (lane >> 2);
  }
#pragma unroll
  for (int n = 0; n < T; n++) {
    size_t at = size_t(min(t.tile0 + tile1 + n, t.tiles - 1)) * steps + from;
    sums[n] = kSums ? (const float2 *)a.sums + 4 * at + (lane & 3) : nullptr;
  }
  float d[4 * T][4] = {};
#pragma unroll 1
  for (int s = 0; s < kStages - 1; s++) fetch();
  unsigned scaled = 0, scaled_x = 0;  // the first column for which f is outdated, the first step for which e is
  uint32_t unit = 0;                  // offset of the step's unit from the panel's first
  for (unsigned step = from; step < to; step++) {
    copy_wait<kStages - 2>();
    __syncthreads();
    fetch();
    const unsigned char *stage = memory + take;
    take = after(take);
    if (X::kScaled && step >= scaled_x) {
      scaled_x = (step / a.x_steps + 1) * a.x_steps;
#pragma unroll
      for (int n = 0; n < T; n++) e[n] = extra_at<W, X>(a, min(t.tile0 + tile1 + n, t.tiles - 1), step, steps, X::none());
    }
    if (W::kExternal && 32 * step >= scaled) {
      scaled = (32 * step / a.scale_cols + 1) * a.scale_cols;
#pragma unroll
      for (int i = 0; i < 4; i++) f[i] = factors_at<W>(a, p[i], step);
    }
#pragma unroll
    for (int n = 0; n < T; n++) {
      x[n] = ((const typename X::Raw *)(stage + kW))[(tile1 + n) * 32 + lane];
      if constexpr (kSums)
        e[n].of[0] = __ldg(sums[n]), sums[n] += 4;
      else if constexpr (!X::kScaled)
        e[n] = extra_at<W, X>(a, 0, step, steps, x[n]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      Fragments<W, X> q = fragments<W, X>(W::template load<kShared>(stage + (panel1 + i) * W::kQuants, lane));
      if constexpr (!W::kExternal) f[i] = W::factors(p[i].base + unit, step % W::kUnit, kBytesOf<W> ? 0 : lane >> 2);
#pragma unroll
      for (int n = 0; n < T; n++) accumulate<W, X>(d[T * i + n], q, x[n], f[i], e[n]);
    }
    if ((step + 1) % W::kUnit == 0) unit += W::kUnitBytes;
  }
  copy_wait<0>();
  if (a.gated != nullptr) __syncthreads();  // all warps are done with the ring
  if constexpr (kOutputScale<W> != 0) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      Panel<W> q = panel_at<W>(a, min(t.panel0 + panel1 + i, panels - 1), expert);
#pragma unroll
      for (int n = 0; n < T; n++) scale_outputs(q, d[T * i + n]);
    }
  }
  t.template finish<4 * T, false, T>(a, [&](int i) { return int2{panel1 + i / T, tile1 + i % T}; }, [&](int i) { return d[i]; }, memory);
}

// Bytes of a ring if a multiprocessor of 100 KiB runs two blocks, and if it runs one.
constexpr int kHalfShared = 48 << 10, kWholeShared = 96 << 10;

// Two blocks on a multiprocessor are requested up to sm_90; for later architectures the code
// would spill.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 1000
#define LINEAR_BLOCKS(B) B
#else
#define LINEAR_BLOCKS(B) 1
#endif

// The products of a format: P panels in a block of up to 8 rows, B blocks on a multiprocessor
// (2 if 128 registers are enough: then more loads are outstanding).
#define LINEAR_OF(name, W, X, P, B)                                                                                       \
  KERNEL_PREFETCH(linear_##name##_8, LinearArgs, 256, LINEAR_BLOCKS(B), RowsPrefetch<W, P>) { linear_rows<W, X, P, 1>(a); } \
  KERNEL_PREFETCH(linear_##name##_16, LinearArgs, 256, LINEAR_BLOCKS(B), RowsPrefetch<W, 2>) {                              \
    linear_rows<W, X, 2, 2>(a);                                                                                           \
  }                                                                                                                       \
  KERNEL_PREFETCH(linear_##name##_64, LinearArgs, 256, LINEAR_BLOCKS(B), TilePrefetch<W, X, 8, kHalfShared>) {              \
    linear_tile<W, X, 8, kHalfShared>(a);                                                                                 \
  }                                                                                                                       \
  KERNEL_PREFETCH(linear_##name##_tile, LinearArgs, 256, 1, TilePrefetch<W, X, 16, kWholeShared>) {                         \
    linear_tile<W, X, 16, kWholeShared>(a);                                                                               \
  }
// The products of a format, and its rows as embeddings.
#define LINEAR(name, W, P, B)    \
  LINEAR_OF(name, W, Wide, P, B) \
  KERNEL(embed_packed_##name, EmbedPackedArgs, 256) { embed_packed<W>(a); }

// embed from packed tables, so that tied embeddings have one copy. A block for each row, a warp
// for each step in turn; the four lanes that hold the row write it.
struct EmbedPackedArgs {
  const int *ids;
  LinearArgs table;  // only w, scales and the shape are read
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
  for (int step = threadIdx.x >> 5; step < steps_of(in); step += blockDim.x >> 5) {
    typename W::Raw raw = W::template load<kGlobal>(quants_at<W>(p, step), lane);
    Factors f = factors_at<W>(a.table, p, step);
#pragma unroll
    for (int i = 0; i < 4; i++) {  // the registers of this half: t = i/2, from column 8·(i%2) on
      uint32_t v = W::fragment(raw, i / 2, 2 * (i % 2) + upper);
      float s = W::kScales == 0 ? 1.0f : f.scale[upper][W::kScales == 2 ? i / 2 : 0], m = W::kMinimum ? f.minimum[upper][W::kScales == 2 ? i / 2 : 0] : 0.0f;
      if constexpr (kOutputScale<W> != 0) s *= upper ? output_scale(p, 1) : output_scale(p, 0);
      float lo = W::kHalf ? from_f16(uint16_t(v)) : from_bf16(uint16_t(v)), hi = W::kHalf ? from_f16(uint16_t(v >> 16)) : from_bf16(uint16_t(v >> 16));
      int at = 32 * step + 16 * (i / 2) + 8 * (i % 2) + 2 * q;
      if (at < in) y[at] = there ? (s * lo + m) * a.scale : 0.0f;
      if (at + 1 < in) y[at + 1] = there ? (s * hi + m) * a.scale : 0.0f;
    }
  }
}

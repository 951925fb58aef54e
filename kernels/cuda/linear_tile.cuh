// Products of many rows, tile by tile, and the kernels of a format.
#pragma once
#include "linear.cuh"

// Tile is where a block of many rows is in the product: 16·Panels features, 8·Tiles rows, and
// of the input features those of its split: units [from, to) of kUnit steps.
template <int Panels, int Tiles>
struct Tile {
  int panel0, tile0, tiles, from, to;
  size_t block, blocks;
  const float *bias;

  // Splits begin at multiples of align units.
  DEVICE_METHOD Tile(const LinearArgs &a, int expert, int units, int align) {
    panel0 = blockIdx.y * Panels;
    tile0 = blockIdx.x * Tiles;
    tiles = ceil_div(a.rows, 8);
    int each = ceil_div(ceil_div(units, a.splits), align) * align;
    from = min(units, int(blockIdx.z) * each);
    to = min(units, from + each);
    block = size_t(blockIdx.y) * gridDim.x + blockIdx.x;
    blocks = size_t(gridDim.x) * gridDim.y;
    bias = a.bias ? a.bias + expert * a.expert_bias : nullptr;
  }

  // store writes what a thread has of a piece, 16 features (panel) by 8 rows (tile) of the block.
  DEVICE_METHOD void store(const LinearArgs &a, int panel, int tile, const float *d) const {
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int c = 0; c < 4; c++) {
      int feature = 16 * (panel0 + panel) + (lane >> 2) + c / 2 * 8, row = 8 * (tile0 + tile) + (lane & 3) * 2 + c % 2;
      if (feature < a.out && row < a.rows) a.y[size_t(row) * a.out + feature] = d[c] + (bias ? bias[feature] : 0.0f);
    }
  }

  // finish stores N pieces, those of all splits added up in their order by the last block of
  // them: place(i) is piece i's panel and tile within the block, sums(i) what the thread has of it.
  template <int N, class Place, class Sums>
  DEVICE_METHOD void finish(const LinearArgs &a, Place place, Sums sums) const {
    float4 *partial = (float4 *)a.partial;
    auto at = [&](int split, int2 p) { return (split * blocks + block) * (Panels * Tiles * 32) + (p.x * Tiles + p.y) * 32 + (threadIdx.x & 31); };
    if (a.splits > 1) {
#pragma unroll
      for (int i = 0; i < N; i++) {
        const float *d = sums(i);
        if (tile0 + place(i).y < tiles) partial[at(blockIdx.z, place(i))] = make_float4(d[0], d[1], d[2], d[3]);
      }
      if (!last_split(a, block)) return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
      int2 p = place(i);
      float *d = sums(i);
      if (tile0 + p.y >= tiles) continue;
      if (a.splits > 1) {
        d[0] = d[1] = d[2] = d[3] = 0.0f;
        for (int k = 0; k < a.splits; k++) {
          float4 u = partial[at(k, p)];
          d[0] += u.x;
          d[1] += u.y;
          d[2] += u.z;
          d[3] += u.w;
        }
      }
      store(a, p.x, p.y, d);
    }
  }
};

// linear_tile is for many rows: a block computes 128 features for 8·Tiles rows, its warps 64 ×
// 2·Tiles each; quants and X come through a ring of stages of one step in shared memory, as many
// as lie in Room bytes: what is under way hides the memory's latency.
constexpr int kTilePanels = 8;

template <class W, class X, int Tiles, int Room>
DEVICE void linear_tile(const LinearArgs &a) {
  DYNAMIC_SHARED(memory);
  constexpr int kW = kTilePanels * W::kQuants, kX = Tiles * X::kBytes, kStage = kW + kX, T = Tiles / 4;
  constexpr int kStages = Room / kStage < 8 ? Room / kStage : 8;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int expert = a.experts ? a.experts[blockIdx.x] : 0;
  if (expert < 0) return;
  int panels = ceil_div(a.out, 16), steps = steps_of(a.in);
  Tile<kTilePanels, Tiles> t(a, expert, steps / W::kUnit, 1);
  int from = t.from * W::kUnit, to = t.to * W::kUnit;
  size_t panel_bytes = size_t(steps / W::kUnit) * W::kUnitBytes;
  const unsigned char *w0 = a.w + expert * a.expert_bytes;
  auto fetch = [&](int step) {
    unsigned char *stage = memory + step % kStages * kStage;
    size_t at = size_t(step / W::kUnit) * W::kUnitBytes + step % W::kUnit * W::kQuants;
    for (int c = threadIdx.x; c < kStage / 16; c += blockDim.x) {
      int off = 16 * c;
      if (off < kW) {
        int panel = t.panel0 + off / W::kQuants;
        copy_async(stage + off, w0 + min(panel, panels - 1) * panel_bytes + at + off % W::kQuants, panel < panels ? 16 : 0);
      } else {
        int tile = t.tile0 + (off - kW) / X::kBytes;
        const unsigned char *x = (const unsigned char *)a.x + (size_t(min(tile, t.tiles - 1)) * steps + step) * X::kBytes;
        copy_async(stage + off, x + (off - kW) % X::kBytes, tile < t.tiles ? 16 : 0);
      }
    }
  };
  int panel1 = warp % 2 * 4, tile1 = warp / 2 * T;  // of this warp, within the block
  Panel<W> p[4];
#pragma unroll
  for (int i = 0; i < 4; i++) p[i] = panel_at<W>(a, min(t.panel0 + panel1 + i, panels - 1), expert);
  float d[4 * T][4] = {};
  for (int s = 0; s < kStages - 1; s++) {
    if (from + s < to) fetch(from + s);
    copy_commit();
  }
  for (int step = from; step < to; step++) {
    copy_wait<kStages - 2>();
    __syncthreads();
    if (step + kStages - 1 < to) fetch(step + kStages - 1);
    copy_commit();
    const unsigned char *stage = memory + step % kStages * kStage;
    typename X::Raw x[T];
    Extra e[T];
#pragma unroll
    for (int n = 0; n < T; n++) {
      x[n] = ((const typename X::Raw *)(stage + kW))[(tile1 + n) * 32 + lane];
      e[n] = extra_at<W, X>(a, min(t.tile0 + tile1 + n, t.tiles - 1), step, steps, x[n]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      Fragments<W, X> w = fragments<W, X>(W::template load<kShared>(stage + (panel1 + i) * W::kQuants, lane));
      Factors f = factors_at<W>(a, p[i], step);
#pragma unroll
      for (int n = 0; n < T; n++) accumulate<W, X>(d[T * i + n], w, x[n], f, e[n]);
    }
  }
  copy_wait<0>();
  t.template finish<4 * T>(a, [&](int i) { return int2{panel1 + i / T, tile1 + i % T}; }, [&](int i) { return d[i]; });
}

// Room for a ring where a multiprocessor of 100 KiB runs two blocks, and where it runs one.
constexpr int kHalfRoom = 48 << 10, kWholeRoom = 96 << 10;

// Two blocks on a multiprocessor are asked for up to sm_90; later ones' code would spill.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 1000
#define LINEAR_BLOCKS(B) B
#else
#define LINEAR_BLOCKS(B) 1
#endif

// The products of a format: P panels in a block of up to 8 rows, B blocks on a multiprocessor (2
// where 128 registers are enough: more loads are under way).
#define LINEAR_OF(name, W, X, P, B)                                                                        \
  KERNEL_OF(linear_##name##_8, LinearArgs, 256, LINEAR_BLOCKS(B)) { linear_rows<W, X, P, 1>(a); }          \
  KERNEL_OF(linear_##name##_16, LinearArgs, 256, LINEAR_BLOCKS(B)) { linear_rows<W, X, 2, 2>(a); }         \
  KERNEL_OF(linear_##name##_64, LinearArgs, 256, LINEAR_BLOCKS(B)) { linear_tile<W, X, 8, kHalfRoom>(a); } \
  KERNEL(linear_##name##_tile, LinearArgs, 256) { linear_tile<W, X, 16, kWholeRoom>(a); }
// A format's products and its rows as embeddings.
#define LINEAR(name, W, P, B)    \
  LINEAR_OF(name, W, Wide, P, B) \
  KERNEL(embed_packed_##name, EmbedPackedArgs, 256) { embed_packed<W>(a); }

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
  for (int step = threadIdx.x >> 5; step < steps_of(in); step += blockDim.x >> 5) {
    typename W::Raw raw = W::template load<kGlobal>(quants_at<W>(p, step), lane);
    Factors f = factors_at<W>(a.table, p, step);
#pragma unroll
    for (int i = 0; i < 4; i++) {  // the registers of this half: t = i/2, columns 8·(i%2) on
      uint32_t v = W::fragment(raw, i / 2, 2 * (i % 2) + upper);
      float s = W::kScales == 0 ? 1.0f : f.scale[upper][W::kScales == 2 ? i / 2 : 0], m = W::kMinimum ? f.minimum[upper][W::kScales == 2 ? i / 2 : 0] : 0.0f;
      float lo = W::kHalf ? from_f16(uint16_t(v)) : from_bf16(uint16_t(v)), hi = W::kHalf ? from_f16(uint16_t(v >> 16)) : from_bf16(uint16_t(v >> 16));
      int at = 32 * step + 16 * (i / 2) + 8 * (i % 2) + 2 * q;
      if (at < in) y[at] = there ? (s * lo + m) * a.scale : 0.0f;
      if (at + 1 < in) y[at + 1] = there ? (s * hi + m) * a.scale : 0.0f;
    }
  }
}

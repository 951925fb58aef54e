// Attention over latent keys (DeepSeek V2 and V3): a key is its value, the latent, followed by a few
// rotated dimensions, and all query heads share one KV head. A tile has one copy of the latents,
// by key, which scores read as keys and sums as values.
#include "attention.cuh"

constexpr int kLatent = 512, kRotated = 64;  // the most dimensions
constexpr int kStep = 32;  // dimensions of two multiplications; those of a key are padded with zeros to whole steps

DEVICE int whole_steps(int dims) { return ceil_div(dims, kStep) * kStep; }

// fetch_whole_latent fetches a tile of keys that are all in pages, with as many dimensions as a block has.
template <class S>
DEVICE void fetch_whole_latent(const AttentionArgs &a, const Source &o, int base, uint16_t *latents) {
  using T = typename Stored<S::Store>::type;
  const Pages &p = a.pages;
  int thread = hidden(threadIdx.x);
  RunPages<S> pages(a, o, base, thread);
  constexpr int wide = kLatent / 8, tall = S::kThreads / wide, runs = S::Keys / 16, each = 16 / tall;
  int d = thread % wide * 8, key0 = thread / wide;
  uint16_t *to = latents + key0 * S::kV + d;
  const T *mine = (const T *)(pages.page + p.v) + size_t(pages.slot) * kLatent, *from[runs];
#pragma unroll
  for (int r = 0; r < runs; r++) from[r] = pages.of_run(mine, r) + key0 * kLatent + d;
  fetch_chunks<S::Store, runs * each, true, true>(nullptr, [&](int i) {
    return Chunk<T>{from[i / each] + i % each * tall * kLatent, to + (i / each * 16 + i % each * tall) * S::kV};
  });
  constexpr int across = S::Keys / 8, rows = S::kThreads / across;
  int chunk = thread % across, dim = thread / across;
  const T *key = pages.of_run((const T *)(pages.page + p.k) + pages.slot, chunk / 2) + size_t(dim) * p.block + 8 * (chunk % 2);
  uint16_t *key_to = latents + S::Keys * S::kV + dim * S::kK + 8 * chunk;
  if (rows <= kRotated || dim < kRotated)
    fetch_chunks<S::Store, (kRotated + rows - 1) / rows, true, true>(
        nullptr, [&](int i) { return Chunk<T>{key + i * size_t(rows) * p.block, key_to + i * rows * S::kK}; });
}

// fetch_latent fetches the keys from position base on: latents by key, and behind them the rotated
// dimensions, of pages by dimension and of the step by key.
template <class S>
DEVICE void fetch_latent(const AttentionArgs &a, const Source &o, int base, bool own, uint16_t *latents) {
  using T = typename Stored<S::Store>::type;
  const Pages &p = a.pages;
  if (!own && in_pages<S>(p, o, base) && p.head_dim == kLatent && p.key_dim == kRotated) return fetch_whole_latent<S>(a, o, base, latents);
  // page_of returns the page of a position; null: the position is not in the history.
  auto page_of = [&](int position) -> const unsigned char * {
    int block = position / p.block;
    if (own || position >= o.history || block < o.skip) return nullptr;
    return page_at(p, p.tables[size_t(o.seq) * p.width + block - o.skip]);
  };
  auto in_step = [&](int position) { return own && position >= o.history && position < o.history + o.count; };
  constexpr int wide = kLatent / 8, tall = S::kThreads / wide, runs = S::Keys / 16, each = 16 / tall;
  int d = int(threadIdx.x) % wide * 8, key0 = threadIdx.x / wide;
  const T *pages[runs];  // rows of 16 positions are always in one page
#pragma unroll
  for (int r = 0; r < runs; r++) {
    const unsigned char *page = page_of(base + 16 * r);
    pages[r] = page != nullptr ? (const T *)(page + p.v) + size_t((base + 16 * r) % p.block) * p.head_dim + d : nullptr;
  }
  bool padded = d < whole_steps(p.head_dim);
  fetch_chunks<S::Store, runs * each, true>(a.q, [&](int i) {
    int inside = key0 + i % each * tall, key = i / each * 16 + inside, position = base + key;
    const T *from = nullptr;
    if (d < p.head_dim) {
      if (in_step(position)) from = (const T *)a.v + size_t(o.first + position - o.history) * p.head_dim + d;
      if (pages[i / each] != nullptr && position < o.history) from = pages[i / each] + size_t(inside) * p.head_dim;
    }
    return Chunk<T>{from, latents + key * S::kV + d, !padded};
  });
  constexpr int chunks = S::Keys * kRotated / 8, many = (chunks + S::kThreads - 1) / S::kThreads, across = S::Keys / 8;
  uint16_t *rotated = latents + S::Keys * S::kV;
  int position = base + int(threadIdx.x) % across * 8;  // the same for all chunks of a thread
  const unsigned char *page = page_of(position);
  const T *by_dimension = page != nullptr ? (const T *)(page + p.k) + position % p.block : nullptr;
  fetch_chunks<S::Store, many, false>(a.q, [&](int i) {
    int c = threadIdx.x + i * S::kThreads, key = c / (kRotated / 8), dim = own ? c % (kRotated / 8) * 8 : c / across;
    const T *from = nullptr;
    if (dim < p.key_dim) {
      if (in_step(base + key)) from = (const T *)a.k + size_t(o.first + base + key - o.history) * p.key_dim + dim;
      if (by_dimension != nullptr) from = by_dimension + size_t(dim) * p.block;
    }
    bool there = c < chunks && dim < whole_steps(p.key_dim);
    return Chunk<T>{there ? from : nullptr, rotated + (own ? key * S::kOwn + dim : dim * S::kK + position - base), !there};
  });
}

// latent_scores computes s = q·k for a warp's 16 rows and its group's keys. Each warp of the group
// computes half of the keys; exchange has the scores of both.
template <class S>
DEVICE void latent_scores(const Pages &p, float (&s)[S::kTiles][4], const uint16_t *queries, const uint16_t *latents, bool own, float4 *exchange) {
  constexpr int mine = S::kTiles / 2;
  int lane = threadIdx.x & 31, half = threadIdx.x >> 5 & 1, m = lane >> 3, r = lane & 7, key0 = S::key0() + 8 * mine * half;
  const uint16_t *row = queries + (S::row0() + (lane & 15)) * S::kQ + (lane >> 4) * 8, *rotated = latents + S::Keys * S::kV;
  float t[mine][2][4] = {};  // the two multiplications of a step have sums of their own
  auto step = [&](int column, auto keys) {
    uint32_t first[4], second[4];
    load_matrix(first, row + column);
    load_matrix(second, row + column + 16);
#pragma unroll
    for (int j = 0; j < mine; j++) {
      uint32_t b[4];
      keys(b, key0 + 8 * j);
      product<S>(t[j][0], first, b[0], b[1]);
      product<S>(t[j][1], second, b[2], b[3]);
    }
  };
#pragma unroll 4
  for (int d = 0; d < p.head_dim; d += kStep) step(d, [&](uint32_t(&b)[4], int key) { load_matrix(b, latents + (key + r) * S::kV + d + 8 * m); });
  for (int d = 0; d < p.key_dim; d += kStep)
    step(kLatent + d, [&](uint32_t(&b)[4], int key) {
      if (own)
        load_matrix(b, rotated + (key + r) * S::kOwn + d + 8 * m);
      else
        load_matrix_transposed(b, rotated + (d + 8 * m + r) * S::kK + key);
    });
  exchange += S::group() * S::kTiles * 32 + lane;
#pragma unroll
  for (int j = 0; j < mine; j++)
    exchange[(half * mine + j) * 32] = make_float4(t[j][0][0] + t[j][1][0], t[j][0][1] + t[j][1][1], t[j][0][2] + t[j][1][2], t[j][0][3] + t[j][1][3]);
  __syncthreads();  // the other warp's scores are there
#pragma unroll
  for (int j = 0; j < S::kTiles; j++) {
    float4 v = exchange[j * 32];
    s[j][0] = v.x, s[j][1] = v.y, s[j][2] = v.z, s[j][3] = v.w;
  }
}

// LatentShape is the shape of a block. The two warps of a group score half of the keys each, and sum
// half of the latent dimensions.
template <int Keys_, int Stages_, int Store_, bool Decode_>
struct LatentShape : Blocks<kLatent / 2, Keys_, Stages_, Store_, Decode_, 2> {
  static constexpr int D = kLatent + kRotated, Keys = Keys_;
  static constexpr int kQ = D + 8, kV = kLatent + 8, kK = Keys + 8, kOwn = kRotated + 8;  // strides in shared memory
  static constexpr int kStage = Keys * kV + (kRotated * kK > Keys * kOwn ? kRotated * kK : Keys * kOwn);
  METHOD int query_width(const Pages &p) { return p.head_dim + p.key_dim; }
  METHOD int query_dim(const Pages &p, int column) {
    if (column >= kLatent) return p.head_dim + column - kLatent;
    return column < p.head_dim ? column : p.head_dim + p.key_dim;
  }
  METHOD const uint16_t *values(const uint16_t *tile) { return tile + (threadIdx.x >> 5 & 1) * (kLatent / 2); }
  METHOD void fetch(const AttentionArgs &a, const Source &o, int base, bool own, uint16_t *tile) { fetch_latent<LatentShape>(a, o, base, own, tile); }
  METHOD void scores(const Pages &p, float (&s)[LatentShape::kTiles][4], const uint16_t *queries, const uint16_t *tile, bool own, float4 *exchange) {
    latent_scores<LatentShape>(p, s, queries, tile, own, exchange);
  }
};

// Blocks of 16 and of 64 rows; tiles of 16 keys fit in 99 KiB (sm_89 and sm_120).
#define ATTENTION_LATENT(name, Store)                                                                                  \
  KERNEL(attention_##name##_latent_few, AttentionArgs, 128) { attention<LatentShape<32, 2, Store, true>>(a); }   \
  KERNEL(attention_##name##_latent_many, AttentionArgs, 256) { attention<LatentShape<32, 2, Store, false>>(a); } \
  KERNEL(attention_##name##_latent_narrow, AttentionArgs, 256) { attention<LatentShape<16, 1, Store, false>>(a); }

ATTENTION_LATENT(bf16, kBF16)
ATTENTION_LATENT(f16, kF16)
ATTENTION_LATENT(e4m3, kE4M3)
ATTENTION_LATENT(e5m2, kE5M2)

// Attention over paged keys and values and those of this step, on the matrix units: blocks of
// query rows, tiles of keys, and an online softmax (Dao et al., FlashAttention-2).
//
// A query row is a token and one of the heads that share a KV head, so that the heads of a
// decoding sequence share the 16 rows of a multiplication. Tiles are at absolute positions;
// tiles from pages come first, then those of this step. A tile with keys of both kinds is
// computed twice, each time with one kind of keys.
#include "pages.cuh"
#include "weights.cuh"

struct AttentionArgs {
  Pages pages;
  const float *q;        // [T, heads·head_dim]
  const void *k, *v;     // [T, kv_heads·head_dim], in the format of the pages
  float *y;              // [T, heads·head_dim]
  const float *sinks;    // [heads] or null
  const int *first;      // [seqs+1]
  const int *positions;  // [T]
  const float *rebuild;  // [head_dim] or null: factor from a value to a key's dimension that pages do not store
  float *partial;        // with splits > 1: [T, heads, splits, head_dim+2]: weighted values, largest score, sum of weights
  const int *items;      // [T] or null: the position after the item that a token belongs to; the token sees up to it
  float scale, softcap;
  int seqs, heads;
  int window;              // positions that a token sees, its own included; 0: all
  int bidirectional;       // 1: tokens see the tokens after them, and there are no pages
  int splits;              // blocks that share the keys of a block of rows
};

constexpr float kLog2e = 1.4426950408889634f;

// The shape of a block. D: head dimension, rounded up. V: output dimensions of a block. Keys:
// keys of a tile. A decode block has 16 rows, and its warps share the keys of a tile. Other
// blocks have 64 rows, 16 for each warp.
template <int D_, int V_, int Keys_, int Stages_, int Store_, bool Decode_>
struct Shape {
  static constexpr int D = D_, V = V_, Keys = Keys_, Stages = Stages_, Store = Store_;
  static constexpr bool Decode = Decode_;
  static constexpr int kWarps = Decode ? Keys / 16 : 4, kThreads = 32 * kWarps, kRows = Decode ? 16 : 64;
  static constexpr int kQ = D + 8, kK = Keys + 8, kOwn = D + 8, kV = V + 8;  // strides in shared memory
  static constexpr int kKeyElements = D * kK > Keys * kOwn ? D * kK : Keys * kOwn, kStage = kKeyElements + Keys * kV;
  static constexpr int kTiles = (Decode ? 16 : Keys) / 8;  // tiles of 8 keys for each warp
  static constexpr int kShared = 2 * (kRows * kQ + Stages * kStage);
};

// sequence_of finds the sequence of a block, and which of its blocks of rows this is; false:
// there is none. Every warp does the search.
DEVICE bool sequence_of(const AttentionArgs &a, int rows, int group, int *seq, int *block) {
  return part_of(a.seqs, blockIdx.x, seq, block, [&](int s) { return ceil_div((a.first[s + 1] - a.first[s]) * group, rows); });
}

// Source locates the keys of a tile.
struct Source {
  int history;  // positions before it are in pages
  int skip;     // the block that the page table begins with
  int seq, first, count, kv;
};

// nonfinite reports whether one of four 8-bit floats is a NaN or infinite.
template <int Store>
DEVICE uint32_t nonfinite(uint32_t word) {
  return ((word & 0x7f7f7f7fu) + (Store == kE4M3 ? 0x01010101u : 0x04040404u)) & 0x80808080u;
}

// widen8 converts eight 8-bit floats to bf16.
template <int Store>
DEVICE void widen8(uint16_t *to, uint2 v) {
  if (nonfinite<Store>(v.x) | nonfinite<Store>(v.y)) {  // the bit trick below does not hold for NaNs and infinities
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
      uint32_t two = (i < 2 ? v.x : v.y) >> 16 * (i % 2);
      ((uint32_t *)to)[i] = to_bf16x2(Stored<Store>::read(uint8_t(two)), Stored<Store>::read(uint8_t(two >> 8)));
    }
    return;
  }
  constexpr int shift = Store == kE4M3 ? 4 : 3;
  constexpr uint32_t power = Store == kE4M3 ? 0x7b807b80u : 0x77807780u;
  *(uint4 *)to = make_uint4(eight_bits(v.x, 0, shift, power), eight_bits(v.x, 1, shift, power), eight_bits(v.y, 0, shift, power),
                            eight_bits(v.y, 1, shift, power));
}

// Chunk is a copy of 8 numbers to shared memory; from null: zeros; to null: no copy.
template <class T>
struct Chunk {
  const T *from;
  uint16_t *to;
};

// fetch_chunks copies N chunks of a thread in the format of the matrix units; of(i) returns the
// i-th. 16-bit numbers are copied asynchronously. Of 8-bit numbers several are loaded before
// the first is widened. any is a valid address, from which nothing is read. whole unrolls all
// N; otherwise long loops are unrolled in part, to save registers.
template <int Store, int N, bool whole, class Of>
DEVICE void fetch_chunks(const void *any, Of of) {
  [[maybe_unused]] constexpr int kUnrolled = whole || N <= 8 ? N : 4;
  if constexpr (Store == kBF16 || Store == kF16) {
#pragma unroll kUnrolled
    for (int i = 0; i < N; i++) {
      auto c = of(i);
      if (c.to != nullptr) copy_async(c.to, c.from != nullptr ? (const void *)c.from : any, c.from != nullptr ? 16 : 0);
    }
  } else {
    constexpr int kAtOnce = N < 8 ? N : 8;
#pragma unroll (kUnrolled < kAtOnce ? 1 : kUnrolled / kAtOnce)
    for (int i0 = 0; i0 < N; i0 += kAtOnce) {
      uint2 v[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; i++) {
        auto c = of(i0 + i);
        v[i] = c.from != nullptr ? __ldg((const uint2 *)c.from) : make_uint2(0, 0);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; i++) {
        auto c = of(i0 + i);
        if (c.to != nullptr) widen8<Store>(c.to, v[i]);
      }
    }
  }
}

// stored_key returns the index of dimension d among a key's stored dimensions; −1: it is not
// stored.
DEVICE int stored_key(const Pages &p, int d) {
  if (p.key_dim == p.head_dim) return d;
  int half = p.head_dim / 2, kept = p.key_dim / 2, upper = d >= half, i = d - upper * half;
  return i < kept ? upper * kept + i : -1;
}

// rebuild8 computes 8 key elements from values; get returns a value times its factor.
template <int Store, class Get>
DEVICE void rebuild8(uint16_t *to, Get get) {
  uint32_t w[4];
#pragma unroll
  for (int i = 0; i < 4; i++) w[i] = Store == kF16 ? to_f16x2(get(2 * i), get(2 * i + 1)) : to_bf16x2(get(2 * i), get(2 * i + 1));
  *(uint4 *)to = make_uint4(w[0], w[1], w[2], w[3]);
}

// fetch_paged fetches the keys from position base on, by dimension, and their values. A thread
// looks up one page for all its dimensions of keys, and one page for each 16 positions of
// values, which are always in one page.
template <class S>
DEVICE void fetch_paged(const AttentionArgs &a, const Source &o, int base, uint16_t *keys, uint16_t *values) {
  using T = typename Stored<S::Store>::type;
  const Pages &p = a.pages;
  // at returns the address at `offset` in the page of a position; null: the position is
  // not in the history.
  auto at = [&](int position, long long offset) -> const T * {
    int block = position / p.block;
    if (position >= o.history || block < o.skip) return nullptr;
    return (const T *)(page_at(p, p.tables[size_t(o.seq) * p.width + block - o.skip]) + offset);
  };
  constexpr int across = S::Keys / 8, rows = S::kThreads / across;
  int position = base + int(threadIdx.x) % across * 8, d0 = threadIdx.x / across;
  const T *page = at(position, p.k);
  if (page != nullptr) page += size_t(o.kv) * p.key_dim * p.block + position % p.block;
  fetch_chunks<S::Store, S::D / rows, false>(a.q, [&](int i) {
    int d = d0 + i * rows, row = d < p.head_dim ? stored_key(p, d) : 0;
    bool there = d < p.head_dim && page != nullptr;
    return Chunk<T>{there ? page + size_t(row) * p.block : nullptr, there && row < 0 ? nullptr : keys + d * S::kK + position - base};
  });
  if (a.rebuild != nullptr && page != nullptr) {
    const T *v = at(position, p.v) + (size_t(o.kv) * p.block + position % p.block) * p.head_dim;
    for (int d = d0; d < p.head_dim; d += rows)
      if (stored_key(p, d) < 0)
        rebuild8<S::Store>(keys + d * S::kK + position - base,
                           [&](int i) { return position + i < o.history ? Stored<S::Store>::read(v[i * p.head_dim + d]) * a.rebuild[d] : 0.0f; });
  }
  constexpr int wide = S::V / 8, tall = S::kThreads / wide, runs = S::Keys / 16, each = 16 / tall;
  int d = int(threadIdx.x) % wide * 8, part = blockIdx.y / p.kv_heads * S::V + d, key0 = threadIdx.x / wide;
  const T *pages[runs];
#pragma unroll
  for (int r = 0; r < runs; r++) {
    pages[r] = part < p.head_dim ? at(base + 16 * r, p.v) : nullptr;
    if (pages[r] != nullptr) pages[r] += (size_t(o.kv) * p.block + (base + 16 * r) % p.block) * p.head_dim + part;
  }
  fetch_chunks<S::Store, runs * each, true>(a.q, [&](int i) {
    int inside = key0 + i % each * tall, key = i / each * 16 + inside;
    bool there = pages[i / each] != nullptr && base + key < o.history;
    return Chunk<T>{there ? pages[i / each] + size_t(inside) * p.head_dim : nullptr, values + key * S::kV + d};
  });
}

// fetch_own fetches the keys and values of this step's tokens, both by key.
template <class S>
DEVICE void fetch_own(const AttentionArgs &a, const Source &o, int base, uint16_t *keys, uint16_t *values) {
  using T = typename Stored<S::Store>::type;
  const Pages &p = a.pages;
  auto row = [&](const void *x, int key) -> const T * {
    int token = base + key - o.history;
    return token < 0 || token >= o.count ? nullptr : (const T *)x + (size_t(o.first + token) * p.kv_heads + o.kv) * p.head_dim;
  };
  constexpr int across = S::D / 8, wide = S::V / 8;
  fetch_chunks<S::Store, S::Keys * across / S::kThreads, false>(a.q, [&](int i) {
    int c = threadIdx.x + i * S::kThreads, key = c / across, d = c % across * 8;
    const T *from = d < p.head_dim ? row(a.k, key) : nullptr;
    bool made = from != nullptr && stored_key(p, d) < 0;  // all 8 or none: the stored part of each half is a multiple of 8
    return Chunk<T>{from == nullptr ? from : from + d, made ? nullptr : keys + key * S::kOwn + d};
  });
  if (a.rebuild != nullptr)
    for (int c = threadIdx.x; c < S::Keys * across; c += S::kThreads) {
      int key = c / across, d = c % across * 8;
      const T *v = d < p.head_dim ? row(a.v, key) : nullptr;
      if (v == nullptr || stored_key(p, d) >= 0) continue;
      rebuild8<S::Store>(keys + key * S::kOwn + d, [&](int i) { return Stored<S::Store>::read(v[d + i]) * a.rebuild[d + i]; });
    }
  int part = blockIdx.y / p.kv_heads * S::V;
  fetch_chunks<S::Store, S::Keys * wide / S::kThreads, false>(a.q, [&](int i) {
    int c = threadIdx.x + i * S::kThreads, key = c / wide, d = c % wide * 8;
    const T *from = part + d < p.head_dim ? row(a.v, key) : nullptr;
    return Chunk<T>{from == nullptr ? from : from + part + d, values + key * S::kV + d};
  });
}

template <class S>
DEVICE void product(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if (S::Store == kF16)
    multiply_f16(d, a, b0, b1);
  else
    multiply_bf16(d, a, b0, b1);
}

template <class S>
DEVICE uint32_t pair(float lo, float hi) {
  return S::Store == kF16 ? to_f16x2(lo, hi) : to_bf16x2(lo, hi);
}

// Rows is a lane's two query rows, g and g+8: the keys that they see, and their softmax so far.
struct Rows {
  int from[2], until[2];  // positions that they see: [from, until); until is 0 if there are none
  float most[2], sum[2];
};

// seen_from returns the first position that the token at a position sees. seen_until returns
// the position after the last one: that of the token, of the sequence, or of the token's item.
DEVICE int seen_from(const AttentionArgs &a, int at) {
  if (a.pages.chunked) return at / a.window * a.window;
  return a.window > 0 ? max(0, at - a.window + 1) : 0;
}
DEVICE int seen_until(const AttentionArgs &a, const Source &o, int token) {
  int at = o.history + token, end = o.history + o.count;
  if (a.bidirectional) return end;
  if (a.items == nullptr) return at + 1;
  int until = min(max(at + 1, __ldg(a.items + o.first + token)), end);
  return a.window > 0 ? min(until, at + a.window) : until;
}

// split_range reduces the positions that a block's rows see to those of its split. Each split
// gets an equal number of runs of kSplitKeys, which no tile straddles; the last split may be
// empty.
constexpr int kSplitKeys = 64;
DEVICE void split_range(const AttentionArgs &a, int *from, int *to) {
  if (a.splits == 1) return;
  int first = *from / kSplitKeys, runs = ceil_div(ceil_div(*to, kSplitKeys) - first, a.splits);
  *from = max(*from, (first + int(blockIdx.z) * runs) * kSplitKeys);
  *to = min(*to, (first + int(blockIdx.z + 1) * runs) * kSplitKeys);
}

// scores computes s = q·k for a warp's 16 rows and its keys.
template <class S>
DEVICE void scores(float (&s)[S::kTiles][4], const uint16_t *q, const uint16_t *keys, bool own) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, m = lane >> 3, r = lane & 7;
  int row0 = S::Decode ? 0 : 16 * warp, key0 = S::Decode ? 16 * warp : 0;
#pragma unroll 4
  for (int d = 0; d < S::D; d += 16) {
    uint32_t qa[4];
    load_matrix(qa, q + (row0 + (lane & 15)) * S::kQ + d + (lane >> 4) * 8);
#pragma unroll
    for (int j = 0; j < S::kTiles; j += 2) {
      uint32_t b[4];
      int key = key0 + 8 * j + (m >> 1) * 8, dim = d + (m & 1) * 8;
      if (own)
        load_matrix(b, keys + (key + r) * S::kOwn + dim);
      else
        load_matrix_transposed(b, keys + (dim + r) * S::kK + key);
      product<S>(s[j], qa, b[0], b[1]);
      product<S>(s[j + 1], qa, b[2], b[3]);
    }
  }
}

// softmax_tile turns the scores at positions from base on into weights, updates the running
// softmax and rescales the earlier sums.
template <class S>
DEVICE void softmax_tile(const AttentionArgs &a, const Source &o, Rows &rows, float (&s)[S::kTiles][4], float (&out)[S::V / 8][4], int base, bool own) {
  int lane = threadIdx.x & 31, q = lane & 3;
  int key0 = base + (S::Decode ? 16 * int(threadIdx.x >> 5) : 0);
  float most[2] = {-INFINITY_F, -INFINITY_F};
#pragma unroll
  for (int j = 0; j < S::kTiles; j++)
#pragma unroll
    for (int c = 0; c < 4; c++) {
      int p = key0 + 8 * j + 2 * q + c % 2;
      bool seen = p >= rows.from[c / 2] && p < rows.until[c / 2] && own == (p >= o.history);
      float v = s[j][c] * a.scale;
      if (a.softcap > 0.0f) v = a.softcap * tanhf(v / a.softcap);
      s[j][c] = seen ? v * kLog2e : -INFINITY_F;
      most[c / 2] = fmaxf(most[c / 2], s[j][c]);
    }
  float keep[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    most[i] = fmaxf(most[i], __shfl_xor_sync(kAllLanes, most[i], 1));
    most[i] = fmaxf(most[i], __shfl_xor_sync(kAllLanes, most[i], 2));
    most[i] = fmaxf(most[i], rows.most[i]);
    keep[i] = most[i] == -INFINITY_F ? 1.0f : exp2f(rows.most[i] - most[i]);
    rows.most[i] = most[i];
    rows.sum[i] *= keep[i];
  }
#pragma unroll
  for (int j = 0; j < S::kTiles; j++)
#pragma unroll
    for (int c = 0; c < 4; c++) {
      s[j][c] = s[j][c] == -INFINITY_F ? 0.0f : exp2f(s[j][c] - most[c / 2]);
      rows.sum[c / 2] += s[j][c];  // for this lane's columns; lanes are added at the end
    }
#pragma unroll
  for (int d = 0; d < S::V / 8; d++)
#pragma unroll
    for (int c = 0; c < 4; c++) out[d][c] *= keep[c / 2];
}

// sum_values adds weights · v to out.
template <class S>
DEVICE void sum_values(float (&out)[S::V / 8][4], const float (&s)[S::kTiles][4], const uint16_t *values) {
  int lane = threadIdx.x & 31, m = lane >> 3, r = lane & 7;
  int key0 = S::Decode ? 16 * int(threadIdx.x >> 5) : 0;
#pragma unroll
  for (int j = 0; j < S::kTiles; j += 2) {
    uint32_t w[4] = {pair<S>(s[j][0], s[j][1]), pair<S>(s[j][2], s[j][3]), pair<S>(s[j + 1][0], s[j + 1][1]), pair<S>(s[j + 1][2], s[j + 1][3])};
#pragma unroll
    for (int d = 0; d < S::V / 8; d += 2) {
      uint32_t b[4];
      load_matrix_transposed(b, values + (key0 + 8 * j + (m & 1) * 8 + r) * S::kV + 8 * d + (m >> 1) * 8);
      product<S>(out[d], w, b[0], b[1]);
      product<S>(out[d + 1], w, b[2], b[3]);
    }
  }
}

// join_warps combines the results of the warps of a decode block; warp 0 has the result.
// scratch holds 16·(V+2) floats for each warp.
template <class S>
DEVICE void join_warps(Rows &rows, float (&out)[S::V / 8][4], float *scratch) {
  constexpr int kWarpFloats = 16 * (S::V + 2);
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, q = lane & 3;
  __syncthreads();  // all warps are done with the keys in scratch
  if (warp > 0) {
    float *mine = scratch + warp * kWarpFloats;
#pragma unroll
    for (int c = 0; c < 4; c++) {
      float *row = mine + (g + c / 2 * 8) * (S::V + 2);
#pragma unroll
      for (int d = 0; d < S::V / 8; d++) row[8 * d + 2 * q + c % 2] = out[d][c];
      if (q == 0 && c % 2 == 0) {
        row[S::V] = rows.most[c / 2];
        row[S::V + 1] = rows.sum[c / 2];
      }
    }
  }
  __syncthreads();
  if (warp > 0) return;
  for (int w = 1; w < S::kWarps; w++)
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const float *row = scratch + w * kWarpFloats + (g + 8 * i) * (S::V + 2);
      float most = fmaxf(rows.most[i], row[S::V]);
      float mine = rows.most[i] == -INFINITY_F ? 0.0f : exp2f(rows.most[i] - most);
      float theirs = row[S::V] == -INFINITY_F ? 0.0f : exp2f(row[S::V] - most);
      rows.most[i] = most;
      rows.sum[i] = rows.sum[i] * mine + row[S::V + 1] * theirs;
#pragma unroll
      for (int d = 0; d < S::V / 8; d++)
#pragma unroll
        for (int c = 0; c < 2; c++) out[d][2 * i + c] = out[d][2 * i + c] * mine + row[8 * d + 2 * q + c] * theirs;
    }
}

// with_sink adds a head's sink to the sum of a softmax whose largest score is *most, and
// updates *most; scores are in powers of two.
DEVICE float with_sink(const float *sinks, int head, float *most, float sum) {
  if (sinks == nullptr) return sum;
  float sink = sinks[head] * kLog2e, m = fmaxf(*most, sink);
  sum = (*most == -INFINITY_F ? 0.0f : sum * exp2f(*most - m)) + exp2f(sink - m);
  *most = m;
  return sum;
}

// attention: grid.x is blocks of rows, at most Σ over sequences of their rows / kRows, rounded
// up; grid.y is the KV heads, once for each part of V dimensions; grid.z is the splits.
template <class S>
DEVICE void attention(const AttentionArgs &a) {
  DYNAMIC_SHARED(memory);
  const Pages &p = a.pages;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, q = lane & 3;
  int group = a.heads / p.kv_heads, part = blockIdx.y / p.kv_heads * S::V, block;
  Source o;
  o.kv = blockIdx.y % p.kv_heads;
  if (!sequence_of(a, S::kRows, group, &o.seq, &block)) return;
  o.first = a.first[o.seq];
  o.count = a.first[o.seq + 1] - o.first;
  o.history = a.bidirectional ? 0 : a.positions[o.first];
  o.skip = first_block(p, o.history);
  int row0 = block * S::kRows, row1 = min(row0 + S::kRows, o.count * group);  // of the sequence
  uint16_t *queries = (uint16_t *)memory, *ring = queries + S::kRows * S::kQ;
  for (int i = threadIdx.x; i < S::kRows * (S::D / 2); i += S::kThreads) {
    int r = i / (S::D / 2), d = i % (S::D / 2) * 2, row = row0 + r;
    float2 v = make_float2(0, 0);
    if (row < row1 && d < p.head_dim) v = __ldg((const float2 *)(a.q + (size_t(o.first + row / group) * a.heads + o.kv * group + row % group) * p.head_dim + d));
    *(uint32_t *)(queries + r * S::kQ + d) = pair<S>(v.x, v.y);
  }
  Rows rows;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    int row = row0 + (S::Decode ? 0 : 16 * warp) + g + 8 * i;
    rows.from[i] = seen_from(a, o.history + row / group);
    rows.until[i] = row < row1 ? seen_until(a, o, row / group) : 0;
    rows.most[i] = -INFINITY_F;
    rows.sum[i] = 0.0f;
  }
  // Positions that any row of the block sees, limited to the split.
  int from = seen_from(a, o.history + row0 / group), to = 0;
  for (int t = row0 / group + lane; t <= (row1 - 1) / group; t += 32) to = max(to, seen_until(a, o, t));
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) to = max(to, __shfl_xor_sync(kAllLanes, to, d));
  split_range(a, &from, &to);
  int paged0 = from / S::Keys, paged = max(0, ceil_div(min(to, o.history), S::Keys) - paged0);
  int own0 = max(from, o.history) / S::Keys, tiles = paged + max(0, to > o.history ? ceil_div(to, S::Keys) - own0 : 0);
  auto base_of = [&](int t) { return (t < paged ? paged0 + t : own0 + t - paged) * S::Keys; };
  auto fetch = [&](int t) {
    uint16_t *keys = ring + t % S::Stages * S::kStage, *values = keys + S::kKeyElements;
    if (t < paged)
      fetch_paged<S>(a, o, base_of(t), keys, values);
    else
      fetch_own<S>(a, o, base_of(t), keys, values);
  };
  float out[S::V / 8][4] = {};
  constexpr int kAhead = S::Stages - 1;  // tiles that are loading while one is computed
  for (int t = -kAhead; t < tiles; t++) {
    if (S::Stages == 1) __syncthreads();
    if (t + kAhead < tiles) fetch(t + kAhead);
    copy_commit();
    if (t < 0) continue;
    copy_wait<kAhead>();
    __syncthreads();
    const uint16_t *keys = ring + t % S::Stages * S::kStage;
    float s[S::kTiles][4] = {};
    scores<S>(s, queries, keys, t >= paged);
    softmax_tile<S>(a, o, rows, s, out, base_of(t), t >= paged);
    sum_values<S>(out, s, keys + S::kKeyElements);
    if (S::Stages > 1) __syncthreads();
  }
  copy_wait<0>();
#pragma unroll
  for (int i = 0; i < 2; i++) {
    rows.sum[i] += __shfl_xor_sync(kAllLanes, rows.sum[i], 1);
    rows.sum[i] += __shfl_xor_sync(kAllLanes, rows.sum[i], 2);
  }
  if (S::Decode) {
    join_warps<S>(rows, out, (float *)ring);
    if (warp > 0) return;
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    int row = row0 + (S::Decode ? 0 : 16 * warp) + g + 8 * i;
    if (row >= row1) continue;
    int head = o.kv * group + row % group;
    size_t at = size_t(o.first + row / group) * a.heads + head;
    float *y = a.y + at * p.head_dim, inverse = 1.0f;
    if (a.splits > 1) {
      y = a.partial + (at * a.splits + blockIdx.z) * (p.head_dim + 2);
      if (part == 0 && q == 0) {
        y[p.head_dim] = rows.most[i];
        y[p.head_dim + 1] = rows.sum[i];
      }
    } else {
      float most = rows.most[i], sum = with_sink(a.sinks, head, &most, rows.sum[i]);
      inverse = rows.most[i] == -INFINITY_F ? 0.0f : exp2f(rows.most[i] - most) / sum;
    }
#pragma unroll
    for (int d = 0; d < S::V / 8; d++)
#pragma unroll
      for (int c = 0; c < 2; c++) {
        int dim = part + 8 * d + 2 * q + c;
        if (dim < p.head_dim) y[dim] = out[d][2 * i + c] * inverse;
      }
  }
}

// attention_join computes y from the results of the splits: grid.x is the tokens, grid.y the
// heads.
KERNEL(attention_join, AttentionArgs, 256) {
  int head = blockIdx.y, d = a.pages.head_dim;
  size_t at = size_t(blockIdx.x) * a.heads + head;
  const float *parts = a.partial + at * a.splits * (d + 2);
  float most = -INFINITY_F;
  for (int s = 0; s < a.splits; s++) most = fmaxf(most, parts[s * (d + 2) + d]);
  float sum = 0.0f, before = most;
  for (int s = 0; s < a.splits; s++) {
    float m = parts[s * (d + 2) + d];
    if (m != -INFINITY_F) sum += parts[s * (d + 2) + d + 1] * exp2f(m - most);
  }
  sum = with_sink(a.sinks, head, &most, sum);
  for (int i = threadIdx.x; i < d; i += blockDim.x) {
    float v = 0.0f;
    for (int s = 0; s < a.splits; s++) {
      float m = parts[s * (d + 2) + d];
      if (m != -INFINITY_F) v += parts[s * (d + 2) + i] * exp2f(m - most);
    }
    a.y[at * d + i] = before == -INFINITY_F ? 0.0f : v / sum;
  }
}

#define ATTENTION(name, Store, D, V, Keys, Stages)                                                                        \
  KERNEL(attention_##name##_##D##_few, AttentionArgs, 2 * Keys) { attention<Shape<D, V, Keys, Stages, Store, true>>(a); } \
  KERNEL(attention_##name##_##D##_many, AttentionArgs, 128) { attention<Shape<D, V, Keys, Stages, Store, false>>(a); }
// Tiles of 16 keys fit in 99 KiB, the limit of a block on sm_89 and sm_120.
#define ATTENTION_NARROW(name, Store, D, V, Stages) \
  KERNEL(attention_##name##_##D##_narrow, AttentionArgs, 128) { attention<Shape<D, V, 16, Stages, Store, false>>(a); }
#define ATTENTIONS(name, Store)           \
  ATTENTION(name, Store, 64, 64, 64, 2)   \
  ATTENTION(name, Store, 128, 128, 64, 2) \
  ATTENTION(name, Store, 256, 256, 32, 2) \
  ATTENTION(name, Store, 512, 256, 32, 1) \
  ATTENTION_NARROW(name, Store, 256, 256, 2) \
  ATTENTION_NARROW(name, Store, 512, 256, 1)

ATTENTIONS(bf16, kBF16)
ATTENTIONS(f16, kF16)
ATTENTIONS(e4m3, kE4M3)
ATTENTIONS(e5m2, kE5M2)

// attention_f32 is attention for float32 keys and values, computed in float32: a warp for each
// of a block's 8 query rows, tiles of 16 keys, heads of up to 512 dimensions. The grid is as
// above, with one part.
constexpr int kWideRows = 8, kWideKeys = 16, kWideDims = 512;

KERNEL(attention_f32, AttentionArgs, 32 * kWideRows) {
  DYNAMIC_SHARED(memory);
  const Pages &p = a.pages;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, d = p.head_dim, stride = d | 1;  // an odd stride puts keys in different banks
  float *queries = (float *)memory, *keys = queries + kWideRows * d, *values = keys + kWideKeys * stride;
  int group = a.heads / p.kv_heads, block;
  Source o;
  o.kv = blockIdx.y;
  if (!sequence_of(a, kWideRows, group, &o.seq, &block)) return;
  o.first = a.first[o.seq];
  o.count = a.first[o.seq + 1] - o.first;
  o.history = a.bidirectional ? 0 : a.positions[o.first];
  o.skip = first_block(p, o.history);
  int row0 = block * kWideRows, row1 = min(row0 + kWideRows, o.count * group), row = row0 + warp;
  int head = o.kv * group + row % group;
  size_t at = size_t(o.first + row / group) * a.heads + head;
  for (int i = lane; i < d; i += 32) queries[warp * d + i] = row < row1 ? a.q[at * d + i] : 0.0f;
  int mine_from = seen_from(a, o.history + row / group), mine_until = row < row1 ? seen_until(a, o, row / group) : 0;
  int from = seen_from(a, o.history + row0 / group), to = 0;
  for (int t = row0 / group; t <= (row1 - 1) / group; t++) to = max(to, seen_until(a, o, t));
  split_range(a, &from, &to);
  float out[kWideDims / 32] = {}, most = -INFINITY_F, sum = 0.0f;
  for (int base = from / kWideKeys * kWideKeys; base < to; base += kWideKeys) {
    __syncthreads();  // all warps are done with the previous tile
    for (int i = threadIdx.x; i < kWideKeys * d; i += blockDim.x) {
      int key = i / d, j = i % d, position = base + key, token = position - o.history;
      float k = 0.0f, v = 0.0f;
      if (token >= 0 && token < o.count) {
        size_t own = (size_t(o.first + token) * p.kv_heads + o.kv) * d + j;
        v = ((const float *)a.v)[own];
        k = stored_key(p, j) < 0 ? v * a.rebuild[j] : ((const float *)a.k)[own];
      } else if (token < 0 && position / p.block >= o.skip) {
        const unsigned char *page = page_at(p, p.tables[size_t(o.seq) * p.width + position / p.block - o.skip]);
        int slot = position % p.block, stored = stored_key(p, j);
        v = ((const float *)(page + p.v))[(size_t(o.kv) * p.block + slot) * d + j];
        k = stored < 0 ? v * a.rebuild[j] : ((const float *)(page + p.k))[(size_t(o.kv) * p.key_dim + stored) * p.block + slot];
      }
      keys[key * stride + j] = k;
      values[key * stride + j] = v;
    }
    __syncthreads();
    int key = lane % kWideKeys, position = base + key;
    float s = 0.0f;  // two lanes share a key: each takes every other dimension
    for (int j = lane / kWideKeys; j < d; j += 2) s = fmaf(queries[warp * d + j], keys[key * stride + j], s);
    s = (s + __shfl_xor_sync(kAllLanes, s, kWideKeys)) * a.scale;
    if (a.softcap > 0.0f) s = a.softcap * tanhf(s / a.softcap);
    bool seen = position >= mine_from && position < mine_until && position >= from && position < to;
    s = seen ? s * kLog2e : -INFINITY_F;
    float high = fmaxf(most, warp_max(s)), keep = high == -INFINITY_F ? 1.0f : exp2f(most - high);
    most = high;
    float weight = s == -INFINITY_F ? 0.0f : exp2f(s - high);
    sum = sum * keep + warp_sum(lane < kWideKeys ? weight : 0.0f);
#pragma unroll
    for (int i = 0; i < kWideDims / 32; i++) out[i] *= keep;
    for (int k = 0; k < kWideKeys; k++) {
      float w = __shfl_sync(kAllLanes, weight, k);
      if (w == 0.0f) continue;  // the same for all lanes
#pragma unroll
      for (int i = 0; i < kWideDims / 32; i++)
        if (32 * i + lane < d) out[i] = fmaf(w, values[k * stride + 32 * i + lane], out[i]);
    }
  }
  if (row >= row1) return;
  float *y = a.y + at * d, inverse = 1.0f;
  if (a.splits > 1) {
    y = a.partial + (at * a.splits + blockIdx.z) * (d + 2);
    if (lane == 0) {
      y[d] = most;
      y[d + 1] = sum;
    }
  } else {
    float high = most, total = with_sink(a.sinks, head, &high, sum);
    inverse = most == -INFINITY_F ? 0.0f : exp2f(most - high) / total;
  }
#pragma unroll
  for (int i = 0; i < kWideDims / 32; i++)
    if (32 * i + lane < d) y[32 * i + lane] = out[i] * inverse;
}

// For rows that are sequences (engine/backend: DraftPosition): the row and position of each, in
// the form that attention takes.
struct AheadArgs {
  const int *accepted_row;  // [seqs] accepted token rows, −1: none
  const int *positions;  // [_] of token rows
  const int *tables;     // [seqs, width]
  int *first, *at;       // [seqs+1], [seqs]: a row for each sequence, and its position
  int seqs, width, block, by;
};

// ahead: a warp for each sequence. A position after the table's first missing page becomes
// the start of that page. A sequence without a row is at position 0, where it sees itself.
KERNEL(ahead, AheadArgs, 256) {
  int s = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5), lane = threadIdx.x & 31;
  if (s >= a.seqs) return;
  int token = a.accepted_row[s], position = token < 0 ? 0 : a.positions[token] + a.by, blocks = ceil_div(position, a.block), missing = blocks;
  for (int b = lane; b < blocks; b += 32)
    if (b >= a.width || a.tables[size_t(s) * a.width + b] < 0) {
      missing = b;
      break;
    }
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) missing = min(missing, __shfl_xor_sync(kAllLanes, missing, o));
  if (lane > 0) return;
  a.at[s] = missing < blocks ? missing * a.block : position;
  a.first[s] = s;
  if (s + 1 == a.seqs) a.first[a.seqs] = a.seqs;
}

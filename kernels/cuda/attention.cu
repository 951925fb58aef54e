// Attention over paged keys and values and those of this step. Keys of pages are by dimension, as
// they are stored; those of the step are by token.
#include "attention.cuh"
#include "glu.cuh"
#include "store.cuh"

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
  for (int i = 0; i < 4; i++) w[i] = Store != kBF16 ? to_f16x2(get(2 * i), get(2 * i + 1)) : to_bf16x2(get(2 * i), get(2 * i + 1));
  *(uint4 *)to = make_uint4(w[0], w[1], w[2], w[3]);
}

// fetch_whole fetches a tile of keys that are all in pages, with every dimension as stored.
template <class S>
DEVICE void fetch_whole(const AttentionArgs &a, const Source &o, int base, uint16_t *keys, uint16_t *values) {
  using T = typename Stored<S::Store>::type;
  const Pages &p = a.pages;
  int thread = hidden(threadIdx.x);
  RunPages<S> pages(a, o, base, thread);
  constexpr int across = S::Keys / 8, rows = S::kThreads / across;
  int chunk = thread % across, d0 = thread / across;
  uint16_t *key_to = keys + d0 * S::kK + 8 * chunk;  // targets are at constants behind one address
  const T *key = pages.of_run((const T *)(pages.page + p.k) + size_t(o.kv) * S::D * p.block + pages.slot, chunk / 2) + size_t(d0) * p.block + 8 * (chunk % 2);
  size_t next = size_t(rows) * p.block;
  fetch_chunks<S::Store, S::D / rows, S::D <= 256, true>(nullptr, [&](int i) { return Chunk<T>{key + i * next, key_to + i * rows * S::kK}; });
  constexpr int wide = S::V / 8, tall = S::kThreads / wide, runs = S::Keys / 16, each = 16 / tall;
  int d = thread % wide * 8, key0 = thread / wide;
  uint16_t *value_to = values + key0 * S::kV + d;
  const T *mine = (const T *)(pages.page + p.v) + (size_t(o.kv) * p.block + pages.slot) * S::D, *from[runs];
#pragma unroll
  for (int r = 0; r < runs; r++) from[r] = pages.of_run(mine, r) + key0 * S::D + (S::V < S::D ? blockIdx.y / p.kv_heads * S::V : 0) + d;
  fetch_chunks<S::Store, runs * each, true, true>(nullptr, [&](int i) {
    return Chunk<T>{from[i / each] + i % each * tall * S::D, value_to + (i / each * 16 + i % each * tall) * S::kV};
  });
}

// fetch_paged fetches the keys from position base on, by dimension, and their values. A thread
// looks up one page for all its dimensions of keys, and one page for each 16 positions of
// values, which are always in one page.
template <class S>
DEVICE void fetch_paged(const AttentionArgs &a, const Source &o, int base, uint16_t *keys, uint16_t *values) {
  using T = typename Stored<S::Store>::type;
  const Pages &p = a.pages;
  if (in_pages<S>(p, o, base) && p.head_dim == S::D && p.key_dim == S::D) return fetch_whole<S>(a, o, base, keys, values);
  // at returns the address at `offset` in the page of a position; null: the position is
  // not in the history.
  auto at = [&](int position, long long offset) -> const T * {
    int block = position / p.block;
    if (position >= o.history || block < o.skip) return nullptr;
    return (const T *)(page_at(p, p.tables[size_t(o.seq) * p.width + block - o.skip]) + offset);
  };
  constexpr int across = S::Keys / 8, rows = S::kThreads / across;
  int position = base + int(threadIdx.x) % across * 8, d0 = threadIdx.x / across;
  uint16_t *key_to = keys + d0 * S::kK + position - base;  // targets are at constants behind one address
  const T *page = at(position, p.k);
  if (page != nullptr) page += size_t(o.kv) * p.key_dim * p.block + position % p.block;
  fetch_chunks<S::Store, S::D / rows, false>(a.q, [&](int i) {
    int d = d0 + i * rows, row = d < p.head_dim ? stored_key(p, d) : 0;
    bool there = d < p.head_dim && page != nullptr;
    return Chunk<T>{there ? page + size_t(row) * p.block : nullptr, key_to + i * rows * S::kK, there && row < 0};
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
  uint16_t *value_to = values + key0 * S::kV + d;
  const T *pages[runs];
#pragma unroll
  for (int r = 0; r < runs; r++) {
    pages[r] = part < p.head_dim ? at(base + 16 * r, p.v) : nullptr;
    if (pages[r] != nullptr) pages[r] += (size_t(o.kv) * p.block + (base + 16 * r) % p.block) * p.head_dim + part;
  }
  fetch_chunks<S::Store, runs * each, true>(a.q, [&](int i) {
    int inside = key0 + i % each * tall, key = i / each * 16 + i % each * tall;
    bool there = pages[i / each] != nullptr && base + key0 + key < o.history;
    return Chunk<T>{there ? pages[i / each] + size_t(inside) * p.head_dim : nullptr, value_to + key * S::kV};
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
  constexpr int across = S::D / 8, wide = S::V / 8, tall = S::kThreads / across, high = S::kThreads / wide;
  int thread = threadIdx.x, d = thread % across * 8, key0 = thread / across;
  uint16_t *key_to = keys + key0 * S::kOwn + d;
  fetch_chunks<S::Store, S::Keys / tall, false>(a.q, [&](int i) {
    const T *from = d < p.head_dim ? row(a.k, key0 + i * tall) : nullptr;
    bool made = from != nullptr && stored_key(p, d) < 0;  // all 8 or none: the stored part of each half is a multiple of 8
    return Chunk<T>{from == nullptr ? from : from + d, key_to + i * tall * S::kOwn, made};
  });
  if (a.rebuild != nullptr)
    for (int c = threadIdx.x; c < S::Keys * across; c += S::kThreads) {
      int key = c / across, d = c % across * 8;
      const T *v = d < p.head_dim ? row(a.v, key) : nullptr;
      if (v == nullptr || stored_key(p, d) >= 0) continue;
      rebuild8<S::Store>(keys + key * S::kOwn + d, [&](int i) { return Stored<S::Store>::read(v[d + i]) * a.rebuild[d + i]; });
    }
  int column = thread % wide * 8, part = blockIdx.y / p.kv_heads * S::V + column;
  uint16_t *value_to = values + thread / wide * S::kV + column;
  fetch_chunks<S::Store, S::Keys / high, false>(a.q, [&](int i) {
    const T *from = part < p.head_dim ? row(a.v, thread / wide + i * high) : nullptr;
    return Chunk<T>{from == nullptr ? from : from + part, value_to + i * high * S::kV};
  });
}

// key_scores computes s = q·k for a warp's 16 rows and its keys, which are own by token, else by dimension.
template <class S, bool own>
DEVICE void key_scores(float (&s)[S::kTiles][4], const uint16_t *q, const uint16_t *keys) {
  int lane = threadIdx.x & 31, m = lane >> 3, r = lane & 7;
  int key = S::key0() + (m >> 1) * 8, dim = (m & 1) * 8;
  q += (S::row0() + (lane & 15)) * S::kQ + (lane >> 4) * 8;
  keys += own ? (key + r) * S::kOwn + dim : (dim + r) * S::kK + key;
  [[maybe_unused]] constexpr int kUnrolled = S::D <= 256 ? S::D / 16 : 4;
#pragma unroll kUnrolled
  for (int d = 0; d < S::D; d += 16) {
    uint32_t qa[4];
    load_matrix(qa, q + d);
#pragma unroll
    for (int j = 0; j < S::kTiles; j += 2) {
      uint32_t b[4];
      if constexpr (own)
        load_matrix(b, keys + 8 * j * S::kOwn + d);
      else
        load_matrix_transposed(b, keys + d * S::kK + 8 * j);
      product<S>(s[j], qa, b[0], b[1]);
      product<S>(s[j + 1], qa, b[2], b[3]);
    }
  }
}

// The shape of a block. D: head dimension, rounded up. V: output dimensions of a block. Keys:
// keys of a tile, which begin it; their values follow.
template <int D_, int V_, int Keys_, int Stages_, int Store_, bool Decode_>
struct Shape : Blocks<V_, Keys_, Stages_, Store_, Decode_, 1> {
  static constexpr int D = D_, V = V_, Keys = Keys_;
  static constexpr bool kInner = D <= 256 || !Decode_;  // no register is left in decoding with heads of 512
  static constexpr int kQ = D + 8, kK = Keys + 8, kOwn = D + 8, kV = V + 8;  // strides in shared memory
  static constexpr int kKeyElements = D * kK > Keys * kOwn ? D * kK : Keys * kOwn, kStage = kKeyElements + Keys * kV;
  METHOD int query_width(const Pages &p) { return p.head_dim; }
  METHOD int query_dim(const Pages &, int column) { return column; }
  METHOD const uint16_t *values(const uint16_t *tile) { return tile + kKeyElements; }
  METHOD void fetch(const AttentionArgs &a, const Source &o, int base, bool own, uint16_t *tile) {
    if (own)
      fetch_own<Shape>(a, o, base, tile, tile + kKeyElements);
    else
      fetch_paged<Shape>(a, o, base, tile, tile + kKeyElements);
  }
  METHOD void scores(const Pages &, float (&s)[Shape::kTiles][4], const uint16_t *queries, const uint16_t *tile, bool own, float4 *) {
    if (own)
      key_scores<Shape, true>(s, queries, tile);
    else
      key_scores<Shape, false>(s, queries, tile);
  }
};

// JoinArgs is for attention_join, which also gates what it joins, and stores the keys and values of the step beside that:
// attention has read the pages.
struct JoinArgs {
  AttentionArgs attention;
  const float *gate;  // [T, heads·head_dim] or null: y is multiplied by sigmoid(gate)
  StoreBeside beside;
};

// attention_join computes y from the results of the splits, or packs it: grid.x is the tokens, grid.y the
// heads, and then those that are stored.
KERNEL(attention_join, JoinArgs, 256) {
  if (stores(a.beside, blockIdx.x, int(blockIdx.y) - a.beside.across)) return;
  const AttentionArgs &t = a.attention;
  int head = blockIdx.y, d = t.pages.head_dim;
  size_t at = size_t(blockIdx.x) * t.heads + head;
  const float *parts = t.partial + at * t.splits * (d + 2);
  float most = -INFINITY_F;
  for (int s = 0; s < t.splits; s++) most = fmaxf(most, parts[s * (d + 2) + d]);
  float sum = 0.0f, before = most;
  for (int s = 0; s < t.splits; s++) {
    float m = parts[s * (d + 2) + d];
    if (m != -INFINITY_F) sum += parts[s * (d + 2) + d + 1] * exp2f(m - most);
  }
  sum = with_sink(t.sinks, head, &most, sum);
  auto joined = [&](int i) {
    float v = 0.0f;
    for (int s = 0; s < t.splits; s++) {
      float m = parts[s * (d + 2) + d];
      if (m != -INFINITY_F) v += parts[s * (d + 2) + i] * exp2f(m - most);
    }
    v = before == -INFINITY_F ? 0.0f : v / sum;
    return a.gate ? v * sigmoid(__ldg(a.gate + at * d + i)) : v;
  };
  if (t.packed == nullptr) {
    for (int i = threadIdx.x; i < d; i += blockDim.x) t.y[at * d + i] = joined(i);
    return;
  }
  for (int i = 2 * threadIdx.x; i < d; i += 2 * blockDim.x)
    ((uint32_t *)t.packed)[word_at(t.words, t.heads * d, blockIdx.x, head * d + i)] = packed_pair(t.f16, joined(i), joined(i + 1));
}

// The shared memory of a multiprocessor holds three blocks of few rows with 16-bit keys of 128 on sm_90a and sm_100, so registers
// are limited for three; elsewhere it holds fewer.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000)
constexpr int kWide16 = 3;
#else
constexpr int kWide16 = 1;
#endif
// few is how many blocks of the kernel for few rows a multiprocessor is to run at once.
#define ATTENTION(name, Store, D, V, Keys, Stages, few)                                                                           \
  KERNEL_OF(attention_##name##_##D##_few, AttentionArgs, 2 * Keys, few) { attention<Shape<D, V, Keys, Stages, Store, true>>(a); } \
  KERNEL(attention_##name##_##D##_many, AttentionArgs, 128) { attention<Shape<D, V, Keys, Stages, Store, false>>(a); }
// Tiles of 16 keys fit in 99 KiB, the limit of a block on sm_89 and sm_120.
#define ATTENTION_NARROW(name, Store, D, V, Stages) \
  KERNEL(attention_##name##_##D##_narrow, AttentionArgs, 128) { attention<Shape<D, V, 16, Stages, Store, false>>(a); }
#define ATTENTIONS(name, Store, few)           \
  ATTENTION(name, Store, 64, 64, 64, 2, 1)     \
  ATTENTION(name, Store, 128, 128, 64, 2, few) \
  ATTENTION(name, Store, 256, 256, 32, 2, 1)   \
  ATTENTION(name, Store, 512, 256, 32, 1, 1)   \
  ATTENTION_NARROW(name, Store, 256, 256, 2)   \
  ATTENTION_NARROW(name, Store, 512, 256, 1)

ATTENTIONS(bf16, kBF16, kWide16)
ATTENTIONS(f16, kF16, kWide16)
ATTENTIONS(e4m3, kE4M3, 1)
ATTENTIONS(e5m2, kE5M2, 1)

// attention_f32 is attention for float32 keys and values, computed in float32: a warp for each
// of a block's 8 query rows, tiles of 16 keys, values of up to 512 dimensions. The grid is as
// above, with one part. Latent keys are values too.
constexpr int kWideRows = 8, kWideKeys = 16, kWideDims = 512;

KERNEL(attention_f32, AttentionArgs, 32 * kWideRows) {
  DYNAMIC_SHARED(memory);
  const Pages &p = a.pages;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, d = p.head_dim, wide = d + a.latent, stride = wide | 1;  // an odd stride puts keys in different banks
  float *queries = (float *)memory, *keys = queries + kWideRows * wide, *values = a.latent ? keys : keys + kWideKeys * stride;
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
  for (int i = lane; i < wide; i += 32) queries[warp * wide + i] = row < row1 ? ((const float *)a.q)[at * wide + i] : 0.0f;
  int mine_from = seen_from(a, o.history + row / group), mine_until = row < row1 ? seen_until(a, o, row / group) : 0;
  int from = seen_from(a, o.history + row0 / group), to = 0;
  for (int t = row0 / group; t <= (row1 - 1) / group; t++) to = max(to, seen_until(a, o, t));
  split_range(blockIdx.z, a.splits, &from, &to);
  float out[kWideDims / 32] = {}, most = -INFINITY_F, sum = 0.0f;
  for (int base = from / kWideKeys * kWideKeys; base < to; base += kWideKeys) {
    __syncthreads();  // all warps are done with the previous tile
    for (int i = threadIdx.x; i < kWideKeys * wide; i += blockDim.x) {
      int key = i / wide, j = i % wide, position = base + key, token = position - o.history;
      float k = 0.0f, v = 0.0f;
      if (token >= 0 && token < o.count) {
        size_t own = size_t(o.first + token) * p.kv_heads + o.kv;
        if (j < d) v = ((const float *)a.v)[own * d + j];
        if (a.latent)
          k = j < d ? v : ((const float *)a.k)[own * a.latent + j - d];
        else
          k = stored_key(p, j) < 0 ? v * a.rebuild[j] : ((const float *)a.k)[own * d + j];
      } else if (token < 0 && position / p.block >= o.skip) {
        const unsigned char *page = page_at(p, p.tables[size_t(o.seq) * p.width + position / p.block - o.skip]);
        int slot = position % p.block, stored = a.latent ? j - d : stored_key(p, j);
        if (j < d) v = ((const float *)(page + p.v))[(size_t(o.kv) * p.block + slot) * d + j];
        k = stored < 0 ? (a.latent ? v : v * a.rebuild[j]) : ((const float *)(page + p.k))[(size_t(o.kv) * p.key_dim + stored) * p.block + slot];
      }
      keys[key * stride + j] = k;
      if (!a.latent) values[key * stride + j] = v;
    }
    __syncthreads();
    int key = lane % kWideKeys, position = base + key;
    float s = 0.0f;  // two lanes share a key: each takes every other dimension
    for (int j = lane / kWideKeys; j < wide; j += 2) s = fmaf(queries[warp * wide + j], keys[key * stride + j], s);
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

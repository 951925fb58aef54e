// Attention over paged keys and values and the step's own, on the matrix units: blocks of
// query rows meet tiles of keys, the softmax runs along (Dao et al., FlashAttention-2).
//
// A query row is a token and one of the heads that share a KV head, so that a decoding
// sequence fills the 16 rows of a multiplication as far as its heads do. Tiles lie at
// absolute positions; those of pages come first, then the step's own. A tile that both
// have is taken twice, each time without the other's keys.
#include "pages.cuh"
#include "weights.cuh"

struct AttentionArgs {
  Pages pages;
  const float *q;        // [T, heads·head_dim]
  const void *k, *v;     // [T, kv_heads·head_dim], stored as the pages are
  float *y;              // [T, heads·head_dim]
  const float *sinks;    // [heads] or null
  const int *first;      // [seqs+1]
  const int *positions;  // [T]
  const float *rebuild;  // [head_dim] or null: keys' numbers that pages do not store are those of values times it
  float *partial;        // with splits > 1: [T, heads, splits, head_dim+2]: Σ, largest score, Σ of weights
  float scale, softcap;
  int seqs, heads;
  int window;              // positions that a token sees, its own included; 0: all
  int both;                // 1: tokens see those behind them, and there are no pages
  int splits, split_keys;  // split i takes split_keys positions, a multiple of 64, the last all behind
};

constexpr float kLog2e = 1.4426950408889634f;

// Shape of a block. D: dimensions of a head, rounded up; V: of them, those of the output
// that a block computes; Keys: of a tile. A block for few rows has 16 and its warps share
// the keys of a tile; one for many has 64, 16 a warp.
template <int D_, int V_, int Keys_, int Stages_, int Store_, bool Few_>
struct Shape {
  static constexpr int D = D_, V = V_, Keys = Keys_, Stages = Stages_, Store = Store_;
  static constexpr bool Few = Few_;
  static constexpr int kWarps = Few ? Keys / 16 : 4, kThreads = 32 * kWarps, kRows = Few ? 16 : 64;
  static constexpr int kQ = D + 8, kK = Keys + 8, kOwn = D + 8, kV = V + 8;  // strides in shared memory
  static constexpr int kKeyRoom = D * kK > Keys * kOwn ? D * kK : Keys * kOwn, kStage = kKeyRoom + Keys * kV;
  static constexpr int kTiles = (Few ? 16 : Keys) / 8;  // tiles of 8 keys of a warp
  static constexpr int kShared = 2 * (kRows * kQ + Stages * kStage);
};

// sequence_of finds which sequence, and which of its blocks of rows, a block is; false:
// there are no more. Every warp looks for itself.
DEVICE bool sequence_of(const AttentionArgs &a, int rows, int group, int *seq, int *block) {
  int lane = threadIdx.x & 31, before = 0, target = blockIdx.x;
  for (int s0 = 0; s0 < a.seqs; s0 += 32) {
    int s = s0 + lane, n = s < a.seqs ? ceil_div((a.first[s + 1] - a.first[s]) * group, rows) : 0, sum = n;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
      int v = __shfl_up_sync(kAllLanes, sum, o);
      if (lane >= o) sum += v;
    }
    unsigned behind = __ballot_sync(kAllLanes, before + sum > target);
    if (behind) {
      int l = __ffs(int(behind)) - 1;
      *seq = s0 + l;
      *block = target - before - __shfl_sync(kAllLanes, sum - n, l);
      return true;
    }
    before += __shfl_sync(kAllLanes, sum, 31);
  }
  return false;
}

// Where a tile's keys are.
struct Source {
  int history;  // positions before it are in pages
  int skip;     // the block that the table begins with
  int seq, first, count, kv;
};

template <int Store>
DEVICE void bring8(uint16_t *to, const void *from, bool there) {  // 8 numbers, as the matrix units take them
  if (Store == kBF16 || Store == kF16) {
    copy_async(to, from, there ? 16 : 0);
    return;
  }
  uint2 v = there ? __ldg((const uint2 *)from) : make_uint2(0, 0);
  constexpr int shift = Store == kE4M3 ? 4 : 3;
  constexpr uint32_t power = Store == kE4M3 ? 0x7b807b80u : 0x77807780u;
  *(uint4 *)to = make_uint4(eight_bits(v.x, 0, shift, power), eight_bits(v.x, 1, shift, power), eight_bits(v.y, 0, shift, power),
                            eight_bits(v.y, 1, shift, power));
}

// stored_key is which of a key's stored numbers is its d-th; −1: none is.
DEVICE int stored_key(const Pages &p, int d) {
  if (p.key_dim == p.head_dim) return d;
  int half = p.head_dim / 2, kept = p.key_dim / 2, i = d % half;
  return i < kept ? d / half * kept + i : -1;
}

// rebuilt8 makes 8 numbers of keys of values: get gives a value's, times what it is
// multiplied by.
template <int Store, class Get>
DEVICE void rebuilt8(uint16_t *to, Get get) {
  uint32_t w[4];
#pragma unroll
  for (int i = 0; i < 4; i++) w[i] = Store == kF16 ? to_f16x2(get(2 * i), get(2 * i + 1)) : to_bf16x2(get(2 * i), get(2 * i + 1));
  *(uint4 *)to = make_uint4(w[0], w[1], w[2], w[3]);
}

// fetch_paged brings the keys of positions from base on, by dimension, and their values.
template <class S>
DEVICE void fetch_paged(const AttentionArgs &a, const Source &o, int base, uint16_t *keys, uint16_t *values) {
  using T = typename Stored<S::Store>::type;
  const Pages &p = a.pages;
  const int *table = p.tables + size_t(o.seq) * p.width;
  auto page = [&](int position) { return page_at(p, table[position / p.block - o.skip]); };
  constexpr int across = S::Keys / 8;
  for (int c = threadIdx.x; c < S::D * across; c += S::kThreads) {
    int d = c / across, position = base + c % across * 8;
    bool there = d < p.head_dim && position < o.history && position / p.block >= o.skip;
    uint16_t *to = keys + d * S::kK + c % across * 8;
    int row = there ? stored_key(p, d) : 0;
    if (row < 0) {
      const T *v = (const T *)(page(position) + p.v) + (size_t(o.kv) * p.block + position % p.block) * p.head_dim + d;
      rebuilt8<S::Store>(to, [&](int i) { return position + i < o.history ? Stored<S::Store>::read(v[i * p.head_dim]) * a.rebuild[d] : 0.0f; });
      continue;
    }
    const T *from = (const T *)a.q;  // any address: nothing is read of it
    if (there) from = (const T *)(page(position) + p.k) + (size_t(o.kv) * p.key_dim + row) * p.block + position % p.block;
    bring8<S::Store>(to, from, there);
  }
  int part = blockIdx.y / p.kv_heads * S::V;
  for (int c = threadIdx.x; c < S::Keys * (S::V / 8); c += S::kThreads) {
    int key = c / (S::V / 8), d = c % (S::V / 8) * 8, position = base + key;
    bool there = part + d < p.head_dim && position < o.history && position / p.block >= o.skip;
    const T *from = (const T *)a.q;
    if (there) from = (const T *)(page(position) + p.v) + (size_t(o.kv) * p.block + position % p.block) * p.head_dim + part + d;
    bring8<S::Store>(values + key * S::kV + d, from, there);
  }
}

// fetch_own brings those of the step's tokens, both by key.
template <class S>
DEVICE void fetch_own(const AttentionArgs &a, const Source &o, int base, uint16_t *keys, uint16_t *values) {
  using T = typename Stored<S::Store>::type;
  const Pages &p = a.pages;
  int part = blockIdx.y / p.kv_heads * S::V;
  auto row = [&](const void *x, int token) { return (const T *)x + (size_t(o.first + token) * p.kv_heads + o.kv) * p.head_dim; };
  for (int c = threadIdx.x; c < S::Keys * (S::D / 8); c += S::kThreads) {
    int key = c / (S::D / 8), d = c % (S::D / 8) * 8, token = base + key - o.history;
    bool there = d < p.head_dim && token >= 0 && token < o.count;
    if (there && stored_key(p, d) < 0) {  // of the 8 none is: halves and what is stored of them are multiples of 8
      const T *v = row(a.v, token) + d;
      rebuilt8<S::Store>(keys + key * S::kOwn + d, [&](int i) { return Stored<S::Store>::read(v[i]) * a.rebuild[d + i]; });
      continue;
    }
    bring8<S::Store>(keys + key * S::kOwn + d, there ? row(a.k, token) + d : (const T *)a.q, there);
  }
  for (int c = threadIdx.x; c < S::Keys * (S::V / 8); c += S::kThreads) {
    int key = c / (S::V / 8), d = c % (S::V / 8) * 8, token = base + key - o.history;
    bool there = part + d < p.head_dim && token >= 0 && token < o.count;
    bring8<S::Store>(values + key * S::kV + d, there ? row(a.v, token) + part + d : (const T *)a.q, there);
  }
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

// Rows is what a lane knows of its two query rows, g and g+8, and their softmax so far.
struct Rows {
  int position[2];  // −1: no row
  float most[2], sum[2];
};

// scores is s = q·k of a warp's 16 rows and its keys.
template <class S>
DEVICE void scores(float (&s)[S::kTiles][4], const uint16_t *q, const uint16_t *keys, bool own) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, m = lane >> 3, r = lane & 7;
  int row0 = S::Few ? 0 : 16 * warp, key0 = S::Few ? 16 * warp : 0;
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
        load_matrix_turned(b, keys + (dim + r) * S::kK + key);
      product<S>(s[j], qa, b[0], b[1]);
      product<S>(s[j + 1], qa, b[2], b[3]);
    }
  }
}

// weigh turns scores at positions from base on into weights, moves the softmax on and
// scales what was summed before.
template <class S>
DEVICE void weigh(const AttentionArgs &a, const Source &o, Rows &rows, float (&s)[S::kTiles][4], float (&out)[S::V / 8][4], int base, bool own) {
  int lane = threadIdx.x & 31, q = lane & 3;
  int key0 = base + (S::Few ? 16 * int(threadIdx.x >> 5) : 0);
  float most[2] = {-INFINITY_F, -INFINITY_F};
#pragma unroll
  for (int j = 0; j < S::kTiles; j++)
#pragma unroll
    for (int c = 0; c < 4; c++) {
      int p = key0 + 8 * j + 2 * q + c % 2, at = rows.position[c / 2];
      bool seen = at >= 0 && (own ? p >= o.history && p < o.history + o.count : p < o.history);
      seen = seen && (a.both || p <= at) && (a.window == 0 || p > at - a.window);
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
      rows.sum[c / 2] += s[j][c];  // of this lane's columns; lanes are added at the end
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
  int key0 = S::Few ? 16 * int(threadIdx.x >> 5) : 0;
#pragma unroll
  for (int j = 0; j < S::kTiles; j += 2) {
    uint32_t w[4] = {pair<S>(s[j][0], s[j][1]), pair<S>(s[j][2], s[j][3]), pair<S>(s[j + 1][0], s[j + 1][1]), pair<S>(s[j + 1][2], s[j + 1][3])};
#pragma unroll
    for (int d = 0; d < S::V / 8; d += 2) {
      uint32_t b[4];
      load_matrix_turned(b, values + (key0 + 8 * j + (m & 1) * 8 + r) * S::kV + 8 * d + (m >> 1) * 8);
      product<S>(out[d], w, b[0], b[1]);
      product<S>(out[d + 1], w, b[2], b[3]);
    }
  }
}

// join_warps brings together what the warps of a block for few rows have of their keys;
// warp 0 has the result. room is 16·(V+2) floats a warp.
template <class S>
DEVICE void join_warps(Rows &rows, float (&out)[S::V / 8][4], float *room) {
  constexpr int kRoom = 16 * (S::V + 2);
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, q = lane & 3;
  __syncthreads();  // the keys that lay there are done with
  if (warp > 0) {
    float *mine = room + warp * kRoom;
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
      const float *row = room + w * kRoom + (g + 8 * i) * (S::V + 2);
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

// sink_of is what a head's sink adds to a softmax whose largest score is *most, which it
// may move; scores are in powers of two.
DEVICE float with_sink(const float *sinks, int head, float *most, float sum) {
  if (sinks == nullptr) return sum;
  float sink = sinks[head] * kLog2e, m = fmaxf(*most, sink);
  sum = (*most == -INFINITY_F ? 0.0f : sum * exp2f(*most - m)) + exp2f(sink - m);
  *most = m;
  return sum;
}

// attention: grid.x is blocks of rows, at most Σ over sequences of their rows / kRows
// rounded up; grid.y the KV heads, once for each part of V dimensions; grid.z the splits.
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
  o.history = a.both ? 0 : a.positions[o.first];
  o.skip = first_kept(p, o.history);
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
    int row = row0 + (S::Few ? 0 : 16 * warp) + g + 8 * i;
    rows.position[i] = row < row1 ? o.history + row / group : -1;
    rows.most[i] = -INFINITY_F;
    rows.sum[i] = 0.0f;
  }
  // Positions that a row of the block sees, and of them the split's.
  int from = a.window > 0 ? max(0, o.history + row0 / group - a.window + 1) : 0;
  int to = a.both ? o.count : o.history + (row1 - 1) / group + 1;
  if (a.splits > 1) {
    from = max(from, int(blockIdx.z) * a.split_keys);
    if (int(blockIdx.z) + 1 < a.splits) to = min(to, int(blockIdx.z + 1) * a.split_keys);
  }
  int paged0 = from / S::Keys, paged = max(0, ceil_div(min(to, o.history), S::Keys) - paged0);
  int own0 = max(from, o.history) / S::Keys, tiles = paged + max(0, to > o.history ? ceil_div(to, S::Keys) - own0 : 0);
  auto base_of = [&](int t) { return (t < paged ? paged0 + t : own0 + t - paged) * S::Keys; };
  auto fetch = [&](int t) {
    uint16_t *keys = ring + t % S::Stages * S::kStage, *values = keys + S::kKeyRoom;
    if (t < paged)
      fetch_paged<S>(a, o, base_of(t), keys, values);
    else
      fetch_own<S>(a, o, base_of(t), keys, values);
  };
  float out[S::V / 8][4] = {};
  if (S::Stages > 1 && tiles > 0) fetch(0);
  copy_commit();
  for (int t = 0; t < tiles; t++) {
    if (S::Stages == 1) {
      __syncthreads();
      fetch(t);
    } else if (t + 1 < tiles) {
      fetch(t + 1);
    }
    copy_commit();
    if (S::Stages == 1)
      copy_wait<0>();
    else
      copy_wait<1>();
    __syncthreads();
    const uint16_t *keys = ring + t % S::Stages * S::kStage;
    float s[S::kTiles][4] = {};
    scores<S>(s, queries, keys, t >= paged);
    weigh<S>(a, o, rows, s, out, base_of(t), t >= paged);
    sum_values<S>(out, s, keys + S::kKeyRoom);
    if (S::Stages > 1) __syncthreads();
  }
  copy_wait<0>();
#pragma unroll
  for (int i = 0; i < 2; i++) {
    rows.sum[i] += __shfl_xor_sync(kAllLanes, rows.sum[i], 1);
    rows.sum[i] += __shfl_xor_sync(kAllLanes, rows.sum[i], 2);
  }
  if (S::Few) {
    join_warps<S>(rows, out, (float *)ring);
    if (warp > 0) return;
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    int row = row0 + (S::Few ? 0 : 16 * warp) + g + 8 * i;
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

// attention_join makes y of the splits' parts: grid.x is the tokens, grid.y the heads.
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

#define ATTENTION(name, Store, D, V, Keys, Stages)                                                                                      \
  KERNEL(attention_##name##_##D##_few, AttentionArgs, 2 * Keys) { attention<Shape<D, V, Keys, Stages, Store, true>>(a); }               \
  KERNEL(attention_##name##_##D##_many, AttentionArgs, 128) { attention<Shape<D, V, Keys, Stages, Store, false>>(a); }
#define ATTENTIONS(name, Store)          \
  ATTENTION(name, Store, 64, 64, 64, 2)  \
  ATTENTION(name, Store, 128, 128, 64, 2) \
  ATTENTION(name, Store, 256, 256, 32, 2) \
  ATTENTION(name, Store, 512, 256, 32, 1)

ATTENTIONS(bf16, kBF16)
ATTENTIONS(f16, kF16)
ATTENTIONS(e4m3, kE4M3)
ATTENTIONS(e5m2, kE5M2)

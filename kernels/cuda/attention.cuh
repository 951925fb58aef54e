// Attention on the matrix units: blocks of query rows, tiles of keys, and an online softmax (Dao et
// al., FlashAttention-2). attention.cu and attention_latent.cu say what a tile is in shared memory.
//
// A query row is a token and one of the heads that share a KV head, so that the heads of a
// decoding sequence share the 16 rows of a multiplication. Tiles are at absolute positions;
// tiles from pages come first, then those of this step. A tile with keys of both kinds is
// computed twice, each time with one kind of keys.
#pragma once
#include "packed.cuh"
#include "pages.cuh"
#include "weights.cuh"

struct AttentionArgs {
  Pages pages;
  const void *q;         // [T, heads·head_dim], with latent keys [T, heads·(head_dim+latent)]
  const void *k, *v;     // [T, kv_heads·head_dim], in the format of the pages; with latent keys k is [T, kv_heads·latent]
  float *y;              // [T, heads·head_dim]
  const float *sinks;    // [heads] or null
  const int *first;      // [seqs+1]
  const int *positions;  // [T]
  const float *rebuild;  // [head_dim] or null: factor from a value to a key's dimension that pages do not store
  float *partial;        // with splits > 1: [T, heads, splits, head_dim+2]: weighted values, largest score, sum of weights
  const int *items;      // [T] or null: the position after the item that a token belongs to; the token sees up to it
  const int *list;       // or null: the work of this launch, a number of pieces and then 4 numbers of each (Piece), on 16 bytes
  unsigned *arrived;     // with list and most > 1: counters, zero before and after: (row · ⌈group / rows of a block⌉ + block) · kv_heads + head
  float2 *stats;         // with list and most > 1: [rows, heads, most] largest score, sum of weights; partial is [rows, heads, most, head_dim]
  float scale, softcap;
  int seqs, heads;
  int window;              // positions that a token sees, its own included; 0: all
  int bidirectional;       // 1: tokens see the tokens after them, and there are no pages
  int splits;              // blocks that share the keys of a block of rows
  int latent;              // dimensions of a key behind those of its value, which it begins with; 0: keys are of their own
  int most;                // the most splits of a piece of list
  int words, f16;          // how packed is packed: PackArgs.words; fp16, else bf16
  int q_stored;            // the Store of q: kF32, or the 16 bits that are multiplied
  void *packed;            // or null: instead of y, for the next product; head_dim is then whole steps
};

// hidden returns a number that the compiler knows nothing about, each time it is called.
DEVICE int hidden(int v) {
  asm volatile("" : "+r"(v));
  return v;
}

constexpr float kLog2e = 1.4426950408889634f;

// exponential and reciprocal return 2 to the power of v and 1 / v, within 2 units of the last place; subnormal numbers are zero.
#if defined(__CUDACC__)
DEVICE float exponential(float v) {
  float d;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(v));
  return d;
}
DEVICE float reciprocal(float v) {
  float d;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(v));
  return d;
}
#else
DEVICE float exponential(float v) { return exp2f(v); }
DEVICE float reciprocal(float v) { return 1.0f / v; }
#endif

// Blocks is what shapes of blocks share. Keys: keys of a tile. A decode block has 16 rows, and its
// warps share the keys of a tile. Other blocks have 64 rows, 16 for each group of warps. The Parts
// warps of a group have the same rows and keys, and V dimensions of the output each. A shape adds
// its tile in shared memory: the columns of a query (D), strides (kQ, kV), the elements of a tile
// (kStage), and how it is fetched and multiplied.
template <int V_, int Keys_, int Stages_, int Store_, bool Decode_, int Parts_>
struct Blocks {
  static constexpr int V = V_, Keys = Keys_, Stages = Stages_, Store = Store_, Parts = Parts_;
  static constexpr bool Decode = Decode_, Half = Store != kBF16;  // Half: products of fp16
  static constexpr bool kInner = true;  // tiles that all rows see have a way without masks, and sums that stay as they are one without products
  static constexpr bool kLists = Parts == 1;  // it takes pieces from lists
  static constexpr bool kLoops = kLists && (Decode || V <= 128);  // a block takes several; others have no register to spare for that
  static constexpr int kGroups = Decode ? Keys / 16 : 4, kWarps = Parts * kGroups, kThreads = 32 * kWarps, kRows = Decode ? 16 : 64;
  static constexpr int kTiles = (Decode ? 16 : Keys) / 8;  // tiles of 8 keys for each warp
  METHOD int group() { return int(threadIdx.x >> 5) / Parts; }
  METHOD int row0() { return Decode ? 0 : 16 * group(); }  // of this warp, within the block
  METHOD int key0() { return Decode ? 16 * group() : 0; }  // within the tile
};

// sequence_of finds the sequence of a block, and which of its blocks of rows this is; false:
// there is none. Every warp does the search.
DEVICE bool sequence_of(const AttentionArgs &a, int rows, int group, int *seq, int *block) {
  return part_of(a.seqs, blockIdx.x, seq, block, [&](int s) { return ceil_div((a.first[s + 1] - a.first[s]) * group, rows); });
}

// Piece is what a block computes at a time: a block of rows of a sequence, and one of the splits of the positions that they
// see. row is the place of the sequence's first token among the rows of partial results.
struct Piece {
  int seq, block, split, splits, row;
};

// piece_at returns a piece of the launch's list.
DEVICE Piece piece_at(const AttentionArgs &a, int i) {
  uint4 v = __ldg((const uint4 *)a.list + 1 + i);
  return {int(v.x), int(v.y), int(v.z & 0xffff), int(v.z >> 16), int(v.w)};
}

// Source locates the keys of a tile.
struct Source {
  int history;  // positions before it are in pages
  int skip;     // the block that the page table begins with
  int seq, first, count, kv;
};

// as_halves converts two 8-bit floats, the lower or the upper bytes of v, to fp16, which has all their numbers.
template <int Store, bool upper>
DEVICE uint32_t as_halves(uint32_t v) {
  if constexpr (Store == kE5M2) return pick_bytes(v, 0, upper ? 0x3424 : 0x1404);
#if !defined(__CUDACC__)
  v >>= upper ? 16 : 0;
  return to_f16x2(from_e4m3(uint8_t(v)), from_e4m3(uint8_t(v >> 8)));
#elif __CUDA_ARCH__ >= 890
  uint32_t d;
  if constexpr (upper)
    asm("{\n.reg .b16 l, u;\nmov.b32 {l, u}, %1;\ncvt.rn.f16x2.e4m3x2 %0, u;\n}\n" : "=r"(d) : "r"(v));
  else
    asm("{\n.reg .b16 l, u;\nmov.b32 {l, u}, %1;\ncvt.rn.f16x2.e4m3x2 %0, l;\n}\n" : "=r"(d) : "r"(v));
  return d;
#else
  v = upper ? v >> 16 : v;
  if (((v & 0x7f7fu) + 0x0101u) & 0x8080u) return to_f16x2(from_e4m3(uint8_t(v)), from_e4m3(uint8_t(v >> 8)));  // a NaN, for which the bits below do not hold
  return e4m3_as_f16x2(v);
#endif
}

// widen8 converts eight 8-bit floats to fp16.
template <int Store>
DEVICE void widen8(uint16_t *to, uint2 v) {
  *(uint4 *)to = make_uint4(as_halves<Store, false>(v.x), as_halves<Store, true>(v.x), as_halves<Store, false>(v.y), as_halves<Store, true>(v.y));
}

// Chunk is a copy of 8 numbers to shared memory; from null: zeros. skip and not a null to says that there is no copy: whether
// an address is null takes its upper half.
template <class T>
struct Chunk {
  const T *from;
  uint16_t *to;
  bool skip = false;
};

// fetch_chunks copies N chunks of a thread in the format of the matrix units; of(i) returns the
// i-th. 16-bit numbers are copied asynchronously. Of 8-bit numbers several are loaded before
// the first is widened. any is a valid address, from which nothing is read. whole unrolls all
// N; otherwise long loops are unrolled in part, to save registers. sure: every chunk is there.
template <int Store, int N, bool whole, bool sure = false, class Of>
DEVICE void fetch_chunks(const void *any, Of of) {
  [[maybe_unused]] constexpr int kUnrolled = whole || N <= 8 ? N : N <= 16 ? 4 : 1;
  if constexpr (Store == kBF16 || Store == kF16) {
#pragma unroll kUnrolled
    for (int i = 0; i < N; i++) {
      auto c = of(i);
      if (sure)
        copy_async(c.to, c.from, 16);
      else if (!c.skip)
        copy_async(c.to, c.from != nullptr ? (const void *)c.from : any, c.from != nullptr ? 16 : 0);
    }
  } else {
    constexpr int kAtOnce = N < 8 ? N : 8;
#pragma unroll (kUnrolled < kAtOnce ? 1 : kUnrolled / kAtOnce)
    for (int i0 = 0; i0 < N; i0 += kAtOnce) {
      uint2 v[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; i++) {
        auto c = of(i0 + i);
        v[i] = sure || c.from != nullptr ? __ldg((const uint2 *)c.from) : make_uint2(0, 0);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; i++) {
        auto c = of(i0 + i);
        if (sure || !c.skip) widen8<Store>(c.to, v[i]);
      }
    }
  }
}

// in_pages reports whether all keys of a tile are in pages.
template <class S>
DEVICE bool in_pages(const Pages &p, const Source &o, int base) {
  return base + S::Keys <= o.history && base >= o.skip * p.block;
}

// RunPages are the pages of a tile that in_pages: each lane looks up one of its runs of 16 positions, which are never in two pages.
template <class S>
struct RunPages {
  static constexpr int kRuns = S::Keys / 16;
  const unsigned char *page;  // of this lane's run
  unsigned slot;              // where in the page it begins
  DEVICE_METHOD RunPages(const AttentionArgs &a, const Source &o, int base, int thread) {
    const Pages &p = a.pages;
    unsigned position = base + 16 * (thread % kRuns), block = position / unsigned(p.block);
    slot = position - block * p.block;
    page = page_at(p, p.tables[size_t(o.seq) * p.width + block - o.skip]);
  }
  // of_run returns the address that the lanes of a run computed.
  template <class T>
  METHOD const T *of_run(const T *mine, int run) {
    return (const T *)__shfl_sync(kAllLanes, (unsigned long long)mine, run);
  }
};

template <class S>
DEVICE void product(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if (S::Half)
    multiply_f16(d, a, b0, b1);
  else
    multiply_bf16(d, a, b0, b1);
}

template <class S>
DEVICE uint32_t pair(float lo, float hi) {
  return S::Half ? to_f16x2(lo, hi) : to_bf16x2(lo, hi);
}

// Rows is a lane's two query rows, g and g+8: the keys that they see, and their softmax so far.
struct Rows {
  int from[2], until[2];  // positions that they see: [from, until); until is 0 if there are none
  float most[2], sum[2];
};

// seen_from returns the first position that the token at a position sees. seen_until returns
// the position after the last one: that of the token, of the sequence, or of the token's item,
// which a window does not bound.
DEVICE int seen_from(const AttentionArgs &a, int at) {
  if (a.pages.chunked) return at / a.window * a.window;
  return a.window > 0 ? max(0, at - a.window + 1) : 0;
}
DEVICE int seen_until(const AttentionArgs &a, const Source &o, int token) {
  int at = o.history + token, end = o.history + o.count;
  if (a.bidirectional) return end;
  if (a.items == nullptr) return at + 1;
  return min(max(at + 1, __ldg(a.items + o.first + token)), end);
}

// Span is what the rows of a block see: positions [from, to), and of these [sure_from, sure_to), which every row sees.
struct Span {
  int from, to, sure_from, sure_to;
};

// span_of returns what rows row0 to row1−1 of a sequence see, group of them a token. All lanes of a warp call it.
DEVICE Span span_of(const AttentionArgs &a, const Source &o, int row0, int row1, int group) {
  int first = row0 / group, last = (row1 - 1) / group;
  Span s = {seen_from(a, o.history + first), 0, seen_from(a, o.history + last), o.history + o.count};
  for (int t = first + int(threadIdx.x & 31); t <= last; t += 32) {
    int until = seen_until(a, o, t);
    s.to = max(s.to, until);
    s.sure_to = min(s.sure_to, until);
  }
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) {
    s.to = max(s.to, __shfl_xor_sync(kAllLanes, s.to, d));
    s.sure_to = min(s.sure_to, __shfl_xor_sync(kAllLanes, s.sure_to, d));
  }
  return s;
}

// split_range reduces the positions that a block's rows see to those of its split. Each split
// gets an equal number of runs of kSplitKeys, which no tile straddles; the last split may be
// empty.
constexpr int kSplitKeys = 64;
DEVICE void split_range(int split, int splits, int *from, int *to) {
  if (splits == 1) return;
  int first = *from / kSplitKeys, runs = ceil_div(ceil_div(*to, kSplitKeys) - first, splits);
  *from = max(*from, (first + split * runs) * kSplitKeys);
  *to = min(*to, (first + (split + 1) * runs) * kSplitKeys);
}

// softmax_tile turns the scores at positions from base on into weights, updates the running
// softmax and rescales the earlier sums. masked is false if every row sees every key of the tile.
template <class S, bool masked>
DEVICE void softmax_tile(const AttentionArgs &a, const Source &o, Rows &rows, float (&s)[S::kTiles][4], float (&out)[S::V / 8][4], int base, bool own) {
  int lane = threadIdx.x & 31, q = lane & 3;
  int key0 = base + S::key0();
  float most[2] = {-INFINITY_F, -INFINITY_F};
#pragma unroll
  for (int j = 0; j < S::kTiles; j++)
#pragma unroll
    for (int c = 0; c < 4; c++) s[j][c] *= a.scale;
  if (a.softcap > 0.0f)
#pragma unroll
    for (int j = 0; j < S::kTiles; j++)
#pragma unroll
      for (int c = 0; c < 4; c++) s[j][c] = a.softcap * tanhf(s[j][c] / a.softcap);
#pragma unroll
  for (int j = 0; j < S::kTiles; j++)
#pragma unroll
    for (int c = 0; c < 4; c++) {
      int p = key0 + 8 * j + 2 * q + c % 2;
      bool seen = !masked || (p >= rows.from[c / 2] && p < rows.until[c / 2] && own == (p >= o.history));
      s[j][c] = seen ? s[j][c] * kLog2e : -INFINITY_F;
      most[c / 2] = fmaxf(most[c / 2], s[j][c]);
    }
  float keep[2], high[2];  // high: the largest score, 0 if the row has seen no key
#pragma unroll
  for (int i = 0; i < 2; i++) {
    most[i] = fmaxf(most[i], __shfl_xor_sync(kAllLanes, most[i], 1));
    most[i] = fmaxf(most[i], __shfl_xor_sync(kAllLanes, most[i], 2));
    most[i] = fmaxf(most[i], rows.most[i]);
    keep[i] = most[i] == -INFINITY_F ? 1.0f : exponential(rows.most[i] - most[i]);
    high[i] = most[i] == -INFINITY_F ? 0.0f : most[i];
    rows.most[i] = most[i];
    rows.sum[i] *= keep[i];
  }
#pragma unroll
  for (int j = 0; j < S::kTiles; j++)
#pragma unroll
    for (int c = 0; c < 4; c++) {
      s[j][c] = exponential(s[j][c] - high[c / 2]);
      rows.sum[c / 2] += s[j][c];  // for this lane's columns; lanes are added at the end
    }
  if (S::kInner && !__any_sync(kAllLanes, keep[0] != 1.0f || keep[1] != 1.0f)) return;  // as in most tiles
#pragma unroll
  for (int d = 0; d < S::V / 8; d++)
#pragma unroll
    for (int c = 0; c < 4; c++) out[d][c] *= keep[c / 2];
}

// sum_values adds weights · v to out.
template <class S>
DEVICE void sum_values(float (&out)[S::V / 8][4], const float (&s)[S::kTiles][4], const uint16_t *values) {
  int lane = threadIdx.x & 31, m = lane >> 3, r = lane & 7;
  values += (S::key0() + (m & 1) * 8 + r) * S::kV + (m >> 1) * 8;
#pragma unroll
  for (int j = 0; j < S::kTiles; j += 2) {
    uint32_t w[4] = {pair<S>(s[j][0], s[j][1]), pair<S>(s[j][2], s[j][3]), pair<S>(s[j + 1][0], s[j + 1][1]), pair<S>(s[j + 1][2], s[j + 1][3])};
#pragma unroll
    for (int d = 0; d < S::V / 8; d += 2) {
      uint32_t b[4];
      load_matrix_transposed(b, values + 8 * j * S::kV + 8 * d);
      product<S>(out[d], w, b[0], b[1]);
      product<S>(out[d + 1], w, b[2], b[3]);
    }
  }
}

// join_warps combines the results of the groups of warps of a decode block; the first group has the
// result. scratch holds 16·(V+2) floats for each warp.
template <class S>
DEVICE void join_warps(Rows &rows, float (&out)[S::V / 8][4], float *scratch) {
  constexpr int kWarpFloats = 16 * (S::V + 2);
  int thread = S::kLists ? hidden(threadIdx.x) : threadIdx.x, lane = thread & 31, warp = thread >> 5, g = lane >> 2, q = lane & 3;
  __syncthreads();  // all warps are done with the keys in scratch
  if (S::group() > 0) {
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
  if (S::group() > 0) return;
  for (int w = warp + S::Parts; w < S::kWarps; w += S::Parts)
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

// QueryRow is where a query row of a block is: its token among those of the sequence, −1: there is no row; and its head.
struct QueryRow {
  int token, head;
};

// join_splits computes y for a piece's rows if its block is the last of the splits to finish: then the results of all are
// there. Splits are added in their order.
template <class S>
DEVICE void join_splits(const AttentionArgs &a, const Piece &w, int kv, const QueryRow *places, float *weights) {
  constexpr int kMost = 64;  // splits
  __shared__ unsigned count;
  const Pages &p = a.pages;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, group = a.heads / p.kv_heads, parts = gridDim.y / p.kv_heads;
  unsigned *arrived = a.arrived + (size_t(w.row) * ceil_div(group, S::kRows) + w.block) * p.kv_heads + kv;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) count = atomicAdd(arrived, 1u);
  __syncthreads();
  if (count + 1 < unsigned(w.splits * parts)) return;
  if (threadIdx.x == 0) *arrived = 0;
  __threadfence();
  // slot returns the place of a row's first split, token the place of its result.
  auto slot = [&](QueryRow r) { return (size_t(w.row + r.token) * a.heads + r.head) * a.most; };
  for (int i = warp; i < S::kRows && places[i].token >= 0; i += S::kWarps) {
    const float2 *stats = a.stats + slot(places[i]);
    float2 none = make_float2(-INFINITY_F, 0.0f), x = lane < w.splits ? stats[lane] : none, y = lane + 32 < w.splits ? stats[lane + 32] : none;
    float high = warp_max(fmaxf(x.x, y.x)), most = high;
    float first = x.x == -INFINITY_F ? 0.0f : exp2f(x.x - high), second = y.x == -INFINITY_F ? 0.0f : exp2f(y.x - high);
    float sum = with_sink(a.sinks, places[i].head, &most, warp_sum(x.y * first + y.y * second));
    float inverse = high == -INFINITY_F ? 0.0f : exp2f(high - most) / sum;
    weights[i * kMost + lane] = x.x == -INFINITY_F ? -1.0f : first * inverse;
    weights[i * kMost + lane + 32] = y.x == -INFINITY_F ? -1.0f : second * inverse;
  }
  __syncthreads();
  int wide = p.head_dim / 4;
  for (int i = threadIdx.x; i < S::kRows * wide; i += S::kThreads) {
    int d = i % wide;
    QueryRow r = places[i / wide];
    if (r.token < 0) break;
    const float *weight = weights + i / wide * kMost;
    const float4 *v = (const float4 *)(a.partial + slot(r) * p.head_dim) + d;
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int s = 0; s < w.splits; s++) {
      float4 x = v[size_t(s) * wide];
      if (weight[s] == -1.0f) continue;  // it saw nothing
      sum = make_float4(fmaf(weight[s], x.x, sum.x), fmaf(weight[s], x.y, sum.y), fmaf(weight[s], x.z, sum.z), fmaf(weight[s], x.w, sum.w));
    }
    int token = a.first[w.seq] + r.token;
    if (a.packed == nullptr) {
      ((float4 *)(a.y + (size_t(token) * a.heads + r.head) * p.head_dim))[d] = sum;
      continue;
    }
    uint32_t *to = (uint32_t *)a.packed;
    int in = a.heads * p.head_dim, col = r.head * p.head_dim + 4 * d;
    to[word_at(a.words, in, token, col)] = packed_pair(a.f16, sum.x, sum.y);
    to[word_at(a.words, in, token, col + 2)] = packed_pair(a.f16, sum.z, sum.w);
  }
}

// attend computes a piece. The piece and the rows are in shared memory, for what comes behind the tiles of keys.
template <class S>
DEVICE void attend(const AttentionArgs &a, const Piece &piece) {
  DYNAMIC_SHARED(memory);
  __shared__ Piece w;
  __shared__ int column;  // of the output, the first of the block's
  __shared__ QueryRow places[S::kRows];
  const Pages &p = a.pages;
  int thread = S::kLists ? hidden(threadIdx.x) : threadIdx.x;  // else what follows from it would be kept in registers from piece to piece
  int lane = thread & 31, warp = thread >> 5, g = lane >> 2, q = lane & 3;
  int group = a.heads / p.kv_heads, width = S::query_width(p);
  Source o;
  o.kv = blockIdx.y % p.kv_heads;
  o.seq = piece.seq;
  o.first = a.first[o.seq];
  o.count = a.first[o.seq + 1] - o.first;
  o.history = a.bidirectional ? 0 : a.positions[o.first];
  o.skip = first_block(p, o.history);
  int row0 = piece.block * S::kRows, row1 = min(row0 + S::kRows, o.count * group);  // of the sequence
  if (thread == 0) w = piece, column = blockIdx.y / p.kv_heads * S::Parts * S::V;
  for (int i = thread; i < S::kRows; i += S::kThreads) places[i] = {row0 + i < row1 ? (row0 + i) / group : -1, o.kv * group + (row0 + i) % group};
  __syncthreads();
  uint16_t *queries = (uint16_t *)memory, *ring = queries + S::kRows * S::kQ;
  for (int i = thread; i < S::kRows * (S::D / 2); i += S::kThreads) {
    int r = i / (S::D / 2), d = i % (S::D / 2) * 2, dim = S::query_dim(p, d);
    QueryRow at = places[r];
    uint32_t word = 0;
    if (at.token >= 0 && dim < width) {
      size_t from = ((size_t(o.first + at.token) * a.heads + at.head) * width + dim) / 2;
      if (a.q_stored == kF32) {
        float2 v = __ldg((const float2 *)a.q + from);
        word = pair<S>(v.x, v.y);
      } else {
        word = __ldg((const uint32_t *)a.q + from);
      }
    }
    *(uint32_t *)(queries + r * S::kQ + d) = word;
  }
  Rows rows;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    int token = places[S::row0() + g + 8 * i].token;
    rows.from[i] = seen_from(a, o.history + token);
    rows.until[i] = token >= 0 ? seen_until(a, o, token) : 0;
    rows.most[i] = -INFINITY_F;
    rows.sum[i] = 0.0f;
  }
  Span span = span_of(a, o, row0, row1, group);
  int from = span.from, to = span.to;
  split_range(piece.split, piece.splits, &from, &to);
  int paged0 = from / S::Keys, paged = max(0, ceil_div(min(to, o.history), S::Keys) - paged0);
  int own0 = max(from, o.history) / S::Keys, tiles = paged + max(0, to > o.history ? ceil_div(to, S::Keys) - own0 : 0);
  auto base_of = [&](int t) { return (t < paged ? paged0 + t : own0 + t - paged) * S::Keys; };
  auto fetch = [&](int t) { S::fetch(a, o, base_of(t), t >= paged, ring + t % S::Stages * S::kStage); };
  float out[S::V / 8][4] = {};
  constexpr int kAhead = S::Stages - 1;  // tiles that are loading while one is computed
  for (int t = -kAhead; t < tiles; t++) {
    if (S::Stages == 1) __syncthreads();
    if (t + kAhead < tiles) fetch(t + kAhead);
    copy_commit();
    if (t < 0) continue;
    copy_wait<kAhead>();
    __syncthreads();
    const uint16_t *tile = ring + t % S::Stages * S::kStage;
    float s[S::kTiles][4] = {};
    S::scores(p, s, queries, tile, t >= paged, (float4 *)(ring + S::Stages * S::kStage));
    int base = base_of(t), end = base + S::Keys;
    if (S::kInner && base >= span.sure_from && end <= (t < paged ? min(span.sure_to, o.history) : span.sure_to) && (t < paged || base >= o.history))
      softmax_tile<S, false>(a, o, rows, s, out, base, t >= paged);
    else
      softmax_tile<S, true>(a, o, rows, s, out, base, t >= paged);
    sum_values<S>(out, s, S::values(tile));
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
    if (!S::kLists && S::group() > 0) return;
  }
  __syncwarp();  // what is read below is not read above, where no register is free
  int part = column + (S::Parts > 1 ? warp % S::Parts * S::V : 0);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    QueryRow r = places[S::row0() + g + 8 * i];
    if (r.token < 0 || (S::kLists && S::Decode && S::group() > 0)) continue;
    size_t at = size_t(o.first + r.token) * a.heads + r.head;
    float *y = a.y + at * p.head_dim, inverse = 1.0f;
    if (w.splits > 1) {
      float *stats;
      if (S::kLists && S::Decode && a.list != nullptr) {
        size_t slot = (size_t(w.row + r.token) * a.heads + r.head) * a.most + w.split;
        y = a.partial + slot * p.head_dim;
        stats = (float *)(a.stats + slot);
      } else {
        y = a.partial + (at * a.splits + w.split) * (p.head_dim + 2);
        stats = y + p.head_dim;
      }
      if (part == 0 && q == 0) {
        stats[0] = rows.most[i];
        stats[1] = rows.sum[i];
      }
    } else {
      float most = rows.most[i], sum = with_sink(a.sinks, r.head, &most, rows.sum[i]);
      inverse = rows.most[i] == -INFINITY_F ? 0.0f : exp2f(rows.most[i] - most) / sum;
    }
    if (a.packed != nullptr && w.splits == 1) {
      uint32_t *to = (uint32_t *)a.packed + word_at(a.words, a.heads * p.head_dim, o.first + r.token, r.head * p.head_dim + part + 2 * q);
      int step = a.words == 2 ? 16 : 128, next = a.words == 2 ? 4 : a.words ? 32 : 1;  // words from 32 columns to the next, and from 8
#pragma unroll
      for (int d = 0; d < S::V / 8; d++)
        if (part + 8 * d < p.head_dim) to[d / 4 * step + d % 4 * next] = packed_pair(a.f16, out[d][2 * i] * inverse, out[d][2 * i + 1] * inverse);
      continue;
    }
#pragma unroll
    for (int d = 0; d < S::V / 8; d++)
#pragma unroll
      for (int c = 0; c < 2; c++) {
        int dim = part + 8 * d + 2 * q + c;
        if (dim < p.head_dim) y[dim] = out[d][2 * i + c] * inverse;
      }
  }
  if constexpr (S::kLists && S::Decode)
    if (a.list != nullptr && w.splits > 1) join_splits<S>(a, w, o.kv, places, (float *)ring);
}

// attention: grid.y is the KV heads, once for each part of V dimensions. With a list, a block computes every grid.x-th of its
// pieces, and without kLoops one of them: then grid.x is not below their number. Without a list, grid.x is blocks of rows, at
// most Σ over sequences of their rows / kRows, rounded up, and grid.z is the splits, which attention_join joins.
template <class S>
DEVICE void attention(const AttentionArgs &a) {
  __shared__ int at;  // the number of the piece: no register keeps it, nor the number of pieces
  bool listed = S::kLists && a.list != nullptr;
  int i = listed ? int(blockIdx.x) : 0;
  if (listed && i >= __ldg(a.list)) return;
  do {
    Piece w = {0, 0, int(blockIdx.z), a.splits, 0};
    if (listed)
      w = piece_at(a, i);
    else if (!sequence_of(a, S::kRows, a.heads / a.pages.kv_heads, &w.seq, &w.block))
      return;
    if (S::kLoops && threadIdx.x == 0) at = i;
    attend<S>(a, w);
    if (!S::kLoops || !listed) return;
    i = at + gridDim.x;
    __syncthreads();  // all warps are done with the piece's shared memory
  } while (i < __ldg(a.list));
}

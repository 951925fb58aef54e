// Attention of prompts by the warpgroups of sm_90a, in the manner of FlashAttention-3 (Shah et al.): one warpgroup of a block
// loads keys and values, two multiply, 64 query rows each, or with wide heads the same 64 rows and half of the output's
// dimensions each. Both operands of q·k are in shared memory, the weights of the
// values in registers. The softmax of a tile is computed while the values of the tile before are multiplied, and while the
// other warpgroup multiplies. Keys and values in 8 bits become fp16 on their way to shared memory. Other architectures and other
// heads use attention.cu.
#include "attention.cuh"
#include "warpgroup.cuh"

#if !defined(__CUDACC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// WideShape is the shape of a block: heads of up to D dimensions, tiles of Keys keys, Stages of them. In shared memory are the
// queries of both warpgroups, the stages, and the barriers. All operands are in blocks of 8 rows by 16 bytes. Those of a tile are 128
// bytes apart in the direction of the keys and kAcross in that of the dimensions. A row of a block is a key of this step with 8
// dimensions, or a dimension of keys from pages with 8 keys, or a value with 8 dimensions.
// More is the registers of a thread that multiplies. All threads begin with a third of what a multiprocessor has for them, and those that load give
// what the others take.
template <int D_, int Keys_, int Stages_, int More_, int Store_>
struct WideShape {
  using T = typename Stored<Store_>::type;
  static constexpr int D = D_, Keys = Keys_, Stages = Stages_, kMore = More_, kFewer = 3 * 168 - 2 * kMore;
  static constexpr int Store = Store_;
  static constexpr bool Half = Store != kBF16;  // products of fp16
  static constexpr int kGroups = 2, kGroupRows = 64;
  static constexpr int kParts = D > 256 ? 2 : 1, V = D / kParts;  // warpgroups that share rows; output dimensions of each
  static constexpr int kRows = kGroups * kGroupRows / kParts, kSets = kGroups / kParts;  // sets of queries
  static constexpr int kQueries = kGroupRows * D * 2, kTile = Keys * D * 2;  // bytes
  static constexpr int kAcross = 16 * Keys, kQueryAcross = 16 * kGroupRows;
  METHOD unsigned char *queries(unsigned char *memory, int group) { return memory + group / kParts * kQueries; }
  METHOD unsigned char *keys(unsigned char *memory, int stage) { return memory + kSets * kQueries + stage * 2 * kTile; }
  METHOD unsigned char *values(unsigned char *memory, int stage) { return keys(memory, stage) + kTile; }
  // Numbers of 8 bits are on their way in two slots of kSlot bytes, each thread's where it reads them itself.
  static constexpr int kAtOnce = D <= 256 ? D : 128, kCopies = sizeof(T) > 1 ? 0 : Keys / 64 * (kAtOnce / 32), kSlot = kCopies * 16 * 128;
  METHOD uint4 *slot(unsigned char *memory, int i) { return (uint4 *)(keys(memory, Stages) + i * kSlot); }
  METHOD Barrier *barriers(unsigned char *memory) { return (Barrier *)(keys(memory, Stages) + 2 * kSlot); }
};

// Each stage has four barriers: its keys are there, its keys were read, its values are there, its values were read. Behind those of the
// stages is one for each set of queries.
enum StageBarrier { kKeysThere, kKeysRead, kValuesThere, kValuesRead, kStageBarriers };

template <bool v>
struct Known {
  static constexpr bool value = v;
};

// Turn is a place in the ring of stages, and how often the ring was gone round before.
template <int Stages>
struct Turn {
  int stage = 0;
  unsigned lap = 0;
  DEVICE_METHOD void next() {
    if (++stage < Stages) return;
    stage = 0;
    lap++;
  }
};

// WidePiece is a piece of a launch: rows [row0, row1) of a sequence, the positions that they see, and the tiles of these. Tiles of keys
// in pages are at multiples of their size, those of this step follow each other from the first one that is seen.
struct WidePiece {
  Source o;
  int row0, row1, group;
  Span span;
  int paged0, paged, own0, tiles;
};

template <class S>
DEVICE int base_of(const WidePiece &w, int t) {
  return t < w.paged ? (w.paged0 + t) * S::Keys : w.own0 + (t - w.paged) * S::Keys;
}

// each_piece calls f with the pieces of this block: every grid.x-th of a KV head, by a list or without one. Blocks that begin one after
// the other have different KV heads, so the longest pieces of all heads are the first.
template <class S, class F>
DEVICE void each_piece(const AttentionArgs &a, F f) {
  int first = blockIdx.y * gridDim.x + blockIdx.x;
  WidePiece w;
  w.group = a.heads / a.pages.kv_heads;
  w.o.kv = first % gridDim.y;
  for (int i = first / gridDim.y;; i += gridDim.x) {
    Piece p = {};
    if (a.list != nullptr) {
      if (i >= __ldg(a.list)) return;
      p = piece_at(a, i);
    } else if (!part_of(a.seqs, i, &p.seq, &p.block, [&](int s) { return ceil_div((a.first[s + 1] - a.first[s]) * w.group, S::kRows); })) {
      return;
    }
    w.o.seq = p.seq;
    w.o.first = a.first[p.seq];
    w.o.count = a.first[p.seq + 1] - w.o.first;
    w.o.history = a.bidirectional ? 0 : a.positions[w.o.first];
    w.o.skip = first_block(a.pages, w.o.history);
    w.row0 = p.block * S::kRows;
    w.row1 = min(w.row0 + S::kRows, w.o.count * w.group);
    w.span = span_of(a, w.o, w.row0, w.row1, w.group);
    w.paged0 = w.span.from / S::Keys;
    w.paged = max(0, ceil_div(min(w.span.to, w.o.history), S::Keys) - w.paged0);
    w.own0 = max(w.span.from, w.o.history);
    w.tiles = w.paged + max(0, ceil_div(w.span.to - w.own0, S::Keys));
    f(w);
  }
}

// copy_rows copies 16 rows of dimensions, `there` of which exist, to the blocks of a tile from row `to` on. The others become zeros, as
// do dimensions behind dims: nothing is read of them, whatever their address.
template <class S>
DEVICE void copy_rows(unsigned char *tile, int to, const uint16_t *from, size_t stride, int there, int dims) {
  int lane = hidden(threadIdx.x) & 31, key = lane % 8, d = lane / 8 * 8;  // hidden: else what follows from it would be kept in registers
  const uint16_t *row = from + key * stride + d;
  unsigned char *out = tile + d / 8 * S::kAcross + (to + key) * 16;
#pragma unroll
  for (int h = 0; h < 2; h++, key += 8, row += 8 * stride, out += 128)
#pragma unroll
    for (int d0 = 0; d0 < S::D; d0 += 32) copy_async(out + d0 / 8 * S::kAcross, row + d0, key < there && d0 + d < dims ? 16 : 0);
}

// copy_columns copies 16 keys of a page by dimension, 8 keys at a time, if any of the 8 is among the first `there`.
template <class S>
DEVICE void copy_columns(unsigned char *tile, int to, const uint16_t *from, size_t stride, int there, int dims) {
  int lane = hidden(threadIdx.x) & 31, key = lane & 8, d = lane % 8 + lane / 16 * 8;
  const uint16_t *row = from + d * stride + key;
  unsigned char *out = tile + lane / 16 * S::kAcross + (to + key + lane % 8) * 16;
#pragma unroll 8
  for (int d0 = 0; d0 < S::D; d0 += 16, row += 16 * stride) copy_async(out + d0 / 8 * S::kAcross, row, key < there && d0 + d < dims ? 16 : 0);
}

// KeyRun is where 16 keys of a tile are, `there` of which exist. By columns are keys from pages: a dimension of all follows the one before.
template <class S>
struct KeyRun {
  const typename S::T *from;
  size_t stride;
  int there;
  bool columns;
};

// copy_part begins the copies of a part of a warp's runs of 8-bit numbers, kAtOnce dimensions from d0 on: 16 dimensions of a key for each lane,
// or, by columns, 16 keys of a dimension, if any of them exists.
template <class S, class Of>
DEVICE void copy_part(uint4 *slot, Of run_of, int d0, int dims) {
  int thread = hidden(threadIdx.x) & 127, lane = thread & 31;
#pragma unroll
  for (int n = 0; n < S::Keys / 64; n++) {
    KeyRun<S> r = run_of((thread >> 5) + 4 * n);
    uint4 *to = slot + n * (S::kAtOnce / 32) * 128 + thread;
    int d = d0 + (r.columns ? lane : lane / 8 * 16), key = r.columns ? 0 : lane % 8;
    const typename S::T *from = r.from + (r.columns ? d * r.stride : key * r.stride + d);
#pragma unroll
    for (int i = 0; i < S::kAtOnce / 32; i++) {
      int further = r.columns ? 32 * i : i / 2 * 64;
      copy_async(to + i * 128, from, key + (r.columns ? 0 : i % 2 * 8) < r.there && d + further < dims ? 16 : 0);
      from += r.columns ? 32 * r.stride : i % 2 ? 64 - 8 * r.stride : 8 * r.stride;
    }
  }
}

// widen_part writes a part of a tile that this thread has copied: 16 numbers are in two blocks, of 8 keys or of 8 dimensions each.
template <class S, bool columns>
DEVICE void widen_part(unsigned char *tile, const uint4 *slot, int d0) {
  int thread = hidden(threadIdx.x) & 127, lane = thread & 31;
  unsigned char *out = tile + (d0 / 8 + lane / 8 * (columns ? 1 : 2)) * S::kAcross + (thread / 32 * 16 + lane % 8) * 16;
#pragma unroll
  for (int c = 0; c < S::kCopies; c++) {
    int n = c / (S::kAtOnce / 32), i = c % (S::kAtOnce / 32);
    unsigned char *to = out + n * 1024 + (columns ? 4 * i : i / 2 * 8) * S::kAcross + (columns ? 0 : i % 2 * 128);
    uint4 x = slot[c * 128 + thread];
    *(uint4 *)to = make_uint4(as_halves<S::Store, false>(x.x), as_halves<S::Store, true>(x.x), as_halves<S::Store, false>(x.y), as_halves<S::Store, true>(x.y));
    *(uint4 *)(to + (columns ? 128 : S::kAcross)) =
        make_uint4(as_halves<S::Store, false>(x.z), as_halves<S::Store, true>(x.z), as_halves<S::Store, false>(x.w), as_halves<S::Store, true>(x.w));
  }
}

// load_tiles is what the warpgroup that loads does. A warp takes every fourth run of 16 keys. Its lanes look up the pages of 32 runs at once. Parts
// of 8-bit numbers are widened while the next one is on its way.
template <class S>
DEVICE void load_tiles(const AttentionArgs &a, unsigned char *memory) {
  using T = typename S::T;
  const Pages &p = a.pages;
  Barrier *barriers = S::barriers(memory);
  constexpr int kRuns = S::Keys / 16, kTiles = 32 / kRuns;  // of a tile; whose pages are looked up
  int warp = threadIdx.x >> 5 & 3;
  Turn<S::Stages> turn, behind;  // of what is copied, and of what is widened
  unsigned parts = 0;            // copied so far
  int part = 0;                  // the next one to widen: of the keys of a tile, then of its values
  bool by_columns = false;       // it is
  auto widen = [&] {
    int what = part < S::D / S::kAtOnce ? kKeysThere : kValuesThere, d0 = part % (S::D / S::kAtOnce) * S::kAtOnce;
    Barrier *b = barriers + kStageBarriers * behind.stage + what;
    if (d0 == 0 && behind.lap > 0) barrier_wait(b + 1, behind.lap - 1);
    unsigned char *tile = what == kKeysThere ? S::keys(memory, behind.stage) : S::values(memory, behind.stage);
    const uint4 *slot = S::slot(memory, part & 1);
    if (by_columns)
      widen_part<S, true>(tile, slot, d0);
    else
      widen_part<S, false>(tile, slot, d0);
    if (d0 + S::kAtOnce == S::D) {
      shared_for_wgmma();
      barrier_arrive(b);
    }
    if (++part < 2 * S::D / S::kAtOnce) return;
    part = 0;
    behind.next();
  };
  each_piece<S>(a, [&](const WidePiece &w) {
    const Source &o = w.o;
    unsigned long long page = 0;  // of this lane's run; 0: it is not in the history
    int inside = 0;               // where in the page the run begins
    for (int t = 0; t < w.tiles; t++, turn.next()) {
      int base = base_of<S>(w, t);
      bool own = t >= w.paged;
      if (!own && t % kTiles == 0) {
        int at = base + 16 * int(threadIdx.x & 31), block = at / p.block;
        inside = at - block * p.block;
        page = at < o.history && block >= o.skip ? (unsigned long long)page_at(p, p.tables[size_t(o.seq) * p.width + block - o.skip]) : 0;
      }
#pragma unroll 1
      for (int what = kKeysThere; what <= kValuesThere; what += kValuesThere - kKeysThere) {
        auto run_of = [&](int run) -> KeyRun<S> {
          int there = o.history - base - 16 * run;
          if (own) {
            size_t stride = size_t(p.kv_heads) * p.head_dim;
            return {(const T *)(what == kKeysThere ? a.k : a.v) + (o.first - there) * stride + o.kv * p.head_dim, stride, there + o.count, false};
          }
          int which = t % kTiles * kRuns + run;
          const unsigned char *from = (const unsigned char *)__shfl_sync(kAllLanes, page, which);
          int at = __shfl_sync(kAllLanes, inside, which);
          if (from == nullptr) there = 0;
          if (what == kKeysThere) return {(const T *)(from + p.k) + o.kv * p.key_dim * p.block + at, size_t(p.block), there, true};
          return {(const T *)(from + p.v) + (o.kv * p.block + at) * p.head_dim, size_t(p.head_dim), there, false};
        };
        if constexpr (sizeof(T) == 1) {
#pragma unroll 1
          for (int d0 = 0; d0 < S::D; d0 += S::kAtOnce) {
            copy_part<S>(S::slot(memory, parts & 1), run_of, d0, p.head_dim);
            copy_commit();
            if (parts++ > 0) {
              copy_wait<1>();
              widen();
            }
            by_columns = what == kKeysThere && !own;
          }
        } else {
          Barrier *b = barriers + kStageBarriers * turn.stage + what;
          if (turn.lap > 0) barrier_wait(b + 1, turn.lap - 1);
          unsigned char *tile = what == kKeysThere ? S::keys(memory, turn.stage) : S::values(memory, turn.stage);
#pragma unroll 1
          for (int run = warp; run < kRuns; run += 4) {
            KeyRun<S> r = run_of(run);
            if (r.columns)
              copy_columns<S>(tile, 16 * run, r.from, r.stride, r.there, p.head_dim);
            else
              copy_rows<S>(tile, 16 * run, r.from, r.stride, r.there, p.head_dim);
          }
          barrier_arrive_copied(b);
        }
      }
    }
  });
  if constexpr (sizeof(T) == 1)
    if (parts > 0) {
      copy_wait<0>();
      widen();
    }
}

template <class S>
DEVICE uint32_t wide_pair(float lo, float hi) {
  return S::Half ? to_f16x2(lo, hi) : to_bf16x2(lo, hi);
}

// soften returns softcap · tanh(v / softcap), for v·two = 2·log2(e)·v / softcap.
DEVICE float soften(float v, float two, float softcap) { return softcap - 2.0f * softcap * reciprocal(exponential(v * two) + 1.0f); }

// weigh_tile turns the products at positions from base on into weights, 2 to the power of factor times the product, and updates
// the running softmax. rows.most are products, the largest. keep is by what earlier sums are to be multiplied.
template <class S, bool masked>
DEVICE void weigh_tile(Rows &rows, float (&s)[S::Keys / 2], float (&keep)[2], int base, int end, float factor) {
  int q = threadIdx.x & 3;
  if constexpr (masked) {
    unsigned there[2], at[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      there[i] = unsigned(max(0, min(rows.until[i], end) - rows.from[i]));
      at[i] = unsigned(base + 2 * q - rows.from[i]);
    }
#pragma unroll
    for (int j = 0; j < S::Keys / 2; j++)
      if (at[j % 4 / 2] + unsigned(j / 4 * 8 + j % 2) >= there[j % 4 / 2]) s[j] = -INFINITY_F;
  }
  float high[2] = {rows.most[0], rows.most[1]};
#pragma unroll
  for (int j = 0; j < S::Keys / 2; j++) high[j % 4 / 2] = fmaxf(high[j % 4 / 2], s[j]);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    high[i] = fmaxf(high[i], __shfl_xor_sync(kAllLanes, high[i], 1));
    high[i] = fmaxf(high[i], __shfl_xor_sync(kAllLanes, high[i], 2));
    float before = rows.most[i];
    rows.most[i] = high[i];
    high[i] = high[i] == -INFINITY_F ? 0.0f : high[i] * factor;
    keep[i] = exponential(before * factor - high[i]);
    rows.sum[i] *= keep[i];
  }
#pragma unroll
  for (int j = 0; j < S::Keys / 2; j++) {
    s[j] = exponential(fmaf(s[j], factor, -high[j % 4 / 2]));
    rows.sum[j % 4 / 2] += s[j];  // for this lane's columns; lanes are added at the end
  }
}

// multiply_tiles is what the other warpgroups do.
template <class S>
DEVICE void multiply_tiles(const AttentionArgs &a, unsigned char *memory) {
  const Pages &p = a.pages;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3, which = threadIdx.x >> 7, g = lane >> 2, q = lane & 3;
  unsigned char *queries = S::queries(memory, which);
  Barrier *barriers = S::barriers(memory), *mine = barriers + kStageBarriers * S::Stages + which / S::kParts;
  unsigned phase = 0;
  auto meet_others = [&] {  // of the same rows
    barrier_arrive(mine);
    barrier_wait(mine, phase++);
  };
  Turn<S::Stages> turn, before;  // of a tile's keys, and of the values of the tile before
  float factor = a.softcap > 0.0f ? kLog2e : a.scale * kLog2e, two = a.softcap > 0.0f ? 2.0f * kLog2e * a.scale / a.softcap : 0.0f;
  each_piece<S>(a, [&](const WidePiece &w) {
    const Source &o = w.o;
    int first = w.row0 + which / S::kParts * S::kGroupRows;
    meet_others();  // all warps are done with the queries of the piece before
    // copy_queries writes the queries' numbers in 16 bits; eight(i) returns numbers 8i to 8i+7 of q.
    auto copy_queries = [&](auto eight) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        int r = 16 * warp + 8 * h + lane % 8, row = first + r;
        size_t from = (size_t(o.first + row / w.group) * a.heads + o.kv * w.group + row % w.group) * p.head_dim;
#pragma unroll
        for (int d0 = 0; d0 < S::V; d0 += 32) {
          int d = which % S::kParts * S::V + d0 + lane / 8 * 8;
          uint4 words = make_uint4(0, 0, 0, 0);
          if (row < w.row1 && d < p.head_dim) words = eight((from + d) / 8);
          *(uint4 *)(queries + d / 8 * S::kQueryAcross + r * 16) = words;
        }
      }
    };
    if (a.q_stored == kF32)
      copy_queries([&](size_t i) {
        float4 x = __ldg((const float4 *)a.q + 2 * i), y = __ldg((const float4 *)a.q + 2 * i + 1);
        return make_uint4(wide_pair<S>(x.x, x.y), wide_pair<S>(x.z, x.w), wide_pair<S>(y.x, y.y), wide_pair<S>(y.z, y.w));
      });
    else
      copy_queries([&](size_t i) { return __ldg((const uint4 *)a.q + i); });
    shared_for_wgmma();
    meet_others();
    Rows rows;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int row = first + 16 * warp + g + 8 * i;
      rows.from[i] = seen_from(a, o.history + row / w.group);
      rows.until[i] = row < w.row1 ? seen_until(a, o, row / w.group) : 0;
      rows.most[i] = -INFINITY_F;
      rows.sum[i] = 0.0f;
    }
    float out[S::V / 2], s[S::Keys / 2], keep[2];
    uint32_t weights[S::Keys / 16][4];
#pragma unroll
    for (int i = 0; i < S::V / 2; i++) out[i] = 0.0f;
    // score begins the products of the queries and the keys of a tile.
    auto score = [&](auto paged) {
      barrier_wait(barriers + kStageBarriers * turn.stage + kKeysThere, turn.lap);
      shared_for_wgmma();
      uint64_t left = group_matrix(queries, S::kQueryAcross, 128), right = group_matrix(S::keys(memory, turn.stage), S::kAcross, 128);
      wgmma_fence();
#pragma unroll
      for (int d = 0; d < S::D / 16; d++)
        group_products<S::Half, decltype(paged)::value>(s, left + d * (2 * S::kQueryAcross >> 4), right + d * (2 * S::kAcross >> 4), d > 0);
      wgmma_commit();
    };
    // sum begins the products of the weights and the values of the tile before.
    auto sum = [&] {
      barrier_wait(barriers + kStageBarriers * before.stage + kValuesThere, before.lap);
      shared_for_wgmma();
      uint64_t right = group_matrix(S::values(memory, before.stage) + which % S::kParts * (S::V / 8 * S::kAcross), 128, S::kAcross);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < S::Keys / 16; k++) group_product<S::Half>(out, weights[k], right + k * (256 >> 4));
      wgmma_commit();
    };
    // weigh computes the weights of a tile from the products of its keys, which are done.
    auto weigh = [&](int t) {
      group_sums(s);
      if (lane == 0) barrier_arrive(barriers + kStageBarriers * turn.stage + kKeysRead);
      if (a.softcap > 0.0f) {
#pragma unroll
        for (int j = 0; j < S::Keys / 2; j++) s[j] = soften(s[j], two, a.softcap);
      }
      int base = base_of<S>(w, t), end = t < w.paged ? o.history : o.history + o.count;
      if (base >= w.span.sure_from && base + S::Keys <= min(w.span.sure_to, end))
        weigh_tile<S, false>(rows, s, keep, base, end, factor);
      else
        weigh_tile<S, true>(rows, s, keep, base, end, factor);
    };
    // summed waits for the products of the values.
    auto summed = [&] {
      wgmma_wait<0>();
      group_sums(out);
      if (lane == 0) barrier_arrive(barriers + kStageBarriers * before.stage + kValuesRead);
      before.next();
    };
    auto pack = [&] {
#pragma unroll
      for (int k = 0; k < S::Keys / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) weights[k][i] = wide_pair<S>(s[8 * k + 2 * i], s[8 * k + 2 * i + 1]);
    };
    auto scale_sums = [&] {
#pragma unroll
      for (int i = 0; i < S::V / 2; i++) out[i] *= keep[i % 4 / 2];
    };
    // run computes tiles [t, until), which are of one kind: products of warpgroups must not be behind a branch between two.
    auto run = [&](auto paged, int t, int until) {
      if (t == until) return;
      score(paged);
      wgmma_wait<0>();
      weigh(t);
      scale_sums();
      pack();
      while (++t < until) {
        turn.next();
        score(paged);
        sum();
        wgmma_wait<1>();
        weigh(t);
        summed();
        scale_sums();
        pack();
      }
      turn.next();
      sum();
      summed();
    };
    run(Known<true>(), 0, w.paged);
    run(Known<false>(), w.paged, w.tiles);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      rows.sum[i] += __shfl_xor_sync(kAllLanes, rows.sum[i], 1);
      rows.sum[i] += __shfl_xor_sync(kAllLanes, rows.sum[i], 2);
      int row = first + 16 * warp + g + 8 * i;
      if (row >= w.row1) continue;
      int head = o.kv * w.group + row % w.group;
      float high = rows.most[i] * factor, most = high, total = with_sink(a.sinks, head, &most, rows.sum[i]);
      float inverse = high == -INFINITY_F ? 0.0f : exp2f(high - most) / total;
      if (a.packed != nullptr) {
        int part = which % S::kParts * S::V, step = a.words == 2 ? 16 : 128, next = a.words == 2 ? 4 : a.words ? 32 : 1;  // words from 32 columns to the next, and from 8
        uint32_t *to = (uint32_t *)a.packed + word_at(a.words, a.heads * p.head_dim, o.first + row / w.group, head * p.head_dim + part + 2 * q);
#pragma unroll
        for (int d = 0; d < S::V / 8; d++)
          if (part + 8 * d < p.head_dim) to[d / 4 * step + d % 4 * next] = packed_pair(a.f16, out[4 * d + 2 * i] * inverse, out[4 * d + 2 * i + 1] * inverse);
        continue;
      }
      float *y = a.y + (size_t(o.first + row / w.group) * a.heads + head) * p.head_dim + which % S::kParts * S::V + 2 * q;
#pragma unroll
      for (int d = 0; d < S::V / 8; d++)
        if (which % S::kParts * S::V + 8 * d < p.head_dim) *(float2 *)(y + 8 * d) = make_float2(out[4 * d + 2 * i] * inverse, out[4 * d + 2 * i + 1] * inverse);
    }
  });
}

// attention_wide: three warpgroups, of which the last loads; it gives registers to the others. The grid is as for attention.
template <class S>
DEVICE void attention_wide(const AttentionArgs &a) {
  DYNAMIC_SHARED(memory);
  Barrier *barriers = S::barriers(memory);
  if (threadIdx.x == 0) {
    constexpr int kLoading = 128, kMultiplying = 4 * S::kGroups;  // threads that load, warps that multiply
    for (int s = 0; s < S::Stages; s++)
      for (int i = 0; i < kStageBarriers; i++) barrier_init(barriers + kStageBarriers * s + i, i == kKeysThere || i == kValuesThere ? kLoading : kMultiplying);
    for (int i = 0; i < S::kSets; i++) barrier_init(barriers + kStageBarriers * S::Stages + i, 128 * S::kParts);
  }
  __syncthreads();
  if (threadIdx.x >> 7 == S::kGroups) {
    registers_less<S::kFewer>();
    load_tiles<S>(a, memory);
  } else {
    registers_more<S::kMore>();
    multiply_tiles<S>(a, memory);
  }
}

#define ATTENTION_WIDE_OF(name, Store, D, Keys, Stages, More) \
  KERNEL(attention_##name##_##D##_wide, AttentionArgs, 384) { attention_wide<WideShape<D, Keys, Stages, More, Store>>(a); }
// With heads of 512 the warps that load lack two registers to widen E4M3.
#define ATTENTION_WIDE(D, Keys, Stages, More)             \
  ATTENTION_WIDE_OF(bf16, kBF16, D, Keys, Stages, More)   \
  ATTENTION_WIDE_OF(f16, kF16, D, Keys, Stages, More)     \
  ATTENTION_WIDE_OF(e5m2, kE5M2, D, Keys, Stages, More)
ATTENTION_WIDE(64, 128, 3, 216)
ATTENTION_WIDE(128, 128, 2, 216)
ATTENTION_WIDE(256, 64, 2, 224)
ATTENTION_WIDE(512, 64, 1, 224)
ATTENTION_WIDE_OF(e4m3, kE4M3, 64, 128, 3, 216)
ATTENTION_WIDE_OF(e4m3, kE4M3, 128, 128, 2, 216)
ATTENTION_WIDE_OF(e4m3, kE4M3, 256, 64, 2, 224)

#endif

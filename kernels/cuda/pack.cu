// Activations as fragments of the matrix units: plain, normalized or gated. The op before a
// product also rounds its input.
#include "glu.cuh"
#include "rounding.cuh"
#include "rows.cuh"
#include "store.cuh"

struct PackArgs {
  const void *x;     // [_, in]; of glu_pack [_, 2·in]
  void *y;           // [tiles, steps, 32], 16 bytes for each lane, 8 for 8-bit numbers
  float *sums;       // [tiles, steps, 8]: sums of the rounded numbers of a step; null: not needed.
                     // 8-bit: [tiles, groups, 8] scales, x = scale · code
  const int *order;  // [rows] the row of x for each row, −1: zeros; null: the same row
  int rows, in;      // rows are padded with zeros to whole tiles of 8, columns to whole steps
  int group;         // 8-bit: steps that share a scale, a power of 2 up to 8; 0: all
  int words;         // 1: a step's first words of all lanes, then the second words, for linear_wide;
                     // 2: row by row, [8·tiles, in], in a multiple of 32
  int most;          // 8-bit in groups: 0; or scales are [groups, rows], with rows padded to a multiple of kUnit,
                     // or to most if that is less, as cuBLASLt takes them
  int x_bf16;        // of norm_pack, chain_pack without kinds and glu_pack, 1: x is bf16
};

constexpr int kUnit = 64;  // rows of cuBLASLt's products: LibraryUnit

// StorePackArgs is for store_pack. Its launch packs what attention computed, gated if the model does that, and stores the
// keys and values of the step: neither part reads what the other writes.
struct StorePackArgs {
  PackArgs pack;
  const float *gate;  // [_, in] or null: x is multiplied by sigmoid(gate)
  StoreBeside beside;
};

struct NormPackArgs {
  PackArgs pack;
  float *residual;  // [rows, in] or null: x is added to it, and the sum is normalized
  const float *w;   // [in] or null: ones
  float *plain;     // null; or gets what is packed, not rounded: [rows, in]
  float eps, offset, scale;
  int plain_words;     // of 8-bit formats: 0: plain gets them as they are; else packed in bf16, in the order PackArgs.words + 1
  StoreBeside beside;  // of 16-bit formats
};

// ChainPackArgs is for chain_pack: norms with the same eps before the sum with the residual. x is written to.
struct ChainPackArgs {
  NormPackArgs norm;
  const float *other;  // [rows, in], with kJoined: x becomes norm(x) · w_own + norm(other) · w_other
  const float *w_own, *w_other, *w_post;  // [in] or null: ones. With kPost x becomes norm(x) · w_post, behind kJoined
  const float *sum_scale;  // [1] or null: residual becomes (residual + x) · sum_scale
  int kinds, pad;          // a set of kJoined and kPost
};

enum { kJoined = 1, kPost = 2 };

// HeadsPackArgs is for heads_pack: each segment of a row is normalized by itself, as norm does with 32 threads, to the bit.
struct HeadsPackArgs {
  PackArgs pack;
  const float *w;     // [segment] or null: ones
  const float *gate;  // [rows, in] or null: the result is multiplied by silu(gate)
  float eps, offset, scale;
  int segment;  // divides in, at most kSegments times; at most 128
};

constexpr int kSegments = 256;

struct GLUPackArgs {
  PackArgs pack;
  int act, paired;
  float limit, alpha, shift;  // as in GLUArgs
  int pad;
};

// two returns the numbers at col, which is even, and col+1; 0 past the end. The row has no
// alignment.
DEVICE float2 two(Numbers row, int col, int in) {
  if (in % 2 == 0 && col < in) return row.pair(col);
  return make_float2(col < in ? row[col] : 0.0f, col + 1 < in ? row[col + 1] : 0.0f);
}

// Sources of the numbers to pack. begin is called once with a row of Y.
struct PlainSource {
  const PackArgs &a;
  const float *gates, *x, *gate;
  DEVICE_METHOD PlainSource(const PackArgs &p, const float *g) : a(p), gates(g), x(nullptr), gate(nullptr) {}
  DEVICE_METHOD void begin(int row) {
    int from = row < a.rows ? (a.order ? a.order[row] : row) : -1;
    x = from >= 0 ? (const float *)a.x + size_t(from) * a.in : nullptr;
    gate = gates && from >= 0 ? gates + size_t(from) * a.in : nullptr;
  }
  DEVICE_METHOD float2 at(int col) const {
    if (x == nullptr) return make_float2(0, 0);
    float2 v = two({x, false}, col, a.in);
    if (gate == nullptr) return v;
    float2 g = two({gate, false}, col, a.in);
    return make_float2(v.x * sigmoid(g.x), v.y * sigmoid(g.y));
  }
};

struct GLUSource {
  const PackArgs &a;
  GLUArgs g;
  Numbers x;
  DEVICE_METHOD GLUSource(const GLUPackArgs &p) : a(p.pack), g{}, x{} {
    g.act = p.act;
    g.limit = p.limit;
    g.alpha = p.alpha;
    g.shift = p.shift;
    g.paired = p.paired;
  }
  DEVICE_METHOD void begin(int row) {
    if (row < a.rows) x = Numbers{a.x, a.x_bf16 != 0} + size_t(row) * 2 * a.in;
  }
  DEVICE_METHOD float2 at(int col) const {
    if (x.from == nullptr || col >= a.in) return make_float2(0, 0);
    float2 gate = g.paired ? two(x, 2 * col, 2 * a.in) : two(x, col, a.in), up;
    if (g.paired) {
      float2 next = two(x, 2 * col + 2, 2 * a.in);
      up = make_float2(gate.y, next.y);
      gate.y = next.x;
    } else {
      up = two(x + a.in, col, a.in);
    }
    return make_float2(gated_activation(g, gate.x, up.x), col + 1 < a.in ? gated_activation(g, gate.y, up.y) : 0.0f);
  }
};

struct NormSource {
  const NormPackArgs &n;
  const ChainPackArgs *c;  // null: x is read only
  Numbers x;  // the row to normalize; null: none
  size_t row;
  float inverse;
  DEVICE_METHOD NormSource(const NormPackArgs &a, const ChainPackArgs *with) : n(a), c(with), x{}, row(0), inverse(0.0f) {}
  DEVICE_METHOD void begin(int r) {
    int from = r < n.pack.rows ? (n.pack.order ? n.pack.order[r] : r) : -1;
    if (from < 0) return;
    row = size_t(from) * n.pack.in;
    x = (n.residual ? Numbers{n.residual, false} : given()) + row;
  }
  DEVICE_METHOD Numbers given() const { return {n.pack.x, n.pack.x_bf16 != 0}; }
  // sum adds x to the residual and returns the sum; a thread reads only what it wrote
  // itself.
  DEVICE_METHOD float2 sum(int col) {
    int in = n.pack.in;
    if (x.from == nullptr) return make_float2(0, 0);
    Numbers from = given() + row;
    float2 v = c && !from.bf16 ? make_float2(col < in ? from[col] : 0.0f, col + 1 < in ? from[col + 1] : 0.0f) : two(from, col, in);
    if (n.residual == nullptr) return v;
    float *r = n.residual + row + col, scale = c && c->sum_scale ? *c->sum_scale : 1.0f;
    if (col < in) r[0] = v.x = (r[0] + v.x) * scale;
    if (col + 1 < in) r[1] = v.y = (r[1] + v.y) * scale;
    return v;
  }
  DEVICE_METHOD float2 at(int col) const {
    int in = n.pack.in;
    if (x.from == nullptr || col >= in) return make_float2(0, 0);
    bool both = col + 1 < in;
    float2 v = x.bf16 ? two(x, col, in) : make_float2(x[col], both ? x[col + 1] : 0.0f);
    v = make_float2(v.x * inverse, both ? v.y * inverse : 0.0f);
    if (n.w) {
      v.x *= n.offset + __ldg(n.w + col);
      if (both) v.y *= n.offset + __ldg(n.w + col + 1);
    }
    v.x *= n.scale;
    v.y *= n.scale;
    if (n.plain && n.plain_words == 0) {
      n.plain[row + col] = v.x;
      if (both) n.plain[row + col + 1] = v.y;
    }
    return v;
  }
};

struct HeadsSource {
  const HeadsPackArgs &h;
  const float *x, *gate;  // null: none
  const float *inverse;   // [in/segment], of this row
  DEVICE_METHOD float one(int col) const {
    if (col >= h.pack.in) return 0.0f;
    float v = __ldg(x + col) * inverse[col / h.segment];
    if (h.w) v *= h.offset + __ldg(h.w + col % h.segment);
    v *= h.scale;
    if (gate == nullptr) return v;
    float g = __ldg(gate + col);
    return v * (g / (1.0f + expf(-g)));
  }
  DEVICE_METHOD float2 at(int col) const { return x ? make_float2(one(col), one(col + 1)) : make_float2(0, 0); }
};

// A lane's eight numbers of a step: columns 2q + 8i and 2q + 8i + 1.
struct Eight {
  float2 v[4];
};
template <class Source>
DEVICE Eight eight(const Source &from, int step) {
  Eight e;
  int q = threadIdx.x & 3;
#pragma unroll
  for (int i = 0; i < 4; i++) e.v[i] = from.at(32 * step + 8 * i + 2 * q);
  return e;
}

// Place is the destination of a step of a row: row g of a tile, shared by four neighbouring
// lanes, q.
struct Place {
  int tile, g;
};

// put writes a lane's words of a step. In word order, 8 rows by 16 bytes are contiguous. Row by
// row, the two numbers of a lane in each 8 columns are 8 numbers apart.
template <int N>
DEVICE void put(const PackArgs &a, Place p, int step, const uint32_t (&w)[N]) {
  int lane = 4 * p.g + (threadIdx.x & 3);
  if (N == 4 && a.words == 2) {
    uint32_t *row = (uint32_t *)a.y + (size_t(8 * p.tile + p.g) * a.in + 32 * step) / 2;
#pragma unroll
    for (int i = 0; i < N; i++) row[4 * i + (threadIdx.x & 3)] = w[i];
    return;
  }
  if (N == 2 && a.words == 2) {
    uint16_t *row = (uint16_t *)a.y + (size_t(8 * p.tile + p.g) * a.in + 32 * step) / 2;
#pragma unroll
    for (int i = 0; i < 4; i++) row[4 * i + (threadIdx.x & 3)] = uint16_t(w[i / 2] >> 16 * (i % 2));
    return;
  }
  uint32_t *y = (uint32_t *)a.y + (size_t(p.tile) * ceil_div(a.in, 32) + step) * 32 * N;
#pragma unroll
  for (int i = 0; i < N; i++) {
    if (a.words) y[32 * i + lane] = w[i];
  }
  if (a.words) return;
  if constexpr (N == 4)
    ((uint4 *)y)[lane] = make_uint4(w[0], w[1], w[2], w[3]);
  else
    ((uint2 *)y)[lane] = make_uint2(w[0], w[1]);
}

// pack16 rounds a step to bf16 or fp16 and writes it, with its sums.
template <bool Half>
DEVICE void pack16(const PackArgs &a, Place p, const Eight &e, int step) {
  int steps = ceil_div(a.in, 32);
  uint32_t w[4];
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float2 v = e.v[i];
    if (Half) {  // above the largest fp16 there is only infinity
      v.x = fminf(fmaxf(v.x, -65504.0f), 65504.0f);
      v.y = fminf(fmaxf(v.y, -65504.0f), 65504.0f);
      w[i] = to_f16x2(v.x, v.y);
    } else {
      w[i] = to_bf16x2(v.x, v.y);
      sum += from_bf16(uint16_t(w[i])) + from_bf16(uint16_t(w[i] >> 16));
    }
  }
  if (step < steps) put(a, p, step, w);
  if (Half || a.sums == nullptr) return;
  sum += __shfl_xor_sync(kAllLanes, sum, 1);
  sum += __shfl_xor_sync(kAllLanes, sum, 2);
  if ((threadIdx.x & 3) == 0 && step < steps) a.sums[(size_t(p.tile) * steps + step) * 8 + p.g] = sum;
}

// by_step: a warp for each tile of 8 rows and step of 32 columns. grid.x divides the steps,
// grid.y is the tiles.
template <bool Half, class Source>
DEVICE void by_step(const PackArgs &a, Source from) {
  int step = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
  if (step >= ceil_div(a.in, 32)) return;
  Place p{int(blockIdx.y), int(threadIdx.x & 31) >> 2};
  from.begin(8 * p.tile + p.g);
  pack16<Half>(a, p, eight(from, step), step);
}

// The kernels for whole rows: a block for each row (grid.x is g, grid.y the tiles). A row's sums and
// scales do not depend on the number of rows.
DEVICE Place row_of_block() { return {int(blockIdx.y), int(blockIdx.x)}; }

// largest returns the largest |v| as bits: infinity is above all numbers, a NaN above infinity.
DEVICE uint32_t largest(uint32_t most, const Eight &e) {
#pragma unroll
  for (int i = 0; i < 4; i++)
    most = max(most, max(__float_as_uint(e.v[i].x) & 0x7fffffffu, __float_as_uint(e.v[i].y) & 0x7fffffffu));
  return most;
}

// over returns the maximum over n neighbouring lanes; n is a power of 2.
DEVICE uint32_t over(int n, uint32_t most) {
  for (int o = 1; o < n; o <<= 1) most = max(most, __shfl_xor_sync(kAllLanes, most, o));
  return most;
}

template <class Codes>
DEVICE void pack8(const PackArgs &a, Place p, const Eight &e, int step, float by) {
  uint32_t w[2];
#pragma unroll
  for (int i = 0; i < 2; i++) w[i] = codes_of<Codes>(e.v[2 * i], e.v[2 * i + 1], by);
  if (step < ceil_div(a.in, 32)) put(a, p, step, w);
}

// row8 rounds a row with one scale, or one for each group.
template <class Codes, class Source>
DEVICE void row8(const PackArgs &a, Place p, const Source &from) {
  __shared__ uint32_t scratch[kPackThreads / 32];
  int steps = ceil_div(a.in, 32), group = a.group ? a.group : steps, groups = ceil_div(steps, group);
  float *scales = a.sums + size_t(p.tile) * groups * 8 + p.g;
  if (a.group) {
    int next = 8;  // to the scale of the next group
    bool there = true;
    if (a.most) {
      int row = 8 * p.tile + p.g;
      next = min(ceil_div(a.rows, kUnit) * kUnit, a.most);
      there = row < next;
      scales = a.sums + row;
    }
    each_step(steps, [&](int s) {
      Eight e = eight(from, s);
      Rounding<Codes> r(over(4 * group, largest(0, e)));
      if (s % group == 0 && (threadIdx.x & 3) == 0 && s < steps && there) scales[size_t(next) * (s / group)] = r.scale;
      pack8<Codes>(a, p, e, s, r.by);
    });
    return;
  }
  uint32_t most = 0;
  each_step(steps, [&](int s) { most = largest(most, eight(from, s)); });
  most = over(32, most);
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = most;
  __syncthreads();
  for (int w = 0; w < int(blockDim.x >> 5); w++) most = max(most, scratch[w]);
  Rounding<Codes> r(most);
  if (threadIdx.x == 0) *scales = r.scale;
  each_step(steps, [&](int s) { pack8<Codes>(a, p, eight(from, s), s, r.by); });
}

// rms_inverse returns the factor that gives a row a mean square of one. All threads of the block call it.
DEVICE float rms_inverse(const float *x, int in, float eps, float *scratch) {
  float sum = 0.0f;
  each_number(in, [&](int i) { sum = fmaf(x[i], x[i], sum); });
  return 1.0f / sqrtf(block_sum(sum, scratch) / float(in) + eps);
}

// chain computes what precedes the sum with the residual, in place, with the bits of norm_rows and add: a thread reads only
// what it wrote itself.
DEVICE void chain(const ChainPackArgs &a, size_t row, float *scratch) {
  int in = a.norm.pack.in;
  float *x = (float *)a.norm.pack.x + row, eps = a.norm.eps;
  auto weight = [](const float *w, int i) { return w ? __ldg(w + i) : 1.0f; };
  if (a.kinds & kJoined) {
    const float *other = a.other + row;
    float own = rms_inverse(x, in, eps, scratch), others = rms_inverse(other, in, eps, scratch);
    each_number(in, [&](int i) { x[i] = __fadd_rn(x[i] * own * weight(a.w_own, i), other[i] * others * weight(a.w_other, i)); });
  }
  if (a.kinds & kPost) {
    float inverse = rms_inverse(x, in, eps, scratch);
    each_number(in, [&](int i) { x[i] = x[i] * inverse * weight(a.w_post, i); });
  }
}

// norm_source returns the source of norm_pack and, behind the chain c, of chain_pack.
DEVICE NormSource norm_source(const NormPackArgs &a, const ChainPackArgs *c, Place p) {
  __shared__ float scratch[32];
  NormSource from(a, c);
  from.begin(8 * p.tile + p.g);
  if (c && from.x.from) chain(*c, from.row, scratch);  // a block has one row
  float sum = 0.0f;
  each_step(ceil_div(a.pack.in, 32), [&](int s) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float2 v = from.sum(32 * s + 8 * i + 2 * (threadIdx.x & 3));
      sum = fmaf(v.y, v.y, fmaf(v.x, v.x, sum));
    }
  });
  from.inverse = 1.0f / sqrtf(block_sum(sum, scratch) / float(a.pack.in) + a.eps);
  return from;
}

// heads_source returns the source of heads_pack: a warp sums a segment.
DEVICE HeadsSource heads_source(const HeadsPackArgs &a, Place p) {
  __shared__ float inverse[kSegments];
  int row = 8 * p.tile + p.g, lane = threadIdx.x & 31;
  size_t at = size_t(row) * a.pack.in;
  bool there = row < a.pack.rows;
  HeadsSource from{a, there ? (const float *)a.pack.x + at : nullptr, there && a.gate ? a.gate + at : nullptr, inverse};
  if (there)  // a block has one row
    for (int s = threadIdx.x >> 5; s < a.pack.in / a.segment; s += blockDim.x >> 5) {
      const float *x = from.x + size_t(s) * a.segment;
      float sum = 0.0f;
      for (int i = lane; i < a.segment; i += 32) sum = fmaf(x[i], x[i], sum);
      sum = warp_sum(sum);
      if (lane == 0) inverse[s] = 1.0f / sqrtf(sum / float(a.segment) + a.eps);
    }
  __syncthreads();  // the factors of all segments are there
  return from;
}

template <bool Half>
DEVICE void heads_pack16(const HeadsPackArgs &a) {
  Place p = row_of_block();
  HeadsSource from = heads_source(a, p);
  each_step(ceil_div(a.pack.in, 32), [&](int s) { pack16<Half>(a.pack, p, eight(from, s), s); });
}

template <class Codes>
DEVICE void heads_pack8(const HeadsPackArgs &a) {
  Place p = row_of_block();
  row8<Codes>(a.pack, p, heads_source(a, p));
}

template <bool Half>
DEVICE void norm_pack16(const NormPackArgs &a, const ChainPackArgs *c) {
  Place p = row_of_block();
  NormSource from = norm_source(a, c, p);
  each_step(ceil_div(a.pack.in, 32), [&](int s) { pack16<Half>(a.pack, p, eight(from, s), s); });
}

template <class Codes>
DEVICE void norm_pack8(const NormPackArgs &a, const ChainPackArgs *c) {
  Place p = row_of_block();
  NormSource from = norm_source(a, c, p);
  row8<Codes>(a.pack, p, from);
  if (a.plain_words == 0) return;
  PackArgs b{};
  b.y = a.plain;
  b.in = a.pack.in;
  b.words = a.plain_words - 1;
  each_step(ceil_div(b.in, 32), [&](int s) { pack16<false>(b, p, eight(from, s), s); });
}

template <class Codes, class Source>
DEVICE void pack_rows(const PackArgs &a, Source from) {
  Place p = row_of_block();
  from.begin(8 * p.tile + p.g);
  row8<Codes>(a, p, from);
}

// stored_beside is stores for grids of tiles of 8 rows: the blocks of every other tile have no work.
DEVICE bool stored_beside(const StoreBeside &a) {
  int head = int(blockIdx.x) - a.across;
  if (a.across == 0 || head < 0) return false;
  return blockIdx.y % 2 != 0 || stores(a, blockIdx.y / 2, head);
}

KERNEL(linear_pack_bf16, PackArgs, 256) { by_step<false>(a, PlainSource(a, nullptr)); }
KERNEL(linear_pack_f16, PackArgs, 256) { by_step<true>(a, PlainSource(a, nullptr)); }
KERNEL(linear_pack_f8_e4m3, PackArgs, kPackThreads) { pack_rows<CodesE4M3>(a, PlainSource(a, nullptr)); }
KERNEL(linear_pack_i8, PackArgs, kPackThreads) { pack_rows<CodesI8>(a, PlainSource(a, nullptr)); }
KERNEL(store_pack_bf16, StorePackArgs, 256) {
  if (!stored_beside(a.beside)) by_step<false>(a.pack, PlainSource(a.pack, a.gate));
}
KERNEL(store_pack_f16, StorePackArgs, 256) {
  if (!stored_beside(a.beside)) by_step<true>(a.pack, PlainSource(a.pack, a.gate));
}
KERNEL(store_pack_f8_e4m3, StorePackArgs, kPackThreads) {
  if (!stored_beside(a.beside)) pack_rows<CodesE4M3>(a.pack, PlainSource(a.pack, a.gate));
}
KERNEL(store_pack_i8, StorePackArgs, kPackThreads) {
  if (!stored_beside(a.beside)) pack_rows<CodesI8>(a.pack, PlainSource(a.pack, a.gate));
}
KERNEL(glu_pack_bf16, GLUPackArgs, 256) { by_step<false>(a.pack, GLUSource(a)); }
KERNEL(glu_pack_f16, GLUPackArgs, 256) { by_step<true>(a.pack, GLUSource(a)); }
KERNEL(glu_pack_f8_e4m3, GLUPackArgs, kPackThreads) { pack_rows<CodesE4M3>(a.pack, GLUSource(a)); }
KERNEL(glu_pack_i8, GLUPackArgs, kPackThreads) { pack_rows<CodesI8>(a.pack, GLUSource(a)); }
// NormPrefetch is the factors of a norm, which the first block prefetches for all.
struct NormPrefetch {
  static constexpr int kRuns = 1;
  METHOD Run run(const NormPackArgs &a, int) {
    bool there = blockIdx.x + blockIdx.y + blockIdx.z == 0 && a.w != nullptr && uintptr_t(a.w) % 16 == 0;
    return {a.w, there ? uint32_t(a.pack.in / 4 * 16) : 0};
  }
  METHOD Run run(const ChainPackArgs &a, int i) { return run(a.norm, i); }
};
KERNEL_PREFETCH(norm_pack_bf16, NormPackArgs, kPackThreads, 1, NormPrefetch) {
  if (!stored_beside(a.beside)) norm_pack16<false>(a, nullptr);
}
KERNEL_PREFETCH(norm_pack_f16, NormPackArgs, kPackThreads, 1, NormPrefetch) {
  if (!stored_beside(a.beside)) norm_pack16<true>(a, nullptr);
}
KERNEL_PREFETCH(norm_pack_f8_e4m3, NormPackArgs, kPackThreads, 1, NormPrefetch) { norm_pack8<CodesE4M3>(a, nullptr); }
KERNEL_PREFETCH(norm_pack_i8, NormPackArgs, kPackThreads, 1, NormPrefetch) { norm_pack8<CodesI8>(a, nullptr); }
KERNEL_PREFETCH(chain_pack_bf16, ChainPackArgs, kPackThreads, 1, NormPrefetch) {
  if (!stored_beside(a.norm.beside)) norm_pack16<false>(a.norm, &a);
}
KERNEL_PREFETCH(chain_pack_f16, ChainPackArgs, kPackThreads, 1, NormPrefetch) {
  if (!stored_beside(a.norm.beside)) norm_pack16<true>(a.norm, &a);
}
KERNEL_PREFETCH(chain_pack_f8_e4m3, ChainPackArgs, kPackThreads, 1, NormPrefetch) { norm_pack8<CodesE4M3>(a.norm, &a); }
KERNEL_PREFETCH(chain_pack_i8, ChainPackArgs, kPackThreads, 1, NormPrefetch) { norm_pack8<CodesI8>(a.norm, &a); }
KERNEL(heads_pack_bf16, HeadsPackArgs, kPackThreads) { heads_pack16<false>(a); }
KERNEL(heads_pack_f16, HeadsPackArgs, kPackThreads) { heads_pack16<true>(a); }
KERNEL(heads_pack_f8_e4m3, HeadsPackArgs, kPackThreads) { heads_pack8<CodesE4M3>(a); }
KERNEL(heads_pack_i8, HeadsPackArgs, kPackThreads) { heads_pack8<CodesI8>(a); }

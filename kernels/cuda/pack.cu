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

// ChainPackArgs is for chain_pack: norms with the same eps before the sum with the residual. x may be written to.
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
  int segment;  // divides in, at most kSegments times; at most kSegment
};

constexpr int kSegments = 256, kSegment = 128;

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

// A lane's eight numbers of a step: columns 2q + 8i and 2q + 8i + 1.
struct Eight {
  float2 v[4];
};

// eight returns f of the columns at which a lane's pairs begin.
template <class F>
DEVICE Eight eight(int step, F f) {
  Eight e;
#pragma unroll
  for (int i = 0; i < 4; i++) e.v[i] = f(32 * step + 8 * i + 2 * int(threadIdx.x & 3));
  return e;
}

// zip returns f of each number of a and b.
template <class F>
DEVICE Eight zip(const Eight &a, const Eight &b, F f) {
  Eight e;
#pragma unroll
  for (int i = 0; i < 4; i++) e.v[i] = make_float2(f(a.v[i].x, b.v[i].x), f(a.v[i].y, b.v[i].y));
  return e;
}

// squares adds the squares of a step to a thread's sum, in the order of each_number.
DEVICE float squares(float sum, const Eight &e) {
#pragma unroll
  for (int i = 0; i < 4; i++) sum = fmaf(e.v[i].y, e.v[i].y, fmaf(e.v[i].x, e.v[i].x, sum));
  return sum;
}

// Columns reads and writes a lane's numbers of a step that rows of in numbers have; numbers past the end are 0. Whole: in is
// whole steps and all rows are aligned for pairs, so nothing is tested and a step has one address. Loads are plain, for
// memory that the kernel writes.
template <bool Whole>
struct Columns {
  int in;
  DEVICE_METHOD Eight read(Numbers row, int step) const {
    if (!Whole) return eight(step, [&](int col) { return make_float2(col < in ? row[col] : 0.0f, col + 1 < in ? row[col + 1] : 0.0f); });
    Eight e;
    unsigned pair = 16 * unsigned(step) + (threadIdx.x & 3);
    if (row.bf16) {
      const uint32_t *at = (const uint32_t *)row.from + pair;
#pragma unroll
      for (int i = 0; i < 4; i++) e.v[i] = make_float2(from_bf16(uint16_t(at[4 * i])), from_bf16(uint16_t(at[4 * i] >> 16)));
    } else {
      const float2 *at = (const float2 *)row.from + pair;
#pragma unroll
      for (int i = 0; i < 4; i++) e.v[i] = at[4 * i];
    }
    return e;
  }
  DEVICE_METHOD Eight read(const float *row, int step) const { return read(Numbers{row, false}, step); }
  DEVICE_METHOD void write(float *row, int step, const Eight &e) const {
    unsigned pair = 16 * unsigned(step) + (threadIdx.x & 3);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (Whole) {
        ((float2 *)row + pair)[4 * i] = e.v[i];
        continue;
      }
      int col = 2 * pair + 8 * i;
      if (col < in) row[col] = e.v[i].x;
      if (col + 1 < in) row[col + 1] = e.v[i].y;
    }
  }
  // each calls f with the thread's steps that rows have.
  template <class F>
  DEVICE_METHOD void each(F f) const {
    each_step(ceil_div(in, 32), [&](int s) {
      if (32 * s < in) f(s);
    });
  }
};

// with_format calls f with x as bf16 or as float32, so that a loop in f does not test which.
template <class F>
DEVICE void with_format(Numbers x, F f) {
  if (x.bf16)
    f(Numbers{x.from, true});
  else
    f(Numbers{x.from, false});
}

// unaligned returns 0 if pairs of a row's float32 numbers are aligned; null is.
DEVICE unsigned unaligned(const void *row) { return unsigned(uintptr_t(row)) & 7; }

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
  DEVICE_METHOD Eight at(int step) const {
    return eight(step, [&](int col) { return pair(col); });
  }
  DEVICE_METHOD float2 pair(int col) const {
    if (x == nullptr) return make_float2(0, 0);
    float2 v = two({x, false}, col, a.in);
    if (gate == nullptr) return v;
    float2 g = two({gate, false}, col, a.in);
    return make_float2(v.x * sigmoid(g.x), v.y * sigmoid(g.y));
  }
};

// GLUSource is rows that are gated. BF16: x is bf16.
template <bool BF16>
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
    if (row < a.rows) x = Numbers{a.x, BF16} + size_t(row) * 2 * a.in;
  }
  DEVICE_METHOD Eight at(int step) const {
    if (g.paired || a.in % 32 != 0) return eight(step, [&](int col) { return pair(col); });
    if (x.from == nullptr || 32 * step >= a.in) return Eight{};
    Eight gates = Columns<true>{a.in}.read(x, step), ups = Columns<true>{a.in}.read(x + a.in, step);
    auto gated = [&](int act) {
      GLUArgs one = g;
      one.act = act;
      return zip(gates, ups, [&](float gate, float up) { return gated_activation(one, gate, up); });
    };
    return g.act == kSiLU ? gated(kSiLU) : g.act == kGELUTanh ? gated(kGELUTanh) : gated(kGELU);
  }
  DEVICE_METHOD float2 pair(int col) const {
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

// NormSource is a row that is normalized, behind the chain c. A thread reads only what it wrote itself; norms and sums have the
// bits of norm_rows and add.
template <bool Whole>
struct NormSource {
  const NormPackArgs &n;
  const ChainPackArgs *c;  // null: no chain
  Columns<Whole> columns;
  size_t row;
  int end;            // the columns: 0 of a row of zeros
  Numbers given, x;   // the row of pack.x, and the one to normalize
  float own, others;  // the factors of kJoined
  float post, sum_scale;
  float inverse;  // with the scale
  DEVICE_METHOD NormSource(const NormPackArgs &a, const ChainPackArgs *with)
      : n(a), c(with), columns{a.pack.in}, row(0), end(0), given{}, x{}, own(0.0f), others(0.0f), post(0.0f), sum_scale(1.0f), inverse(0.0f) {}
  // begin computes the factors of row r. All threads of a block call it, with the same row.
  DEVICE_METHOD void begin(int r, float *scratch) {
    int from = r < n.pack.rows ? (n.pack.order ? n.pack.order[r] : r) : -1;
    if (from < 0) return;
    end = n.pack.in;
    row = size_t(from) * end;
    given = Numbers{n.pack.x, n.pack.x_bf16 != 0} + row;
    x = n.residual ? Numbers{n.residual + row, false} : given;
    if (c && c->sum_scale) sum_scale = *c->sum_scale;
    if (kinds() & kJoined) {
      own = factor(sum_of([&](int s) { return columns.read(wide(), s); }), scratch);
      others = factor(sum_of([&](int s) { return columns.read(c->other + row, s); }), scratch);
    }
    if (kinds() & kPost) post = factor(sum_of([&](int s) {
      if (!(kinds() & kJoined)) return columns.read(wide(), s);
      Eight v = joined(s);
      columns.write(wide(), s, v);
      return v;
    }), scratch);
    float sum = 0.0f;
    with_format(given, [&](Numbers from) { sum = sum_of([&](int s) { return added(from, s); }); });
    inverse = factor(sum, scratch) * n.scale;
  }
  DEVICE_METHOD int kinds() const { return c ? c->kinds : 0; }
  DEVICE_METHOD float *wide() const { return (float *)given.from; }  // with kinds
  // sum_of returns the sum of the squares of the thread's steps, f of each.
  template <class F>
  DEVICE_METHOD float sum_of(F f) const {
    float sum = 0.0f;
    columns.each([&](int s) { sum = squares(sum, f(s)); });
    return sum;
  }
  // factor returns what gives a row with a thread's sum a mean square of one.
  DEVICE_METHOD float factor(float sum, float *scratch) const {
    return 1.0f / sqrtf(block_sum(sum, scratch) / float(n.pack.in) + n.eps);
  }
  // normed returns v · by · w; w may be null.
  DEVICE_METHOD Eight normed(const Eight &v, float by, const float *w, int step) const {
    if (w == nullptr) return zip(v, v, [&](float v, float) { return v * by; });
    return zip(v, columns.read(w, step), [&](float v, float w) { return v * by * w; });
  }
  DEVICE_METHOD Eight joined(int step) const {
    Eight v = normed(columns.read(wide(), step), own, c->w_own, step);
    return zip(v, normed(columns.read(c->other + row, step), others, c->w_other, step), [](float v, float o) { return __fadd_rn(v, o); });
  }
  // added returns the row to normalize, and writes it unless it is given. from is given.
  DEVICE_METHOD Eight added(Numbers from, int step) const {
    int chained = from.bf16 ? 0 : kinds();
    Eight v = chained == kJoined ? joined(step) : columns.read(from, step);
    if (chained & kPost) v = normed(v, post, c->w_post, step);
    if (n.residual) v = zip(columns.read(n.residual + row, step), v, [&](float r, float v) { return __fadd_rn(r, v) * sum_scale; });
    if (n.residual || chained) columns.write((float *)x.from, step, v);
    return v;
  }
  DEVICE_METHOD Eight at(int step) const {
    Eight v{};
    if (32 * step >= end) return v;
    v = columns.read(x, step);
    if (n.w)
      v = zip(v, columns.read(n.w, step), [&](float v, float w) { return v * inverse * (n.offset + w); });
    else
      v = zip(v, v, [&](float v, float) { return v * inverse; });
    if (n.plain && n.plain_words == 0) columns.write(n.plain + row, step, v);
    return v;
  }
};

// HeadsSource is a row of segments. Whole: a segment is 32, 64 or 128 numbers, so that a step has one.
template <bool Whole>
struct HeadsSource {
  const HeadsPackArgs &h;
  const float *x, *gate;  // null: none
  const float *inverse;   // [in/segment], of this row
  DEVICE_METHOD float normed(float v, float by, float w) const { return (h.w ? v * by * (h.offset + w) : v * by) * h.scale; }
  DEVICE_METHOD float gated(float v, float g) const { return v * (g / (1.0f + expf(-g))); }
  DEVICE_METHOD float one(int col) const {
    if (col >= h.pack.in) return 0.0f;
    float v = normed(__ldg(x + col), inverse[col / h.segment], h.w ? __ldg(h.w + col % h.segment) : 0.0f);
    return gate ? gated(v, __ldg(gate + col)) : v;
  }
  DEVICE_METHOD Eight at(int step) const {
    Eight v{};
    if (x == nullptr || 32 * step >= h.pack.in) return v;
    if (!Whole) return eight(step, [&](int col) { return make_float2(one(col), one(col + 1)); });
    Columns<true> columns{h.pack.in};
    float by = inverse[step >> (h.segment >> 6)];
    v = columns.read(x, step);
    v = zip(v, h.w ? columns.read(h.w, step & (h.segment / 32 - 1)) : v, [&](float v, float w) { return normed(v, by, w); });
    return gate ? zip(v, columns.read(gate, step), [&](float v, float g) { return gated(v, g); }) : v;
  }
};

// Place is the destination of a step of a row: row g of a tile, shared by four neighbouring
// lanes, q.
struct Place {
  int tile, g;
};

// Packed is where a lane's words of a row's steps go, N a step.
template <int N>
struct Packed {
  char *at;
  float *sums;  // null: none
  int steps, words, stride;
  DEVICE_METHOD Packed(const PackArgs &a, Place p) : steps(ceil_div(a.in, 32)), words(a.words), stride((words == 2 ? 16 : 128) * N) {
    int q = threadIdx.x & 3, lane = 4 * p.g + q;
    size_t tile = size_t(p.tile) * steps;
    sums = a.sums ? a.sums + tile * 8 + p.g : nullptr;
    at = (char *)a.y + (words == 2 ? 8 * tile + p.g * steps : tile) * stride + (words == 2 ? q * N : lane * (words ? 4 : 4 * N));
  }
  // put writes the words of a step. In word order, 8 rows by 16 bytes are contiguous. Row by row, the two numbers of a lane in
  // each 8 columns are 8 numbers apart.
  DEVICE_METHOD void put(int step, const uint32_t (&w)[N]) const {
    char *y = at + unsigned(step) * unsigned(stride);
    if (words == 2) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if constexpr (N == 4)
          ((uint32_t *)y)[4 * i] = w[i];
        else
          ((uint16_t *)y)[4 * i] = uint16_t(w[i / 2] >> 16 * (i % 2));
      }
    } else if (words) {
#pragma unroll
      for (int i = 0; i < N; i++) ((uint32_t *)y)[32 * i] = w[i];
    } else if constexpr (N == 4) {
      *(uint4 *)y = make_uint4(w[0], w[1], w[2], w[3]);
    } else {
      *(uint2 *)y = make_uint2(w[0], w[1]);
    }
  }
};

// pack16 rounds a step to bf16 or fp16 and writes it, with its sums.
template <bool Half>
DEVICE void pack16(const Packed<4> &to, const Eight &e, int step) {
  uint32_t w[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float2 v = e.v[i];
    if (Half) {  // above the largest fp16 there is only infinity
      v.x = fminf(fmaxf(v.x, -65504.0f), 65504.0f);
      v.y = fminf(fmaxf(v.y, -65504.0f), 65504.0f);
      w[i] = to_f16x2(v.x, v.y);
    } else {
      w[i] = to_bf16x2(v.x, v.y);
    }
  }
  if (step < to.steps) to.put(step, w);
  if (Half || to.sums == nullptr) return;
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; i++) sum += from_bf16(uint16_t(w[i])) + from_bf16(uint16_t(w[i] >> 16));
  sum += __shfl_xor_sync(kAllLanes, sum, 1);
  sum += __shfl_xor_sync(kAllLanes, sum, 2);
  if ((threadIdx.x & 3) == 0 && step < to.steps) to.sums[8 * size_t(step)] = sum;
}

// by_step: a warp for each tile of 8 rows and step of 32 columns. grid.x divides the steps,
// grid.y is the tiles.
template <bool Half, class Source>
DEVICE void by_step(const PackArgs &a, Source from) {
  int step = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
  if (step >= ceil_div(a.in, 32)) return;
  Place p{int(blockIdx.y), int(threadIdx.x & 31) >> 2};
  from.begin(8 * p.tile + p.g);
  pack16<Half>(Packed<4>(a, p), from.at(step), step);
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
DEVICE void pack8(const Packed<2> &to, const Eight &e, int step, float by) {
  uint32_t w[2];
#pragma unroll
  for (int i = 0; i < 2; i++) w[i] = codes_of<Codes>(e.v[2 * i], e.v[2 * i + 1], by);
  if (step < to.steps) to.put(step, w);
}

// row8 rounds a row with one scale, or one for each group.
template <class Codes, class Source>
DEVICE void row8(const PackArgs &a, Place p, const Source &from) {
  __shared__ uint32_t scratch[kPackThreads / 32];
  Packed<2> to(a, p);
  int steps = to.steps, group = a.group ? a.group : steps, groups = ceil_div(steps, group);
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
      Eight e = from.at(s);
      Rounding<Codes> r(over(4 * group, largest(0, e)));
      if (s % group == 0 && (threadIdx.x & 3) == 0 && s < steps && there) scales[size_t(next) * (s / group)] = r.scale;
      pack8<Codes>(to, e, s, r.by);
    });
    return;
  }
  uint32_t most = 0;
  each_step(steps, [&](int s) { most = largest(most, from.at(s)); });
  most = over(32, most);
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = most;
  __syncthreads();
  for (int w = 0; w < int(blockDim.x >> 5); w++) most = max(most, scratch[w]);
  Rounding<Codes> r(most);
  if (threadIdx.x == 0) *scales = r.scale;
  each_step(steps, [&](int s) { pack8<Codes>(to, from.at(s), s, r.by); });
}

template <bool Whole, class F>
DEVICE void with_source(const NormPackArgs &a, const ChainPackArgs *c, F f) {
  __shared__ float scratch[32];
  Place p = row_of_block();
  NormSource<Whole> from(a, c);
  from.begin(8 * p.tile + p.g, scratch);
  with_format(from.x, [&](Numbers x) {
    from.x = x;
    f(p, from);
  });
}

// with_norm calls f with the source of norm_pack, or behind the chain c of chain_pack.
template <class F>
DEVICE void with_norm(const NormPackArgs &a, const ChainPackArgs *c, F f) {
  unsigned pairs = unaligned(a.pack.x) | unaligned(a.residual) | unaligned(a.w) | unaligned(a.plain);
  if (c) pairs |= unaligned(c->other) | unaligned(c->w_own) | unaligned(c->w_other) | unaligned(c->w_post);
  if (a.pack.in % 32 == 0 && pairs == 0)
    with_source<true>(a, c, f);
  else
    with_source<false>(a, c, f);
}

// with_heads calls f with the source of heads_pack: a warp sums a segment.
template <class F>
DEVICE void with_heads(const HeadsPackArgs &a, F f) {
  __shared__ float inverse[kSegments];
  Place p = row_of_block();
  int row = 8 * p.tile + p.g, lane = threadIdx.x & 31, segments = a.pack.in / a.segment;
  size_t at = size_t(row) * a.pack.in;
  bool there = row < a.pack.rows;
  const float *x = there ? (const float *)a.pack.x + at : nullptr, *gate = there && a.gate ? a.gate + at : nullptr;
  if (there)  // a block has one row
    for (int s = threadIdx.x >> 5; s < segments; s += blockDim.x >> 5) {
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < kSegment; i += 32) {
        float v = i + lane < a.segment ? x[s * a.segment + i + lane] : 0.0f;
        sum = fmaf(v, v, sum);
      }
      sum = warp_sum(sum);
      if (lane == 0) inverse[s] = sum;
    }
  __syncthreads();  // the sums of all segments are there
  for (int s = threadIdx.x; s < segments; s += blockDim.x) inverse[s] = 1.0f / sqrtf(inverse[s] / float(a.segment) + a.eps);
  __syncthreads();  // the factors of all segments are there
  if (a.segment % 32 == 0 && 128 % a.segment == 0 && (unaligned(a.pack.x) | unaligned(a.gate) | unaligned(a.w)) == 0)
    f(p, HeadsSource<true>{a, x, gate, inverse});
  else
    f(p, HeadsSource<false>{a, x, gate, inverse});
}

template <bool Half, class Source>
DEVICE void row16(const PackArgs &a, Place p, const Source &from) {
  Packed<4> to(a, p);
  each_step(to.steps, [&](int s) { pack16<Half>(to, from.at(s), s); });
}

template <bool Half>
DEVICE void heads_pack16(const HeadsPackArgs &a) {
  with_heads(a, [&](Place p, const auto &from) { row16<Half>(a.pack, p, from); });
}

template <class Codes>
DEVICE void heads_pack8(const HeadsPackArgs &a) {
  with_heads(a, [&](Place p, const auto &from) { row8<Codes>(a.pack, p, from); });
}

template <bool Half>
DEVICE void norm_pack16(const NormPackArgs &a, const ChainPackArgs *c) {
  with_norm(a, c, [&](Place p, const auto &from) { row16<Half>(a.pack, p, from); });
}

template <class Codes>
DEVICE void norm_pack8(const NormPackArgs &a, const ChainPackArgs *c) {
  with_norm(a, c, [&](Place p, const auto &from) {
    row8<Codes>(a.pack, p, from);
    if (a.plain_words == 0) return;
    PackArgs b{};
    b.y = a.plain;
    b.in = a.pack.in;
    b.words = a.plain_words - 1;
    row16<false>(b, p, from);
  });
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
// with_gates calls f with the source of glu_pack.
template <class F>
DEVICE void with_gates(const GLUPackArgs &a, F f) {
  if (a.pack.x_bf16)
    f(GLUSource<true>(a));
  else
    f(GLUSource<false>(a));
}
KERNEL(glu_pack_bf16, GLUPackArgs, 256) {
  with_gates(a, [&](auto from) { by_step<false>(a.pack, from); });
}
KERNEL(glu_pack_f16, GLUPackArgs, 256) {
  with_gates(a, [&](auto from) { by_step<true>(a.pack, from); });
}
KERNEL(glu_pack_f8_e4m3, GLUPackArgs, kPackThreads) {
  with_gates(a, [&](auto from) { pack_rows<CodesE4M3>(a.pack, from); });
}
KERNEL(glu_pack_i8, GLUPackArgs, kPackThreads) {
  with_gates(a, [&](auto from) { pack_rows<CodesI8>(a.pack, from); });
}
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

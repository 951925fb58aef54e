// The instructions of mma.cuh on the host. Copies and the products of warpgroups are computed
// when they are waited for, from the content that registers and shared memory have then. Both
// must not change until that, and a missing wait shows. Sums are in the order of the columns.
#pragma once
#include "emulate.h"

namespace emulation {

constexpr uint32_t kLanes = 0xffffffffu;  // of a whole warp

// Collectives of a warp besides those of emulate.h; kMultiply and kWarpgroup stand for one for
// each number type, kWarpgroup also for each number of sums.
enum Unit { kLoadMatrix = kUnits, kLoadTransposed, kCommit, kWait, kMultiply, kWarpgroup = kMultiply + 8 };

inline unsigned char *shared(const void *p, size_t bytes, const char *what) {
  unsigned char *s = (unsigned char *)p;
  const Block &b = *current()->block;
  if (s < b.shared || s + bytes > b.shared + b.shared_bytes) die(what);
  return s;
}

struct MatrixRow {
  const uint16_t *row;
  uint32_t *r;  // the lane's four registers
};

template <bool transposed>
void answer_matrix(Meeting &m) {
  for (int l = 0; l < 32; l++)
    for (int k = 0; k < 4; k++) {
      auto element = [&](int i, int j) { return uint32_t(m.lane<MatrixRow>(8 * k + i).row[j]); };
      int i = l / 4, j = l % 4 * 2;
      m.lane<MatrixRow>(l).r[k] = transposed ? element(j, i) | element(j + 1, i) << 16 : element(i, j) | element(i, j + 1) << 16;
    }
}

template <bool transposed>
void load_matrix(uint32_t (&r)[4], const void *row, int line) {
  if (uintptr_t(row) % 16 != 0) die("ldmatrix: an address is no multiple of 16");
  shared(row, 16, "ldmatrix: a row outside of shared memory");
  MatrixRow mine{(const uint16_t *)row, r};
  meet(kLanes, transposed ? kLoadTransposed : kLoadMatrix, &mine, answer_matrix<transposed>, "ldmatrix", line);
}

// Words are the registers of a lane.
typedef uint32_t Words __attribute__((vector_size(16)));

// The number types of the units, and the types of their sums: number h of each word.
typedef float Floats __attribute__((vector_size(16)));
typedef int Ints __attribute__((vector_size(16)));

struct NumberBF16 {
  using Sum = float;
  static constexpr int kKind = 0, kPer = 2;
  static Floats of(Words w, int h) { return (Floats)(h == 0 ? w << 16 : w & 0xffff0000u); }
};
struct NumberF16 {
  using Sum = float;
  static constexpr int kKind = 1, kPer = 2;
  static Floats of(Words w, int h) {
    Words v = w >> (16 * h), sign = (v & 0x8000) << 16, m = (v & 0x7fff) << 13;
    return (Floats)(sign | (m >= 31u << 23 ? m | 0x7f800000 : (Words)((Floats)m * 0x1p112f)));
  }
};
struct NumberE4M3 {
  using Sum = float;
  static constexpr int kKind = 2, kPer = 4;
  static Floats of(Words w, int h) {
    Words v = w >> (8 * h), sign = (v & 0x80) << 24, m = v & 0x7f;
    return (Floats)(sign | (m == 0x7f ? Words{} + 0x7fc00000 : (Words)((Floats)(m << 20) * 0x1p120f)));
  }
};
struct NumberS8 {
  using Sum = int;
  static constexpr int kKind = 3, kPer = 4;
  static Ints of(Words w, int h) { return (Ints)(w << (24 - 8 * h)) >> 24; }
};

// Tile is the left operand of a product, 16 rows, and a right operand of 8 columns. With g =
// lane/4 and q = lane%4, register 2·u + i of a lane has row g + 8·i at the columns from
// Number::kPer · (4·u + q) on; the right operand has the same rows of column g.
template <class Number>
struct Tile {
  using Sum = typename Number::Sum;
  static constexpr int kPer = Number::kPer, kDepth = 8 * kPer;
  typedef Sum Four __attribute__((vector_size(16)));
  typedef Sum Row __attribute__((vector_size(32)));
  struct alignas(8) Pair {
    Sum of[2];
  };

  Four a[32][kPer];  // by lane, as they hold them
  Sum b[kDepth][8], d[16][8];

  void left(int lane, const uint32_t *r) {
    Words w;
    memcpy(&w, r, sizeof w);
    for (int h = 0; h < kPer; h++) a[lane][h] = Number::of(w, h);
  }
  void right(int lane, const uint32_t *r) {
    Words w{r[0], r[1], 0, 0};
    for (int h = 0; h < kPer; h++) {
      Four v = Number::of(w, h);
      for (int u = 0; u < 2; u++) b[kPer * (u * 4 + lane % 4) + h][lane / 4] = v[u];
    }
  }
  void load(int lane, const Sum *from) {
    for (int i = 0; i < 2; i++) memcpy(&d[lane / 4 + 8 * i][lane % 4 * 2], from + 2 * i, sizeof(Pair));
  }
  void store(int lane, Sum *to) const {
    for (int i = 0; i < 2; i++) memcpy(to + 2 * i, &d[lane / 4 + 8 * i][lane % 4 * 2], sizeof(Pair));
  }
  void multiply() {
    for (int g = 0; g < 8; g++) {
      Row low, high;  // rows g and g+8
      memcpy(&low, d[g], sizeof low);
      memcpy(&high, d[g + 8], sizeof high);
      for (int u = 0; u < 2; u++)
        for (int q = 0; q < 4; q++)
          for (int h = 0; h < kPer; h++) {
            Row column;
            memcpy(&column, b[kPer * (4 * u + q) + h], sizeof column);
            low += a[4 * g + q][h][2 * u] * column;
            high += a[4 * g + q][h][2 * u + 1] * column;
          }
      memcpy(d[g], &low, sizeof low);
      memcpy(d[g + 8], &high, sizeof high);
    }
  }

  // multiply_cut is multiply by units that keep few bits of a sum (Block.e4m3): the products and the sum before are
  // aligned to the largest of them, that many bits of each are added, and as many of the result are kept. The bits
  // below are cut off.
  void multiply_cut(int bits) {
    for (int r = 0; r < 16; r++)
      for (int c = 0; c < 8; c++) {
        float terms[kDepth + 1];
        for (int k = 0; k < kDepth; k++) terms[k] = a[4 * (r % 8) + k / kPer % 4][k % kPer][2 * (k / kPer / 4) + r / 8] * b[k][c];
        terms[kDepth] = d[r][c];
        double most = 0, sum = 0;
        bool numbers = true;
        for (float v : terms) {
          most = std::max(most, std::fabs(double(v)));
          numbers = numbers && std::isfinite(v);
        }
        for (float v : terms) sum += numbers ? cut(v, most, bits) : double(v);
        d[r][c] = Sum(numbers ? cut(sum, sum, bits) : sum);
      }
  }
  // cut returns v without the bits below the first `bits` of `most`.
  static double cut(double v, double most, int bits) {
    if (most == 0) return 0;
    double unit = std::ldexp(1, std::ilogb(most) - (bits - 1));
    return std::trunc(v / unit) * unit;
  }
};

// multiply_tile multiplies as the block's units do.
template <class Number>
void multiply_tile(Tile<Number> &t) {
  if constexpr (Number::kKind == 2)
    if (int bits = current()->block->e4m3) {
      t.multiply_cut(bits);
      return;
    }
  t.multiply();
}

template <class Number>
struct Operands {
  uint32_t a[4], b[2];
  typename Number::Sum *d;
};

template <class Number>
void answer_multiply(Meeting &m) {
  Tile<Number> t;
  for (int l = 0; l < 32; l++) {
    const auto &o = m.lane<Operands<Number>>(l);
    t.left(l, o.a);
    t.right(l, o.b);
    t.load(l, o.d);
  }
  multiply_tile(t);
  for (int l = 0; l < 32; l++) t.store(l, m.lane<Operands<Number>>(l).d);
}

template <class Number>
void multiply(typename Number::Sum (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int line) {
  Operands<Number> mine{{a[0], a[1], a[2], a[3]}, {b0, b1}, d};
  meet(kLanes, kMultiply + Number::kKind, &mine, answer_multiply<Number>, "mma", line);
}

// Issued is what a lane brings to a product of its warpgroup.
struct Issued {
  const uint32_t *a;
  float *sums;
  uint64_t b;
  int add;
};

// compute multiplies with a right operand of 8·Tiles columns.
template <class Number, int Tiles>
void compute(const Products &p) {
  constexpr int bytes = 4 / Number::kPer;
  const unsigned char *from = current()->block->shared + ((p.b & 0x3fff) << 4);
  size_t along = (p.b >> 16 & 0x3fff) << 4, across = (p.b >> 32 & 0x3fff) << 4;
  Tile<Number> t;
  for (int l = 0; l < 32; l++) t.left(l, p.a[l]);
  for (int n = 0; n < Tiles; n++) {
    for (int half = 0; half < 2; half++) {  // 8 columns by 16 bytes of rows
      const unsigned char *block = shared(from + n * across + half * along, 128, "wgmma: a matrix outside of shared memory");
      for (int i = 0; i < 128; i += bytes) {
        Words v{};
        memcpy(&v, block + i, bytes);
        t.b[(16 * half + i % 16) / bytes][i / 16] = Number::of(v, 0)[0];
      }
    }
    for (int l = 0; l < 32; l++) t.load(l, p.sums[l] + 4 * n);
    if (!p.add) memset(t.d, 0, sizeof t.d);
    multiply_tile(t);
    for (int l = 0; l < 32; l++) t.store(l, p.sums[l] + 4 * n);
  }
}

template <class Number, int Tiles>
void answer_wgmma(Meeting &m) {
  Warp &w = *current()->warp;
  const Issued &first = m.lane<Issued>(0);
  Products p{{}, {}, first.b, first.add, compute<Number, Tiles>, w.committed};
  for (int l = 0; l < 32; l++) {
    const Issued &i = m.lane<Issued>(l);
    if (i.b != p.b || i.add != p.add) die("wgmma: the lanes of a warp disagree");
    p.a[l] = i.a;
    p.sums[l] = i.sums;
  }
  w.products.push_back(p);
}

template <class Number, int Sums>
void wgmma(float (&d)[Sums], const uint32_t (&a)[4], uint64_t b, int add, int line) {
  static_assert(Sums == 8 || Sums == 16 || Sums == 32 || Sums == 64, "a product of 16, 32, 64 or 128 columns");
  const Fiber *f = current();
  if (!f->fenced) die("wgmma: no fence after the last wait");
  if (f->block->threads % 128 != 0) die("wgmma: the block is no whole warpgroups");
  if (b >> 46) die("wgmma: a descriptor with what is not emulated");
  Issued mine{a, d, b, add};
  meet(kLanes, kWarpgroup + Number::kKind + 4 * Sums, &mine, answer_wgmma<Number, Sums / 4>, "wgmma", line);
}

// answer_wait computes all but the last groups of products.
inline void answer_wait(Meeting &m) {
  Warp &w = *current()->warp;
  size_t done = 0;
  for (; done < w.products.size() && w.products[done].group + m.lane<unsigned>(0) < w.committed; done++) w.products[done].compute(w.products[done]);
  w.products.erase(w.products.begin(), w.products.begin() + long(done));
}

inline void wgmma_wait(unsigned leave, int line) {
  meet(kLanes, kWait, &leave, answer_wait, "wgmma.wait", line);
  current()->fenced = false;
}

// copy_wait completes all but the last groups of this thread's copies.
inline void copy_wait(unsigned leave) {
  Fiber *f = current();
  size_t done = 0;
  for (; done < f->copies.size() && f->copies[done].group + leave < f->committed; done++) {
    const Copy &c = f->copies[done];
    memcpy(c.to, c.from, size_t(c.bytes));
    memset((char *)c.to + c.bytes, 0, size_t(16 - c.bytes));
  }
  f->copies.erase(f->copies.begin(), f->copies.begin() + long(done));
}

}  // namespace emulation

static inline void copy_async(void *to, const void *from, int valid) {
  if (uintptr_t(to) % 16 != 0 || uintptr_t(from) % 16 != 0) emulation::die("cp.async: an address is no multiple of 16");
  if (valid < 0 || valid > 16) emulation::die("cp.async: a size that there is not");
  memset(emulation::shared(to, 16, "cp.async: a target outside of shared memory"), 0xff, 16);
  emulation::Fiber *f = emulation::current();
  f->copies.push_back({to, from, valid, f->committed});
}
static inline void copy_commit() { emulation::current()->committed++; }
template <int N>
static inline void copy_wait() {
  emulation::copy_wait(N);
}
static inline void load_matrix(uint32_t (&r)[4], const void *row, int line = __builtin_LINE()) { emulation::load_matrix<false>(r, row, line); }
static inline void load_matrix_transposed(uint32_t (&r)[4], const void *row, int line = __builtin_LINE()) { emulation::load_matrix<true>(r, row, line); }
static inline void multiply_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int line = __builtin_LINE()) {
  emulation::multiply<emulation::NumberBF16>(d, a, b0, b1, line);
}
static inline void multiply_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int line = __builtin_LINE()) {
  emulation::multiply<emulation::NumberF16>(d, a, b0, b1, line);
}
static inline void multiply_e4m3(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int line = __builtin_LINE()) {
  emulation::multiply<emulation::NumberE4M3>(d, a, b0, b1, line);
}
static inline void multiply_s8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int line = __builtin_LINE()) {
  emulation::multiply<emulation::NumberS8>(d, a, b0, b1, line);
}
static inline void wgmma_fence() { emulation::current()->fenced = true; }
static inline void wgmma_commit(int line = __builtin_LINE()) {
  emulation::meet(emulation::kLanes, emulation::kCommit, nullptr, [](emulation::Meeting &) { emulation::current()->warp->committed++; }, "wgmma.commit", line);
}
template <int N>
static inline void wgmma_wait(int line = __builtin_LINE()) {
  emulation::wgmma_wait(N, line);
}
template <int N>
static inline void wgmma_sums(float (&)[N]) {}
static inline void shared_for_wgmma() {}
static inline uint64_t wgmma_matrix(const void *p, int stride) {
  size_t at = size_t((const unsigned char *)p - emulation::current()->block->shared);
  if (at % 16 != 0 || stride % 16 != 0) emulation::die("wgmma: an address is no multiple of 16");
  return uint64_t(at >> 4) | uint64_t(128 >> 4) << 16 | uint64_t(stride >> 4) << 32;
}
template <int N>
static inline void wgmma_bf16(float (&d)[N], const uint32_t (&a)[4], uint64_t b, int add, int line = __builtin_LINE()) {
  emulation::wgmma<emulation::NumberBF16, N>(d, a, b, add, line);
}
template <int N>
static inline void wgmma_f16(float (&d)[N], const uint32_t (&a)[4], uint64_t b, int add, int line = __builtin_LINE()) {
  emulation::wgmma<emulation::NumberF16, N>(d, a, b, add, line);
}
template <int N>
static inline void wgmma_e4m3(float (&d)[N], const uint32_t (&a)[4], uint64_t b, int add, int line = __builtin_LINE()) {
  emulation::wgmma<emulation::NumberE4M3, N>(d, a, b, add, line);
}

// The instructions of warpgroup.cuh on the host. What a device leaves undefined or what would hang ends the block: a wait for
// another phase than a barrier's current or last one, more arrivals than it takes, products from shared memory without a fence
// of proxies behind the last wait for a barrier. Copies with which a thread arrives are done when another waits for the phase.
#pragma once
#include "units.h"

using Barrier = unsigned long long;

namespace emulation {

enum Group { kSharedGroup = kWarpgroup + 8, kRegisterGroup = kSharedGroup + 16, kSetRegisters = kRegisterGroup + 16 };

inline SharedBarrier &barrier_of(const Barrier *b) {
  if (uintptr_t(b) % 8 != 0) die("mbarrier: an address is no multiple of 8");
  shared(b, 8, "mbarrier: an address outside of shared memory");
  for (SharedBarrier &s : current()->block->barriers)
    if (s.at == b) return s;
  die("mbarrier: it was not initialized");
}

inline void barrier_init(Barrier *b, int count) {
  if (uintptr_t(b) % 8 != 0) die("mbarrier: an address is no multiple of 8");
  shared(b, 8, "mbarrier: an address outside of shared memory");
  if (count < 1) die("mbarrier: a count that there is not");
  for (const SharedBarrier &s : current()->block->barriers)
    if (s.at == b) die("mbarrier: it is initialized twice");
  current()->block->barriers.push_back({b, unsigned(count), 0, 0, {}, {}});
}

inline void barrier_arrive(Barrier *b, bool copied) {
  Fiber *f = current();
  SharedBarrier &s = barrier_of(b);
  if (copied) {
    for (const Copy &c : f->copies) s.copies.push_back({c, s.phase});
    f->copies.clear();
  }
  if (++s.arrived < s.count) return;
  s.arrived = 0;
  s.phase++;
  for (int i : s.waiting) f->block->pool->ready.push(i);
  s.waiting.clear();
}

inline void barrier_wait(Barrier *b, unsigned phase, int line) {
  Fiber *f = current();
  SharedBarrier *s = &barrier_of(b);
  if (phase != s->phase && phase + 1 != s->phase) die("mbarrier: a wait for a phase that is neither the current nor the last one");
  while (s->phase == phase) {
    s->waiting.push_back(f->index);
    wait(f, "mbarrier", line);
    s = &barrier_of(b);
  }
  size_t done = 0;
  for (; done < s->copies.size() && s->copies[done].phase <= phase; done++) copy_now(s->copies[done].copy);
  s->copies.erase(s->copies.begin(), s->copies.begin() + long(done));
  f->proxied = false;
}

// GroupIssued is what a lane brings to a product; a is null if the left operand is in shared memory.
struct GroupIssued {
  const uint32_t *a;
  float *sums;
  uint64_t left, right;
  int add;
};

// Matrix is a descriptor without swizzle.
struct Matrix {
  const unsigned char *from;
  size_t along, across;
  explicit Matrix(uint64_t d)
      : from(current()->block->shared + ((d & 0x3fff) << 4)), along((d >> 16 & 0x3fff) << 4), across((d >> 32 & 0x3fff) << 4) {}
  // block returns the 8 rows by 16 bytes at a place.
  const unsigned char *block(size_t summed, size_t other) const {
    return shared(from + summed * along + other * across, 128, "wgmma: a matrix outside of shared memory");
  }
};

template <class Number, int columns, bool transposed, bool registers>
void compute_group(const Products &p) {
  Tile<Number> t;
  if (registers) {
    for (int l = 0; l < 32; l++) t.left(l, p.a[l]);
  } else {
    Matrix a(p.left);
    size_t rows = size_t(current()->index / 32 % 4) * 2;  // of this warp, in blocks of 8
    for (int l = 0; l < 32; l++) {
      uint32_t r[4];
      for (int i = 0; i < 4; i++) memcpy(&r[i], a.block(size_t(i / 2), rows + size_t(i % 2)) + l / 4 * 16 + l % 4 * 4, 4);
      t.left(l, r);
    }
  }
  Matrix b(p.b);
  for (int n = 0; n < columns / 8; n++) {
    for (int half = 0; half < 2; half++) {
      const unsigned char *block = b.block(size_t(half), size_t(n));
      for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) {
          uint16_t v;
          memcpy(&v, block + i * 16 + j * 2, 2);
          float x = Number::of(Words{v, 0, 0, 0}, 0)[0];
          if (transposed)
            t.b[8 * half + i][j] = x;
          else
            t.b[8 * half + j][i] = x;
        }
    }
    for (int l = 0; l < 32; l++) t.load(l, p.sums[l] + 4 * n);
    if (!p.add) memset(t.d, 0, sizeof t.d);
    t.multiply();
    for (int l = 0; l < 32; l++) t.store(l, p.sums[l] + 4 * n);
  }
}

template <class Number, int columns, bool transposed, bool registers>
void answer_group(Meeting &m) {
  Warp &w = *current()->warp;
  const GroupIssued &first = m.lane<GroupIssued>(0);
  Products p{{}, {}, first.right, first.add, compute_group<Number, columns, transposed, registers>, w.committed, first.left};
  for (int l = 0; l < 32; l++) {
    const GroupIssued &i = m.lane<GroupIssued>(l);
    if (i.left != p.left || i.right != p.b || i.add != p.add) die("wgmma: the lanes of a warp disagree");
    p.a[l] = i.a;
    p.sums[l] = i.sums;
  }
  w.products.push_back(p);
}

template <class Number, int columns, bool transposed, bool registers>
void issue_group(const GroupIssued &issued, int line) {
  const Fiber *f = current();
  if (!f->fenced) die("wgmma: no fence after the last wait");
  if (!f->proxied) die("wgmma: no fence of proxies after the last wait for a barrier");
  if (f->block->threads % 128 != 0) die("wgmma: the block is no whole warpgroups");
  if (issued.right >> 46 || issued.left >> 46) die("wgmma: a descriptor with what is not emulated");
  GroupIssued mine = issued;
  constexpr int op = (registers ? kRegisterGroup : kSharedGroup) + 8 * Number::kKind + 4 * transposed + columns / 128;
  meet(kLanes, op, &mine, answer_group<Number, columns, transposed, registers>, "wgmma", line);
}

}  // namespace emulation

static inline void barrier_init(Barrier *b, int count) { emulation::barrier_init(b, count); }
static inline void barrier_arrive(Barrier *b) { emulation::barrier_arrive(b, false); }
static inline void barrier_arrive_copied(Barrier *b) { emulation::barrier_arrive(b, true); }
static inline void barrier_wait(Barrier *b, unsigned phase, int line = __builtin_LINE()) { emulation::barrier_wait(b, phase, line); }
template <int N>
static inline void registers_less(int line = __builtin_LINE()) {
  emulation::meet(emulation::kLanes, emulation::kSetRegisters, nullptr, nullptr, "setmaxnreg", line);
}
template <int N>
static inline void registers_more(int line = __builtin_LINE()) {
  emulation::meet(emulation::kLanes, emulation::kSetRegisters, nullptr, nullptr, "setmaxnreg", line);
}
static inline uint64_t group_matrix(const void *p, int along, int across) {
  size_t at = size_t((const unsigned char *)p - emulation::current()->block->shared);
  if (at % 16 != 0 || along % 16 != 0 || across % 16 != 0) emulation::die("wgmma: an address is no multiple of 16");
  return uint64_t(at >> 4) | uint64_t(along >> 4) << 16 | uint64_t(across >> 4) << 32;
}
template <int N>
static inline void group_sums(float (&)[N]) {}
template <bool transposed, int N>
static inline void group_products_bf16(float (&d)[N], uint64_t a, uint64_t b, int add, int line = __builtin_LINE()) {
  emulation::issue_group<emulation::NumberBF16, 2 * N, transposed, false>({nullptr, d, a, b, add}, line);
}
template <bool transposed, int N>
static inline void group_products_f16(float (&d)[N], uint64_t a, uint64_t b, int add, int line = __builtin_LINE()) {
  emulation::issue_group<emulation::NumberF16, 2 * N, transposed, false>({nullptr, d, a, b, add}, line);
}
template <int N>
static inline void group_product_bf16(float (&d)[N], const uint32_t (&a)[4], uint64_t b, int line = __builtin_LINE()) {
  emulation::issue_group<emulation::NumberBF16, 2 * N, true, true>({a, d, 0, b, 1}, line);
}
template <int N>
static inline void group_product_f16(float (&d)[N], const uint32_t (&a)[4], uint64_t b, int line = __builtin_LINE()) {
  emulation::issue_group<emulation::NumberF16, 2 * N, true, true>({a, d, 0, b, 1}, line);
}

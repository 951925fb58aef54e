// The units of the device that C++ has no words for: asynchronous copies into shared
// memory, loads of matrix fragments, and the matrix units. nvcc gets PTX; the host
// computes the same, the copies only when they are waited for, so that a wait that is
// missing shows.
#pragma once
#include "numbers.cuh"

#if defined(__CUDACC__)

DEVICE uint32_t shared_address(const void *p) { return uint32_t(__cvta_generic_to_shared(p)); }

// copy_async brings 16 bytes to shared memory, of which valid are read and the others
// are 0. Both addresses are multiples of 16.
DEVICE void copy_async(void *to, const void *from, int valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)), "l"(from), "r"(valid) : "memory");
}
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
// copy_wait returns when all but the last N groups of this thread have arrived.
template <int N>
DEVICE void copy_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
}

// load_matrix brings four 8×8 matrices of 16-bit numbers: lane 8·i+r gives the address of
// row r of matrix i, and lane l gets elements 2·(l%4) and the next of row l/4 of each.
DEVICE void load_matrix(uint32_t (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
// load_matrix_turned is load_matrix of the transposed matrices.
DEVICE void load_matrix_turned(uint32_t (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// multiply is d += a·b, 16×16 by 16×8, sums in float32. With g = lane/4 and q = lane%4:
// a[0] and a[1] are rows g and g+8 at columns 2q, 2q+1, a[2] and a[3] the same at columns
// 2q+8, 2q+9; b0 is rows 2q, 2q+1 of column g, b1 rows 2q+8, 2q+9; d[0], d[1] are row g at
// columns 2q, 2q+1, d[2], d[3] row g+8.
DEVICE void multiply_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE void multiply_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#else

namespace emulation {

inline unsigned char *shared(const void *p, size_t bytes, const char *what) {
  unsigned char *s = (unsigned char *)p;
  if (s < block.shared || s + bytes > block.shared + block.shared_bytes) die(what);
  return s;
}

inline void load_matrix(uint32_t (&r)[4], const void *row, bool turned, int line) {
  if (uintptr_t(row) % 16 != 0) die("ldmatrix: an address is no multiple of 16");
  shared(row, 16, "ldmatrix: a row outside of shared memory");
  Collective *c = meet(0xffffffffu, turned ? 11 : 10, &row, sizeof row, "ldmatrix", line);
  int l = current->lane;
  for (int m = 0; m < 4; m++) {
    auto element = [&](int i, int j) {
      const uint16_t *p;
      memcpy(&p, c->values[8 * m + i], sizeof p);
      return uint32_t(p[j]);
    };
    int i = l / 4, j = l % 4 * 2;
    r[m] = turned ? element(j, i) | element(j + 1, i) << 16 : element(i, j) | element(i, j + 1) << 16;
  }
  part(c);
}

template <class Widen>
void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int op, int line, Widen widen) {
  uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  Collective *c = meet(0xffffffffu, op, mine, sizeof mine, "mma", line);
  int g = current->lane >> 2, q = current->lane & 3;
  auto word = [&](int lane, int i) { return ((const uint32_t *)c->values[lane])[i]; };
  for (int k = 0; k < 16; k++) {
    int from = k % 8 / 2, upper = k / 8, shift = k % 2 * 16;
    float a0 = widen(uint16_t(word(4 * g + from, 2 * upper) >> shift));
    float a1 = widen(uint16_t(word(4 * g + from, 2 * upper + 1) >> shift));
    float c0 = widen(uint16_t(word(8 * q + from, 4 + upper) >> shift));
    float c1 = widen(uint16_t(word(8 * q + 4 + from, 4 + upper) >> shift));
    d[0] += a0 * c0;
    d[1] += a0 * c1;
    d[2] += a1 * c0;
    d[3] += a1 * c1;
  }
  part(c);
}

}  // namespace emulation

static inline void copy_async(void *to, const void *from, int valid) {
  if (uintptr_t(to) % 16 != 0 || uintptr_t(from) % 16 != 0) emulation::die("cp.async: an address is no multiple of 16");
  if (valid < 0 || valid > 16) emulation::die("cp.async: a size that there is not");
  memset(emulation::shared(to, 16, "cp.async: a target outside of shared memory"), 0xff, 16);
  emulation::current->copies.push_back({to, from, valid, 16});
}
static inline void copy_commit() {
  emulation::Fiber *f = emulation::current;
  size_t before = 0;
  for (size_t n : f->groups) before += n;
  f->groups.push_back(f->copies.size() - before);
}
template <int N>
static inline void copy_wait() {
  emulation::Fiber *f = emulation::current;
  size_t done = 0;
  while (f->groups.size() > size_t(N)) {
    for (size_t i = 0; i < f->groups[0]; i++) {
      emulation::Copy &c = f->copies[done++];
      memcpy(c.to, c.from, size_t(c.bytes));
      memset((char *)c.to + c.bytes, 0, size_t(c.size - c.bytes));
    }
    f->groups.erase(f->groups.begin());
  }
  f->copies.erase(f->copies.begin(), f->copies.begin() + long(done));
}
static inline void load_matrix(uint32_t (&r)[4], const void *row, int line = __builtin_LINE()) {
  emulation::load_matrix(r, row, false, line);
}
static inline void load_matrix_turned(uint32_t (&r)[4], const void *row, int line = __builtin_LINE()) {
  emulation::load_matrix(r, row, true, line);
}
static inline void multiply_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int line = __builtin_LINE()) {
  emulation::multiply(d, a, b0, b1, 20, line, [](uint16_t v) { return from_bf16(v); });
}
static inline void multiply_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int line = __builtin_LINE()) {
  emulation::multiply(d, a, b0, b1, 21, line, [](uint16_t v) { return from_f16(v); });
}

#endif

// Instructions that have no C++ form: asynchronous copies to shared memory, loads of matrix
// fragments, and the matrix units. NVRTC gets PTX. The host computes the same values, but
// completes copies only when they are waited for, so that a missing wait shows.
#pragma once
#include "numbers.cuh"

#if defined(__CUDACC__)

DEVICE uint32_t shared_address(const void *p) { return uint32_t(__cvta_generic_to_shared(p)); }

// copy_async copies 16 bytes to shared memory. It reads `valid` bytes; the others become 0.
// Both addresses are multiples of 16.
DEVICE void copy_async(void *to, const void *from, int valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)), "l"(from), "r"(valid) : "memory");
}
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
// copy_wait waits for all but the last N groups of this thread.
template <int N>
DEVICE void copy_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
}

// load_matrix loads four 8×8 matrices of 16-bit numbers. Lane 8·i+r gives the address of row r
// of matrix i; lane l gets elements 2·(l%4) and 2·(l%4)+1 of row l/4 of each.
DEVICE void load_matrix(uint32_t (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
// load_matrix_transposed loads the transposed matrices.
DEVICE void load_matrix_transposed(uint32_t (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// multiply_bf16 and multiply_f16 do d += a·b, 16×16 by 16×8, with sums in float32. With g =
// lane/4 and q = lane%4: a[0] and a[1] are rows g and g+8 at columns 2q and 2q+1, a[2] and a[3]
// the same at columns 2q+8 and 2q+9; b0 is rows 2q and 2q+1 of column g, b1 rows 2q+8 and 2q+9;
// d[0] and d[1] are row g at columns 2q and 2q+1, d[2] and d[3] row g+8.
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

// multiply_e4m3 and multiply_s8 do d += a·b, 16×32 by 32×8, for 8-bit numbers: a[0] and a[1]
// are rows g and g+8 at columns 4q to 4q+3, a[2] and a[3] the same 16 columns further; b0 is
// rows 4q to 4q+3 of column g, b1 the same 16 rows further; d as above.
DEVICE void multiply_e4m3(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 890
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else  // every E4M3 is exact in fp16; the order of columns is free as long as a and b agree
  uint32_t low[4] = {e4m3_as_f16x2(a[0]), e4m3_as_f16x2(a[1]), e4m3_as_f16x2(a[0] >> 16), e4m3_as_f16x2(a[1] >> 16)};
  uint32_t high[4] = {e4m3_as_f16x2(a[2]), e4m3_as_f16x2(a[3]), e4m3_as_f16x2(a[2] >> 16), e4m3_as_f16x2(a[3] >> 16)};
  multiply_f16(d, low, e4m3_as_f16x2(b0), e4m3_as_f16x2(b0 >> 16));
  multiply_f16(d, high, e4m3_as_f16x2(b1), e4m3_as_f16x2(b1 >> 16));
#endif
}
DEVICE void multiply_s8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The asynchronous products of a warpgroup (four warps): only sm_90a has them.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// wgmma_fence must come between the last write of a register and the product that reads it.
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
// wgmma_wait waits for all but the last N groups of products.
template <int N>
DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory");
}
// wgmma_sums keeps the compiler from reading d earlier.
template <int N>
DEVICE void wgmma_sums(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}
// shared_for_wgmma makes this thread's writes to shared memory visible to products.
DEVICE void shared_for_wgmma() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }
// wgmma_matrix returns the descriptor of the right operand. It is in blocks of 8
// columns by 16 bytes of rows, 128 bytes each; the next rows follow after 128 bytes and the
// next columns after `stride` bytes (PTX ISA, matrix descriptor: no swizzle, K-major; both
// offsets in units of 16).
DEVICE uint64_t wgmma_matrix(const void *shared, int stride) {
  return uint64_t((shared_address(shared) & 0x3ffff) >> 4) | uint64_t(128 >> 4) << 16 | uint64_t(stride >> 4) << 32;
}
#define WGMMA_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WGMMA_8(d, i) WGMMA_4(d, i), WGMMA_4(d, i + 4)
#define WGMMA_16(d, i) WGMMA_8(d, i), WGMMA_8(d, i + 8)
#define WGMMA_32(d, i) WGMMA_16(d, i), WGMMA_16(d, i + 16)
#define WGMMA_64(d, i) WGMMA_32(d, i), WGMMA_32(d, i + 32)
#define WGMMA_NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define WGMMA_NAMES_16 WGMMA_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_NAMES_32 WGMMA_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_NAMES_64                                                                                                              \
  WGMMA_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, " \
                 "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_REST_8 "{%8, %9, %10, %11}, %12"
#define WGMMA_REST_16 "{%16, %17, %18, %19}, %20"
#define WGMMA_REST_32 "{%32, %33, %34, %35}, %36"
#define WGMMA_REST_64 "{%64, %65, %66, %67}, %68"
#define WGMMA_ADD_8 "%13"
#define WGMMA_ADD_16 "%21"
#define WGMMA_ADD_32 "%37"
#define WGMMA_ADD_64 "%69"
// d += a·b, or d = a·b if add is 0: 64×16 by 16×N, or 64×32 by 32×N for 8-bit numbers, with N/2
// sums a thread. a is as for multiply_bf16, with 16 rows for each warp; d[4·n + i] is its d[i] for
// the columns from 8·n on.
#define WGMMA(name, sums, shape, types, last)                                                                                  \
  DEVICE void name(float (&d)[sums], const uint32_t (&a)[4], uint64_t b, int add) {                                            \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " WGMMA_ADD_##sums ", 0;\nwgmma.mma_async.sync.aligned." shape ".f32." types \
                 " {" WGMMA_NAMES_##sums "}, " WGMMA_REST_##sums ", p, 1, 1" last ";\n}\n"                                     \
                 : WGMMA_##sums(d, 0)                                                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add)                                                \
                 : "memory");                                                                                                  \
  }
#define WGMMA_OF(sums, n)                                             \
  WGMMA(wgmma_bf16, sums, "m64n" n "k16", "bf16.bf16", ", 0")         \
  WGMMA(wgmma_f16, sums, "m64n" n "k16", "f16.f16", ", 0")            \
  WGMMA(wgmma_e4m3, sums, "m64n" n "k32", "e4m3.e4m3", "")
WGMMA_OF(8, "16")
WGMMA_OF(16, "32")
WGMMA_OF(32, "64")
WGMMA_OF(64, "128")
#endif

#else
#include "emulation/units.h"
#endif

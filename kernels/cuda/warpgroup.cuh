// Roles of warpgroups on sm_90a: products with operands in shared memory, and the barriers there by which warps that load give
// tiles to warps that multiply. The host computes the same (emulation/warpgroup.h).
#pragma once
#include "mma.cuh"

#if defined(__CUDACC__)
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// A Barrier is in shared memory (PTX: mbarrier). A phase of it is complete when `count` threads have arrived; phases are
// counted from 0.
using Barrier = unsigned long long;

// barrier_init sets how many arrivals complete a phase. One thread calls it, before a barrier of the block.
DEVICE void barrier_init(Barrier *b, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(b)), "r"(count) : "memory");
}
DEVICE void barrier_arrive(Barrier *b) {
  asm volatile("{\n.reg .b64 t;\nmbarrier.arrive.shared::cta.b64 t, [%0];\n}\n" ::"r"(shared_address(b)) : "memory");
}
// barrier_arrive_copied arrives when all copies that this thread began are done.
DEVICE void barrier_arrive_copied(Barrier *b) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(shared_address(b)) : "memory");
}
// barrier_wait waits until a phase is complete, which is the current one or the one before.
DEVICE void barrier_wait(Barrier *b, unsigned phase) {
  asm volatile(
      "{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra AGAIN;\nDONE:\n}\n" ::"r"(shared_address(b)),
      "r"(phase & 1)
      : "memory");
}

// registers_less and registers_more change how many registers a thread of this warpgroup has; all of its warps call them.
template <int N>
DEVICE void registers_less() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(N));
}
template <int N>
DEVICE void registers_more() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(N));
}

// group_matrix returns the descriptor of an operand in blocks of 8 rows by 16 bytes, 128 bytes each (PTX ISA, matrix
// descriptor, no swizzle): `along` bytes to the next block in the direction that is summed over, `across` bytes in the other.
// A block's rows are columns of the right operand (rows of the left), of 8 numbers to sum over; transposed, they are what is
// summed over, of 8 columns.
DEVICE uint64_t group_matrix(const void *shared, int along, int across) {
  uint64_t d = uint64_t((shared_address(shared) & 0x3ffff) >> 4) | uint64_t(along >> 4) << 16 | uint64_t(across >> 4) << 32;
  asm volatile("" : "+l"(d));  // else those of all products of a loop would be kept in registers
  return d;
}

// group_sums keeps the compiler from using d earlier.
template <int N>
DEVICE void group_sums(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

#define GROUP_SUMS_64 \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
  "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define GROUP_TEXT_64 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define GROUP_SUMS_128 \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
  "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), \
  "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), \
  "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define GROUP_TEXT_128 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define GROUP_SUMS_256 \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
  "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), \
  "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), \
  "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), \
  "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), \
  "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), \
  "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), \
  "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
#define GROUP_TEXT_256 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// group_products does d += a·b, or d = a·b if add is 0: 64×16 by 16×columns, with sums in float32; d has columns / 2 numbers.
// Both operands are descriptors; transposed is of b. d[4·n + i] is d[i] of multiply_bf16 for the columns from 8·n on.
// group_product adds a·b with a from registers, 16 rows for each warp as for multiply_bf16, and b transposed.
#define GROUP_PRODUCTS(columns, type, A, B, ADD, TRANSPOSED)                                                                       \
  template <bool transposed>                                                                                                       \
  DEVICE void group_products_##type(float (&d)[columns / 2], uint64_t a, uint64_t b, int add) {                                   \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" ADD ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." #type "." #type \
                 " {" GROUP_TEXT_##columns "}, %" A ", %" B ", p, 1, 1, 0, %" TRANSPOSED ";\n}\n"                                 \
                 : GROUP_SUMS_##columns                                                                                            \
                 : "l"(a), "l"(b), "r"(add), "n"(int(transposed))                                                                  \
                 : "memory");                                                                                                      \
  }
#define GROUP_PRODUCT(columns, type, A0, A1, A2, A3, B)                                                                            \
  DEVICE void group_product_##type(float (&d)[columns / 2], const uint32_t (&a)[4], uint64_t b) {                                 \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." #type "." #type " {" GROUP_TEXT_##columns                  \
                 "}, {%" A0 ", %" A1 ", %" A2 ", %" A3 "}, %" B ", 1, 1, 1, 1;\n"                                                  \
                 : GROUP_SUMS_##columns                                                                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)                                                              \
                 : "memory");                                                                                                      \
  }
#define GROUP_TYPE(type)                                 \
  GROUP_PRODUCTS(64, type, "32", "33", "34", "35")       \
  GROUP_PRODUCTS(128, type, "64", "65", "66", "67")      \
  GROUP_PRODUCT(64, type, "32", "33", "34", "35", "36")  \
  GROUP_PRODUCT(128, type, "64", "65", "66", "67", "68") \
  GROUP_PRODUCT(256, type, "128", "129", "130", "131", "132")
GROUP_TYPE(bf16)
GROUP_TYPE(f16)
#endif

#else
#include "emulation/warpgroup.h"
#endif

#if !defined(__CUDACC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
template <bool half, bool transposed, int N>
DEVICE void group_products(float (&d)[N], uint64_t a, uint64_t b, int add) {
  if constexpr (half)
    group_products_f16<transposed>(d, a, b, add);
  else
    group_products_bf16<transposed>(d, a, b, add);
}
template <bool half, int N>
DEVICE void group_product(float (&d)[N], const uint32_t (&a)[4], uint64_t b) {
  if constexpr (half)
    group_product_f16(d, a, b);
  else
    group_product_bf16(d, a, b);
}
#endif

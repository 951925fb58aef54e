/* target_avx512.h: vectors and sizes of Linear's kernel for VAPP_AVX512. */
#define FN __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")))
#define TILE 12
#define SLIM 2 /* 24 sums, 2 weights and an x take 27 of 32 registers */
#define WIDE_ROWS 2
#define PAIR 2 /* panels of one row at once */
#include "vec512.h"

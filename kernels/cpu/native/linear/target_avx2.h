/* target_avx2.h: vectors and sizes of Linear's kernel for VAPP_AVX2. */
#define FN __attribute__((target("avx2,fma,f16c")))
#define TILE 6
#define SLIM 2 /* 12 sums, 2 weights and an x take 15 of 16 registers */
#define WIDE_ROWS 2
#define PAIR 1 /* panels of one row at once */
#include "vec256.h"

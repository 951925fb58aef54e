/* target_avx512bf16.h: vectors and sizes of Linear's kernel for VAPP_AVX512_BF16. */
#define FN __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c")))
#define TILE 12
#define PAIR 2
#include "vec512.h"

/* target_avx512bf16.h: the functions that follow are compiled for VAPP_AVX512_BF16, until
 * target_end.h. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi,avx2,fma,f16c")
#pragma GCC optimize("O3")
#endif
#include <immintrin.h>

/* target_avx2.h: the functions that follow are compiled for VAPP_AVX2, until target_end.h. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#pragma GCC optimize("O3")
#endif
#include <immintrin.h>

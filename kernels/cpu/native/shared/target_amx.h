/* target_amx.h: the functions that follow are compiled for AVX-512 BF16, VBMI and AMX-BF16, until
 * target_end.h. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi,amx-tile,amx-bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi,amx-tile,amx-bf16")
#pragma GCC optimize("O3")
#endif
#include <immintrin.h>

/* vnni_amd64.c: the rate at which AVX-512 VNNI multiplies bytes. */
#include <immintrin.h>

#include "../shared/kernels.h"

/* vapp_dot_int8 does rounds × 12 dot products of four bytes. */
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))) void vapp_dot_int8(const void *args, const vapp_call *c)
{
	const vapp_limit *a = args;
	volatile int one = 0x01010101;
	__m512i x = _mm512_set1_epi32(one), acc[12];
	for (int i = 0; i < 12; i++)
		acc[i] = _mm512_set1_epi32(i);
	for (int64_t k = 0; k < a->rounds; k++)
#pragma GCC unroll 12
		for (int i = 0; i < 12; i++)
			acc[i] = _mm512_dpbusd_epi32(acc[i], x, x);
	for (int i = 1; i < 12; i++)
		acc[0] = _mm512_add_epi32(acc[0], acc[i]);
	a->sink[c->part * 16] = (float)_mm512_reduce_add_epi32(acc[0]);
}

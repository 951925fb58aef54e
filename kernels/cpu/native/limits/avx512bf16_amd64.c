#include "../shared/target_amx.h"

#include "../shared/kernels.h"

/* vapp_dot_bf16 does rounds × 12 dot products of bfloat16 pairs. */
void vapp_dot_bf16(const void *args, const vapp_call *c)
{
	const vapp_limit *a = args;
	volatile float one = 0.999f;
	__m512bh x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(one), _mm512_set1_ps(one));
	__m512 acc[12];
	for (int i = 0; i < 12; i++)
		acc[i] = _mm512_set1_ps((float)i);
	for (int64_t k = 0; k < a->rounds; k++)
#pragma GCC unroll 12
		for (int i = 0; i < 12; i++)
			acc[i] = _mm512_dpbf16_ps(acc[i], x, x);
	for (int i = 1; i < 12; i++)
		acc[0] = _mm512_add_ps(acc[0], acc[i]);
	a->sink[c->part * 16] = _mm512_reduce_add_ps(acc[0]);
}

#include "../shared/target_end.h"

/* body.h: what one thread can read and multiply at most, for benchmarks to compare with. */
#include <stdint.h>

#include "../shared/kernels.h"
#include "../shared/vec.h"

/* read reads the part's share of the buffer once, in order. */
void VAPP_NAME(read)(const void *args, const vapp_call *c)
{
	const vapp_limit *a = args;
	const int64_t step = 8 * VW;
	int64_t from, to;
	vapp_share(a->bytes / 4 / step, c, &from, &to);
	const float *p = a->buffer;
	vf acc[8];
	for (int i = 0; i < 8; i++)
		acc[i] = vf_set(0);
	for (int64_t k = from * step; k < to * step; k += step)
#pragma GCC unroll 8
		for (int i = 0; i < 8; i++)
			acc[i] = acc[i] + vf_load(p + k + i * VW);
	for (int i = 1; i < 8; i++)
		acc[0] = acc[0] + acc[i];
	a->sink[c->part * 16] = vf_sum(acc[0]);
}

/* fma does rounds × 12 independent fused multiply-adds of a vector. */
void VAPP_NAME(fma)(const void *args, const vapp_call *c)
{
	const vapp_limit *a = args;
	volatile float one = 0.999f, two = 0.001f;
	vf x = vf_set(one), y = vf_set(two), acc[12];
	for (int i = 0; i < 12; i++)
		acc[i] = vf_set((float)i);
	for (int64_t k = 0; k < a->rounds; k++)
#pragma GCC unroll 12
		for (int i = 0; i < 12; i++)
			acc[i] = vf_fma(acc[i], x, y);
	for (int i = 1; i < 12; i++)
		acc[0] = acc[0] + acc[i];
	a->sink[c->part * 16] = vf_sum(acc[0]);
}

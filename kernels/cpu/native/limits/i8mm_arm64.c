/* i8mm_arm64.c: the rate at which SMMLA multiplies bytes. */
#include <arm_neon.h>

#include "../shared/kernels.h"

/* vapp_dot_int8_i8mm does rounds × 12 vectors of SMMLA. */
__attribute__((target("arch=armv8.2-a+dotprod+i8mm"))) void vapp_dot_int8_i8mm(const void *args, const vapp_call *c)
{
	const vapp_limit *a = args;
	volatile int8_t one = 1;
	int8x16_t x = vdupq_n_s8(one);
	int32x4_t acc[12];
	for (int i = 0; i < 12; i++)
		acc[i] = vdupq_n_s32(i);
	for (int64_t k = 0; k < a->rounds; k++)
#pragma GCC unroll 12
		for (int i = 0; i < 12; i++)
			acc[i] = vmmlaq_s32(acc[i], x, x);
	for (int i = 1; i < 12; i++)
		acc[0] = vaddq_s32(acc[0], acc[i]);
	a->sink[c->part * 16] = (float)vaddvq_s32(acc[0]);
}

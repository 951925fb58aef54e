/* dots_arm64.c: the rates at which SDOT and SMMLA multiply bytes. */
#include <arm_neon.h>

#include "../shared/kernels.h"

/* RATE defines an op that does rounds × 12 vectors of an instruction. */
#define RATE(name, isa, multiply) \
	__attribute__((target(isa))) void name(const void *args, const vapp_call *c) \
	{ \
		const vapp_limit *a = args; \
		volatile int8_t one = 1; \
		int8x16_t x = vdupq_n_s8(one); \
		int32x4_t acc[12]; \
		for (int i = 0; i < 12; i++) \
			acc[i] = vdupq_n_s32(i); \
		for (int64_t k = 0; k < a->rounds; k++) \
			_Pragma("GCC unroll 12") for (int i = 0; i < 12; i++) acc[i] = multiply(acc[i], x, x); \
		for (int i = 1; i < 12; i++) \
			acc[0] = vaddq_s32(acc[0], acc[i]); \
		a->sink[c->part * 16] = (float)vaddvq_s32(acc[0]); \
	}

RATE(vapp_dot_int8_dotprod, "arch=armv8.2-a+dotprod", vdotq_s32)
RATE(vapp_dot_int8_i8mm, "arch=armv8.2-a+dotprod+i8mm", vmmlaq_s32)

/* dots.h: sums of four products of bytes on 64-bit ARM. The including file defines ARM_SET: 0 is
 * NEON, 1 has SDOT too, 2 has SDOT and SMMLA. */
#ifndef VAPP_CPU_LINEAR_INT8_DOTS_H
#define VAPP_CPU_LINEAR_INT8_DOTS_H
#include <arm_neon.h>

#define MATRICES (ARM_SET == 2)
#if ARM_SET == 2
#define FN __attribute__((target("arch=armv8.2-a+dotprod+i8mm")))
#elif ARM_SET == 1
#define FN __attribute__((target("arch=armv8.2-a+dotprod")))
#else
#define FN /* the compiler always has NEON */
#endif
#define V static inline __attribute__((always_inline)) FN

/* dot adds the products of the four bytes of each lane of w with those of lane `lane` of x, a
 * compile-time constant. */
#if ARM_SET
V int32x4_t dot(int32x4_t sum, int8x16_t w, int8x16_t x, const int lane) {
	switch (lane) {
	case 0: return vdotq_laneq_s32(sum, w, x, 0);
	case 1: return vdotq_laneq_s32(sum, w, x, 1);
	case 2: return vdotq_laneq_s32(sum, w, x, 2);
	default: return vdotq_laneq_s32(sum, w, x, 3);
	}
}
#else
V int8x16_t lane_of(int8x16_t x, const int lane) {
	int32x4_t d = vreinterpretq_s32_s8(x);
	switch (lane) {
	case 0: return vreinterpretq_s8_s32(vdupq_laneq_s32(d, 0));
	case 1: return vreinterpretq_s8_s32(vdupq_laneq_s32(d, 1));
	case 2: return vreinterpretq_s8_s32(vdupq_laneq_s32(d, 2));
	default: return vreinterpretq_s8_s32(vdupq_laneq_s32(d, 3));
	}
}

/* A product of two bytes fits 16 bits, and their sums are taken in 32. */
V int32x4_t dot(int32x4_t sum, int8x16_t w, int8x16_t x, const int lane) {
	int8x16_t four = lane_of(x, lane);
	int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(four))), high = vpaddlq_s16(vmull_high_s8(w, four));
	return vaddq_s32(sum, vpaddq_s32(low, high));
}
#endif

#endif

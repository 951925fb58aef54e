/* some_neon.h: the first n floats of a vector of four, all of them from n = 4 on. */
#ifndef VAPP_CPU_LINEAR_SOME_NEON_H
#define VAPP_CPU_LINEAR_SOME_NEON_H
#include <arm_neon.h>
#include <stdint.h>

/* load_some loads n floats; the others are 0. */
static inline __attribute__((always_inline)) float32x4_t load_some(const float *p, int64_t n) {
	if (n >= 4) return vld1q_f32(p);
	float f[4] = {0};
	for (int64_t i = 0; i < n; i++) f[i] = p[i];
	return vld1q_f32(f);
}

static inline __attribute__((always_inline)) void store_some(float *p, int64_t n, float32x4_t v) {
	if (n >= 4) {
		vst1q_f32(p, v);
		return;
	}
	float f[4];
	vst1q_f32(f, v);
	for (int64_t i = 0; i < n; i++) p[i] = f[i];
}

#endif

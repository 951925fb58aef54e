/* neon.h: the kernel of w8a8.h on 64-bit ARM: with NEON, with its dot products (SDOT), or with its
 * products of matrices of bytes (SMMLA), two rows times two outputs, as ARM_SET of dots.h says.
 * Codes are multiplied without their 128. */
#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#include "../int8/dots.h"
#include "../some_neon.h"
#include "w8a8.h"

enum { LANES = 4, HALF_V = 4 /* vectors of half a panel */ };
#define W8_TILE 4
#include "body.h"

FN static void w8_quantize(const float *x, int64_t in, int8_t *to) {
	int64_t whole = in & ~(int64_t)7, k = 0;
	int32x4_t all = vdupq_n_s32(0x7fffffff), sizes = vdupq_n_s32(0), sums = vdupq_n_s32(0);
	for (; k < whole; k += 4) sizes = vmaxq_s32(sizes, vandq_s32(vreinterpretq_s32_f32(vld1q_f32(x + k)), all));
	int32_t most = vmaxvq_s32(sizes);
	for (; k < in; k++) {
		int32_t bits = int8_bits(x[k]) & 0x7fffffff;
		most = bits > most ? bits : most;
	}
	float by, scale = w8_scale(most, &by);
	if (most >= INT8_INFINITY) {
		memset(to, 0, in);
		w8_end(to, in, scale, 0);
		return;
	}
	for (k = 0; k < whole; k += 8) {
		int32x4_t a = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + k), by)), b = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + k + 4), by));
		sums = vaddq_s32(sums, vaddq_s32(a, b));
		vst1_s8(to + k, vmovn_s16(vcombine_s16(vmovn_s32(a), vmovn_s32(b))));
	}
	int32_t sum = vaddvq_s32(sums);
	for (; k < in; k++) {
		to[k] = (int8_t)__builtin_rintf(x[k] * by);
		sum += to[k];
	}
	w8_end(to, in, scale, sum);
}

V int8x16_t codes(const uint8_t *p) { return vreinterpretq_s8_u8(vld1q_u8(p) ^ vdupq_n_u8(128)); }

#if MATRICES
/* sums_of sums the products of 16 outputs from `lane` on. */
V void sums_of(const w8_part *p, const int rows, int lane, int32x4_t total[][HALF_V]) {
	int32x4_t sum[W8_TILE][HALF_V][2];
#pragma GCC unroll 2
	for (int r = 0; r < rows; r += 2)
#pragma GCC unroll 4
		for (int v = 0; v < HALF_V; v++) sum[r][v][0] = sum[r][v][1] = vdupq_n_s32(0);
	for (int64_t k = 0; k < p->n; k += 8) {
		const uint8_t *from = p->w + k * PANEL + lane * 4;
		int8x16_t x[W8_TILE];
#pragma GCC unroll 2
		for (int r = 0; r < rows; r += 2)
			x[r] = vcombine_s8(vld1_s8(p->x + r * p->stride + k), r + 1 < rows ? vld1_s8(p->x + (r + 1) * p->stride + k) : vdup_n_s8(0));
#pragma GCC unroll 4
		for (int v = 0; v < HALF_V; v++) {
			int32x4_t a = vreinterpretq_s32_s8(codes(from + 16 * v)), b = vreinterpretq_s32_s8(codes(from + 4 * PANEL + 16 * v));
			int8x16_t low = vreinterpretq_s8_s32(vzip1q_s32(a, b)), high = vreinterpretq_s8_s32(vzip2q_s32(a, b));
#pragma GCC unroll 2
			for (int r = 0; r < rows; r += 2) {
				sum[r][v][0] = vmmlaq_s32(sum[r][v][0], x[r], low);
				sum[r][v][1] = vmmlaq_s32(sum[r][v][1], x[r], high);
			}
		}
	}
#pragma GCC unroll 2
	for (int r = 0; r < rows; r += 2)
#pragma GCC unroll 4
		for (int v = 0; v < HALF_V; v++) {
			int64x2_t a = vreinterpretq_s64_s32(sum[r][v][0]), b = vreinterpretq_s64_s32(sum[r][v][1]);
			total[r][v] = vreinterpretq_s32_s64(vzip1q_s64(a, b));
			if (r + 1 < rows) total[r + 1][v] = vreinterpretq_s32_s64(vzip2q_s64(a, b));
		}
}
#else
V void sums_of(const w8_part *p, const int rows, int lane, int32x4_t total[][HALF_V]) {
#pragma GCC unroll 4
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
		for (int v = 0; v < HALF_V; v++) total[r][v] = vdupq_n_s32(0);
	for (int64_t k = 0; k < p->n; k += 16) {
		const uint8_t *from = p->w + k * PANEL + lane * 4;
		int8x16_t x[W8_TILE];
#pragma GCC unroll 4
		for (int r = 0; r < rows; r++) x[r] = vld1q_s8(p->x + r * p->stride + k);
#define FOUR(i) \
	_Pragma("GCC unroll 4") for (int v = 0; v < HALF_V; v++) { \
		int8x16_t w = codes(from + (i) * 4 * PANEL + 16 * v); \
		_Pragma("GCC unroll 4") for (int r = 0; r < rows; r++) total[r][v] = dot(total[r][v], w, x[r], i); \
	}
		FOUR(0)
		FOUR(1)
		FOUR(2)
		FOUR(3)
	}
}
#endif

/* half computes 16 outputs from `lane` on; rows is a compile-time constant. */
V void half(const w8_part *p, const int rows, int lane) {
	int32x4_t sum[W8_TILE][HALF_V];
	sums_of(p, rows, lane, sum);
#pragma GCC unroll 4
	for (int v = 0; v < HALF_V; v++) {
		int at = lane + v * LANES;
		float32x4_t d = vld1q_f32(p->scales + at), bias = p->bias ? load_some(p->bias + at, p->lanes - at) : vdupq_n_f32(0);
#pragma GCC unroll 4
		for (int r = 0; r < rows; r++) {
			float32x4_t scale = vmulq_n_f32(d, p->tails[r].scale);
			store_some(p->y + r * p->ldy + at, p->lanes - at, vfmaq_f32(bias, vcvtq_f32_s32(sum[r][v]), scale));
		}
	}
}

#define HALF(rows) half(p, rows, 0), half(p, rows, 16)
FN static void w8_tile(const w8_part *p, int rows) {
	switch (rows) {
	case 1: HALF(1); return;
	case 2: HALF(2); return;
	case 3: HALF(3); return;
	default: HALF(4); return;
	}
}

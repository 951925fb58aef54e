/* neon.h: Linear on integer activations on 64-bit ARM: with NEON, with its dot products (SDOT), or
 * with its products of matrices of bytes (SMMLA), as ARM_SET of dots.h says. Codes are multiplied as signed bytes: those of
 * Q8_0 without their 128, the others as they are stored, below 128. The sums are the integers
 * of the other instruction sets.
 *
 * SMMLA multiplies two rows of eight bytes with two outputs. With PLANES 2 the two rows are the
 * planes of one row of x, else they are two rows of x. */
#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#include "../blocks.h"
#include "../panel.h"
#include "../some_neon.h"
#include "dots.h"
#include "int8.h"

enum {
	LANES = 4,
	MOST_V = PANEL / LANES, /* vectors of one row at once: a whole panel, one stream of memory */
	SOME_V = 2,             /* vectors of several rows */
	CHUNK = 512 / GROUP,    /* groups that all lanes of a panel take before the next groups */
	/* SMMLA with one plane multiplies pairs of rows; the second of the last pair may not exist. */
	PAIRS = MATRICES && PLANES == 1
};

/* codes_of writes the lowest bytes of 32 integers in the order of c. */
V void codes_of(const int8_codes c, const int32x4_t *q, int rows, int32_t *to) {
	const uint8x8_t first = vld1_u8(c.order);
	const uint8x16_t order = vcombine_u8(first, vadd_u8(first, vdup_n_u8(8)));
#pragma GCC unroll 2
	for (int h = 0; h < 2; h++) {
		int16x8_t low = vcombine_s16(vmovn_s32(q[4 * h]), vmovn_s32(q[4 * h + 1])), high = vcombine_s16(vmovn_s32(q[4 * h + 2]), vmovn_s32(q[4 * h + 3]));
		int8x16_t codes = vcombine_s8(vmovn_s16(low), vmovn_s16(high));
		int32_t words[4];
		vst1q_s32(words, vreinterpretq_s32_s8(vqtbl1q_s8(codes, order)));
		for (int i = 0; i < 4; i++) to[(4 * h + i) * rows] = words[i];
	}
}

FN static void quantize_group(const int8_codes c, const float *x, int rows, int32_t *to) {
	float32x4_t f[8];
	int32x4_t q[8], sizes = vdupq_n_s32(0);
	for (int i = 0; i < 8; i++) {
		f[i] = vld1q_f32(x + 4 * i);
		sizes = vmaxq_s32(sizes, vandq_s32(vreinterpretq_s32_f32(f[i]), vdupq_n_s32(0x7fffffff)));
	}
	int32_t most = vmaxvq_s32(sizes);
	float largest, by = 0, scale = 0;
	memcpy(&largest, &most, 4);
	if (most >= INT8_INFINITY) {
		for (int i = 0; i < X_DWORDS; i++) to[i * rows] = i == X_SCALE || i == X_SUM ? INT8_NAN : 0;
		return;
	}
	if (most >= INT8_LEAST) scale = largest / INT8_MOST, by = INT8_MOST / largest;
	for (int i = 0; i < 8; i++) q[i] = vcvtnq_s32_f32(vmulq_n_f32(f[i], by));
	int32_t sums[2] = {vaddvq_s32(vaddq_s32(vaddq_s32(q[0], q[1]), vaddq_s32(q[2], q[3]))),
	                   vaddvq_s32(vaddq_s32(vaddq_s32(q[4], q[5]), vaddq_s32(q[6], q[7])))};
	if (PLANES == 2) {
		int32x4_t over[8];
		for (int i = 0; i < 8; i++) {
			over[i] = vshrq_n_s32(vaddq_s32(q[i], vdupq_n_s32(64)), 7);
			q[i] = vsubq_s32(q[i], vshlq_n_s32(over[i], 7));
		}
		codes_of(c, over, rows, to);
	}
	codes_of(c, q, rows, to + 8 * (PLANES - 1) * rows);
	to[X_SCALE * rows] = int8_bits(scale);
	to[X_SUM * rows] = int8_bits(scale * (float)(sums[0] + sums[1]));
	to[X_LESS * rows] = -c.zero * (c.subs == 1 ? sums[0] + sums[1] : sums[0]);
	to[(X_LESS + 1) * rows] = c.subs == 1 ? 0 : -c.zero * sums[1];
}

#include "body.h"

V float32x4_t halves(const uint8_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const void *)p))); }

V float32x4_t small(const uint8_t *p) {
	int32_t four;
	memcpy(&four, p, 4);
	return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four))))));
}

V float32x4_t dword_floats(const int32_t *x) {
	float f;
	memcpy(&f, x, 4);
	return vdupq_n_f32(f);
}

/* with_high adds to low nibbles the high bits of vector t of eight, from bit 4 on. */
V uint8x16_t with_high(const blocks b, const uint8_t *high, int t, uint8x16_t low) {
	const int each = 8 / b.high, left = 4 - t % each * b.high;
	uint8x16_t bits = vld1q_u8(high + t / each * 128);
	bits = left >= 0 ? bits << left : bits >> -left;
	return low | (bits & vdupq_n_u8((uint8_t)(((1 << b.high) - 1) << 4)));
}

/* codes_of_8 loads the codes of k's 8·j … 8·j+7 of 4 lanes, in the order of int8_codes, signed. */
V void codes_of_8(const int format, int8_place at, int lane, int j, int8x16_t *w0, int8x16_t *w1) {
	if (format == VAPP_Q8_0) {
		const uint8x16_t zero = vdupq_n_u8(Q8_ZERO);
		*w0 = vreinterpretq_s8_u8(vld1q_u8(at.codes + 2 * j * 128 + lane * 4) ^ zero);
		*w1 = vreinterpretq_s8_u8(vld1q_u8(at.codes + (2 * j + 1) * 128 + lane * 4) ^ zero);
		return;
	}
	const blocks b = blocks_of(format);
	uint8x16_t q = vld1q_u8(at.codes + j * 128 + lane * 4), low = q & vdupq_n_u8(15), high = q >> 4;
	if (b.high) {
		low = with_high(b, at.codes + 128 * b.low + lane * 4, 2 * j, low);
		high = with_high(b, at.codes + 128 * b.low + lane * 4, 2 * j + 1, high);
	}
	*w0 = vreinterpretq_s8_u8(low);
	*w1 = vreinterpretq_s8_u8(high);
}

V float32x4_t scale_of(int8_place at, int lane, int h) {
	if (at.zeros) return vreinterpretq_f32_u32(vbicq_u32(vld1q_u32((const void *)(at.d + lane * 4)), vdupq_n_u32(ZERO_BITS)));
	float32x4_t d = halves(at.d + lane * 2);
	return at.subs ? vmulq_f32(d, small(at.subs + h * PANEL + lane)) : d;
}

V float32x4_t least_of(const int8_codes c, int8_place at, int lane) {
	if (at.zeros) {
		float32x4_t zero = vcvtq_f32_u32(vandq_u32(vld1q_u32((const void *)(at.d + lane * 4)), vdupq_n_u32(ZERO_BITS)));
		return vmulq_f32(vnegq_f32(scale_of(at, lane, 0)), zero);
	}
	float32x4_t m = halves(at.m + lane * 2);
	return at.subs ? vmulq_f32(vnegq_f32(m), small(at.subs + c.subs * PANEL + lane)) : m;
}

#if MATRICES
/* x_of returns the two rows of eight bytes of k's 8·j … 8·j+7: the planes of row r, or rows r and
 * r + 1. The tile has memory behind its last row's codes. */
V int8x16_t x_of(const int32_t *x, const int r, const int tile, int j) {
	const int32_t *a = x + 2 * j * tile + r, *b = PAIRS ? a + 1 : a + 8 * tile;
	int32x4_t q = {a[0], a[tile], b[0], b[tile]};
	return vreinterpretq_s8_s32(q);
}

/* products sums the products with the codes of a group, or of its half h if halves have their own
 * scales. */
V void products(const int format, const int8_codes c, int8_place at, const int lane, const int h, const int32_t *x, const int rows,
                const int nv, const int tile, int32x4_t total[][MOST_V]) {
	const int each = PAIRS ? 2 : 1;
	int32x4_t sum[INT8_TILE][MOST_V][2];
#pragma GCC unroll 6
	for (int r = 0; r < rows; r += each)
#pragma GCC unroll 8
		for (int v = 0; v < nv; v++) sum[r][v][0] = sum[r][v][1] = vdupq_n_s32(0);
#pragma GCC unroll 4
	for (int j = h * 4 / c.subs; j < (h + 1) * 4 / c.subs; j++) {
		int8x16_t two[INT8_TILE];
#pragma GCC unroll 6
		for (int r = 0; r < rows; r += each) two[r] = x_of(x, r, tile, j);
#pragma GCC unroll 8
		for (int v = 0; v < nv; v++) {
			int8x16_t w0, w1;
			codes_of_8(format, at, lane + v * LANES, j, &w0, &w1);
			int32x4_t a = vreinterpretq_s32_s8(w0), b = vreinterpretq_s32_s8(w1);
			w0 = vreinterpretq_s8_s32(vzip1q_s32(a, b));
			w1 = vreinterpretq_s8_s32(vzip2q_s32(a, b));
#pragma GCC unroll 6
			for (int r = 0; r < rows; r += each) {
				sum[r][v][0] = vmmlaq_s32(sum[r][v][0], two[r], w0);
				sum[r][v][1] = vmmlaq_s32(sum[r][v][1], two[r], w1);
			}
		}
	}
#pragma GCC unroll 6
	for (int r = 0; r < rows; r += each)
#pragma GCC unroll 8
		for (int v = 0; v < nv; v++) {
			int64x2_t a = vreinterpretq_s64_s32(sum[r][v][0]), b = vreinterpretq_s64_s32(sum[r][v][1]);
			int32x4_t first = vreinterpretq_s32_s64(vzip1q_s64(a, b)), second = vreinterpretq_s32_s64(vzip2q_s64(a, b));
			if (PLANES == 2) {
				total[r][v] = vaddq_s32(second, vshlq_n_s32(first, 7));
				continue;
			}
			total[r][v] = first;
			if (r + 1 < rows) total[r + 1][v] = second;
		}
}
#else
V void products(const int format, const int8_codes c, int8_place at, const int lane, const int h, const int32_t *x, const int rows,
                const int nv, const int tile, int32x4_t total[][MOST_V]) {
	int32x4_t sum[PLANES][INT8_TILE][MOST_V];
#pragma GCC unroll 2
	for (int p = 0; p < PLANES; p++)
#pragma GCC unroll 6
		for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
			for (int v = 0; v < nv; v++) sum[p][r][v] = vdupq_n_s32(0);
#pragma GCC unroll 4
	for (int j = h * 4 / c.subs; j < (h + 1) * 4 / c.subs; j++) {
		int8x16_t four[PLANES][2][2]; /* the dwords of four rows */
#pragma GCC unroll 2
		for (int p = 0; p < PLANES; p++)
#pragma GCC unroll 2
			for (int i = 0; i < 2; i++)
#pragma GCC unroll 2
				for (int r = 0; r < rows; r += 4) {
					const int32_t *from = x + (8 * p + 2 * j + i) * tile + r;
					int32x4_t q = rows == 1 ? vdupq_n_s32(from[0]) : rows - r == 1 ? vld1q_dup_s32(from)
					            : rows - r == 2 ? vcombine_s32(vld1_s32(from), vdup_n_s32(0)) : vld1q_s32(from);
					four[p][i][r / 4] = vreinterpretq_s8_s32(q);
				}
#pragma GCC unroll 8
		for (int v = 0; v < nv; v++) {
			int8x16_t w[2];
			codes_of_8(format, at, lane + v * LANES, j, &w[0], &w[1]);
#pragma GCC unroll 2
			for (int i = 0; i < 2; i++)
#pragma GCC unroll 2
				for (int p = 0; p < PLANES; p++)
#pragma GCC unroll 6
					for (int r = 0; r < rows; r++) sum[p][r][v] = dot(sum[p][r][v], w[i], four[p][i][r / 4], r % 4);
		}
	}
#pragma GCC unroll 6
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
		for (int v = 0; v < nv; v++)
			total[r][v] = PLANES == 2 ? vaddq_s32(sum[PLANES - 1][r][v], vshlq_n_s32(sum[0][r][v], 7)) : sum[0][r][v];
}
#endif

/* group adds the products of one group; its format, rows, vectors and tile are compile-time
 * constants. */
V void group(const int format, const int8_codes c, int8_place at, const int lane, const int32_t *x, const int rows, const int nv,
             const int tile, float32x4_t y[][MOST_V]) {
#pragma GCC unroll 2
	for (int h = 0; h < c.subs; h++) {
		int32x4_t sum[INT8_TILE][MOST_V];
		products(format, c, at, lane, h, x, rows, nv, tile, sum);
#pragma GCC unroll 8
		for (int v = 0; v < nv; v++) {
			float32x4_t d = scale_of(at, lane + v * LANES, h);
#pragma GCC unroll 6
			for (int r = 0; r < rows; r++) {
				if (format != VAPP_Q8_0 && c.zero) sum[r][v] = vaddq_s32(sum[r][v], vdupq_n_s32(x[(X_LESS + h) * tile + r]));
				y[r][v] = vfmaq_f32(y[r][v], vcvtq_f32_s32(sum[r][v]), vmulq_f32(d, dword_floats(x + X_SCALE * tile + r)));
			}
		}
	}
	if (!c.least) return;
#pragma GCC unroll 8
	for (int v = 0; v < nv; v++) {
		float32x4_t m = least_of(c, at, lane + v * LANES);
#pragma GCC unroll 6
		for (int r = 0; r < rows; r++) y[r][v] = vfmaq_f32(y[r][v], m, dword_floats(x + X_SUM * tile + r));
	}
}

V void steps_of(const int format, const int8_step *s, const int lane, const int rows, const int nv, const int tile) {
	const int8_codes c = int8_codes_of(format);
	const int32_t *x = s->x;
	float32x4_t y[INT8_TILE][MOST_V];
#pragma GCC unroll 6
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
		for (int v = 0; v < nv; v++) {
			int at = lane + v * LANES;
			y[r][v] = s->g0 ? load_some(s->y + r * s->ldy + at, s->lanes - at) : vdupq_n_f32(0);
		}
	for (int64_t g = s->g0; g < s->g1; g++, x += X_DWORDS * tile)
		group(format, c, int8_place_at(format, s->zeros, s->panel, g), lane, x, rows, nv, tile, y);
#pragma GCC unroll 8
	for (int v = 0; v < nv; v++) {
		int at = lane + v * LANES;
		float32x4_t bias = s->bias ? load_some(s->bias + at, s->lanes - at) : vdupq_n_f32(0);
#pragma GCC unroll 6
		for (int r = 0; r < rows; r++) store_some(s->y + r * s->ldy + at, s->lanes - at, s->bias ? vaddq_f32(y[r][v], bias) : y[r][v]);
	}
}

/* One function for each format. */
#if PLANES == 2
#define MORE_ROWS(format)
#else
#define MORE_ROWS(format) \
	case 4: steps_of(format, s, lane, 4, SOME_V, INT8_TILE); break; \
	case 5: steps_of(format, s, lane, 5, SOME_V, INT8_TILE); break; \
	case 6: steps_of(format, s, lane, 6, SOME_V, INT8_TILE); break;
#endif
#define STEPS(format) \
	FN static void steps_##format(const int8_step *s, int lane, int rows, int tile) { \
		if (tile == 1) { \
			steps_of(format, s, 0, 1, MOST_V, 1); \
			return; \
		} \
		switch (rows) { \
		case 1: steps_of(format, s, lane, 1, SOME_V, INT8_TILE); break; \
		case 2: steps_of(format, s, lane, 2, SOME_V, INT8_TILE); break; \
		case 3: steps_of(format, s, lane, 3, SOME_V, INT8_TILE); break; \
		MORE_ROWS(format) \
		} \
	}
INT8_FORMATS(STEPS)

static int in_place(int32_t format, int64_t tiles) {
	(void)format;
	return tiles == 1;
}

static const uint8_t *unpack_codes(int32_t format, const int8_step *s, uint8_t *to) {
	(void)format, (void)s, (void)to;
	return NULL;
}

/* A single row takes all lanes at once. Several rows take a few lanes after the other, for a
 * CHUNK that stays in the first cache. */
static void int8_steps(int32_t format, const int8_step *s, int rows, int tile) {
	static void (*const steps[])(const int8_step *, int, int, int) = {INT8_FORMATS(INT8_ENTRY)};
	if (tile == 1) {
		steps[q4_kernel(format)](s, 0, 1, 1);
		return;
	}
	int8_step part = *s;
	for (; part.g0 < s->g1; part.g0 = part.g1) {
		part.g1 = part.g0 + CHUNK < s->g1 ? part.g0 + CHUNK : s->g1;
		part.bias = part.g1 == s->g1 ? s->bias : NULL;
		part.x = s->x + (part.g0 - s->g0) * X_DWORDS * tile;
		for (int lane = 0; lane < PANEL && lane < s->lanes; lane += SOME_V * LANES) steps[q4_kernel(format)](&part, lane, rows, tile);
	}
}

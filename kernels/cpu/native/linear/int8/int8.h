/* int8.h: Linear on integer activations, for quantized weights.
 *
 * A row of x is cut into groups of 32, and the numbers of a group are rounded to the nearest
 * multiple of max |x| / 127, ties to even. With PLANES 2 it is max |x| / 16256, and a number is
 * 128 times one int8 plus another. The products of these integers with a weight's codes are
 * summed exactly; then, group by group in the order of k,
 *
 *   y = fma(sum, d·dx, y)          d is the weight's scale, dx the group's; formats with two
 *                                  scales in 32 k's do this for each half
 *   y = fma(m, dx·Σx, y)           for formats with minima, m
 *
 * starting at 0, with the bias added last. So all instruction sets give the same bits. A group
 * that has a NaN or an infinity gets the scale NaN.
 *
 * Packed weights have the layout of panel.h with two differences. Q8_0 is, per 32 k, [32] half
 * d, [8][32][4] codes + 128. For the high bits of codes (blocks.h), byte b of a dword has those
 * of byte b of 8/high vectors of four codes, the first vector's in its lowest bits. */
#ifndef VAPP_CPU_LINEAR_INT8_H
#define VAPP_CPU_LINEAR_INT8_H
#include <stdint.h>
#include <string.h>

#include "../../shared/inline.h"
#include "../../shared/linear.h"
#include "../blocks.h"
#include "../panel.h"

#ifndef PLANES
#define PLANES 1 /* bytes of a number of x */
#endif

enum {
	GROUP = 32, /* k's of x that share a scale */
	/* A tile of x holds these dwords for each group, T rows each: 8 of codes for each plane,
	 * the scale, for each half of the group −zero·Σ codes, and dx·Σ codes. */
	X_SCALE = 8 * PLANES,
	X_LESS,
	X_SUM = X_LESS + 2,
	X_DWORDS,
	INT8_MOST = PLANES == 2 ? 127 * 128 : 127, /* the largest integer of x */
	INT8_TILE = 6 / PLANES, /* rows of a tile: with 32 registers 12 integer sums, 12 float sums, 4 weights */
	INT8_BLOCK = 512, /* k's that all tiles of rows take before the next k's, if codes are unpacked */
	INT8_LONG = 4096, /* the same if codes are read packed, from the second cache */
	INT8_AHEAD = 8192, /* bytes that a single tile of rows prefetches ahead */
	Q8_ZERO = 128
};

/* The meaning of a format's codes: d·(code − zero) [+ m]. */
typedef struct {
	int zero, subs, least;
	int bits;     /* of a code */
	uint8_t order[8]; /* which of eight k's each byte of a vector multiplies */
} int8_codes;

INLINE int8_codes int8_codes_of(int32_t format) {
	blocks b = blocks_of(format);
	switch (q4_kernel(format)) {
	case VAPP_Q8_0: return (int8_codes){Q8_ZERO, 1, 0, 8, {0, 1, 2, 3, 4, 5, 6, 7}};
	case VAPP_Q4_0: return (int8_codes){8, 1, 0, 4, {0, 4, 1, 5, 2, 6, 3, 7}};
	case VAPP_Q4_1: return (int8_codes){0, 1, 1, 4, {0, 4, 1, 5, 2, 6, 3, 7}};
	}
	return (int8_codes){b.zero, b.subs == 2 ? 2 : 1, b.least, b.low + b.high, {0, 2, 4, 6, 1, 3, 5, 7}};
}

/* The formats whose codes are multiplied as integers; Q4_1's kernels take I4 too (q4_kernel). */
#define INT8_FORMATS(X) \
	X(VAPP_Q8_0) X(VAPP_Q4_0) X(VAPP_Q4_1) X(VAPP_Q4_K) X(VAPP_Q5_0) X(VAPP_Q5_1) X(VAPP_Q5_K) X(VAPP_Q6_K)
#define INT8_CASE(format) case format:
#define INT8_ENTRY(format) [format] = steps_##format,

INLINE int int8_format(int format) {
	switch (q4_kernel(format)) {
		INT8_FORMATS(INT8_CASE) return 1;
	}
	return 0;
}

/* The parts of 32 k's of a panel: codes, or fields of them; the scales of 32 lanes as halves,
 * times int8 scales if subs is set; the minima alike. With zeros set, d has dwords of scales and
 * zero points. */
typedef struct {
	const uint8_t *codes, *d, *m, *subs;
	int zeros;
} int8_place;

/* int8_place_at returns the parts of group g; its panel begins at p. zeros, for the layout of
 * Q4_1, is with_zeros of the stored format. */
INLINE int8_place int8_place_at(const int format, int zeros, const uint8_t *p, int64_t g) {
	if (format == VAPP_Q8_0) return (int8_place){p + g * 1088 + 64, p + g * 1088, NULL, NULL, 0};
	if (format == VAPP_Q4_0) return (int8_place){p + g * 576 + 64, p + g * 576, NULL, NULL, 0};
	if (format == VAPP_Q4_1) return (int8_place){p + g * 640 + 128, p + g * 640, p + g * 640 + 64, NULL, zeros};
	const blocks b = blocks_of(format);
	const int64_t heads = blocks_heads(b), each = blocks_each(b);
	if (!b.subs) {
		p += g * (heads + each);
		return (int8_place){p + heads, p, p + 64, NULL, 0};
	}
	p += g / 4 * (heads + 4 * each);
	const uint8_t *sub = p + heads + g % 4 * each;
	return (int8_place){sub + b.subs * PANEL * (1 + b.least), p, p + 64, sub, 0};
}

/* int8_tile_bytes returns the size of a tile of x. */
INLINE int64_t int8_tile_bytes(int64_t in, int rows) { return in / GROUP * X_DWORDS * 4 * rows; }

INLINE int32_t int8_bits(float f) {
	int32_t i;
	memcpy(&i, &f, 4);
	return i;
}

enum { INT8_NAN = 0x7fc00000, INT8_INFINITY = 0x7f800000, INT8_LEAST = 27 << 23 /* 2⁻¹⁰⁰: smaller is zero */ };

/* int8_quantize writes a group of a row to its place in a tile of `rows` rows, in one plane. */
INLINE void int8_quantize(const int8_codes c, const float *x, int rows, int32_t *to) {
	int32_t most = 0, codes[GROUP], sums[2] = {0};
	for (int k = 0; k < GROUP; k++) {
		int32_t bits = int8_bits(x[k]) & 0x7fffffff;
		most = bits > most ? bits : most;
	}
	float largest, by = 0, scale = 0;
	memcpy(&largest, &most, 4);
	if (most >= INT8_LEAST && most < INT8_INFINITY) scale = largest / 127, by = 127 / largest;
	for (int k = 0; k < GROUP; k++) codes[k] = most < INT8_INFINITY ? (int32_t)__builtin_rintf(x[k] * by) : 0;
	for (int k = 0; k < GROUP; k++) sums[k / 16] += codes[k];
	for (int i = 0; i < 8; i++) {
		uint32_t word = 0;
		for (int j = 0; j < 4; j++) word |= (uint32_t)(codes[i / 2 * 8 + c.order[i % 2 * 4 + j]] & 0xff) << (8 * j);
		to[i * rows] = (int32_t)word;
	}
	float sum = scale * (float)(sums[0] + sums[1]);
	to[X_SCALE * rows] = most < INT8_INFINITY ? int8_bits(scale) : INT8_NAN;
	to[X_SUM * rows] = most < INT8_INFINITY ? int8_bits(sum) : INT8_NAN;
	if (c.subs == 1) sums[0] += sums[1], sums[1] = 0;
	to[X_LESS * rows] = -c.zero * sums[0];
	to[(X_LESS + 1) * rows] = -c.zero * sums[1];
}

/* vapp_linear_row_int8 unpacks one row; all variants use it. */
void vapp_linear_row_int8(const void *w, int32_t format, int32_t in, int32_t out, int32_t r, float *dst);

const vapp_linear_kernel *vapp_linear_int8_generic(int format);
/* vapp_linear_int8_avx2 multiplies with AVX-VNNI where the CPU has it, vapp_linear_int8_pairs never:
 * it is for tests. */
const vapp_linear_kernel *vapp_linear_int8_avx2(int format);
const vapp_linear_kernel *vapp_linear_int8_avxvnni(int format);
const vapp_linear_kernel *vapp_linear_int8_pairs(int format);
const vapp_linear_kernel *vapp_linear_int8_avx512(int format);

const vapp_linear_kernel *vapp_linear_int8_neon(int format);
const vapp_linear_kernel *vapp_linear_int8_dotprod(int format);
const vapp_linear_kernel *vapp_linear_int8_i8mm(int format);

/* vapp_linear_int15 takes x in two planes. */
const vapp_linear_kernel *vapp_linear_int15(int format);
const vapp_linear_kernel *vapp_linear_int15_dotprod(int format);
const vapp_linear_kernel *vapp_linear_int15_i8mm(int format);

#endif

/* avx2.h: Linear on int8 activations in vectors of 256 bits.
 *
 * With DOT 1, VPDPBUSD of AVX-VNNI sums four products of bytes in 32 bits. With DOT 0, AVX2 sums
 * pairs of products in 16 bits, which is enough for eight pairs with 4-bit codes, four with 5-bit
 * and two with 6-bit codes. 8-bit codes are made signed then, and their sign moves to x:
 * 2·128·127 is below 2^15. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "../blocks.h"
#include "../panel.h"
#include "int8.h"

#if DOT
#define FN __attribute__((target("avx2,fma,f16c,avxvnni")))
#else
#define FN __attribute__((target("avx2,fma,f16c")))
#endif
#define V static inline __attribute__((always_inline)) FN

enum {
	LANES = 8,
	ALL_V = PANEL / LANES, /* vectors of a single row at once: a whole panel, one stream of memory */
	MOST_ROWS = 3,
	CHUNK = 512 / GROUP    /* groups that all lanes of a panel take before the next groups */
};

/* sum_of returns the sum of eight integers. */
V int32_t sum_of(__m256i q) {
	__m128i four = _mm_add_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
	four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
	return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

/* quantize_group does int8_quantize. */
FN static void quantize_group(const int8_codes c, const float *x, int rows, int32_t *to) {
	__m256i most = _mm256_setzero_si256(), q[4];
	for (int i = 0; i < 4; i++)
		most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_loadu_si256((const void *)(x + i * LANES)), _mm256_set1_epi32(0x7fffffff)));
	__m128i four = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
	four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
	int32_t bits = _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
	float largest, by = 0, scale = 0;
	memcpy(&largest, &bits, 4);
	if (bits >= INT8_INFINITY) {
		for (int i = 0; i < X_DWORDS; i++) to[i * rows] = i == X_SCALE || i == X_SUM ? INT8_NAN : 0;
		return;
	}
	if (bits >= INT8_LEAST) scale = largest / 127, by = 127 / largest;
	for (int i = 0; i < 4; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i * LANES), _mm256_set1_ps(by)));
	int32_t sums[2] = {sum_of(_mm256_add_epi32(q[0], q[1])), sum_of(_mm256_add_epi32(q[2], q[3]))};
	/* Packing gives the fours of k in the order 0, 2, 4, 6, 1, 3, 5, 7. */
	__m256i codes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
	codes = _mm256_permutevar8x32_epi32(codes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
	__m128i order = _mm_loadl_epi64((const void *)c.order);
	order = _mm_unpacklo_epi64(order, _mm_add_epi8(order, _mm_set1_epi8(8)));
	int32_t words[8];
	_mm256_storeu_si256((void *)words, _mm256_shuffle_epi8(codes, _mm256_broadcastsi128_si256(order)));
	for (int i = 0; i < 8; i++) to[i * rows] = words[i];
	to[X_SCALE * rows] = int8_bits(scale);
	to[X_SUM * rows] = int8_bits(scale * (float)(sums[0] + sums[1]));
	to[X_LESS * rows] = -c.zero * (c.subs == 1 ? sums[0] + sums[1] : sums[0]);
	to[(X_LESS + 1) * rows] = c.subs == 1 ? 0 : -c.zero * sums[1];
}

#include "body.h"

V __m256i dwords(const uint8_t *p) { return _mm256_loadu_si256((const void *)p); }
V __m256 halves(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p)); }
V __m256 small(const uint8_t *p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p))); }

V __m256i shifted(__m256i q, const int left) { return left >= 0 ? _mm256_slli_epi16(q, left) : _mm256_srli_epi16(q, -left); }

/* with_high adds to low nibbles the high bits of vector t of eight, from bit 4 on. */
V __m256i with_high(const blocks b, const uint8_t *high, int t, __m256i low) {
	const int each = 8 / b.high;
	__m256i bits = shifted(dwords(high + t / each * 128), 4 - t % each * b.high);
	return _mm256_or_si256(low, _mm256_and_si256(bits, _mm256_set1_epi8((char)(((1 << b.high) - 1) << 4))));
}

/* codes_of returns the codes of four k's of 8 lanes: vector t of eight, in the order of
 * int8_codes. Without DOT 8-bit codes are signed. */
V __m256i codes_of(const int format, int8_place at, int lane, int t) {
	if (format == VAPP_Q8_0) {
		__m256i q = dwords(at.codes + t * 128 + lane * 4);
		return DOT ? q : _mm256_xor_si256(q, _mm256_set1_epi8((char)Q8_ZERO));
	}
	const blocks b = blocks_of(format);
	__m256i q = dwords(at.codes + t / 2 * 128 + lane * 4);
	if (t % 2) q = _mm256_srli_epi16(q, 4);
	q = _mm256_and_si256(q, _mm256_set1_epi8(15));
	return b.high ? with_high(b, at.codes + 128 * b.low + lane * 4, t, q) : q;
}

V __m256 scale_of(int8_place at, int lane, int h) {
	if (at.zeros) return _mm256_castsi256_ps(_mm256_andnot_si256(_mm256_set1_epi32(ZERO_BITS), dwords(at.d + lane * 4)));
	__m256 d = halves(at.d + lane * 2);
	return at.subs ? _mm256_mul_ps(d, small(at.subs + h * PANEL + lane)) : d;
}

V __m256 least_of(const int8_codes c, int8_place at, int lane) {
	if (at.zeros) {
		__m256 zero = _mm256_cvtepi32_ps(_mm256_and_si256(dwords(at.d + lane * 4), _mm256_set1_epi32(ZERO_BITS)));
		return _mm256_mul_ps(_mm256_mul_ps(scale_of(at, lane, 0), _mm256_set1_ps(-1)), zero);
	}
	__m256 m = halves(at.m + lane * 2);
	if (!at.subs) return m;
	return _mm256_mul_ps(_mm256_mul_ps(m, _mm256_set1_ps(-1)), small(at.subs + c.subs * PANEL + lane));
}

V __m256 dword_floats(const int32_t *x) { return _mm256_castsi256_ps(_mm256_set1_epi32(*x)); }

#if DOT
V __m256i dot(__m256i sum, __m256i w, __m256i q) {
	__asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(w), "xm"(q));
	return sum;
}
#else
/* pairs_of sums the products of neighbouring bytes in 16 bits: four k's become two sums. */
V __m256i pairs_of(const int format, __m256i w, __m256i q) {
	if (format == VAPP_Q8_0) return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
	return _mm256_maddubs_epi16(w, q);
}
#endif

/* products sums the products with the codes of half h of a group, or of the whole group if it has
 * one scale. */
V void products(const int format, const int8_codes c, int8_place at, const int lane, const int h, const int32_t *x, const int rows,
                const int nv, const int tile, __m256i sum[][ALL_V]) {
#if !DOT
	const int many = c.bits == 8 ? 1 : c.bits == 6 ? 2 : c.bits == 5 ? 4 : 8;
	__m256i pairs[MOST_ROWS][ALL_V];
#endif
#pragma GCC unroll 3
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++)
			sum[r][v] = !DOT && format == VAPP_Q8_0 ? _mm256_setzero_si256() : _mm256_set1_epi32(x[(X_LESS + h) * tile + r]);
#pragma GCC unroll 8
	for (int t = h * 8 / c.subs; t < (h + 1) * 8 / c.subs; t++) {
		__m256i w[ALL_V];
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) w[v] = codes_of(format, at, lane + v * LANES, t);
#pragma GCC unroll 3
		for (int r = 0; r < rows; r++) {
			__m256i q = _mm256_set1_epi32(x[t * tile + r]);
#pragma GCC unroll 4
			for (int v = 0; v < nv; v++) {
#if DOT
				sum[r][v] = dot(sum[r][v], w[v], q);
#else
				__m256i p = pairs_of(format, w[v], q);
				pairs[r][v] = t % many == 0 ? p : _mm256_add_epi16(pairs[r][v], p);
				if (t % many == many - 1 || t == (h + 1) * 8 / c.subs - 1)
					sum[r][v] = _mm256_add_epi32(sum[r][v], _mm256_madd_epi16(pairs[r][v], _mm256_set1_epi16(1)));
#endif
			}
		}
	}
}

/* group adds the products of one group. */
V void group(const int format, const int8_codes c, int8_place at, const int lane, const int32_t *x, const int rows, const int nv,
             const int tile, __m256 y[][ALL_V]) {
#pragma GCC unroll 2
	for (int h = 0; h < c.subs; h++) {
		__m256i sum[MOST_ROWS][ALL_V];
		products(format, c, at, lane, h, x, rows, nv, tile, sum);
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) {
			__m256 d = scale_of(at, lane + v * LANES, h);
#pragma GCC unroll 3
			for (int r = 0; r < rows; r++)
				y[r][v] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r][v]), _mm256_mul_ps(d, dword_floats(x + X_SCALE * tile + r)), y[r][v]);
		}
	}
	if (!c.least) return;
#pragma GCC unroll 4
	for (int v = 0; v < nv; v++) {
		__m256 m = least_of(c, at, lane + v * LANES);
#pragma GCC unroll 3
		for (int r = 0; r < rows; r++) y[r][v] = _mm256_fmadd_ps(m, dword_floats(x + X_SUM * tile + r), y[r][v]);
	}
}

/* some_v returns the vectors of several rows at once. Two take 12 of 16 registers for sums, which is
 * too many for the steps of 8-bit codes without DOT. */
INLINE int some_v(const int format) { return !DOT && format == VAPP_Q8_0 ? 1 : 2; }

/* lines_of returns the cache lines of a group of a panel. */
V int lines_of(const int format) { return (int)((panel_k(format, 128) / 4 + 63) / 64); }

/* fetch prefetches lines into the second cache. */
V void fetch(const uint8_t *p, int from, int to) {
	for (int i = from; i < to; i++) _mm_prefetch((const char *)p + 64 * i, _MM_HINT_T1);
}

/* lanes returns the mask of the first n lanes. */
V __m256i lanes(int64_t n) {
	__m256i each = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
	return _mm256_cmpgt_epi32(_mm256_set1_epi32(n > LANES ? LANES : n < 0 ? 0 : (int)n), each);
}

V void steps_of(const int format, const int8_step *s, const int lane, const int rows, const int nv, const int tile) {
	const int8_codes c = int8_codes_of(format);
	const int32_t *x = s->x;
	/* All passes over a block share the prefetch of the next block. */
	const uint8_t *next = s->next;
	const int from = next && rows > 1 ? lines_of(format) * s->tile / s->tiles : 0;
	const int to = next && rows > 1 ? lines_of(format) * (s->tile + 1) / s->tiles : 0;
	__m256 y[MOST_ROWS][ALL_V];
#pragma GCC unroll 3
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) {
			int at = lane + v * LANES;
			y[r][v] = s->g0 ? _mm256_maskload_ps(s->y + r * s->ldy + at, lanes(s->lanes - at)) : _mm256_setzero_ps();
		}
#pragma GCC unroll 1
	for (int64_t g = s->g0; g < s->g1; g++, x += X_DWORDS * tile, next += panel_k(format, 128) / 4) {
		fetch(next, from, to);
		int8_place at = int8_place_at(format, s->zeros, s->panel, g);
		/* Q6_K's lines are not read in order, so the processor does not prefetch them. */
		if (rows == 1 && format == VAPP_Q6_K) fetch(at.codes + INT8_AHEAD, 0, lines_of(format));
		group(format, c, at, lane, x, rows, nv, tile, y);
	}
#pragma GCC unroll 4
	for (int v = 0; v < nv; v++) {
		int at = lane + v * LANES;
		__m256i some = lanes(s->lanes - at);
		__m256 bias = s->bias ? _mm256_maskload_ps(s->bias + at, some) : _mm256_setzero_ps();
#pragma GCC unroll 3
		for (int r = 0; r < rows; r++)
			_mm256_maskstore_ps(s->y + r * s->ldy + at, some, s->bias ? _mm256_add_ps(y[r][v], bias) : y[r][v]);
	}
}

/* row_steps takes a whole panel, lanes_steps a few lanes after the others; s->tile counts these
 * passes. */
V void row_steps(const int format, const int8_step *s, int tile) { steps_of(format, s, 0, 1, ALL_V, tile); }

V void lanes_steps(const int format, const int8_step *s, const int rows) {
	const int nv = some_v(format);
	int8_step part = *s;
	part.tile *= ALL_V / nv;
	part.tiles *= ALL_V / nv;
	for (int lane = 0; lane < PANEL && lane < s->lanes; lane += nv * LANES, part.tile++) steps_of(format, &part, lane, rows, nv, INT8_TILE);
}

/* One function for each format, for up to MOST_ROWS rows. */
#define STEPS(format) \
	FN static void steps_##format(const int8_step *s, int rows, int tile) { \
		switch (rows) { \
		case 1: row_steps(format, s, tile); break; \
		case 2: lanes_steps(format, s, 2); break; \
		case 3: lanes_steps(format, s, 3); break; \
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

/* A tile is multiplied in parts of MOST_ROWS rows, all for a CHUNK that stays in the first cache. */
static void int8_steps(int32_t format, const int8_step *s, int rows, int tile) {
	static void (*const steps[])(const int8_step *, int, int) = {INT8_FORMATS(INT8_ENTRY)};
	if (rows == 1) {
		steps[q4_kernel(format)](s, 1, tile);
		return;
	}
	const int parts = (rows + MOST_ROWS - 1) / MOST_ROWS;
	const int64_t bytes = panel_k(format, 128) / 4;
	int8_step part = *s;
	part.tiles = s->tiles * parts;
	for (; part.g0 < s->g1; part.g0 = part.g1) {
		part.g1 = part.g0 + CHUNK < s->g1 ? part.g0 + CHUNK : s->g1;
		part.bias = part.g1 == s->g1 ? s->bias : NULL;
		part.next = s->next ? s->next + (part.g0 - s->g0) * bytes : NULL;
		for (int i = 0; i < parts; i++) {
			const int r = i * MOST_ROWS;
			part.tile = s->tile * parts + i;
			part.x = s->x + (part.g0 - s->g0) * X_DWORDS * tile + r;
			part.y = s->y + r * s->ldy;
			steps[q4_kernel(format)](&part, rows - r < MOST_ROWS ? rows - r : MOST_ROWS, tile);
		}
	}
}

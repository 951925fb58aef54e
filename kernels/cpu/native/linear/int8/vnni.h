/* vnni.h: Linear on integer activations with AVX-512 VNNI. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "../blocks.h"
#include "../panel.h"
#include "int8.h"

#define FN __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")))
#define UNPACK_ENTRY(format) [format] = unpack_##format,
#define V static inline __attribute__((always_inline)) FN

enum {
	PLAIN_BYTES = GROUP * PANEL, /* of a group's codes, unpacked */
	LANES = 16
};

/* codes_of writes the lowest bytes of 32 integers in the order of c. */
V void codes_of(const int8_codes c, __m512i a, __m512i b, int rows, int32_t *to) {
	int32_t words[8];
	__m256i codes = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(a)), _mm512_cvtepi32_epi8(b), 1);
	__m128i order = _mm_loadl_epi64((const void *)c.order);
	order = _mm_unpacklo_epi64(order, _mm_add_epi8(order, _mm_set1_epi8(8)));
	_mm256_storeu_si256((void *)words, _mm256_shuffle_epi8(codes, _mm256_broadcastsi128_si256(order)));
	for (int i = 0; i < 8; i++) to[i * rows] = words[i];
}

/* quantize_group does int8_quantize, in PLANES. */
FN static void quantize_group(const int8_codes c, const float *x, int rows, int32_t *to) {
	__m512 lo = _mm512_loadu_ps(x), hi = _mm512_loadu_ps(x + 16);
	__m512i all = _mm512_set1_epi32(0x7fffffff);
	__m512i sizes = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(lo), all), _mm512_and_si512(_mm512_castps_si512(hi), all));
	int32_t most = _mm512_reduce_max_epi32(sizes);
	float largest, by = 0, scale = 0;
	memcpy(&largest, &most, 4);
	if (most >= INT8_INFINITY) {
		for (int i = 0; i < X_DWORDS; i++) to[i * rows] = i == X_SCALE || i == X_SUM ? INT8_NAN : 0;
		return;
	}
	if (most >= INT8_LEAST) scale = largest / INT8_MOST, by = INT8_MOST / largest;
	__m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(lo, _mm512_set1_ps(by)));
	__m512i b = _mm512_cvtps_epi32(_mm512_mul_ps(hi, _mm512_set1_ps(by)));
	int32_t sums[2] = {_mm512_reduce_add_epi32(a), _mm512_reduce_add_epi32(b)};
	if (PLANES == 2) {
		__m512i half = _mm512_set1_epi32(64);
		__m512i over_a = _mm512_srai_epi32(_mm512_add_epi32(a, half), 7), over_b = _mm512_srai_epi32(_mm512_add_epi32(b, half), 7);
		codes_of(c, over_a, over_b, rows, to);
		to += 8 * rows;
		a = _mm512_sub_epi32(a, _mm512_slli_epi32(over_a, 7));
		b = _mm512_sub_epi32(b, _mm512_slli_epi32(over_b, 7));
	}
	codes_of(c, a, b, rows, to);
	to -= 8 * (PLANES - 1) * rows;
	to[X_SCALE * rows] = int8_bits(scale);
	to[X_SUM * rows] = int8_bits(scale * (float)(sums[0] + sums[1]));
	to[X_LESS * rows] = -c.zero * (c.subs == 1 ? sums[0] + sums[1] : sums[0]);
	to[(X_LESS + 1) * rows] = c.subs == 1 ? 0 : -c.zero * sums[1];
}

#include "body.h"

V __mmask16 some(int64_t n) { return n >= LANES ? 0xffff : n <= 0 ? 0 : (1 << n) - 1; }
V __m512 halves(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }
V __m512 small(const uint8_t *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p))); }
V __m512i dwords(const uint8_t *p) { return _mm512_loadu_si512(p); }

V __m512i shift_left(__m512i q, const int left) { return left >= 0 ? _mm512_slli_epi16(q, left) : _mm512_srli_epi16(q, -left); }

/* with_high adds to low nibbles the high bits of vector t of eight, from bit 4 on. */
V __m512i with_high(const blocks b, const uint8_t *high, int t, __m512i low) {
	const int each = 8 / b.high;
	__m512i bits = shift_left(dwords(high + t / each * 128), 4 - t % each * b.high);
	return _mm512_ternarylogic_epi32(low, bits, _mm512_set1_epi8((char)(((1 << b.high) - 1) << 4)), 0xf8);
}

/* codes_of_8 loads the codes of k's 8·j … 8·j+7 of 16 lanes, in the order of int8_codes; with
 * plain they have the layout of Q8_0. */
V void codes_of_8(const int format, const int plain, int8_place at, int lane, int j, __m512i *w0, __m512i *w1) {
	if (plain || format == VAPP_Q8_0) {
		*w0 = dwords(at.codes + 2 * j * 128 + lane * 4);
		*w1 = dwords(at.codes + (2 * j + 1) * 128 + lane * 4);
		return;
	}
	const blocks b = blocks_of(format);
	__m512i q = dwords(at.codes + j * 128 + lane * 4), low = _mm512_set1_epi8(15);
	*w0 = _mm512_and_si512(q, low);
	*w1 = _mm512_and_si512(_mm512_srli_epi16(q, 4), low);
	if (!b.high) return;
	*w0 = with_high(b, at.codes + 128 * b.low + lane * 4, 2 * j, *w0);
	*w1 = with_high(b, at.codes + 128 * b.low + lane * 4, 2 * j + 1, *w1);
}

/* The scales and minima of a block as floats, before they are multiplied with those of
 * sub-blocks. */
typedef struct {
	__m512 d[2], m[2];
} block_heads;

V void heads_of(const int8_codes c, int8_place at, block_heads *b) {
#pragma GCC unroll 2
	for (int v = 0; v < 2; v++) {
		if (at.zeros) {
			__m512i q = dwords(at.d + v * LANES * 4);
			b->d[v] = _mm512_castsi512_ps(_mm512_andnot_si512(_mm512_set1_epi32(ZERO_BITS), q));
			__m512 zero = _mm512_cvtepi32_ps(_mm512_and_si512(q, _mm512_set1_epi32(ZERO_BITS)));
			b->m[v] = _mm512_mul_ps(_mm512_mul_ps(b->d[v], _mm512_set1_ps(-1)), zero);
			continue;
		}
		b->d[v] = halves(at.d + v * LANES * 2);
		if (!c.least) continue;
		b->m[v] = halves(at.m + v * LANES * 2);
		if (at.subs) b->m[v] = _mm512_mul_ps(b->m[v], _mm512_set1_ps(-1));
	}
}

V __m512 scale_by_sub(__m512 head, const uint8_t *sub) { return sub ? _mm512_mul_ps(head, small(sub)) : head; }

V __m512 dword_floats(const int32_t *x) { return _mm512_castsi512_ps(_mm512_set1_epi32(*x)); }

/* products sums the products with the codes of a group, or of its half h if halves have their
 * own scales. For one row or two, upper nibbles are not shifted; they have their own sums. */
V void products(const int format, const int plain, const int8_codes c, int8_place at, const int h, const int32_t *x, const int rows,
                const int tile, __m512i total[][2]) {
	const int apart = !plain && c.bits == 4 && rows <= 2;
	__m512i sum[PLANES][INT8_TILE][2], top[PLANES][2][2];
#pragma GCC unroll 2
	for (int p = 0; p < PLANES; p++)
#pragma GCC unroll 6
		for (int r = 0; r < rows; r++) {
			sum[p][r][0] = sum[p][r][1] = p + 1 == PLANES ? _mm512_set1_epi32(x[(X_LESS + h) * tile + r]) : _mm512_setzero_si512();
			if (apart) top[p][r][0] = top[p][r][1] = _mm512_setzero_si512();
		}
#pragma GCC unroll 4
	for (int j = h * 4 / c.subs; j < (h + 1) * 4 / c.subs; j++) {
		__m512i w[2][2];
#pragma GCC unroll 2
		for (int v = 0; v < 2; v++) {
			if (apart) {
				__m512i q = dwords(at.codes + j * 128 + v * LANES * 4);
				w[0][v] = _mm512_and_si512(q, _mm512_set1_epi8(15));
				w[1][v] = _mm512_and_si512(q, _mm512_set1_epi8((char)0xf0));
			} else {
				codes_of_8(format, plain, at, v * LANES, j, &w[0][v], &w[1][v]);
			}
		}
#pragma GCC unroll 2
		for (int i = 0; i < 2; i++)
#pragma GCC unroll 2
			for (int p = 0; p < PLANES; p++)
#pragma GCC unroll 6
				for (int r = 0; r < rows; r++) {
					__m512i q = _mm512_set1_epi32(x[(8 * p + 2 * j + i) * tile + r]);
					__m512i *to = apart && i ? top[p][r] : sum[p][r];
					to[0] = _mm512_dpbusd_epi32(to[0], w[i][0], q);
					to[1] = _mm512_dpbusd_epi32(to[1], w[i][1], q);
				}
	}
#pragma GCC unroll 6
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
		for (int v = 0; v < 2; v++) {
			__m512i all = sum[PLANES - 1][r][v];
			if (apart) all = _mm512_add_epi32(all, _mm512_srai_epi32(top[PLANES - 1][r][v], 4));
			if (PLANES == 2) all = _mm512_add_epi32(all, _mm512_slli_epi32(sum[0][r][v], 7));
			if (PLANES == 2 && apart) all = _mm512_add_epi32(all, _mm512_slli_epi32(top[0][r][v], 3));
			total[r][v] = all;
		}
}

/* half_of adds the scaled products of half h of a group, or of the whole group if it has one
 * scale. */
V void half_of(const int format, const int plain, const int8_codes c, int8_place at, const block_heads *b, const int h, const int32_t *x,
               const int rows, const int tile, __m512 y[][2]) {
	__m512i sum[INT8_TILE][2];
	products(format, plain, c, at, h, x, rows, tile, sum);
#pragma GCC unroll 2
	for (int v = 0; v < 2; v++) {
		__m512 d = scale_by_sub(b->d[v], at.subs ? at.subs + h * PANEL + v * LANES : NULL);
#pragma GCC unroll 6
		for (int r = 0; r < rows; r++)
			y[r][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][v]), _mm512_mul_ps(d, dword_floats(x + X_SCALE * tile + r)), y[r][v]);
	}
}

/* group adds the products of one group; its format, rows and tile are compile-time constants. */
V void group(const int format, const int plain, const int8_codes c, int8_place at, const block_heads *b, const int32_t *x, const int rows,
             const int tile, __m512 y[][2]) {
	if (rows == 1) { /* one row is bound by memory, and longer code measured slower */
		for (int h = 0; h < c.subs; h++) half_of(format, plain, c, at, b, h, x, rows, tile, y);
	} else {
		half_of(format, plain, c, at, b, 0, x, rows, tile, y);
		if (c.subs == 2) half_of(format, plain, c, at, b, 1, x, rows, tile, y);
	}
	if (!c.least) return;
#pragma GCC unroll 2
	for (int v = 0; v < 2; v++) {
		__m512 m = scale_by_sub(b->m[v], at.subs ? at.subs + c.subs * PANEL + v * LANES : NULL);
#pragma GCC unroll 6
		for (int r = 0; r < rows; r++) y[r][v] = _mm512_fmadd_ps(m, dword_floats(x + X_SUM * tile + r), y[r][v]);
	}
}

/* lines_of returns the cache lines of a group of a panel. */
V int lines_of(const int format) { return (int)((panel_k(format, 128) / 4 + 63) / 64); }

/* fetch prefetches lines into the second cache. */
V void fetch(const uint8_t *p, int from, int to) {
	for (int i = from; i < to; i++) _mm_prefetch(p + 64 * i, _MM_HINT_T1);
}

V void steps_of(const int format, const int plain, const int8_step *s, const int rows, const int tile) {
	const int8_codes c = int8_codes_of(format);
	const int alike = blocks_of(format).subs ? 4 : 1; /* groups that share heads */
	const int32_t *x = s->x;
	/* The tiles of a block share the prefetch of the next block, so that memory is busy all the
	 * time. */
	const int from = s->next ? lines_of(format) * s->tile / s->tiles : 0, to = s->next ? lines_of(format) * (s->tile + 1) / s->tiles : 0;
	block_heads b;
	__m512 y[INT8_TILE][2];
#pragma GCC unroll 6
	for (int r = 0; r < rows; r++)
		for (int v = 0; v < 2; v++)
			y[r][v] = s->g0 ? _mm512_maskz_loadu_ps(some(s->lanes - v * LANES), s->y + r * s->ldy + v * LANES) : _mm512_setzero_ps();
	for (int64_t g = s->g0; g < s->g1; g += alike) {
		heads_of(c, int8_place_at(format, s->zeros, s->panel, g), &b);
#pragma GCC unroll 1
		for (int i = 0; i < alike; i++, x += X_DWORDS * tile) {
			int8_place at = int8_place_at(format, s->zeros, s->panel, g + i);
			if (tile > 1) fetch(s->next + (g + i - s->g0) * (panel_k(format, 128) / 4), from, to);
			/* Q6_K's lines are not read in order, so the processor does not prefetch them. */
			if (tile == 1 && format == VAPP_Q6_K) fetch(at.codes + INT8_AHEAD, 0, lines_of(format));
			if (plain) at.codes = s->codes + (g + i - s->g0) * PLAIN_BYTES;
			group(format, plain, c, at, &b, x, rows, tile, y);
		}
	}
#pragma GCC unroll 2
	for (int v = 0; v < 2; v++) {
		__mmask16 m = some(s->lanes - v * LANES);
		__m512 bias = s->bias ? _mm512_maskz_loadu_ps(m, s->bias + v * LANES) : _mm512_setzero_ps();
#pragma GCC unroll 6
		for (int r = 0; r < rows; r++)
			_mm512_mask_storeu_ps(s->y + r * s->ldy + v * LANES, m, s->bias ? _mm512_add_ps(y[r][v], bias) : y[r][v]);
	}
}

V void unpack_of(const int format, const int8_step *s, uint8_t *to) {
	for (int64_t g = s->g0; g < s->g1; g++, to += PLAIN_BYTES) {
		int8_place at = int8_place_at(format, s->zeros, s->panel, g);
		for (int v = 0; v < 2; v++)
#pragma GCC unroll 4
			for (int j = 0; j < 4; j++) {
				__m512i w0, w1;
				codes_of_8(format, 0, at, v * LANES, j, &w0, &w1);
				_mm512_storeu_si512(to + 256 * j + 64 * v, w0);
				_mm512_storeu_si512(to + 256 * j + 128 + 64 * v, w1);
			}
	}
}

/* Functions for each format and number of rows. */
#if PLANES == 2
#define MORE_ROWS(format, plain)
#else
#define MORE_ROWS(format, plain) \
	case 4: steps_of(format, plain, s, 4, INT8_TILE); return; \
	case 5: steps_of(format, plain, s, 5, INT8_TILE); return; \
	case 6: steps_of(format, plain, s, 6, INT8_TILE); return;
#endif
#define STEP_OF_ROWS(format, plain, rows) \
	switch (rows) { \
	case 1: steps_of(format, plain, s, 1, INT8_TILE); return; \
	case 2: steps_of(format, plain, s, 2, INT8_TILE); return; \
	case 3: steps_of(format, plain, s, 3, INT8_TILE); return; \
	MORE_ROWS(format, plain) \
	}
#define STEPS(format) \
	FN static void steps_##format(const int8_step *s, int rows, int tile) { \
		if (s->codes) STEP_OF_ROWS(format, 1, rows) \
		if (tile == 1) { \
			steps_of(format, 0, s, 1, 1); \
			return; \
		} \
		STEP_OF_ROWS(format, 0, rows) \
	} \
	FN static void unpack_##format(const int8_step *s, uint8_t *to) { unpack_of(format, s, to); }
INT8_FORMATS(STEPS)

/* Separating nibbles overlaps with the products, for any number of tiles; high bits take
 * longer. */
static int in_place(int32_t format, int64_t tiles) { return !blocks_of(format).high || tiles <= 3; }

static const uint8_t *unpack_codes(int32_t format, const int8_step *s, uint8_t *to) {
	static void (*const unpack[])(const int8_step *, uint8_t *) = {INT8_FORMATS(UNPACK_ENTRY)};
	if (format == VAPP_Q8_0) return NULL;
	unpack[q4_kernel(format)](s, to);
	return to;
}

static void int8_steps(int32_t format, const int8_step *s, int rows, int tile) {
	static void (*const steps[])(const int8_step *, int, int) = {INT8_FORMATS(INT8_ENTRY)};
	steps[q4_kernel(format)](s, rows, tile);
}


/* avx2_amd64.c: Linear on int8 activations with AVX2. Pairs of products are summed in 16 bits,
 * which is enough for eight pairs with 4-bit codes, four with 5-bit and two with 6-bit codes.
 * 8-bit codes are made signed, and their sign moves to x: 2·128·127 is below 2^15. */
#include "int8.h"

#include <immintrin.h>

#define FN __attribute__((target("avx2,fma,f16c")))
#define V static inline __attribute__((always_inline)) FN

enum { LANES = 8, MOST_ROWS = 3 };

FN static void quantize_group(const int8_codes c, const float *x, int rows, int32_t *to) { int8_quantize(c, x, rows, to); }

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

/* codes_of_8 loads the codes of k's 8·j … 8·j+7 of 8 lanes, in the order of int8_codes; 8-bit
 * codes are signed. */
V void codes_of_8(const int format, int8_place at, int lane, int j, __m256i *w0, __m256i *w1) {
	if (format == VAPP_Q8_0) {
		__m256i zero = _mm256_set1_epi8((char)Q8_ZERO);
		*w0 = _mm256_xor_si256(dwords(at.codes + 2 * j * 128 + lane * 4), zero);
		*w1 = _mm256_xor_si256(dwords(at.codes + (2 * j + 1) * 128 + lane * 4), zero);
		return;
	}
	const blocks b = blocks_of(format);
	__m256i q = dwords(at.codes + j * 128 + lane * 4), low = _mm256_set1_epi8(15);
	*w0 = _mm256_and_si256(q, low);
	*w1 = _mm256_and_si256(_mm256_srli_epi16(q, 4), low);
	if (!b.high) return;
	*w0 = with_high(b, at.codes + 128 * b.low + lane * 4, 2 * j, *w0);
	*w1 = with_high(b, at.codes + 128 * b.low + lane * 4, 2 * j + 1, *w1);
}

V __m256 scale_of(int8_place at, int lane, int h) {
	__m256 d = halves(at.d + lane * 2);
	return at.subs ? _mm256_mul_ps(d, small(at.subs + h * PANEL + lane)) : d;
}

V __m256 least_of(const int8_codes c, int8_place at, int lane) {
	__m256 m = halves(at.m + lane * 2);
	if (!at.subs) return m;
	return _mm256_mul_ps(_mm256_mul_ps(m, _mm256_set1_ps(-1)), small(at.subs + c.subs * PANEL + lane));
}

V __m256 dword_floats(const int32_t *x) { return _mm256_castsi256_ps(_mm256_set1_epi32(*x)); }

/* products sums the products of neighbouring bytes in 16 bits: four k's become two sums. */
V __m256i products(const int format, __m256i w, __m256i q) {
	if (format == VAPP_Q8_0) return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
	return _mm256_maddubs_epi16(w, q);
}

V void group(const int format, const int8_codes c, int8_place at, const int32_t *x, const int lane, const int rows, const int tile, __m256 *y) {
	const int many = c.bits == 8 ? 1 : c.bits == 6 ? 2 : c.bits == 5 ? 4 : 8;
	const __m256i ones = _mm256_set1_epi16(1);
	for (int h = 0; h < c.subs; h++) {
		__m256i sum[MOST_ROWS], pairs[MOST_ROWS];
		int n = 0;
#pragma GCC unroll 3
		for (int r = 0; r < rows; r++)
			sum[r] = format == VAPP_Q8_0 ? _mm256_setzero_si256() : _mm256_set1_epi32(x[(X_LESS + h) * tile + r]);
#pragma GCC unroll 4
		for (int j = h * 4 / c.subs; j < (h + 1) * 4 / c.subs; j++) {
			__m256i w[2];
			codes_of_8(format, at, lane, j, &w[0], &w[1]);
#pragma GCC unroll 2
			for (int i = 0; i < 2; i++, n++)
#pragma GCC unroll 3
				for (int r = 0; r < rows; r++) {
					__m256i p = products(format, w[i], _mm256_set1_epi32(x[(2 * j + i) * tile + r]));
					pairs[r] = n % many == 0 ? p : _mm256_add_epi16(pairs[r], p);
					if (n % many == many - 1) sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(pairs[r], ones));
				}
		}
		__m256 d = scale_of(at, lane, h);
#pragma GCC unroll 3
		for (int r = 0; r < rows; r++)
			y[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r]), _mm256_mul_ps(d, dword_floats(x + X_SCALE * tile + r)), y[r]);
	}
	if (!c.least) return;
	__m256 m = least_of(c, at, lane);
#pragma GCC unroll 3
	for (int r = 0; r < rows; r++) y[r] = _mm256_fmadd_ps(m, dword_floats(x + X_SUM * tile + r), y[r]);
}

/* lanes returns the mask of the first n lanes. */
V __m256i lanes(int64_t n) {
	__m256i each = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
	return _mm256_cmpgt_epi32(_mm256_set1_epi32(n > LANES ? LANES : n < 0 ? 0 : (int)n), each);
}

V void steps_of(const int format, const int8_step *s, const int lane, const int rows, const int tile) {
	const int8_codes c = int8_codes_of(format);
	const int32_t *x = s->x;
	__m256i some = lanes(s->lanes - lane);
	__m256 y[MOST_ROWS];
#pragma GCC unroll 3
	for (int r = 0; r < rows; r++) y[r] = s->g0 ? _mm256_maskload_ps(s->y + r * s->ldy + lane, some) : _mm256_setzero_ps();
	for (int64_t g = s->g0; g < s->g1; g++, x += X_DWORDS * tile)
		group(format, c, int8_place_at(format, s->panel, g), x, lane, rows, tile, y);
	__m256 bias = s->bias ? _mm256_maskload_ps(s->bias + lane, some) : _mm256_setzero_ps();
#pragma GCC unroll 3
	for (int r = 0; r < rows; r++)
		_mm256_maskstore_ps(s->y + r * s->ldy + lane, some, s->bias ? _mm256_add_ps(y[r], bias) : y[r]);
}

/* One function for each format, for up to MOST_ROWS rows. */
#define STEPS(format) \
	FN static void steps_##format(const int8_step *s, int lane, int rows, int tile) { \
		if (tile == 1) { \
			steps_of(format, s, lane, 1, 1); \
			return; \
		} \
		switch (rows) { \
		case 1: steps_of(format, s, lane, 1, INT8_TILE); break; \
		case 2: steps_of(format, s, lane, 2, INT8_TILE); break; \
		case 3: steps_of(format, s, lane, 3, INT8_TILE); break; \
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

static void int8_steps(int32_t format, const int8_step *s, int rows, int tile) {
	static void (*const steps[])(const int8_step *, int, int, int) = {INT8_FORMATS(INT8_ENTRY)};
	for (int r = 0; r < rows; r += MOST_ROWS) {
		int8_step part = *s;
		part.x += r;
		part.y += r * s->ldy;
		for (int lane = 0; lane < PANEL && lane < s->lanes; lane += LANES)
			steps[format](&part, lane, rows - r < MOST_ROWS ? rows - r : MOST_ROWS, tile);
	}
}

const vapp_linear_kernel *vapp_linear_int8_avx2(int format) { return int8_format(format) ? &kernel : NULL; }

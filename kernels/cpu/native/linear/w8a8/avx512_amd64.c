/* avx512_amd64.c: the kernel of w8a8.h with AVX-512 VNNI. A CPU with AVX-512 but without VNNI
 * uses the code of AVX2, which gives the same bits. */
#include "w8a8.h"

#include <immintrin.h>

#define FN __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")))
#define V static inline __attribute__((always_inline)) FN

enum {
	LANES = 16,
	W8_AHEAD = 4096 /* bytes that a stream is prefetched ahead */
};
#define W8_TILE 12 /* 24 sums, 2 weights and an x take 27 of 32 registers */
#include "body.h"

V __mmask16 some(int64_t n) { return n >= LANES ? 0xffff : n <= 0 ? 0 : (1 << n) - 1; }

FN static void w8_quantize(const float *x, int64_t in, int8_t *to) {
	__m512i all = _mm512_set1_epi32(0x7fffffff), sizes = _mm512_setzero_si512(), sums = _mm512_setzero_si512();
	for (int64_t k = 0; k < in; k += LANES)
		sizes = _mm512_max_epi32(sizes, _mm512_and_si512(_mm512_maskz_loadu_epi32(some(in - k), x + k), all));
	int32_t most = _mm512_reduce_max_epi32(sizes);
	float by, scale = w8_scale(most, &by);
	if (most >= INT8_INFINITY) {
		memset(to, 0, in);
		w8_end(to, in, scale, 0);
		return;
	}
	for (int64_t k = 0; k < in; k += LANES) {
		__m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(some(in - k), x + k), _mm512_set1_ps(by)));
		sums = _mm512_add_epi32(sums, q);
		_mm512_mask_cvtepi32_storeu_epi8(to + k, some(in - k), q);
	}
	w8_end(to, in, scale, _mm512_reduce_add_epi32(sums));
}

/* tile_of multiplies `rows` rows, a compile-time constant. */
V void tile_of(const w8_part *p, const int rows) {
	__m512i sum[W8_TILE][2];
#pragma GCC unroll 12
	for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = _mm512_setzero_si512();
	const uint8_t *w = p->w;
	for (int64_t k = 0; k < p->n; k += 4, w += 128) {
		__builtin_prefetch(w + W8_AHEAD);
		__builtin_prefetch(w + W8_AHEAD + 64);
		__m512i w0 = _mm512_loadu_si512(w), w1 = _mm512_loadu_si512(w + 64);
#pragma GCC unroll 12
		for (int r = 0; r < rows; r++) {
			int32_t four;
			memcpy(&four, p->x + r * p->stride + k, 4);
			__m512i x = _mm512_set1_epi32(four);
			sum[r][0] = _mm512_dpbusd_epi32(sum[r][0], w0, x);
			sum[r][1] = _mm512_dpbusd_epi32(sum[r][1], w1, x);
		}
	}
#pragma GCC unroll 2
	for (int v = 0; v < 2; v++) {
		__mmask16 mask = some(p->lanes - v * LANES);
		__m512 d = _mm512_loadu_ps(p->scales + v * LANES);
		__m512 bias = p->bias ? _mm512_maskz_loadu_ps(mask, p->bias + v * LANES) : _mm512_setzero_ps();
#pragma GCC unroll 12
		for (int r = 0; r < rows; r++) {
			__m512 exact = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum[r][v], _mm512_set1_epi32(p->tails[r].more)));
			__m512 scale = _mm512_mul_ps(_mm512_set1_ps(p->tails[r].scale), d);
			_mm512_mask_storeu_ps(p->y + r * p->ldy + v * LANES, mask, _mm512_fmadd_ps(exact, scale, bias));
		}
	}
}

/* One row of a panel has two chains of sums; four k's at a time make them eight. */
FN static void one_row(const w8_part *p) {
	__m512i sum[4][2];
	for (int i = 0; i < 4; i++) sum[i][0] = sum[i][1] = _mm512_setzero_si512();
	const uint8_t *w = p->w;
	for (int64_t k = 0; k < p->n; k += 16, w += 512) {
#pragma GCC unroll 4
		for (int i = 0; i < 4; i++) {
			int32_t four;
			memcpy(&four, p->x + k + 4 * i, 4);
			__builtin_prefetch(w + W8_AHEAD + 128 * i);
			__builtin_prefetch(w + W8_AHEAD + 128 * i + 64);
			sum[i][0] = _mm512_dpbusd_epi32(sum[i][0], _mm512_loadu_si512(w + 128 * i), _mm512_set1_epi32(four));
			sum[i][1] = _mm512_dpbusd_epi32(sum[i][1], _mm512_loadu_si512(w + 128 * i + 64), _mm512_set1_epi32(four));
		}
	}
	for (int v = 0; v < 2; v++) {
		__mmask16 mask = some(p->lanes - v * LANES);
		__m512i all = _mm512_add_epi32(_mm512_add_epi32(sum[0][v], sum[1][v]), _mm512_add_epi32(sum[2][v], sum[3][v]));
		__m512 exact = _mm512_cvtepi32_ps(_mm512_sub_epi32(all, _mm512_set1_epi32(p->tails[0].more)));
		__m512 scale = _mm512_mul_ps(_mm512_set1_ps(p->tails[0].scale), _mm512_loadu_ps(p->scales + v * LANES));
		__m512 bias = p->bias ? _mm512_maskz_loadu_ps(mask, p->bias + v * LANES) : _mm512_setzero_ps();
		_mm512_mask_storeu_ps(p->y + v * LANES, mask, _mm512_fmadd_ps(exact, scale, bias));
	}
}

#define ROWS(n) \
	FN static void rows_##n(const w8_part *p) { tile_of(p, n); }
#define ENTRY(n) rows_##n,
#define EACH_ROWS(X) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
EACH_ROWS(ROWS)

static void w8_tile(const w8_part *p, int rows) {
	static void (*const tiles[])(const w8_part *) = {NULL, one_row, EACH_ROWS(ENTRY)};
	tiles[rows](p);
}

const vapp_linear_kernel *vapp_linear_w8a8_avx512(void) {
	return __builtin_cpu_supports("avx512vnni") ? &kernel : vapp_linear_w8a8_avx2();
}

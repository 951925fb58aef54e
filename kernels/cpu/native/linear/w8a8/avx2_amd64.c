/* avx2_amd64.c: the kernel of w8a8.h with AVX2. A sum of two products with a weight's magnitude
 * is at most 2·128·127, which fits the 16 bits of VPMADDUBSW. */
#include "w8a8.h"

#include <immintrin.h>

#define FN __attribute__((target("avx2,fma,f16c")))
#define V static inline __attribute__((always_inline)) FN

enum { LANES = 8 };
#define W8_TILE 4
#include "body.h"

FN static void w8_quantize(const float *x, int64_t in, int8_t *to) {
	int64_t whole = in & ~(int64_t)7, k = 0;
	__m256i all = _mm256_set1_epi32(0x7fffffff), sizes = _mm256_setzero_si256(), sums = _mm256_setzero_si256();
	for (; k < whole; k += 8) sizes = _mm256_max_epi32(sizes, _mm256_and_si256(_mm256_loadu_si256((const void *)(x + k)), all));
	int32_t most = 0, lanes[8], sum = 0;
	_mm256_storeu_si256((void *)lanes, sizes);
	for (int i = 0; i < 8; i++) most = lanes[i] > most ? lanes[i] : most;
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
		__m256i q = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + k), _mm256_set1_ps(by)));
		sums = _mm256_add_epi32(sums, q);
		__m128i words = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
		_mm_storel_epi64((void *)(to + k), _mm_packs_epi16(words, words));
	}
	_mm256_storeu_si256((void *)lanes, sums);
	for (int i = 0; i < 8; i++) sum += lanes[i];
	for (; k < in; k++) {
		to[k] = (int8_t)__builtin_rintf(x[k] * by);
		sum += to[k];
	}
	w8_end(to, in, scale, sum);
}

V __m256i some(int64_t n) {
	int count = n >= LANES ? LANES : n <= 0 ? 0 : (int)n;
	return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* half computes 16 outputs from `lane` on; rows is a compile-time constant. */
V void half(const w8_part *p, const int rows, int lane) {
	__m256i sum[W8_TILE][2];
	for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = _mm256_setzero_si256();
	const __m256i middle = _mm256_set1_epi8((char)0x80), ones = _mm256_set1_epi16(1);
	for (int64_t k = 0; k < p->n; k += 4) {
		const uint8_t *from = p->w + k * PANEL + lane * 4;
		__m256i w0 = _mm256_xor_si256(_mm256_loadu_si256((const void *)from), middle);
		__m256i w1 = _mm256_xor_si256(_mm256_loadu_si256((const void *)(from + 32)), middle);
		__m256i a0 = _mm256_abs_epi8(w0), a1 = _mm256_abs_epi8(w1);
#pragma GCC unroll 4
		for (int r = 0; r < rows; r++) {
			int32_t four;
			memcpy(&four, p->x + r * p->stride + k, 4);
			__m256i x = _mm256_set1_epi32(four);
			__m256i two0 = _mm256_maddubs_epi16(a0, _mm256_sign_epi8(x, w0));
			__m256i two1 = _mm256_maddubs_epi16(a1, _mm256_sign_epi8(x, w1));
			sum[r][0] = _mm256_add_epi32(sum[r][0], _mm256_madd_epi16(two0, ones));
			sum[r][1] = _mm256_add_epi32(sum[r][1], _mm256_madd_epi16(two1, ones));
		}
	}
	for (int v = 0; v < 2; v++) {
		int at = lane + v * LANES;
		__m256i mask = some(p->lanes - at);
		__m256 d = _mm256_loadu_ps(p->scales + at);
		__m256 bias = p->bias ? _mm256_maskload_ps(p->bias + at, mask) : _mm256_setzero_ps();
		for (int r = 0; r < rows; r++) {
			__m256 scale = _mm256_mul_ps(_mm256_set1_ps(p->tails[r].scale), d);
			_mm256_maskstore_ps(p->y + r * p->ldy + at, mask, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r][v]), scale, bias));
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

const vapp_linear_kernel *vapp_linear_w8a8_avx2(void) { return &kernel; }

/* pairs.h: pairs of bf16, the operands of VDPBF16PS and TDPBF16PS. */
#ifndef VAPP_CPU_ATTENTION_PAIRS_H
#define VAPP_CPU_ATTENTION_PAIRS_H
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "../shared/inline.h"

/* has_nonfinite reports whether x holds an infinity or a NaN: their product with 0 is not 0. */
static inline int has_nonfinite(__m512i x)
{
	const __m512i top = _mm512_set1_epi16(0x7f80);
	return _mm512_cmpeq_epi16_mask(_mm512_and_si512(x, top), top) != 0;
}

/* any_nonfinite is has_nonfinite of n bytes, a multiple of 64. */
static inline int any_nonfinite(const uint8_t *p, int64_t n)
{
	int bad = 0;
	for (const uint8_t *end = p + n; p < end; p += 64)
		bad |= has_nonfinite(_mm512_loadu_si512(p));
	return bad;
}

/* pair_order is the permutation that interleaves the halves of a vector. */
static inline __m512i pair_order(void)
{
	return _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
}

/* pairs interleaves 16 columns of two rows of bf16: [16][2]. */
static inline __m512i pairs(const uint8_t *a, const uint8_t *b)
{
	__m512i x = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)a));
	return _mm512_permutexvar_epi16(pair_order(), _mm512_inserti64x4(x, _mm256_loadu_si256((const __m256i *)b), 1));
}

/* wide_bf16 returns 16 bf16 as floats; low_bf16 and high_bf16 the first and the second of each
 * pair. */
INLINE __m512 wide_bf16(__m256i x) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16)); }
INLINE __m512 low_bf16(__m512i x) { return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16)); }
INLINE __m512 high_bf16(__m512i x) { return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000))); }

INLINE __m512bh broadcast_pair(const uint8_t *p)
{
	int32_t x;
	memcpy(&x, p, 4);
	return (__m512bh)_mm512_set1_epi32(x);
}

/* values_pair interleaves 16·c columns of two values, two vectors at a time. */
INLINE void values_pair(int c, const uint8_t *a, const uint8_t *b, __m512bh *to)
{
	for (int j = 0; j < c; j += 2) {
		__m512i x = _mm512_loadu_si512(a + j * 32), y = _mm512_loadu_si512(b + j * 32), order = pair_order();
		const __m512i upper = _mm512_set1_epi16(16);
		order = _mm512_add_epi16(order, _mm512_and_si512(order, upper)); /* the second row's indices begin at 32 */
		to[j] = (__m512bh)_mm512_permutex2var_epi16(x, order, y);
		to[j + 1] = (__m512bh)_mm512_permutex2var_epi16(x, _mm512_add_epi16(order, upper), y);
	}
}

#endif

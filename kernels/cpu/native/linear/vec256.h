/* vec256.h: the vectors of unpack.h in AVX2. A target header, which comes first, defines FN,
 * the attribute that allows its instructions. */
#ifndef VAPP_CPU_LINEAR_VEC256_H
#define VAPP_CPU_LINEAR_VEC256_H
#include <immintrin.h>
#include <stdint.h>

#include "panel.h"

#define V static inline __attribute__((always_inline)) FN
#define LANES 8

typedef __m256 vec;
typedef __m256i dwords;
typedef __m128i words;
typedef __m256i nibble_table;
typedef __m256 fp4_table;

V vec v_set(float x) { return _mm256_set1_ps(x); }
V vec v_load(const float *p) { return _mm256_loadu_ps(p); }
V void v_store(float *p, vec v) { _mm256_storeu_ps(p, v); }
V vec v_add(vec a, vec b) { return _mm256_add_ps(a, b); }
V vec v_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
V vec v_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
V __m256i some(int64_t n) {
	int count = n >= LANES ? LANES : n <= 0 ? 0 : (int)n;
	return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
V vec v_load_some(const float *p, int64_t n) { return n >= LANES ? v_load(p) : _mm256_maskload_ps(p, some(n)); }
V void v_store_some(float *p, int64_t n, vec v) {
	if (n >= LANES)
		v_store(p, v);
	else
		_mm256_maskstore_ps(p, some(n), v);
}
/* v_upper returns the floats in the upper 24 bits. */
V vec v_upper(__m256i q) { return _mm256_castsi256_ps(_mm256_and_si256(q, _mm256_set1_epi32(~0xff))); }
V vec v_halves(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p)); }
V vec v_bytes(const uint8_t *p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p))); }
V dwords v_dwords(const uint8_t *p) { return _mm256_loadu_si256((const void *)p); }
V vec v_even(dwords q) { return _mm256_castsi256_ps(_mm256_slli_epi32(q, 16)); }
V vec v_odd(dwords q) { return _mm256_castsi256_ps(_mm256_and_si256(q, _mm256_set1_epi32((int)0xffff0000))); }
V nibble_table nibbles(int zero) { return _mm256_set1_epi32(zero); }
V vec v_nibble(dwords q, int j, const nibble_table *zero) {
	dwords n = _mm256_and_si256(_mm256_srli_epi32(q, nibble_at(j)), _mm256_set1_epi32(15));
	return _mm256_cvtepi32_ps(_mm256_sub_epi32(n, *zero));
}
V fp4_table fp4(void) { return _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6); }
V vec v_fp4(dwords q, int j, const fp4_table *t) {
	__m256 size = _mm256_permutevar8x32_ps(*t, _mm256_srli_epi32(q, nibble_at(j)));
	__m256i sign = _mm256_and_si256(_mm256_slli_epi32(q, 28 - nibble_at(j)), _mm256_set1_epi32((int)0x80000000));
	return _mm256_or_ps(size, _mm256_castsi256_ps(sign));
}
V vec v_exponents(const uint8_t *p) {
	__m256i e = _mm256_slli_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p)), 23);
	return _mm256_castsi256_ps(_mm256_max_epu32(e, _mm256_set1_epi32(0x400000)));
}

/* Pairs of 8-bit floats: see float8_half. The shift copies the sign twice; the mask removes
 * one. */
V words v_words(const uint8_t *p) { return _mm_loadu_si128((const void *)p); }
V words v_byte_words(const uint8_t *p) { return _mm_cvtepu8_epi16(_mm_loadl_epi64((const void *)p)); }
V vec v_second8(words q, const int e5m2) {
	__m128i h = e5m2 ? _mm_and_si128(q, _mm_set1_epi16((short)0xff00))
	                 : _mm_and_si128(_mm_srai_epi16(q, 1), _mm_set1_epi16((short)0xbf80));
	return _mm256_cvtph_ps(h);
}
V vec v_first8(words q, const int e5m2) {
	q = _mm_slli_epi16(q, 8);
	return e5m2 ? _mm256_cvtph_ps(q) : v_second8(q, 0);
}

/* Fields of a dword, and the numbers that they mean. */
typedef struct {
	__m256 low, high;
} table16;
V dwords v_field(dwords q, int shift, int mask) { return _mm256_and_si256(_mm256_srli_epi32(q, shift), _mm256_set1_epi32(mask)); }
V dwords v_down(dwords q, int shift) { return _mm256_srli_epi32(q, shift); }
V dwords v_join(dwords low, dwords high, int by) { return _mm256_or_si256(low, _mm256_slli_epi32(high, by)); }
V vec v_number(dwords q, int zero) { return _mm256_cvtepi32_ps(_mm256_sub_epi32(q, _mm256_set1_epi32(zero))); }
V table16 v_table(const float *t) { return (table16){_mm256_loadu_ps(t), _mm256_loadu_ps(t + 8)}; }
V vec v_pick(dwords q, table16 t) {
	__m256 low = _mm256_permutevar8x32_ps(t.low, q), high = _mm256_permutevar8x32_ps(t.high, q);
	return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(q, 28)));
}

/* Tables of eighths differ in vec128.h. */
V table16 v_table_eighths(const float *t) { return v_table(t); }
V vec v_pick_eighths(dwords q, table16 t) { return v_pick(q, t); }

#endif

/* vec512.h: the vectors of unpack.h in AVX-512. A target header, which comes first, defines FN,
 * the attribute that allows its instructions. */
#ifndef VAPP_CPU_LINEAR_VEC512_H
#define VAPP_CPU_LINEAR_VEC512_H
#include <immintrin.h>
#include <stdint.h>

#define V static inline __attribute__((always_inline)) FN
#define LANES 16

typedef __m512 vec;
typedef __m512i dwords;
typedef __m256i words;
/* Sixteen numbers, as floats and, twice, as bf16, which is exact. */
typedef struct {
	__m512 floats;
	__m512i halves;
} nibble_table;
typedef nibble_table fp4_table;

V vec v_set(float x) { return _mm512_set1_ps(x); }
V vec v_load(const float *p) { return _mm512_loadu_ps(p); }
V void v_store(float *p, vec v) { _mm512_storeu_ps(p, v); }
V vec v_add(vec a, vec b) { return _mm512_add_ps(a, b); }
V vec v_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
V vec v_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
V __mmask16 some(int64_t n) { return n >= LANES ? 0xffff : n <= 0 ? 0 : (1 << n) - 1; }
V vec v_load_some(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(some(n), p); }
V void v_store_some(float *p, int64_t n, vec v) { _mm512_mask_storeu_ps(p, some(n), v); }
/* v_upper returns the floats in the upper 24 bits. */
V vec v_upper(__m512i q) { return _mm512_castsi512_ps(_mm512_and_si512(q, _mm512_set1_epi32(~0xff))); }
V vec v_halves(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }
V vec v_bytes(const uint8_t *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p))); }
V dwords v_dwords(const uint8_t *p) { return _mm512_loadu_si512(p); }
V vec v_even(dwords q) { return _mm512_castsi512_ps(_mm512_slli_epi32(q, 16)); }
V vec v_odd(dwords q) { return _mm512_castsi512_ps(_mm512_and_si512(q, _mm512_set1_epi32((int)0xffff0000))); }

V nibble_table sixteen(__m512 t) {
	__m512i top = _mm512_srli_epi32(_mm512_castps_si512(t), 16);
	return (nibble_table){t, _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(top)), _mm512_cvtepi32_epi16(top), 1)};
}
V nibble_table nibbles(int zero) {
	__m512i i = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	return sixteen(_mm512_cvtepi32_ps(_mm512_sub_epi32(i, _mm512_set1_epi32(zero))));
}
V fp4_table fp4(void) {
	return sixteen(_mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6));
}
/* One shift serves two look-ups: of floats, by a dword's low four bits, and of bf16, by the low
 * four bits of its upper half, which gives a float. Neither needs a mask. */
V vec v_nibble(dwords q, int j, const nibble_table *t) {
	q = _mm512_srli_epi32(q, j / 2 * 4);
	if (j % 2 == 0) return _mm512_permutexvar_ps(q, t->floats);
	return _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, q, t->halves));
}
V vec v_fp4(dwords q, int j, const fp4_table *t) { return v_nibble(q, j, t); }
V vec v_exponents(const uint8_t *p) {
	__m512i e = _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p)), 23);
	return _mm512_castsi512_ps(_mm512_max_epu32(e, _mm512_set1_epi32(0x400000)));
}

/* Pairs of 8-bit floats: see float8_half. The shift copies the sign twice; the mask removes
 * one. */
V words v_words(const uint8_t *p) { return _mm256_loadu_si256((const void *)p); }
V words v_byte_words(const uint8_t *p) { return _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)p)); }
V vec v_second8(words q, const int e5m2) {
	__m256i h = e5m2 ? _mm256_and_si256(q, _mm256_set1_epi16((short)0xff00))
	                 : _mm256_and_si256(_mm256_srai_epi16(q, 1), _mm256_set1_epi16((short)0xbf80));
	return _mm512_cvtph_ps(h);
}
V vec v_first8(words q, const int e5m2) {
	q = _mm256_slli_epi16(q, 8);
	return e5m2 ? _mm512_cvtph_ps(q) : v_second8(q, 0);
}

/* Fields of a dword, and the numbers that they mean. */
typedef __m512 table16;
V dwords v_field(dwords q, int shift, int mask) { return _mm512_and_si512(_mm512_srli_epi32(q, shift), _mm512_set1_epi32(mask)); }
V dwords v_down(dwords q, int shift) { return _mm512_srli_epi32(q, shift); }
V dwords v_join(dwords low, dwords high, int by) { return _mm512_or_si512(low, _mm512_slli_epi32(high, by)); }
V vec v_number(dwords q, int zero) { return _mm512_cvtepi32_ps(_mm512_sub_epi32(q, _mm512_set1_epi32(zero))); }
V table16 v_table(const float *t) { return _mm512_loadu_ps(t); }
V vec v_pick(dwords q, table16 t) { return _mm512_permutexvar_ps(q, t); }

/* Tables of eighths differ in vec128.h. */
V table16 v_table_eighths(const float *t) { return v_table(t); }
V vec v_pick_eighths(dwords q, table16 t) { return v_pick(q, t); }

#endif

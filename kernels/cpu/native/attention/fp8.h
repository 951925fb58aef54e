/* fp8.h: 8-bit floats in pages to pairs of bf16, which is exact. The lower 7 bits of a number
 * select the upper and the lower byte of its bf16 in tables (VBMI); the sign bit is copied. */
#ifndef VAPP_CPU_ATTENTION_FP8_H
#define VAPP_CPU_ATTENTION_FP8_H
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "../shared/kernels.h"
#include "../shared/tiles_count.h"
#include "pairs.h"
#include "tile.h"

/* codes holds these tables. key and value are byte orders. After key, interleaving upper and
 * lower bytes gives pairs of dimensions, of four dimensions of 16 keys. After value it gives
 * pairs of keys, of 32 columns of two values. */
typedef struct {
	uint8_t low[128], high[128], key[64], value[64];
} codes;

static void fill_codes(int32_t format, codes *c)
{
	for (int i = 0; i < 128; i++) {
		uint16_t h = vapp_float_to_bfloat(format == VAPP_F8_E4M3 ? vapp_e4m3_to_float((uint8_t)i) : vapp_e5m2_to_float((uint8_t)i));
		c->low[i] = (uint8_t)h, c->high[i] = (uint8_t)(h >> 8);
	}
	for (int i = 0; i < 64; i++) { /* lane, pair, key of the lane, dimension of the pair */
		c->key[i] = (uint8_t)(16 * (i / 8 % 2 * 2 + i % 2) + i / 16 * 4 + i / 2 % 4);
		c->value[i] = (uint8_t)(32 * (i % 2) + 16 * (i / 8 % 2) + i / 16 * 4 + i / 2 % 4);
	}
}

typedef struct {
	__m512i low[2], high[2];
} lookup;

static inline lookup look_up(const codes *c)
{
	lookup l;
	for (int i = 0; i < 2; i++)
		l.low[i] = _mm512_loadu_si512(c->low + 64 * i), l.high[i] = _mm512_loadu_si512(c->high + 64 * i);
	return l;
}

/* fp8_columns returns the bf16 of 64 codes, in order. */
static inline void fp8_columns(const lookup *l, __m512i x, __m512i *to)
{
	x = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), x);
	__m512i low = _mm512_permutex2var_epi8(l->low[0], x, l->low[1]), high = _mm512_permutex2var_epi8(l->high[0], x, l->high[1]);
	high = _mm512_ternarylogic_epi32(high, x, _mm512_set1_epi8((char)0x80), 0xf8); /* high | x & 0x80 */
	to[0] = _mm512_unpacklo_epi8(low, high), to[1] = _mm512_unpackhi_epi8(low, high);
}

/* fp8_to_bf16 stores the bf16 of 64 codes: first those of the lower halves of lanes, then those
 * of the upper halves. */
static inline void fp8_to_bf16(const lookup *l, __m512i x, uint8_t *first, uint8_t *second)
{
	__m512i low = _mm512_permutex2var_epi8(l->low[0], x, l->low[1]), high = _mm512_permutex2var_epi8(l->high[0], x, l->high[1]);
	high = _mm512_ternarylogic_epi32(high, x, _mm512_set1_epi8((char)0x80), 0xf8); /* high | x & 0x80 */
	_mm512_storeu_si512(first, _mm512_unpacklo_epi8(low, high));
	_mm512_storeu_si512(second, _mm512_unpackhi_epi8(low, high));
}

/* fp8_stored_pairs packs dim dimensions of a block of keys from a page. */
static void fp8_stored_pairs(const tile *t, const codes *c, const uint8_t *k, int64_t dim, uint8_t *to)
{
	const lookup l = look_up(c);
	const __m512i order = _mm512_loadu_si512(c->key);
	const int64_t step = t->a->pages.block;
	count_unpack(dim / 4 * 6);
	for (int64_t d = 0; d < dim; d += 4, k += 4 * step, to += 128) {
		uint8_t buffer[64];
		for (int i = 0; step != 16 && i < 4; i++)
			memcpy(buffer + 16 * i, k + i * step, 16);
		fp8_to_bf16(&l, _mm512_permutexvar_epi8(order, _mm512_loadu_si512(step == 16 ? k : buffer)), to, to + 64);
	}
}

/* fp8_rows converts n rows of dim numbers, step bytes apart, to bf16. */
static void fp8_rows(const codes *c, const uint8_t *k, int64_t step, int32_t n, int64_t dim, uint8_t *to)
{
	const lookup l = look_up(c);
	const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
	for (; n > 0; n--, k += step)
		for (int64_t d = 0; d < dim; d += 64, to += 128)
			fp8_to_bf16(&l, _mm512_permutexvar_epi64(order, _mm512_loadu_si512(k + d)), to, to + 64);
}

#endif

/* bf16_common.h: what the bf16 kernels of attention share (bf16.h and amx.h). q and the softmax
 * weights are rounded to bf16, to nearest even; sums are float. Keys are stored as pairs of
 * dimensions, [key/2][BLOCK][2], values as pairs of keys. The rows of q and, once they are
 * weights, of the scores hold bf16 from their first byte on. */
#ifndef VAPP_CPU_ATTENTION_BF16_COMMON_H
#define VAPP_CPU_ATTENTION_BF16_COMMON_H
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../shared/kernels.h"
#include "../shared/tiles_count.h"
#include "../shared/vec.h"
#include "fp8.h"
#include "load.h"
#include "pairs.h"
#include "tile.h"

/* uses_bf16 reports whether these kernels compute the tile. */
static int uses_bf16(const tile *t)
{
	switch (t->a->pages.format) {
	case VAPP_BF16:
		return t->dim % 32 == 0 && t->key % 32 == 0;
	case VAPP_F8_E4M3:
	case VAPP_F8_E5M2:
		return t->dim % 64 == 0 && t->key % 64 == 0;
	}
	return 0;
}

#define DECODE_ROWS 8 /* with more rows packing pays */

/* few_rows reports whether the rows read the pages without packing (decode.h). */
static int few_rows(const tile *t) { return t->decode && t->rows <= DECODE_ROWS; }

/* in_floats reports whether the tile's rounded queries and weights are kept in floats. */
static int in_floats(const tile *t)
{
#if defined(VAPP_TILES)
	return few_rows(t);
#else
	return few_rows(t) && t->a->fma;
#endif
}

/* round_queries rounds the rows of q to bf16 in place. */
static void round_queries(const tile *t)
{
	const int floats = in_floats(t);
	for (int32_t r = 0; r < t->rows; r++) {
		float *q = t->q + r * t->key_wide;
		for (int64_t d = 0; d < t->key; d += 16) {
			__m256i x = (__m256i)_mm512_cvtneps_pbh(vf_load(q + d));
			if (floats)
				vf_store(q + d, wide_bf16(x));
			else
				_mm256_storeu_si256((__m256i *)((uint16_t *)q + d), x);
		}
	}
}

/* stored_pairs packs dim dimensions of a block of keys from a page, own_pairs those of n rows,
 * step bytes apart, own_key those of one key. */
static void stored_pairs(const tile *t, const uint8_t *k, int64_t dim, uint16_t *to)
{
	int64_t step = t->a->pages.block * 2;
	count_unpack(dim);
	for (int64_t d = 0; d < dim; d += 2, k += 2 * step, to += 32)
		_mm512_storeu_si512(to, pairs(k, k + step));
}

static void own_pairs(const uint8_t *k, int64_t step, int32_t n, int64_t dim, uint16_t *to)
{
	count_unpack(2 * dim);
	for (int64_t d = 0; d < dim; d += 32, to += 32 * BLOCK) {
		vf r[BLOCK];
		for (int32_t i = 0; i < BLOCK; i++)
			r[i] = i < n ? vf_load((const float *)(k + i * step + d * 2)) : vf_set(0);
		transpose(r, (float *)to);
	}
}

static void own_key(const uint8_t *key, int32_t j, int64_t dim, uint16_t *to)
{
	const uint16_t *k = (const uint16_t *)key;
	for (int64_t d = 0; d < dim; d++)
		to[d / 2 * 32 + 2 * j + d % 2] = k[d];
}

/* rebuilt_pairs packs keys of which pages store only a part. */
static void rebuilt_pairs(const tile *t, int32_t at, int32_t end, uint16_t *to)
{
	float buffer[VAPP_ATTENTION_DIM * BLOCK] __attribute__((aligned(64)));
	tile whole = *t;
	whole.k = buffer;
	load_keys(&whole, at, end);
	for (int64_t d = 0; d < t->dim; d += 2, to += 32) {
		__m512i two = (__m512i)_mm512_cvtne2ps_pbh(vf_load(buffer + (d + 1) * BLOCK), vf_load(buffer + d * BLOCK));
		_mm512_storeu_si512(to, two);
		_mm512_storeu_si512(to, pairs((const uint8_t *)to, (const uint8_t *)(to + 16)));
	}
}

/* rows_pairs packs dim numbers of n rows, step bytes apart; j is the column of the first one. The
 * other columns become 0 if j is 0, else they are unchanged. */
static void rows_pairs(const tile *t, const uint8_t *rows, int64_t step, int32_t n, int64_t dim, int32_t j, uint16_t *to)
{
	uint8_t buffer[BLOCK * VAPP_ATTENTION_DIM * 2];
	if (t->a->pages.format != VAPP_BF16) {
		fp8_rows((const codes *)t->codes, rows, step, n, dim, buffer);
		rows = buffer, step = dim * 2;
	}
	if (j == 0)
		own_pairs(rows, step, n, dim, to);
	for (int32_t i = 0; j > 0 && i < n; i++)
		own_key(rows + i * step, j + i, dim, to);
}

/* block_pairs packs the keys of the block at positions [at, end). Latent keys are values, which
 * rows of pages hold, then as many dimensions as pages store of keys. */
static void block_pairs(const tile *t, int32_t at, int32_t end, uint16_t *to)
{
	const vapp_pages *p = &t->a->pages;
	const int64_t e = vapp_element(p->format), dim = own_dim(t);
	const int32_t fresh = within(t->history, at, end), i = (at - t->now.at) / BLOCK;
	if (t->a->rebuild) {
		rebuilt_pairs(t, at, end, to);
		return;
	}
	if (t->a->latent) {
		if (at < fresh)
			rows_pairs(t, t->now.v[i], t->dim * e, fresh - at, t->dim, 0, to);
		if (fresh < end)
			rows_pairs(t, own_value_of(t, fresh), t->dim * e, end - fresh, t->dim, fresh - at, to);
		to += t->dim * BLOCK;
	}
	if (at < fresh && p->format == VAPP_BF16)
		stored_pairs(t, t->now.k[i], dim, to);
	else if (at < fresh)
		fp8_stored_pairs(t, (const codes *)t->codes, t->now.k[i], dim, (uint8_t *)to);
	if (fresh < end)
		rows_pairs(t, own_key_of(t, fresh), p->kv_heads * dim * e, end - fresh, dim, fresh - at, to);
}

/* vf_exp2 returns 2^x for x ≤ 0: a polynomial of degree 4 around whole numbers, exact at them.
 * The relative error is below 4·10⁻⁶. Below −126 it returns 2⁻¹²⁶; a NaN stays a NaN. */
static inline vf vf_exp2(vf x)
{
	const vf magic = vf_set(12582912.0f); /* 1.5 · 2^23: the whole number is in the low bits */
	vf y = vf_max(vf_set(-126), x), n = y + magic, r = y - (n - magic);
	vf p = vf_set(9.782912553e-3f);
	p = vf_fma(p, r, vf_set(5.597688363e-2f));
	p = vf_fma(p, r, vf_set(2.402071108e-1f));
	p = vf_fma(p, r, vf_set(6.931136044e-1f));
	p = vf_fma(p, r, vf_set(1));
	return (vf)_mm512_add_epi32((__m512i)p, _mm512_slli_epi32((__m512i)n, 23));
}

/* edge returns the mask of those of 16 keys from i on that are in [from, to). */
static inline __mmask16 edge(int32_t i, int32_t from, int32_t to)
{
	int32_t a = within(from - i, 0, 16), b = within(to - i, 0, 16);
	return (__mmask16)((1u << b) - (1u << a));
}

static void cap_row(const tile *t, float *s, int32_t from, int32_t to)
{
	float cap = t->a->softcap;
	for (int32_t i = from / 16 * 16; i < to; i += 16)
		vf_store(s + i, vf_set(cap) * vf_tanh(vf_load(s + i) * vf_set(t->a->scale) / vf_set(cap)));
}

/* row_top returns the largest of the scores [from, to). */
static inline float row_top(const float *s, int32_t from, int32_t to)
{
	const vf least = vf_set(-INFINITY);
	const int32_t last = to / 16 * 16;
	int32_t i = from / 16 * 16;
	vf a = _mm512_mask_mov_ps(least, edge(i, from, to), vf_load(s + i));
	vf b = to % 16 ? _mm512_mask_mov_ps(least, edge(last, from, to), vf_load(s + last)) : least;
	vf top = vf_max(a, vf_max(b, least)); /* this order ignores NaNs */
	for (i += 16; i < last; i += 16)
		top = vf_max(vf_load(s + i), top);
	return vf_top(top);
}

/* store_weights stores 16 weights, from key i on, that are rounded to bf16: as bf16 or in
 * floats. */
INLINE void store_weights(int floats, float *s, int32_t i, __m256i x)
{
	if (floats)
		vf_store(s + i, wide_bf16(x));
	else
		_mm256_storeu_si256((__m256i *)((uint16_t *)s + i), x);
}

/* weights_at stores the softmax weights of 16 keys, from i on, and returns them before they are
 * rounded. */
INLINE vf weights_at(int floats, float *s, int32_t i, vf by, vf less, __mmask16 k)
{
	vf p = _mm512_maskz_mov_ps(k, vf_exp2(_mm512_fmsub_ps(vf_load(s + i), by, less)));
	store_weights(floats, s, i, (__m256i)_mm512_cvtneps_pbh(p));
	return p;
}

/* row_weights turns the scores [from, to) of a row into n bf16 weights in place, with zeros
 * outside. by is the factor of the exponent. It returns the sum of the weights as floats. */
INLINE float row_weights(int floats, float *s, float by, float m, int32_t from, int32_t to, int32_t n)
{
	const vf each = vf_set(by), less = vf_set(m * by);
	const int32_t begin = from / 16 * 16, last = to / 16 * 16;
	int32_t i = 0;
	for (; i < begin; i += 16)
		store_weights(floats, s, i, _mm256_setzero_si256());
	vf acc = weights_at(floats, s, i, each, less, edge(i, from, to));
	for (i += 16; i < last; i += 16)
		acc = acc + weights_at(floats, s, i, each, less, 0xffff);
	if (i < to) {
		acc = acc + weights_at(floats, s, i, each, less, edge(i, from, to));
		i += 16;
	}
	for (; i < n; i += 16)
		store_weights(floats, s, i, _mm256_setzero_si256());
	return vf_sum(acc);
}

#define SOFTMAX_ROWS 4 /* rows whose reductions hide each other's latency */

/* softmax_rows turns the scores of the rows [first, end), which t->score begins with, into
 * weights, for n keys from position base on. It sets top to each row's largest score and sum to
 * the sum of its weights. */
INLINE void softmax_rows(int floats, const tile *t, int32_t first, int32_t end, int32_t base, int32_t n, float *top, float *sum)
{
	const float scale = t->a->softcap > 0 ? 1 : t->a->scale;
	for (int32_t r = first; r < end; r += SOFTMAX_ROWS) {
		const int32_t rows = end - r < SOFTMAX_ROWS ? end - r : SOFTMAX_ROWS;
		int32_t from[SOFTMAX_ROWS], to[SOFTMAX_ROWS];
		float m[SOFTMAX_ROWS] = {0};
		for (int32_t i = 0; i < rows; i++) {
			float *s = t->score + (r - first + i) * ROW;
			if (!seen(t, r + i, base, n, &from[i], &to[i]))
				continue;
			if (t->a->softcap > 0)
				cap_row(t, s, from[i], to[i]);
			m[i] = row_top(s, from[i], to[i]);
		}
		for (int32_t i = 0; i < rows; i++) {
			float *s = t->score + (r - first + i) * ROW;
			sum[r + i] = 0, top[r + i] = -INFINITY;
			if (from[i] >= to[i]) {
				memset(s, 0, (size_t)n * sizeof(float));
				continue;
			}
			sum[r + i] = row_weights(floats, s, scale * 1.44269504f, m[i], from[i], to[i], n);
			top[r + i] = m[i] * scale;
		}
	}
}

/* values points to the value of each key of a span, or to zeros for keys outside [from, to). */
typedef struct {
	const uint8_t *at[SPAN];
} values;

static void find_values(const tile *t, int32_t base, int32_t from, int32_t to, int32_t n, values *v)
{
	static const uint8_t none[2 * VAPP_ATTENTION_DIM];
	const int64_t row = t->dim * vapp_element(t->a->pages.format), own_row = t->a->pages.kv_heads * row;
	int32_t i = 0, first = within(from - base, 0, n), end = within(to - base, first, n), stored = within(t->history - base, first, end);
	for (; i < first; i++)
		v->at[i] = none;
	for (; i < stored; i++)
		v->at[i] = t->now.v[(base + i - t->now.at) / BLOCK] + (base + i) % BLOCK * row;
	const uint8_t *fresh = i < end ? own_value_of(t, base + i) : none;
	for (; i < end; i++, fresh += own_row)
		v->at[i] = fresh;
	for (; i < n; i++)
		v->at[i] = none;
}

#endif

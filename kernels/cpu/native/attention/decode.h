/* decode.h: one span of a decode step: the rows of one token, at most DECODE_ROWS. They read
 * keys and values from the pages without packing; 8-bit floats become bf16 in registers. With
 * each cache line of keys that is used, a line of the span's values is prefetched, and with
 * each line of values one of the next span's keys. Blocks that the rows see only in part, or
 * that hold this step's own key, are packed. */
#ifndef VAPP_CPU_ATTENTION_DECODE_H
#define VAPP_CPU_ATTENTION_DECODE_H
#include <immintrin.h>
#include <stdint.h>

#include "../shared/inline.h"
#include "../shared/kernels.h"
#include "../shared/vec.h"
#include "bf16_common.h"
#include "fp8.h"
#include "pairs.h"
#include "tile.h"

#define DECODE_ROWS 8 /* with more rows packing pays */

/* The forms of keys and values: packed, or in pages of bf16 or 8-bit floats whose blocks have
 * 16 positions or more. */
enum { PACKED, BF16_16, BF16_MORE, FP8_16, FP8_MORE };

#define BY_DECODE_ROWS(f, n, ...) \
	switch (n) { \
	case 1: f(1, __VA_ARGS__); break; \
	case 2: f(2, __VA_ARGS__); break; \
	case 3: f(3, __VA_ARGS__); break; \
	case 4: f(4, __VA_ARGS__); break; \
	case 5: f(5, __VA_ARGS__); break; \
	case 6: f(6, __VA_ARGS__); break; \
	case 7: f(7, __VA_ARGS__); break; \
	default: f(8, __VA_ARGS__); \
	}

/* BY_FORM calls f with a constant form of pages. */
#define BY_FORM(f, form, ...) \
	switch (form) { \
	case BF16_16: f(BF16_16, __VA_ARGS__); break; \
	case BF16_MORE: f(BF16_MORE, __VA_ARGS__); break; \
	case FP8_16: f(FP8_16, __VA_ARGS__); break; \
	default: f(FP8_MORE, __VA_ARGS__); \
	}

static int page_form(const tile *t)
{
	int more = t->a->pages.block != BLOCK;
	return t->a->pages.format == VAPP_BF16 ? BF16_16 + more : FP8_16 + more;
}

/* byte_tables holds the look-up table of 8-bit floats and the byte order that it expects. */
typedef struct {
	lookup l;
	__m512i order;
} byte_tables;

INLINE byte_tables tables_of(int form, const tile *t, int values)
{
	const codes *c = (const codes *)t->codes;
	byte_tables w;
	if (form >= FP8_16)
		w.l = look_up(c), w.order = _mm512_loadu_si512(values ? c->value : c->key);
	return w;
}

/* fp8_lookup returns the bf16 of 64 codes, which it permutes into the tables' order. */
INLINE void fp8_lookup(const byte_tables *w, __m512i x, __m512bh *to)
{
	x = _mm512_permutexvar_epi8(w->order, x);
	__m512i low = _mm512_permutex2var_epi8(w->l.low[0], x, w->l.low[1]), high = _mm512_permutex2var_epi8(w->l.high[0], x, w->l.high[1]);
	high = _mm512_ternarylogic_epi32(high, x, _mm512_set1_epi8((char)0x80), 0xf8); /* high | x & 0x80 */
	to[0] = (__m512bh)_mm512_unpacklo_epi8(low, high), to[1] = (__m512bh)_mm512_unpackhi_epi8(low, high);
}

/* four_dims loads two pairs of dimensions of a block of keys; step is the bytes of a dimension. */
INLINE void four_dims(int form, const byte_tables *w, const uint8_t *k, int64_t step, __m512bh *to)
{
	switch (form) {
	case PACKED:
		to[0] = (__m512bh)_mm512_loadu_si512(k), to[1] = (__m512bh)_mm512_loadu_si512(k + 64);
		break;
	case BF16_16:
		to[0] = (__m512bh)_mm512_permutexvar_epi16(pair_order(), _mm512_loadu_si512(k));
		to[1] = (__m512bh)_mm512_permutexvar_epi16(pair_order(), _mm512_loadu_si512(k + 64));
		break;
	case BF16_MORE:
		to[0] = (__m512bh)pairs(k, k + step), to[1] = (__m512bh)pairs(k + 2 * step, k + 3 * step);
		break;
	case FP8_16:
		fp8_lookup(w, _mm512_loadu_si512(k), to);
		break;
	default: {
		__m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)k));
		x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(k + step)), 1);
		x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(k + 2 * step)), 2);
		fp8_lookup(w, _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(k + 3 * step)), 3), to);
	}
	}
}

/* decode_scores writes to s the scores, before they are scaled, of n rows with the two blocks
 * of keys k[0] and k[1]; it prefetches the values at v. */
INLINE void decode_scores(int n, int form, const tile *t, const uint8_t *const *k, const uint8_t *const *v, float *s)
{
	const byte_tables w = tables_of(form, t, 0);
	const int64_t row = t->wide * 4, step = t->a->pages.block * vapp_element(t->a->pages.format);
	const int64_t far = form == PACKED ? 128 : 4 * step, lines = form >= FP8_16 ? 64 : 128;
	const uint8_t *q = (const uint8_t *)t->q, *end = q + t->dim * 2, *a = k[0], *b = k[1], *x = v[0], *y = v[1];
	vf acc[DECODE_ROWS][2];
	for (int r = 0; r < n; r++)
		acc[r][0] = acc[r][1] = vf_set(0);
	for (; q < end; q += 8, a += far, b += far, x += lines, y += lines) {
		__m512bh left[2], right[2];
		four_dims(form, &w, a, step, left);
		four_dims(form, &w, b, step, right);
		for (int i = 0; form != PACKED && i < lines; i += 64) {
			__builtin_prefetch(x + i, 0, 2);
			__builtin_prefetch(y + i, 0, 2);
		}
		for (int i = 0; i < 2; i++)
			for (int r = 0; r < n; r++) {
				__m512bh one = broadcast_pair(q + r * row + 4 * i);
				acc[r][0] = _mm512_dpbf16_ps(acc[r][0], one, left[i]);
				acc[r][1] = _mm512_dpbf16_ps(acc[r][1], one, right[i]);
			}
	}
	for (int r = 0; r < n; r++) {
		vf_store(s + r * ROW, acc[r][0]);
		vf_store(s + r * ROW + BLOCK, acc[r][1]);
	}
}

INLINE void decode_score_rows(int form, const tile *t, const uint8_t *const *k, const uint8_t *const *v, float *s)
{
	BY_DECODE_ROWS(decode_scores, t->rows, form, t, k, v, s)
}

/* decode_score_span computes the scores of the keys [begin, end). */
static void decode_score_span(const tile *t, int32_t begin, int32_t end)
{
	const int32_t stored = (within(t->history, begin, end) - begin) / BLOCK; /* whole blocks */
	const int form = page_form(t);
	for (int32_t i = 0; i < stored; i += 2) {
		int32_t j = i + 1 < stored ? i + 1 : i;
		const uint8_t *k[2] = {t->now.k[i], t->now.k[j]}, *v[2] = {t->now.v[i], t->now.v[j]};
		BY_FORM(decode_score_rows, form, t, k, v, t->score + i * BLOCK)
	}
	if (begin + stored * BLOCK < end) {
		block_pairs(t, begin + stored * BLOCK, end, (uint16_t *)t->k);
		const uint8_t *k[2] = {(const uint8_t *)t->k, (const uint8_t *)t->k};
		decode_score_rows(PACKED, t, k, k, t->score + stored * BLOCK);
	}
}

/* pair_of loads 16·c columns of two values as pairs of keys. */
INLINE void pair_of(int c, int form, const byte_tables *w, const uint8_t *x, const uint8_t *y, __m512bh *to)
{
	for (int j = 0; j < c; j += 2)
		if (form >= FP8_16) {
			__m512i two = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(x + j * 16)));
			fp8_lookup(w, _mm512_mask_broadcast_i64x4(two, 0xf0, _mm256_loadu_si256((const __m256i *)(y + j * 16))), to + j);
		} else
			values_pair(2, x + j * 32, y + j * 32, to + j);
}

/* value_blocks are blocks of a span's values, packed at v or in pages at `at`. next points to
 * the first nexts key blocks of the next span, to prefetch. */
typedef struct {
	const uint8_t *v, *const *at, *const *next;
	int32_t blocks, nexts;
} value_blocks;

/* decode_add adds values to the sums of n rows: 16·c columns from d on. */
INLINE void decode_add(int n, int c, int form, const tile *t, const value_blocks *b, const uint8_t *p, int64_t d, vf acc[][4])
{
	const byte_tables w = tables_of(form, t, 1);
	const int64_t e = form >= FP8_16 ? 1 : 2, row = t->dim * e, key = t->a->pages.block * e;
	const int more = form == BF16_MORE || form == FP8_MORE;
	for (int32_t i = 0; i < b->blocks; i++) {
		const uint8_t *v = form == PACKED ? b->v + d * 4 : b->at[i] + d * e;
		const uint8_t *next = i < b->nexts ? b->next[i] + d * key : v;
		for (int h = 0; h < BLOCK; h += 2, p += 4, v += form == PACKED ? t->dim * 4 : 2 * row) {
			__m512bh value[4];
			if (form == PACKED)
				for (int j = 0; j < c; j++)
					value[j] = (__m512bh)_mm512_loadu_si512(v + j * 64);
			else
				pair_of(c, form, &w, v, v + row, value);
			for (int j = 0; form != PACKED && j < (more ? 2 * c : c * e / 2); j++, next += more ? key : 64)
				__builtin_prefetch(next, 0, 2);
			for (int r = 0; r < n; r++) {
				__m512bh x = broadcast_pair(p + r * ROW * 4);
				for (int j = 0; j < c; j++)
					acc[r][j] = _mm512_dpbf16_ps(acc[r][j], x, value[j]);
			}
		}
	}
}

/* decode_columns computes 16·c columns of the results of n rows. */
INLINE void decode_columns(int n, int c, int form, const tile *t, const value_blocks *b, int64_t d)
{
	const uint8_t *p = (const uint8_t *)t->score;
	vf acc[DECODE_ROWS][4];
	for (int r = 0; r < n; r++)
		for (int j = 0; j < c; j++)
			acc[r][j] = vf_set(0);
	decode_add(n, c, PACKED, t, b, p, d, acc);
	p += b[0].blocks * BLOCK * 2;
	decode_add(n, c, form, t, b + 1, p, d, acc);
	p += b[1].blocks * BLOCK * 2;
	decode_add(n, c, PACKED, t, b + 2, p, d, acc);
	for (int r = 0; r < n; r++)
		for (int j = 0; j < c; j++)
			vf_store(t->part + r * t->wide + d + j * 16, acc[r][j]);
}

INLINE void decode_results(int n, int form, const tile *t, const value_blocks *b)
{
	const int c = n > (form >= FP8_16 ? 4 : 6) ? 2 : 4;
	int64_t d = 0;
	for (; d + 16 * c <= t->dim; d += 16 * c)
		decode_columns(n, c, form, t, b, d);
	if (c == 4 && d < t->dim)
		decode_columns(n, 2, form, t, b, d);
}

INLINE void decode_result_rows(int form, const tile *t, const value_blocks *b)
{
	BY_DECODE_ROWS(decode_results, t->rows, form, t, b)
}

/* decode_pack packs the values of the block at `at`, with zeros for those that the rows do not
 * see. */
static void decode_pack(const tile *t, int32_t at, uint8_t *to)
{
	values v;
	find_values(t, at, t->low[0], t->high[0], BLOCK, &v);
	pack_values(t, v.at, BLOCK, to);
}

/* decode_accumulate_span computes the weighted values of the keys [begin, end). */
static void decode_accumulate_span(const tile *t, int32_t begin, int32_t end)
{
	const int32_t n = (end - begin + BLOCK - 1) / BLOCK;
	const int32_t last = (within(t->history < t->high[0] ? t->history : t->high[0], begin, end) - begin) / BLOCK;
	const int32_t first = within((t->low[0] - begin + BLOCK - 1) / BLOCK, 0, last); /* the rows see the blocks [first, last) whole */
	value_blocks b[3] = {{.v = (const uint8_t *)t->v, .blocks = first > 0}, {.at = t->now.v + first, .next = t->ahead.k, .blocks = last - first, .nexts = t->ahead.blocks},
		{.v = (const uint8_t *)t->v + 32 * t->wide, .blocks = n > last}};
	if (first > 0)
		decode_pack(t, begin, (uint8_t *)t->v);
	if (n > last)
		decode_pack(t, begin + last * BLOCK, (uint8_t *)t->v + 32 * t->wide);
	BY_FORM(decode_result_rows, page_form(t), t, b)
}

#endif

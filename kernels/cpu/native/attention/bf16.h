/* bf16.h: one span of attention with products of bf16 pairs (VDPBF16PS), for pages of bf16 and
 * of 8-bit floats, which bf16 represents exactly. A score is one chain of the instruction over
 * pairs of dimensions, in order. A result is one chain over pairs of keys: an even position and
 * the next one. Keys that a row does not see have weight 0, which adds nothing. So the bits of
 * a row depend only on the keys that the row sees.
 *
 * Keys, and later values, are packed STRIPE positions at a time, and all rows of the tile use
 * them. The rows of a decode step read the pages without packing (decode.h). */
#ifndef VAPP_CPU_ATTENTION_BF16_H
#define VAPP_CPU_ATTENTION_BF16_H
#include <stdint.h>
#include <string.h>

#include "../shared/inline.h"
#include "../shared/kernels.h"
#include "../shared/vec.h"
#include "bf16_common.h"
#include "decode.h"
#include "fp8.h"
#include "load.h"
#include "pairs.h"
#include "tile.h"

#define STRIPE 64
#define GROUPS (STRIPE / BLOCK)
#define PAIR_ROWS 6 /* with 4 vectors each they fill the registers */

/* fp8_values packs n values, of 8 bits, as pack_values does. */
static int fp8_values(const tile *t, const codes *c, const uint8_t *const *at, int32_t n, uint8_t *to)
{
	const lookup l = look_up(c);
	const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
	int bad = 0;
	for (int32_t i = 0; i < n; i += 2)
		for (int64_t d = 0; d < t->dim; d += 64, to += 256) {
			__m512i x = _mm512_permutexvar_epi32(order, _mm512_loadu_si512(at[i] + d));
			__m512i y = _mm512_permutexvar_epi32(order, _mm512_loadu_si512(at[i + 1] + d));
			fp8_to_bf16(&l, _mm512_unpacklo_epi8(x, y), to, to + 64);
			fp8_to_bf16(&l, _mm512_unpackhi_epi8(x, y), to + 128, to + 192);
			for (int j = 0; j < 4; j++)
				bad |= has_nonfinite(_mm512_loadu_si512(to + 64 * j));
		}
	return bad;
}

/* pack_values packs n values as pairs of keys; it returns nonzero if one was infinite or a NaN. */
static int pack_values(const tile *t, const uint8_t *const *at, int32_t n, uint8_t *to)
{
	int bad = 0;
	if (t->a->pages.format != VAPP_BF16)
		return fp8_values(t, (const codes *)t->codes, at, n, to);
	for (int32_t i = 0; i < n; i += 2)
		for (int64_t d = 0; d < t->dim; d += 32, to += 128) {
			__m512bh two[2];
			values_pair(2, at[i] + d * 2, at[i + 1] + d * 2, two);
			bad |= has_nonfinite((__m512i)two[0]) | has_nonfinite((__m512i)two[1]);
			_mm512_storeu_si512(to, (__m512i)two[0]);
			_mm512_storeu_si512(to + 64, (__m512i)two[1]);
		}
	return bad;
}

/* BY_PAIR_ROWS calls f with a constant number of rows, 1 to PAIR_ROWS. */
#define BY_PAIR_ROWS(f, n, ...) \
	switch (n) { \
	case 1: f(1, __VA_ARGS__); break; \
	case 2: f(2, __VA_ARGS__); break; \
	case 3: f(3, __VA_ARGS__); break; \
	case 4: f(4, __VA_ARGS__); break; \
	case 5: f(5, __VA_ARGS__); break; \
	default: f(6, __VA_ARGS__); \
	}

/* rows_at_once returns the rows of each call for n rows, spread evenly over as few calls as
 * possible. */
static int32_t rows_at_once(int32_t n)
{
	int32_t calls = (n + PAIR_ROWS - 1) / PAIR_ROWS;
	return (n + calls - 1) / calls;
}

/* pass is the rows [first, last) of a tile, whose scores t->score holds. The first pass of a span
 * packs keys and values, which the others use too. */
typedef struct {
	int32_t first, last;
} pass;

/* keys_at and values_at return the packed keys and values of the span's i-th position. */
static uint8_t *keys_at(const tile *t, int32_t i) { return (uint8_t *)t->k + i * t->key * 2; }
static uint8_t *values_at(const tile *t, int32_t i) { return (uint8_t *)t->v + i * t->dim * 2; }

/* pair_scores writes the scores, before they are scaled, of n rows of q with c packed blocks of
 * keys. */
INLINE void pair_scores(int n, int c, const tile *t, const uint8_t *k, const uint8_t *q, float *s)
{
	const int64_t row = t->key_wide * 4, far = BLOCK * t->key * 2;
	const uint8_t *end = q + t->key * 2;
	vf acc[PAIR_ROWS][GROUPS];
	for (int r = 0; r < n; r++)
		for (int j = 0; j < c; j++)
			acc[r][j] = vf_set(0);
	for (; q < end; q += 4, k += 64) {
		__m512bh key[GROUPS];
		for (int j = 0; j < c; j++)
			key[j] = (__m512bh)_mm512_loadu_si512(k + j * far);
		for (int r = 0; r < n; r++) {
			__m512bh x = broadcast_pair(q + r * row);
			for (int j = 0; j < c; j++)
				acc[r][j] = _mm512_dpbf16_ps(acc[r][j], x, key[j]);
		}
	}
	for (int r = 0; r < n; r++)
		for (int j = 0; j < c; j++)
			vf_store(s + r * ROW + j * 16, acc[r][j]);
}

/* pair_columns writes the scores of n rows with the blocks [first, last) of the stripe at k. */
INLINE void pair_columns(int n, const tile *t, const uint8_t *k, int32_t first, int32_t last, int32_t row, float *s)
{
	const uint8_t *q = (const uint8_t *)(t->q + row * t->key_wide);
	if (last - first == GROUPS) {
		pair_scores(n, GROUPS, t, k, q, s);
		return;
	}
	for (; first < last; first++)
		pair_scores(n, 1, t, k + (int64_t)first * BLOCK * t->key * 2, q, s + first * BLOCK);
}

/* pair_accumulate_pv adds n packed values at v, weighted by p, to the results of some rows:
 * 16·c columns from d on. */
INLINE void pair_accumulate_pv(int rows, int c, const tile *t, const uint8_t *v, int32_t n, const uint8_t *p, int64_t d, float *out)
{
	const int64_t step = t->dim * 4;
	const uint8_t *end = p + n * 2;
	v += d * 4, out += d;
	vf acc[PAIR_ROWS][4];
	for (int r = 0; r < rows; r++)
		for (int j = 0; j < c; j++)
			acc[r][j] = vf_load(out + r * t->wide + j * 16);
	for (; p < end; v += step, p += 4) {
		__m512bh value[4];
		for (int j = 0; j < c; j++)
			value[j] = (__m512bh)_mm512_loadu_si512(v + j * 64);
		for (int r = 0; r < rows; r++) {
			__m512bh x = broadcast_pair(p + r * ROW * 4);
			for (int j = 0; j < c; j++)
				acc[r][j] = _mm512_dpbf16_ps(acc[r][j], x, value[j]);
		}
	}
	for (int r = 0; r < rows; r++)
		for (int j = 0; j < c; j++)
			vf_store(out + r * t->wide + j * 16, acc[r][j]);
}

/* pair_accumulate_rows adds all columns of n packed values, weighted by p. */
INLINE void pair_accumulate_rows(int rows, const tile *t, const uint8_t *v, int32_t n, int32_t row, const uint8_t *p)
{
	float *out = t->part + row * t->wide;
	int64_t d = 0;
	for (; d + 64 <= t->dim; d += 64)
		pair_accumulate_pv(rows, 4, t, v, n, p, d, out);
	for (; d < t->dim; d += 32)
		pair_accumulate_pv(rows, 2, t, v, n, p, d, out);
}

/* blocks_of finds the blocks [*first, *last), counted from position at, that any of n rows
 * sees. */
static void blocks_of(const tile *t, int32_t row, int32_t n, int32_t at, int32_t blocks, int32_t *first, int32_t *last)
{
	*first = within((t->low[row] - at) / BLOCK, 0, blocks);
	*last = within((t->high[row + n - 1] - at + BLOCK - 1) / BLOCK, *first, blocks);
}

/* prefetch_own prefetches keys or values of this step (side), of dim numbers, n positions from pos
 * on. */
static void prefetch_own(const tile *t, const void *side, int32_t dim, int32_t pos, int32_t n, int32_t end)
{
	const int64_t bytes = dim * vapp_element(t->a->pages.format);
	for (; n > 0 && pos < end; n--, pos++)
		for (int64_t i = 0; pos >= t->history && i < bytes; i += 64)
			__builtin_prefetch(own(t, side, dim, pos) + i, 0, 2);
}

/* prefetch_blocks prefetches n blocks of keys or values in pages, from the i-th on. */
static void prefetch_blocks(const tile *t, const uint8_t *const *at, int32_t i, int32_t n, int32_t blocks, int keys)
{
	const vapp_pages *p = &t->a->pages;
	const int64_t e = vapp_element(p->format), row = p->block * e, far = keys && row > 64 ? row : 64;
	const int64_t lines = far > 64 ? p->key_dim : (keys ? p->key_dim * row : BLOCK * t->dim * e) / 64;
	for (; n > 0 && i < blocks; n--, i++)
		for (int64_t j = 0; j < lines; j++)
			__builtin_prefetch(at[i] + j * far, 0, 2);
}

/* accumulate_stripe adds the values of n keys, from i on in the span that begins at begin. */
static void accumulate_stripe(const tile *t, pass w, const values *v, int32_t begin, int32_t end, int32_t i, int32_t n)
{
	const int32_t many = rows_at_once(w.last - w.first);
	const uint8_t *weights = (const uint8_t *)t->score + i * 2;
	uint8_t *packed = values_at(t, i);
	int bad = w.first == 0 ? pack_values(t, v->at + i, n, packed) : any_nonfinite(packed, n * t->dim * 2);
	for (int32_t r = w.first; !bad && r < w.last; r += many) {
		int32_t first, last, m = w.last - r < many ? w.last - r : many, call = (r - w.first) / many;
		blocks_of(t, r, m, begin + i, n / BLOCK, &first, &last);
		BY_PAIR_ROWS(pair_accumulate_rows, m, t, packed + first * BLOCK * t->dim * 2, (last - first) * BLOCK, r, weights + (r - w.first) * ROW * 4 + first * BLOCK * 2)
		if (w.first > 0)
			continue;
		prefetch_blocks(t, t->ahead.k, i / BLOCK + call, call < n / BLOCK, t->ahead.blocks, 1);
		if (i == 0)
			prefetch_own(t, t->a->k, own_dim(t), end + call * 4, 4, t->to);
	}
	if (!bad)
		return;
	for (int32_t r = w.first; r < w.last; r++) { /* 0 times infinity is a NaN: leave out the keys that this row does not see */
		values own;
		find_values(t, begin, t->low[r] > begin ? t->low[r] : begin, t->high[r] < end ? t->high[r] : end, i + n, &own);
		pack_values(t, own.at + i, n, packed);
		pair_accumulate_rows(1, t, packed, n, r, weights + (r - w.first) * ROW * 4);
	}
	pack_values(t, v->at + i, n, packed);
}

/* score_stripe computes the scores of the positions [at, end), at most STRIPE, which begin at i in
 * the span. */
static void score_stripe(const tile *t, pass w, int32_t at, int32_t end, int32_t i)
{
	const int32_t many = rows_at_once(w.last - w.first), blocks = (end - at + BLOCK - 1) / BLOCK;
	for (int32_t b = at, j = i; w.first == 0 && b < end; b += BLOCK, j += BLOCK)
		block_pairs(t, b, b + BLOCK < end ? b + BLOCK : end, (uint16_t *)keys_at(t, j));
	for (int32_t r = w.first; r < w.last; r += many) {
		int32_t first, last, n = w.last - r < many ? w.last - r : many, call = (r - w.first) / many;
		blocks_of(t, r, n, at, blocks, &first, &last);
		BY_PAIR_ROWS(pair_columns, n, t, keys_at(t, i), first, last, r, t->score + (r - w.first) * ROW + i)
		if (w.first > 0)
			continue;
		prefetch_blocks(t, t->now.v, (at - t->now.at) / BLOCK + call, call < blocks, t->now.blocks, 0);
		prefetch_own(t, t->a->v, t->dim, at + call * 4, 4, end);
		prefetch_own(t, t->a->k, own_dim(t), end + call * 4, 4, t->to);
	}
}

/* bf16_span computes a span in pairs: the positions [begin, end). */
static void bf16_span(tile *t, int32_t begin, int32_t end, float *top, float *sum)
{
	int32_t n = (end - begin + BLOCK - 1) / BLOCK * BLOCK;
	values v;
	if (t->a->pages.format != VAPP_BF16 && !t->codes_ready++)
		fill_codes(t->a->pages.format, (codes *)t->codes);
	if (few_rows(t)) {
		decode_span(t, begin, end, top, sum);
		return;
	}
	find_values(t, begin, begin, end, n, &v);
	memset(t->part, 0, (size_t)t->rows * t->wide * sizeof(float));
	for (pass w = {0}; w.first < t->rows; w.first = w.last) {
		w.last = t->rows - w.first < PASS ? t->rows : w.first + PASS;
		for (int32_t i = 0; i < n; i += STRIPE)
			score_stripe(t, w, begin + i, begin + i + STRIPE < end ? begin + i + STRIPE : end, i);
		softmax_rows(0, t, w.first, w.last, begin, n, top, sum);
		for (int32_t i = 0; i < n; i += STRIPE)
			accumulate_stripe(t, w, &v, begin, end, i, n - i < STRIPE ? n - i : STRIPE);
	}
}

#endif

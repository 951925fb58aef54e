/* amx.h: one span of attention on AMX tiles, for pages of bf16 and of 8-bit floats, which bf16
 * represents exactly: products of bf16 in tiles of 16 rows, sums in float. A score adds the
 * head's dimensions in order, 32 at a time. A result adds the keys 32 at a time, from a multiple
 * of 32 on; keys that a row does not see have weight 0. So the bits of a row depend only on the
 * keys that the row sees. The rows of a decode step have the same order of sums without tiles
 * (decode.h).
 *
 * A span's keys and values are packed before its products, so no tile is loaded from a line that
 * was just stored. Products have two tiles of rows by two of keys or columns: the rows and their
 * weights are in the first cache, keys and values come from the second. Scores, weights and
 * results of three pairs of row tiles are computed at the same time: while the tiles multiply,
 * the vectors turn scores into weights, one row after each step of four products. */
#ifndef VAPP_CPU_ATTENTION_AMX_H
#define VAPP_CPU_ATTENTION_AMX_H
#include <immintrin.h>
#include <stdint.h>

#include "../shared/kernels.h"
#include "../shared/tiles.h"
#include "../shared/vec.h"
#include "bf16_common.h"
#include "decode.h"
#include "fp8.h"
#include "pairs.h"
#include "tile.h"

/* splits_columns reports whether the tile's results have the even ones of 32 columns before the
 * odd ones. */
static int splits_columns(const tile *t) { return uses_bf16(t) && !few_rows(t); }

#define TILE_ROWS 16
#define TILE_K 32
#define PAIR (2 * TILE_ROWS) /* rows of a step, and keys or columns */

/* scores_of returns the scores of a pair of row tiles, later their weights: two pairs have them
 * at a time. */
static float *scores_of(const tile *t, int32_t r) { return t->score + r % (2 * PAIR) * ROW; }

/* weighing turns the scores of the rows [row, end) into weights, of n keys from position base
 * on. top and sum are those of all rows of the tile; [from, to) and m, the largest score, are
 * those of the next row. */
typedef struct {
	const tile *t;
	float *scores, *top, *sum;
	int32_t row, end, base, n, from, to;
	float m;
} weighing;

static void look_at_row(weighing *w)
{
	float *s = w->scores;
	if (w->row == w->end || !seen(w->t, w->row, w->base, w->n, &w->from, &w->to))
		return;
	if (w->t->a->softcap > 0)
		cap_row(w->t, s, w->from, w->to);
	w->m = row_top(s, w->from, w->to);
}

/* weigh_row computes the weights of the next row, if there is one, and the largest score of the
 * row after it. */
static __attribute__((noinline)) void weigh_row(weighing *w)
{
	if (w->row == w->end)
		return;
	const float scale = w->t->a->softcap > 0 ? 1 : w->t->a->scale, m = w->m;
	const int32_t r = w->row++, from = w->from, to = w->to;
	float *s = w->scores;
	w->scores += ROW;
	look_at_row(w);
	w->sum[r] = 0, w->top[r] = -INFINITY;
	if (from >= to) {
		memset(s, 0, (size_t)w->n * 2);
		return;
	}
	w->sum[r] = row_weights(0, s, scale * 1.44269504f, m, from, to, w->n);
	w->top[r] = m * scale;
}

/* tile_scores writes the scores of a pair of row tiles, before they are scaled, with the span's
 * keys [first, last), in steps of PAIR. */
static void tile_scores(const tile *t, int32_t r, int32_t first, int32_t last, weighing *w)
{
	const int64_t row = t->key_wide * 4, far = TILE_ROWS * row, block = BLOCK * t->key * 2;
	const uint8_t *q = (const uint8_t *)t->q + r * row;
	const int two = t->rows - r > TILE_ROWS;
	float *s = scores_of(t, r);
	tiles_see_memory();
	for (int32_t i = first; i < last; i += PAIR) {
		const uint8_t *k = (const uint8_t *)t->k + i * t->key * 2;
		tile_zero(0);
		tile_zero(1);
		tile_zero(2);
		tile_zero(3);
		for (int64_t d = 0; d < t->key; d += TILE_K, k += 1024) {
			tile_load(6, k, 64);
			tile_load(4, q + d * 2, row);
			tile_products(0, 4, 6);
			tile_load(7, k + block, 64);
			tile_products(1, 4, 7);
			if (two) {
				tile_load(5, q + far + d * 2, row);
				tile_products(2, 5, 6);
				tile_products(3, 5, 7);
			}
			weigh_row(w);
		}
		tile_store(0, s + i, ROW * 4);
		tile_store(1, s + i + TILE_ROWS, ROW * 4);
		if (two) {
			tile_store(2, s + TILE_ROWS * ROW + i, ROW * 4);
			tile_store(3, s + TILE_ROWS * ROW + i + TILE_ROWS, ROW * 4);
		}
	}
	tiles_see_memory();
}

/* STORE_ROWS stores a tile of 16 columns from d on, for the rows from r on, to t->part; only the
 * rows [first, last). */
#define STORE_ROWS(number, t, r, d, first, last) \
	if ((first) <= (r) && (r) + TILE_ROWS <= (last)) { \
		tile_store(number, (t)->part + (r) * (t)->wide + (d), (t)->wide * 4); \
	} else { \
		float rows[TILE_ROWS * TILE_ROWS] __attribute__((aligned(64))); \
		tile_store(number, rows, 64); \
		tiles_see_memory(); \
		for (int32_t i = within(first, r, (r) + TILE_ROWS); i < within(last, r, (r) + TILE_ROWS); i++) \
			vf_store((t)->part + i * (t)->wide + (d), vf_load(rows + (i - (r)) * TILE_ROWS)); \
	}

/* tile_results writes the weighted values of a pair of row tiles, over the span's keys
 * [begin, end); only the rows [first, last). Of 32 columns the even ones precede the odd ones. */
static void tile_results(const tile *t, int32_t r, int32_t first, int32_t last, int32_t begin, int32_t end, weighing *w)
{
	const int two = last - r > TILE_ROWS;
	const uint8_t *p = (const uint8_t *)(scores_of(t, r) + begin);
	tiles_see_memory();
	for (int64_t d = 0; d < t->dim; d += PAIR) {
		tile_zero(0);
		tile_zero(1);
		tile_zero(2);
		tile_zero(3);
		for (int32_t i = begin; i < end; i += TILE_K) {
			const uint8_t *v = (const uint8_t *)t->v + i * t->dim * 2 + d * 64;
			tile_load(6, v, 64);
			tile_load(4, p + (i - begin) * 2, ROW * 4);
			tile_products(0, 4, 6);
			tile_load(7, v + 1024, 64);
			tile_products(1, 4, 7);
			if (two) {
				tile_load(5, p + TILE_ROWS * ROW * 4 + (i - begin) * 2, ROW * 4);
				tile_products(2, 5, 6);
				tile_products(3, 5, 7);
			}
			weigh_row(w);
		}
		STORE_ROWS(0, t, r, d, first, last)
		STORE_ROWS(1, t, r, d + TILE_ROWS, first, last)
		if (two) {
			STORE_ROWS(2, t, r + TILE_ROWS, d, first, last)
			STORE_ROWS(3, t, r + TILE_ROWS, d + TILE_ROWS, first, last)
		}
	}
	tiles_see_memory();
}

/* value_columns loads columns of a value as bf16: 32 of them, of an 8-bit format 64. */
INLINE void value_columns(int narrow, const lookup *l, const uint8_t *v, __m512i *to)
{
	if (narrow)
		fp8_columns(l, _mm512_loadu_si512(v), to);
	else
		to[0] = _mm512_loadu_si512(v);
}

/* pack_pairs stores the values of n keys for tiles: [32 keys][16 columns] each, those of the even
 * ones of 32 columns before those of the odd ones. It returns nonzero if a value was infinite or
 * a NaN. */
INLINE int pack_pairs(int narrow, const tile *t, const uint8_t *const *at, int32_t n)
{
	const __m512i low = _mm512_set1_epi32(0xffff), size = _mm512_set1_epi16(0x7fff);
	const int vectors = narrow ? 2 : 1;
	__m512i most = _mm512_setzero_si512();
	lookup l;
	if (narrow)
		l = look_up((const codes *)t->codes);
	for (int32_t i = 0; i < n; i += 2) {
		uint8_t *to = (uint8_t *)t->v + i / TILE_K * TILE_K * t->dim * 2 + i % TILE_K * 32;
		count_unpack(t->dim / 32 * (narrow ? 14 : 8));
		for (int64_t d = 0; d < t->dim; d += 32 * vectors) {
			__m512i x[2], y[2];
			value_columns(narrow, &l, at[i] + d * 2 / vectors, x);
			value_columns(narrow, &l, at[i + 1] + d * 2 / vectors, y);
			for (int j = 0; j < vectors; j++, to += 2048) {
				most = _mm512_max_epu16(most, _mm512_max_epu16(_mm512_and_si512(x[j], size), _mm512_and_si512(y[j], size)));
				_mm512_storeu_si512(to, _mm512_ternarylogic_epi32(x[j], low, _mm512_slli_epi32(y[j], 16), 0xea));
				_mm512_storeu_si512(to + 1024, _mm512_ternarylogic_epi32(_mm512_srli_epi32(x[j], 16), low, y[j], 0xf2));
			}
		}
	}
	return _mm512_cmpge_epu16_mask(most, _mm512_set1_epi16(0x7f80)) != 0;
}

static int pack_tiles(const tile *t, const values *v, int32_t n)
{
	return t->a->pages.format == VAPP_BF16 ? pack_pairs(0, t, v->at, n) : pack_pairs(1, t, v->at, n);
}

/* pack_keys packs the keys [begin, end) of a span for tiles, the first one at position base. It
 * prefetches the span's values and the next span's keys. */
static void pack_keys(const tile *t, int32_t base, int32_t begin, int32_t end)
{
	for (int32_t b = begin, i = 0; b < end; b += BLOCK, i++) {
		prefetch_plan next = plan_key_prefetch(t, i < t->ahead.blocks ? t->ahead.k[i] : NULL);
		const uint8_t *v = i < t->now.blocks ? t->now.v[i] : NULL;
		for (int32_t j = 0; next.at && j < BLOCK; j++)
			next.at = prefetch_lines(next, next.at);
		for (int64_t j = 0; v && j < BLOCK * t->dim * vapp_element(t->a->pages.format); j += 64)
			__builtin_prefetch(v + j, 0, 2);
		block_pairs(t, b, b + BLOCK < end ? b + BLOCK : end, (uint16_t *)((uint8_t *)t->k + (b - base) * t->key * 2));
	}
}

/* seen_steps sets [*first, *last) to the span's keys that any row of a pair of tiles sees, in
 * steps of 32. */
static void seen_steps(const tile *t, int32_t r, int32_t base, int32_t n, int32_t *first, int32_t *last)
{
	const int32_t end = within(r + PAIR, 0, t->rows) - 1;
	*first = within((t->low[r] - base) / PAIR * PAIR, 0, n);
	*last = within((t->high[end] - base + PAIR - 1) / PAIR * PAIR, *first, n);
}

/* exclude_unseen computes the results of a pair of row tiles when a value is infinite or a NaN,
 * whose product with 0 is not 0: each row without the keys that it does not see. */
static void exclude_unseen(const tile *t, const values *v, int32_t r, int32_t base, int32_t begin, int32_t end, int32_t n)
{
	weighing none = {0};
	for (int32_t i = r; i < within(r + PAIR, 0, t->rows); i++) {
		values own;
		find_values(t, base, t->low[i] > begin ? t->low[i] : begin, t->high[i] < end ? t->high[i] : end, n, &own);
		pack_tiles(t, &own, n);
		int32_t first, last;
		seen_steps(t, r, base, n, &first, &last);
		tile_results(t, r, i, i + 1, first, last, &none);
	}
	pack_tiles(t, v, n);
}

/* bf16_span computes a span on tiles: the positions [begin, end). */
static void bf16_span(tile *t, int32_t begin, int32_t end, float *top, float *sum)
{
	const int32_t base = begin / PAIR * PAIR, n = (end - base + PAIR - 1) / PAIR * PAIR;
	weighing w = {0};
	values v;
	if (t->a->pages.format != VAPP_BF16 && !t->codes_ready++)
		fill_codes(t->a->pages.format, (codes *)t->codes);
	if (few_rows(t)) {
		decode_span(t, begin, end, top, sum);
		return;
	}
	pack_keys(t, base, begin, end);
	find_values(t, base, begin, end, n, &v);
	const int bad = pack_tiles(t, &v, n);
	int32_t first, last, before = 0, until = 0; /* the keys of this pair of row tiles and of the one before it */
	seen_steps(t, 0, base, n, &first, &last);
	tile_scores(t, 0, first, last, &w);
	for (int32_t r = 0; r < t->rows + PAIR; r += PAIR) {
		w = (weighing){t, scores_of(t, r) + first, top, sum, r, within(r + PAIR, r, t->rows), base + first, last - first, 0, 0, 0};
		if (r >= t->rows)
			w.row = w.end;
		look_at_row(&w);
		if (r > 0 && !bad)
			tile_results(t, r - PAIR, r - PAIR, within(r, 0, t->rows), before, until, &w);
		else if (r > 0)
			exclude_unseen(t, &v, r - PAIR, base, begin, end, n);
		before = first, until = last;
		if (r + PAIR < t->rows) {
			seen_steps(t, r + PAIR, base, n, &first, &last);
			tile_scores(t, r + PAIR, first, last, &w);
		}
		while (w.row < w.end)
			weigh_row(&w);
	}
}

#endif

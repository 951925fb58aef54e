/* amx.h: one span of attention on AMX tiles, for pages of bf16: products of bf16 in tiles of 16
 * rows, sums in float. A score adds the head's dimensions in order, 32 at a time. A result adds
 * the keys 32 at a time, from a multiple of 32 on; keys that a row does not see have weight 0.
 * So the bits of a row depend only on the keys that the row sees. t->k holds a block of keys as
 * pairs. */
#ifndef VAPP_CPU_ATTENTION_AMX_H
#define VAPP_CPU_ATTENTION_AMX_H
#include <immintrin.h>
#include <stdint.h>

#include "../shared/kernels.h"
#include "../shared/tiles.h"
#include "../shared/vec.h"
#include "bf16_common.h"
#include "pairs.h"
#include "tile.h"

#define TILE_ROWS 16
#define TILE_K 32
#define MOST (3 * TILE_ROWS) /* rows of one pass: three tiles of sums */

/* uses_bf16 reports whether this file computes the tile. */
static int uses_bf16(const tile *t) { return t->a->pages.format == VAPP_BF16 && t->dim % TILE_K == 0; }

/* tiles_of returns how many AMX tiles the rows from r on take in one pass, at most three. */
static int32_t tiles_of(const tile *t, int32_t r) { return within((t->rows - r + TILE_ROWS - 1) / TILE_ROWS, 0, 3); }

/* tile_scores writes to s the scores of the rows from r on with the keys in t->k, before they
 * are scaled. */
static void tile_scores(const tile *t, int32_t r, float *s)
{
	const int64_t row = t->wide * 4, far = TILE_ROWS * row;
	const uint8_t *q = (const uint8_t *)t->q + r * row, *k = (const uint8_t *)t->k;
	const int32_t n = tiles_of(t, r);
	s += r * ROW;
	tiles_see_memory();
	tile_zero(0);
	tile_zero(1);
	tile_zero(2);
	for (int64_t d = 0; d < t->dim; d += TILE_K, q += 64, k += 1024) {
		tile_load(6, k, 64);
		tile_load(3, q, row);
		tile_products(0, 3, 6);
		if (n > 1) {
			tile_load(4, q + far, row);
			tile_products(1, 4, 6);
		}
		if (n > 2) {
			tile_load(5, q + 2 * far, row);
			tile_products(2, 5, 6);
		}
	}
	tile_store(0, s, ROW * 4);
	if (n > 1)
		tile_store(1, s + TILE_ROWS * ROW, ROW * 4);
	if (n > 2)
		tile_store(2, s + 2 * TILE_ROWS * ROW, ROW * 4);
}

/* tile_values sums n weighted values in tiles 0 to 2: 16 columns from d on, for the rows from r
 * on. It returns nonzero if a value was infinite or a NaN. */
static int tile_values(const tile *t, int32_t r, const values *v, int64_t d, int32_t n)
{
	const int32_t rows = tiles_of(t, r);
	const float *p = t->score + r * ROW;
	uint16_t pack[2][TILE_K * TILE_ROWS] __attribute__((aligned(64)));
	int bad = 0;
	tile_zero(0);
	tile_zero(1);
	tile_zero(2);
	for (int32_t k = 0; k < n; k += TILE_K, p += TILE_K / 2) {
		uint16_t *to = pack[k / TILE_K % 2];
		for (int32_t j = 0; j < TILE_K; j += 2) {
			__m512i x = pairs(v->at[k + j] + 2 * d, v->at[k + j + 1] + 2 * d);
			bad |= has_nonfinite(x);
			_mm512_store_si512(to + j * TILE_ROWS, x);
		}
		tiles_see_memory();
		tile_load(6, to, 64);
		tile_load(3, p, ROW * 4);
		tile_products(0, 3, 6);
		if (rows > 1) {
			tile_load(4, p + TILE_ROWS * ROW, ROW * 4);
			tile_products(1, 4, 6);
		}
		if (rows > 2) {
			tile_load(5, p + 2 * TILE_ROWS * ROW, ROW * 4);
			tile_products(2, 5, 6);
		}
	}
	return bad;
}

/* copy_columns copies 16 columns, from d on, of the rows [r, end) from tiles 0 to 2 to t->part;
 * first is the row that tile 0 begins with. */
static void copy_columns(const tile *t, int64_t d, int32_t first, int32_t r, int32_t end)
{
	float sums[MOST][TILE_ROWS] __attribute__((aligned(64)));
	tile_store(0, sums[0], 64);
	tile_store(1, sums[TILE_ROWS], 64);
	tile_store(2, sums[2 * TILE_ROWS], 64);
	tiles_see_memory();
	for (; r < end; r++)
		vf_store(t->part + r * t->wide + d, vf_load(sums[r - first]));
}

/* tile_accumulate_pv computes the weighted values of the rows [first, last), at most MOST. */
static void tile_accumulate_pv(const tile *t, int32_t first, int32_t last, const values *v, int32_t base, int32_t begin, int32_t end, int32_t n)
{
	for (int64_t d = 0; d < t->dim; d += TILE_ROWS) {
		int bad = tile_values(t, first, v, d, n);
		copy_columns(t, d, first, first, last);
		for (int32_t r = first; bad && r < last; r++) { /* 0 times infinity is a NaN: leave out the keys that this row does not see */
			values own;
			find_values(t, base, t->low[r] > begin ? t->low[r] : begin, t->high[r] < end ? t->high[r] : end, n, &own);
			tile_values(t, first, &own, d, n);
			copy_columns(t, d, first, r, r + 1);
		}
	}
}

/* bf16_span computes a span on tiles: the positions [begin, end). */
static void bf16_span(const tile *t, int32_t begin, int32_t end, float *top, float *sum)
{
	int32_t base = begin / TILE_K * TILE_K, n = (end - base + TILE_K - 1) / TILE_K * TILE_K;
	for (int32_t b = begin, i = 0; b < end; b += BLOCK, i++) {
		prefetch_plan next = plan_key_prefetch(t, i < t->ahead.blocks ? t->ahead.k[i] : NULL);
		const uint8_t *v = i < t->now.blocks ? t->now.v[i] : NULL;
		for (int32_t j = 0; next.at && j < BLOCK; j++)
			next.at = prefetch_lines(next, next.at);
		for (int64_t j = 0; v && j < BLOCK * t->dim * 2; j += 64)
			__builtin_prefetch(v + j, 0, 2);
		block_pairs(t, b, b + BLOCK < end ? b + BLOCK : end, (uint16_t *)t->k);
		for (int32_t r = 0; r < t->rows; r += MOST)
			tile_scores(t, r, t->score + (b - base));
	}
	tiles_see_memory();
	softmax_rows(t, base, n, top, sum);
	values v;
	find_values(t, base, begin, end, n, &v);
	for (int32_t r = 0; r < t->rows; r += MOST)
		tile_accumulate_pv(t, r, r + MOST < t->rows ? r + MOST : t->rows, &v, base, begin, end, n);
}

#endif

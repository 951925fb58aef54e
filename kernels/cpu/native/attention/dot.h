/* dot.h: scores (rows of q times keys) and weighted values, in floats. A score is four sums,
 * each over every fourth dimension, joined as (0+1)+(2+3); a result is one sum over the keys,
 * in order. A block is converted to floats first when many rows use it, and read from the page
 * when few do: the bits are the same. */
#ifndef VAPP_CPU_ATTENTION_DOT_H
#define VAPP_CPU_ATTENTION_DOT_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../shared/inline.h"
#include "../shared/kernels.h"
#include "../shared/vec.h"
#include "load.h"
#include "tile.h"

/* Rows of a call: with four sums each they fill the registers. */
#if VAPP_VECTOR == 512
#define ROWS 4
#else
#define ROWS 3
#endif

/* BY_ROWS calls f with a constant number of rows, 1 to ROWS. */
#if ROWS == 4
#define BY_ROWS(f, n, ...) \
	switch (n) { \
	case 1: f(1, __VA_ARGS__); break; \
	case 2: f(2, __VA_ARGS__); break; \
	case 3: f(3, __VA_ARGS__); break; \
	default: f(4, __VA_ARGS__); \
	}
#else
#define BY_ROWS(f, n, ...) \
	switch (n) { \
	case 1: f(1, __VA_ARGS__); break; \
	case 2: f(2, __VA_ARGS__); break; \
	default: f(3, __VA_ARGS__); \
	}
#endif

/* A call accumulates the values of up to DECODE_GROUP rows of one token. */
#if VAPP_VECTOR == 512
#define DECODE_GROUP 6
#else
#define DECODE_GROUP 4
#endif
#define BY_DECODE_GROUP(f, n, ...) \
	switch (n) { \
	case 1: f(1, __VA_ARGS__); break; \
	case 2: f(2, __VA_ARGS__); break; \
	case 3: f(3, __VA_ARGS__); break; \
	case 4: f(4, __VA_ARGS__); break; \
	case 5: f(DECODE_GROUP < 5 ? DECODE_GROUP : 5, __VA_ARGS__); break; \
	default: f(DECODE_GROUP, __VA_ARGS__); \
	}

/* at_once returns the rows of each call, spread evenly over as few calls as possible. */
static int32_t at_once(int32_t n, int32_t most)
{
	int32_t calls = (n + most - 1) / most;
	return (n + calls - 1) / calls;
}

/* scores computes the scores of n rows of q with a block of keys whose dim dimensions are step
 * bytes apart. Row r's scores go to s[r·ROW]. It prefetches the block's values at v, which may
 * be NULL. */
INLINE void scores(int n, int32_t format, const tile *t, const uint8_t *k, int64_t step, int64_t dim, const float *q, const uint8_t *v, float *s)
{
	const vf scale = vf_set(t->a->scale);
	const int64_t wide = t->wide;
	for (int j = 0; j < NV; j++, k += VW * vapp_element(format), s += VW) {
		vf acc[ROWS][4];
		const uint8_t *at = k;
		for (int r = 0; r < n; r++)
			for (int i = 0; i < 4; i++)
				acc[r][i] = vf_set(0);
		for (int64_t d = 0; d < dim; d += 4) {
			for (int x = 0; v && x < vapp_element(t->a->pages.format); x++, v += 64)
				__builtin_prefetch(v, 0, 2);
			for (int i = 0; i < 4; i++, at += step) {
				vf key = vf_widen(format, at);
				for (int r = 0; r < n; r++)
					acc[r][i] = vf_fma(vf_set(q[r * wide + d + i]), key, acc[r][i]);
			}
		}
		v = NULL;
		for (int r = 0; r < n; r++)
			vf_store(s + r * ROW, ((acc[r][0] + acc[r][1]) + (acc[r][2] + acc[r][3])) * scale);
	}
}

/* block_scores computes the scores of all rows with the block of floats in t->k. */
static void block_scores(const tile *t, const uint8_t *v, float *s)
{
	const uint8_t *k = (const uint8_t *)t->k;
	for (int32_t r = 0; r < t->rows; r += ROWS, v = NULL)
		BY_ROWS(scores, t->rows - r, VAPP_F32, t, k, BLOCK * 4, t->wide, t->q + r * t->wide, v, s + r * ROW)
}

/* stored_scores computes the scores of all rows with a block in a page. */
INLINE void stored_scores(int32_t format, const tile *t, const uint8_t *k, const uint8_t *v, float *s)
{
	int64_t step = t->a->pages.block * vapp_element(format);
	const int32_t many = at_once(t->rows, ROWS);
	for (int32_t r = 0; r < t->rows; r += many, v = NULL)
		BY_ROWS(scores, t->rows - r < many ? t->rows - r : many, format, t, k, step, t->dim, t->q + r * t->wide, v, s + r * ROW)
}

static void score_span(const tile *t, int32_t at, int32_t end)
{
	for (int32_t b = at, i = 0; b < end; b += BLOCK, i++) {
		float *s = t->score + (b - at);
		const uint8_t *v = i < t->now.blocks ? t->now.v[i] : NULL;
		if (t->decode && b + BLOCK <= t->history) {
			IN_FORMAT(stored_scores, t->a->pages.format, t, t->now.k[i], v, s)
			continue;
		}
		load_keys(t, b, b + BLOCK < end ? b + BLOCK : end);
		block_scores(t, v, s);
	}
}

/* accumulate_pv adds the values of some keys, step bytes apart and weighted by p, to n rows of
 * out: c vectors of columns. It prefetches lines of the next block. */
INLINE void accumulate_pv(int n, int c, int32_t format, const uint8_t *v, int64_t step, int32_t keys, const float *p, prefetch_plan next, int64_t wide, float *out)
{
	vf acc[ROWS][4];
	for (int r = 0; r < n; r++)
		for (int h = 0; h < c; h++)
			acc[r][h] = vf_load(out + r * wide + h * VW);
	for (int32_t j = 0; j < keys; j++, v += step) {
		vf value[4];
		if (next.at)
			next.at = prefetch_lines(next, next.at);
		for (int h = 0; h < c; h++)
			value[h] = vf_widen(format, v + h * VW * vapp_element(format));
		for (int r = 0; r < n; r++) {
			vf w = vf_set(p[r * ROW + j]);
			for (int h = 0; h < c; h++)
				acc[r][h] = vf_fma(w, value[h], acc[r][h]);
		}
	}
	for (int r = 0; r < n; r++)
		for (int h = 0; h < c; h++)
			vf_store(out + r * wide + h * VW, acc[r][h]);
}

/* accumulate_pv_rows calls accumulate_pv for all columns. */
INLINE void accumulate_pv_rows(int n, int32_t format, const uint8_t *v, int64_t step, int32_t keys, const float *p, prefetch_plan next, int64_t columns, int64_t wide, float *out)
{
	const int64_t e = vapp_element(format);
	int64_t i = 0;
	if (ROWS == 4)
		for (; i + 4 * VW <= columns; i += 4 * VW, next.at = NULL)
			accumulate_pv(n, 4, format, v + i * e, step, keys, p, next, wide, out + i);
	for (; i + 2 * VW <= columns; i += 2 * VW, next.at = NULL)
		accumulate_pv(n, 2, format, v + i * e, step, keys, p, next, wide, out + i);
	for (; i < columns; i += VW, next.at = NULL)
		accumulate_pv(n, 1, format, v + i * e, step, keys, p, next, wide, out + i);
}

/* accumulate_pv_block adds the values [from, to) of the block to n rows. */
static void accumulate_pv_block(const tile *t, int32_t row, int32_t n, int32_t from, int32_t to, const float *p, prefetch_plan next)
{
	const uint8_t *v = (const uint8_t *)(t->v + from * t->wide);
	if (from < to)
		BY_ROWS(accumulate_pv_rows, n, VAPP_F32, v, t->wide * 4, to - from, p + row * ROW + from, next, t->wide, t->wide, t->part + row * t->wide)
}

/* accumulate_pv_shared processes rows that begin with the same key together, as far as all of
 * them see. */
static void accumulate_pv_shared(const tile *t, int32_t at, int32_t end)
{
	for (int32_t b = at, i = 0; b < end; b += BLOCK, i++) {
		const float *p = t->score + (b - at);
		prefetch_plan next = plan_key_prefetch(t, i < t->ahead.blocks ? t->ahead.k[i] : NULL);
		load_values(t, b, b + BLOCK < end ? b + BLOCK : end);
		for (int32_t r = 0, n; r < t->rows; r += n) {
			int32_t from, to, x, y;
			seen(t, r, b, BLOCK, &from, &to);
			for (n = 1; n < ROWS && r + n < t->rows; n++) {
				seen(t, r + n, b, BLOCK, &x, &y);
				if (x != from || to <= from)
					break;
			}
			accumulate_pv_block(t, r, n, from, to, p, next);
			next.at = NULL;
			for (int32_t k = 1; k < n; k++) {
				seen(t, r + k, b, BLOCK, &x, &y);
				accumulate_pv_block(t, r + k, 1, to, y, p, next);
			}
		}
	}
}

/* decode_sums computes c vectors of columns, from d on, for n rows that see the same keys:
 * [from, to) of the span at `at`. It reads the values from the pages and prefetches keys of the
 * next span. */
INLINE void decode_sums(int n, int c, int format, const tile *t, int32_t at, int32_t from, int32_t to, int64_t d, int32_t r)
{
	const vapp_pages *g = &t->a->pages;
	const int64_t e = vapp_element(format), row = t->dim * e, key = g->block * e;
	const int64_t bytes = c * VW * e, step = g->block > BLOCK ? key : bytes < 64 ? bytes : 64;
	const int64_t lines = g->block > BLOCK ? (c * VW + BLOCK - 1) / BLOCK : (bytes + 63) / 64;
	const int32_t stored = within(t->history - at, from, to);
	const float *p = t->score + r * ROW;
	vf acc[DECODE_GROUP][4];
	for (int i = 0; i < n; i++)
		for (int h = 0; h < c; h++)
			acc[i][h] = vf_set(0);
	for (int32_t j = from; j < to;) {
		const int32_t b = j / BLOCK, end = j >= stored ? to : (b + 1) * BLOCK < stored ? (b + 1) * BLOCK : stored;
		const uint8_t *v = (j < stored ? t->now.v[b] + j % BLOCK * row : own(t, t->a->v, at + j)) + d * e;
		const uint8_t *next = b < t->ahead.blocks ? t->ahead.k[b] + d * key : v;
		for (; j < end; j++, v += row) { /* a decode step has one key of its own */
			vf value[4];
			for (int64_t i = 0; i < lines; i++, next += step)
				__builtin_prefetch(next, 0, 2);
			for (int h = 0; h < c; h++)
				value[h] = vf_widen(format, v + h * VW * e);
			for (int i = 0; i < n; i++) {
				vf w = vf_set(p[i * ROW + j]);
				for (int h = 0; h < c; h++)
					acc[i][h] = vf_fma(w, value[h], acc[i][h]);
			}
		}
	}
	for (int i = 0; i < n; i++)
		for (int h = 0; h < c; h++)
			vf_store(t->part + (r + i) * t->wide + d + h * VW, acc[i][h]);
}

INLINE void decode_rows(int n, int format, const tile *t, int32_t at, int32_t from, int32_t to, int32_t r)
{
	int64_t d = 0;
	if (ROWS == 4)
		for (; d + 4 * VW <= t->dim; d += 4 * VW)
			decode_sums(n, 4, format, t, at, from, to, d, r);
	for (; d + 2 * VW <= t->dim; d += 2 * VW)
		decode_sums(n, 2, format, t, at, from, to, d, r);
	for (; d < t->dim; d += VW)
		decode_sums(n, 1, format, t, at, from, to, d, r);
}

INLINE void decode_all_rows(int32_t format, const tile *t, int32_t at, int32_t from, int32_t to)
{
	const int32_t many = at_once(t->rows, DECODE_GROUP);
	for (int32_t r = 0; r < t->rows; r += many)
		BY_DECODE_GROUP(decode_rows, t->rows - r < many ? t->rows - r : many, format, t, at, from, to, r)
}

/* decode_accumulate_pv computes the weighted values of the rows of one token. */
static void decode_accumulate_pv(const tile *t, int32_t at, int32_t end)
{
	int32_t from, to;
	if (seen(t, 0, at, end - at, &from, &to))
		IN_FORMAT(decode_all_rows, t->a->pages.format, t, at, from, to)
}

static void accumulate_pv_span(const tile *t, int32_t at, int32_t end)
{
	if (t->decode) {
		decode_accumulate_pv(t, at, end);
		return;
	}
	memset(t->part, 0, (size_t)t->rows * t->wide * sizeof(float));
	accumulate_pv_shared(t, at, end);
}

#endif

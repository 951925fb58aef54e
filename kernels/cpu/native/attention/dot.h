/* dot.h: scores (rows of q times keys) and weighted values, in floats. A score is four sums,
 * each over every fourth dimension, joined as (0+1)+(2+3); a result is one sum over the keys,
 * in order. A block is converted to floats first when many rows use it, and read from the page
 * when few do: the bits are the same. */
#ifndef VAPP_CPU_ATTENTION_DOT_H
#define VAPP_CPU_ATTENTION_DOT_H
#include <math.h>
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

/* A call computes the scores of up to SCORE_ROWS rows with two vectors of keys, so that a
 * dimension of q is loaded once for both. SUMS of the four sums are computed at a time. */
#define SCORE_ROWS 6
#define SUMS (VAPP_VECTOR == 512 ? 2 : 1)
#define BY_SCORE_ROWS(f, n, ...) \
	switch (n) { \
	case 1: f(1, __VA_ARGS__); break; \
	case 2: f(2, __VA_ARGS__); break; \
	case 3: f(3, __VA_ARGS__); break; \
	case 4: f(4, __VA_ARGS__); break; \
	case 5: f(5, __VA_ARGS__); break; \
	default: f(6, __VA_ARGS__); \
	}

/* key_vectors are two vectors of keys, whose dimensions are step bytes apart, the places of
 * their scores in a row, and the values of their blocks, to prefetch, or NULL. */
typedef struct {
	const uint8_t *k[2], *v[2];
	int64_t step;
	float *s[2];
} key_vectors;

/* scores computes the scores of n rows of q with some keys. Row r's scores go to s[r·ROW]. */
INLINE void scores(int n, int32_t format, const tile *t, const key_vectors *x, int64_t dim, const float *q)
{
	const vf scale = vf_set(t->a->scale);
	const int64_t wide = t->key_wide, step = x->step, e = vapp_element(t->a->pages.format), lines = SUMS == 2 ? e : 1;
	const uint8_t *v = x->v[0];
	vf sum[SCORE_ROWS][2], held[SCORE_ROWS][2];
	for (int r = 0; r < n; r++)
		held[r][0] = held[r][1] = vf_set(0);
#pragma GCC unroll 1
	for (int i = 0; i < 4; i += SUMS) {
		const uint8_t *k0 = x->k[0] + i * step, *k1 = x->k[1] + i * step;
		const float *at = q + i, *end = at + dim;
		vf acc[SCORE_ROWS][2][SUMS];
		for (int r = 0; r < n; r++)
			for (int c = 0; c < SUMS; c++)
				acc[r][0][c] = acc[r][1][c] = vf_set(0);
		for (; at < end; at += 4, k0 += 4 * step, k1 += 4 * step) {
			for (int c = 0; c < SUMS; c++) {
				vf left = vf_widen(format, k0 + c * step), right = vf_widen(format, k1 + c * step);
				for (int r = 0; r < n; r++) {
					vf one = vf_set(at[r * wide + c]);
					acc[r][0][c] = vf_fma(one, left, acc[r][0][c]);
					acc[r][1][c] = vf_fma(one, right, acc[r][1][c]);
				}
			}
			for (int64_t l = 0; v && l < lines; l++, v += 64)
				__builtin_prefetch(v, 0, 2);
		}
		for (int r = 0; r < n; r++)
			for (int j = 0; j < 2; j++) {
				if (SUMS == 2)
					acc[r][j][0] = acc[r][j][0] + acc[r][j][SUMS - 1];
				else if (i % 2 == 0)
					held[r][j] = acc[r][j][0];
				else
					acc[r][j][0] = held[r][j] + acc[r][j][0];
				if (i < 2)
					sum[r][j] = acc[r][j][0];
				else if (SUMS == 2 || i == 3)
					sum[r][j] = sum[r][j] + acc[r][j][0];
			}
		if (SUMS == 2 || i + 1 >= e)
			v = SUMS == 2 ? x->v[1] : NULL;
	}
	for (int r = 0; r < n; r++)
		for (int j = 0; j < 2; j++)
			vf_store(x->s[j] + r * ROW, sum[r][j] * scale);
}

/* all_scores computes the scores of all rows with some keys. */
INLINE void all_scores(int32_t format, const tile *t, key_vectors x, int64_t dim)
{
	const int32_t many = at_once(t->rows, SCORE_ROWS);
	for (int32_t r = 0; r < t->rows; r += many, x.v[0] = x.v[1] = NULL, x.s[0] += many * ROW, x.s[1] += many * ROW)
		BY_SCORE_ROWS(scores, t->rows - r < many ? t->rows - r : many, format, t, &x, dim, t->q + r * t->key_wide)
}

/* block_pair_scores computes the scores s of all rows with two blocks of keys, of the span's
 * blocks from the i-th on; the second one may be the first one again. */
INLINE void block_pair_scores(int32_t format, const tile *t, const uint8_t *first, const uint8_t *second, int64_t step, int64_t dim, int32_t i, float *s)
{
	const int64_t e = vapp_element(format);
	const uint8_t *v[2] = {i < t->now.blocks ? t->now.v[i] : NULL, i + 1 < t->now.blocks ? t->now.v[i + 1] : NULL};
	if (VW == BLOCK) {
		all_scores(format, t, (key_vectors){{first, second}, {v[0], v[1]}, step, {s, s + BLOCK}}, dim);
		return;
	}
	for (int b = 0; b < (second == first ? 1 : 2); b++)
		for (int j = 0; j < NV; j += 2) {
			const uint8_t *k = (b ? second : first) + j * VW * e;
			float *to = s + b * BLOCK + j * VW;
			all_scores(format, t, (key_vectors){{k, k + VW * e}, {j ? NULL : v[b], NULL}, step, {to, to + VW}}, dim);
		}
}

/* stored_scores is block_pair_scores for blocks in pages. */
INLINE void stored_scores(int32_t format, const tile *t, int32_t i, int32_t j, float *s)
{
	block_pair_scores(format, t, t->now.k[i], t->now.k[j], t->a->pages.block * vapp_element(format), t->dim, i, s);
}

/* score_span computes the scores of the positions [at, end), two blocks at a time. */
static void score_span(tile *t, int32_t at, int32_t end)
{
	float *k = t->k;
	const int32_t stored = t->decode ? (within(t->history, at, end) - at) / BLOCK : 0;
	for (int32_t i = 0; i < stored; i += 2)
		IN_FORMAT(stored_scores, t->a->pages.format, t, i, i + 1 < stored ? i + 1 : i, t->score + i * BLOCK)
	for (int32_t i = stored, b = at + stored * BLOCK; b < end; i += 2, b += 2 * BLOCK) {
		const float *second = k;
		load_keys(t, b, b + BLOCK < end ? b + BLOCK : end);
		if (b + BLOCK < end) {
			t->k = k + t->key_wide * BLOCK;
			load_keys(t, b + BLOCK, b + 2 * BLOCK < end ? b + 2 * BLOCK : end);
			second = t->k, t->k = k;
		}
		block_pair_scores(VAPP_F32, t, (const uint8_t *)k, (const uint8_t *)second, BLOCK * 4, t->key_wide, i, t->score + i * BLOCK);
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

/* load_values fills t->v with the values of positions [at, end). */
static void load_values(const tile *t, int32_t at, int32_t end)
{
	const vapp_pages *p = &t->a->pages;
	int64_t row = t->dim * vapp_element(p->format);
	int32_t fresh = within(t->history, at, end);
	if (at < fresh)
		widen_rows(t, t->now.v[(at - t->now.at) / BLOCK], row, fresh - at, t->dim, t->v, t->wide);
	if (fresh < end)
		widen_rows(t, own_value_of(t, fresh), p->kv_heads * row, end - fresh, t->dim, t->v + (fresh - at) * t->wide, t->wide);
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
		const uint8_t *v = (j < stored ? t->now.v[b] + j % BLOCK * row : own_value_of(t, at + j)) + d * e;
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

static void cap_scores(float *s, int32_t begin, int32_t end, float cap)
{
	for (int32_t i = begin; i < end; i += VW)
		vf_store(s + i, vf_set(cap) * vf_tanh(vf_load(s + i) / vf_set(cap)));
}

/* softmax_span turns the scores [from, to) of a row into weights, returns the largest score and
 * sets *sum. The other scores of the same blocks of 16 become 0. */
static float softmax_span(float *s, int32_t from, int32_t to, float cap, float *sum)
{
	int32_t begin = from / BLOCK * BLOCK, end = (to + BLOCK - 1) / BLOCK * BLOCK;
	if (cap > 0)
		cap_scores(s, begin, end, cap);
	for (int32_t i = begin; i < from; i++)
		s[i] = -INFINITY;
	for (int32_t i = to; i < end; i++)
		s[i] = -INFINITY;
	vf top = vf_set(-INFINITY), acc = vf_set(0);
	for (int32_t i = begin; i < end; i += VW)
		top = vf_max(vf_load(s + i), top);
	float m = vf_top(top);
	for (int32_t i = begin; i < end; i += VW) {
		vf p = vf_exp(vf_load(s + i) - vf_set(m));
		acc = acc + p;
		vf_store(s + i, p);
	}
	*sum = vf_sum(acc);
	return m;
}

/* float_span computes a span in floats: the positions [begin, end). */
static void float_span(tile *t, int32_t begin, int32_t end, float *top, float *sum)
{
	score_span(t, begin, end);
	for (int32_t r = 0; r < t->rows; r++) {
		int32_t from, to;
		sum[r] = 0, top[r] = -INFINITY;
		if (seen(t, r, begin, end - begin, &from, &to))
			top[r] = softmax_span(t->score + r * ROW, from, to, t->a->softcap, &sum[r]);
	}
	accumulate_pv_span(t, begin, end);
}

#endif

/* both.h: attention without a mask, as vision towers have it: each row of a sequence sees all of
 * its keys, and nothing is paged.
 *
 * Lanes of a vector are queries. So scores, weights and results need no sum over a vector, keys
 * and values are broadcast one number at a time, and a head may have any number of dimensions.
 * A score is one chain over the dimensions in order. Keys are taken in spans of STRETCH from the
 * sequence's start; a span's results are added to those before it, which are scaled to the
 * largest score so far. A weight's sum and a result are chains over the keys in order. So the
 * bits of a row do not depend on the rows beside it, on threads or on the size of tiles.
 *
 * A tile is up to TILE queries of one head, which share the keys and values of a span, as floats
 * in the second cache. QUERIES of them are computed at a time. */
#ifndef VAPP_CPU_ATTENTION_BOTH_H
#define VAPP_CPU_ATTENTION_BOTH_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../shared/inline.h"
#include "../shared/kernels.h"
#include "../shared/vec.h"
#include "both_exp.h"
#include "both_tile.h"
#include "load.h"

/* A step of a product has AT_ONCE keys, or dimensions of a value, and QV vectors of queries: their
 * sums fill the registers. */
#if VAPP_VECTOR == 512 || VAPP_VECTOR == 128
#define AT_ONCE 8
#define QV 3
#elif VAPP_VECTOR == 256
#define AT_ONCE 4
#define QV 3
#else
#define AT_ONCE 4
#define QV 2
#endif
#define QUERIES (QV * VW)
#define STRETCH 128

/* some_widened is vf_widen for numbers that end at `end`: those behind it are 0. */
INLINE vf some_widened(int32_t format, const uint8_t *p, const uint8_t *end)
{
	const int64_t left = end - p;
	if (left >= VW * vapp_element(format))
		return vf_widen(format, p);
	uint8_t rest[4 * VW] = {0};
	if (left > 0)
		memcpy(rest, p, (size_t)left);
	return vf_widen(format, rest);
}

/* key_blocks stores n keys, step bytes apart, as floats: blocks of [dim][BLOCK], `wide` floats
 * apart. Keys behind the last one are 0. Rows from dim on hold what follows a key. */
INLINE void key_blocks(int32_t format, const uint8_t *src, const uint8_t *end, int64_t step, int64_t n, int64_t dim, float *to, int64_t wide)
{
	const int64_t e = vapp_element(format);
	for (int64_t at = 0; at < n; at += BLOCK, to += wide)
		for (int64_t d = 0; d < dim; d += VW)
			for (int64_t j = 0; j < BLOCK; j += VW) {
				vf r[VW];
				for (int64_t i = 0; i < VW; i++)
					r[i] = at + j + i < n ? some_widened(format, src + (at + j + i) * step + d * e, end) : vf_set(0);
				transpose(r, to + d * BLOCK + j);
			}
}

/* value_rows stores n values, step bytes apart, as rows of `wide` floats. What follows dim of them
 * is not read. */
INLINE void value_rows(int32_t format, const uint8_t *src, const uint8_t *end, int64_t step, int64_t n, int64_t dim, float *to, int64_t wide)
{
	for (; n > 0; n--, src += step, to += wide)
		for (int64_t d = 0; d < dim; d += VW)
			vf_store(to + d, some_widened(format, src + d * vapp_element(format), end));
}

/* stretch_scores computes the scores of QUERIES queries q [dim][QUERIES] with the keys of a span. */
static void stretch_scores(const both *t, const float *q, int64_t keys)
{
	for (int64_t j = 0; j < keys; j += AT_ONCE) {
		const float *k = t->k + j / BLOCK * t->key_wide * BLOCK + j % BLOCK, *at = q, *end = q + t->dim * QUERIES;
		float *s = t->score + j * QUERIES;
		vf acc[AT_ONCE][QV];
		for (int i = 0; i < AT_ONCE; i++)
			for (int v = 0; v < QV; v++)
				acc[i][v] = vf_set(0);
		for (; at < end; at += QUERIES, k += BLOCK) {
			vf x[QV];
			for (int v = 0; v < QV; v++)
				x[v] = vf_load(at + v * VW);
			for (int i = 0; i < AT_ONCE; i++) {
				const vf one = vf_set(k[i]);
				for (int v = 0; v < QV; v++)
					acc[i][v] = vf_fma(one, x[v], acc[i][v]);
			}
		}
		for (int i = 0; i < AT_ONCE; i++)
			for (int v = 0; v < QV; v++)
				vf_store(s + i * QUERIES + v * VW, acc[i][v]);
	}
}

/* stretch_weights turns the scores of QUERIES queries into weights. It sets by to the factors of
 * the results so far. */
static void stretch_weights(const both *t, int64_t query, int64_t keys, vf by[QV])
{
	const vf scale = vf_set(t->a->scale * 1.44269504f), none = vf_set(0);
	float *s = t->score, *end = s + keys * QUERIES, *top = t->top + query, *sum = t->sum + query;
	vf m[QV], less[QV], all[QV];
	for (int v = 0; v < QV; v++)
		m[v] = vf_load(top + v * VW);
	for (const float *p = s; p < end; p += QUERIES)
		for (int v = 0; v < QV; v++)
			m[v] = vf_max(vf_load(p + v * VW), m[v]); /* this order ignores NaNs */
	for (int v = 0; v < QV; v++) {
		less[v] = none - m[v] * scale;
		by[v] = exp2_of(vf_fma(vf_load(top + v * VW), scale, less[v]));
		all[v] = vf_load(sum + v * VW) * by[v];
		vf_store(top + v * VW, m[v]);
	}
	for (float *p = s; p < end; p += QUERIES)
		for (int v = 0; v < QV; v++) {
			vf w = exp2_of(vf_fma(vf_load(p + v * VW), scale, less[v]));
			all[v] = all[v] + w;
			vf_store(p + v * VW, w);
		}
	for (int v = 0; v < QV; v++)
		vf_store(sum + v * VW, all[v]);
}

/* stretch_results scales the results out [wide][QUERIES] and adds the weighted values of a span. */
static void stretch_results(const both *t, float *out, int64_t keys, const vf by[QV])
{
	for (int64_t d = 0; d < t->wide; d += AT_ONCE, out += AT_ONCE * QUERIES) {
		const float *v = t->v + d, *p = t->score, *end = p + keys * QUERIES;
		vf acc[AT_ONCE][QV];
		for (int i = 0; i < AT_ONCE; i++)
			for (int c = 0; c < QV; c++)
				acc[i][c] = vf_load(out + i * QUERIES + c * VW) * by[c];
		for (; p < end; p += QUERIES, v += t->wide) {
			vf x[QV];
			for (int c = 0; c < QV; c++)
				x[c] = vf_load(p + c * VW);
			for (int i = 0; i < AT_ONCE; i++) {
				const vf one = vf_set(v[i]);
				for (int c = 0; c < QV; c++)
					acc[i][c] = vf_fma(one, x[c], acc[i][c]);
			}
		}
		for (int i = 0; i < AT_ONCE; i++)
			for (int c = 0; c < QV; c++)
				vf_store(out + i * QUERIES + c * VW, acc[i][c]);
	}
}

/* both_buffers sets the buffers of a part. */
static void both_buffers(both *t, int part)
{
	float *f = (float *)(t->a->work + t->a->work_bytes * part);
	t->wide = (t->dim + AT_ONCE - 1) / AT_ONCE * AT_ONCE, t->key_wide = (t->dim + VW - 1) / VW * VW;
	t->q = f, f += TILE * t->dim;
	t->out = f, f += TILE * t->wide;
	t->k = f, f += STRETCH * t->key_wide;
	t->v = f, f += STRETCH * t->wide + VW;
	t->score = f, f += STRETCH * QUERIES;
	t->top = f, f += TILE;
	t->sum = f;
}

/* both_run computes a tile. */
static void both_run(const both *t)
{
	const int64_t rows = (t->rows + QUERIES - 1) / QUERIES * QUERIES, each = QUERIES * t->dim, result = QUERIES * t->wide;
	for (int64_t r = 0; r < rows; r++) {
		const float *q = t->a->q + both_row(t, r);
		float *to = t->q + r / QUERIES * each + r % QUERIES;
		for (int64_t d = 0; d < t->dim; d++)
			to[d * QUERIES] = r < t->rows ? q[d] : 0;
		t->top[r] = -INFINITY, t->sum[r] = 0;
	}
	memset(t->out, 0, (size_t)(rows * t->wide) * sizeof(float));
	for (int64_t at = 0; at < t->n; at += STRETCH) {
		const int64_t n = t->n - at < STRETCH ? t->n - at : STRETCH;
		const both_side k = both_keys(t, at), v = both_values(t, at);
		IN_FORMAT(key_blocks, t->a->pages.format, k.at, k.end, k.step, n, t->dim, t->k, t->key_wide * BLOCK)
		IN_FORMAT(value_rows, t->a->pages.format, v.at, v.end, v.step, n, t->dim, t->v, t->wide)
		for (int64_t r = 0; r < rows; r += QUERIES) {
			vf by[QV];
			stretch_scores(t, t->q + r / QUERIES * each, n);
			stretch_weights(t, r, n, by);
			stretch_results(t, t->out + r / QUERIES * result, n, by);
		}
	}
	for (int64_t r = 0; r < t->rows; r++) {
		const float *out = t->out + r / QUERIES * result + r % QUERIES;
		float *y = t->a->y + both_row(t, r);
		for (int64_t d = 0; d < t->dim; d++)
			y[d] = out[d * QUERIES] / t->sum[r];
	}
}

#endif

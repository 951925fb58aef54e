/* both_amx.h: attention without a mask on AMX tiles, for keys and values of bf16: products of bf16
 * in tiles, sums in float. Queries and weights are rounded to bf16.
 *
 * As in both.h, lanes are queries: a tile of scores has 16 keys by 16 queries, one of results 16
 * dimensions by 16 queries, so keys are operands as they are stored, and weights are computed
 * without sums over a vector. A score adds the dimensions 32 at a time, a result the keys of a span
 * of STRETCH from the sequence's start, 32 at a time, and spans are joined as in both.h. So bits do
 * not depend on the rows beside a row, on threads or on tiles. */
#ifndef VAPP_CPU_ATTENTION_BOTH_AMX_H
#define VAPP_CPU_ATTENTION_BOTH_AMX_H
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../shared/inline.h"
#include "../shared/kernels.h"
#include "../shared/tiles.h"
#include "../shared/vec.h"
#include "both_exp.h"
#include "both_tile.h"
#include "load.h"

#define BOTH_ROWS 16
#define BOTH_K 32
#define BOTH_PAIR 32 /* queries, keys or dimensions of a step */
#define STRETCH 128

/* both_round returns 16 floats as bf16, to nearest even. */
INLINE __m256i both_round(vf x)
{
#if defined(VAPP_SOFT_TILES)
	return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(vf_round_bfloat(x)), 16));
#else
	return (__m256i)_mm512_cvtneps_pbh(x);
#endif
}

/* both_pairs returns the pairs of two vectors of bf16: the first of each pair is from a. */
INLINE __m512i both_pairs(__m256i a, __m256i b)
{
	return _mm512_or_si512(_mm512_cvtepu16_epi32(a), _mm512_slli_epi32(_mm512_cvtepu16_epi32(b), 16));
}

/* tile_buffers sets the buffers of a part: q [pair of tiles][key_wide/2][32][2] of bf16, k
 * [STRETCH][key_wide] of bf16, v [STRETCH/32][wide][32] of bf16, score [STRETCH][32] of floats and
 * behind it the weights, [STRETCH/2][32][2] of bf16, out [pair of tiles][wide][32] of floats. */
static void tile_buffers(both *t, int part)
{
	float *f = (float *)(t->a->work + t->a->work_bytes * part);
	t->wide = (t->dim + BOTH_PAIR - 1) / BOTH_PAIR * BOTH_PAIR, t->key_wide = (t->dim + BOTH_K - 1) / BOTH_K * BOTH_K;
	t->q = f, f += BOTH_TILE * t->key_wide / 2;
	t->out = f, f += BOTH_TILE * t->wide;
	t->k = f, f += STRETCH * t->key_wide / 2;
	t->v = f, f += STRETCH * t->wide / 2;
	t->score = f, f += STRETCH * BOTH_PAIR * 3 / 2;
	t->top = f, f += BOTH_TILE;
	t->sum = f;
}

/* tile_queries rounds and pairs the tile's queries, BOTH_PAIR at a time; the rest is 0. */
static void tile_queries(const both *t, int64_t rows)
{
	memset(t->q, 0, (size_t)(rows * t->key_wide) * 2);
	for (int64_t r = 0; r < t->rows; r++) {
		uint16_t *to = (uint16_t *)t->q + r / BOTH_PAIR * BOTH_PAIR * t->key_wide + r % BOTH_PAIR * 2, few[BOTH_ROWS];
		const float *q = t->a->q + both_row(t, r);
		for (int64_t d = 0; d < t->dim; d += BOTH_ROWS) {
			const int64_t n = t->dim - d < BOTH_ROWS ? t->dim - d : BOTH_ROWS;
			_mm256_storeu_si256((__m256i *)few, both_round(vf_head(q + d, n)));
			for (int64_t i = 0; i < n; i++)
				to[(d + i) / 2 * 2 * BOTH_PAIR + (d + i) % 2] = few[i];
		}
	}
}

/* tile_keys copies n keys, and zeros up to a multiple of BOTH_PAIR keys and to key_wide dimensions. */
static void tile_keys(const both *t, both_side k, int64_t n)
{
	uint16_t *to = (uint16_t *)t->k;
	for (int64_t j = 0; j < (n + BOTH_PAIR - 1) / BOTH_PAIR * BOTH_PAIR; j++, to += t->key_wide) {
		const int64_t some = j < n ? t->dim : 0;
		memcpy(to, j < n ? k.at + j * k.step : k.at, (size_t)some * 2);
		memset(to + some, 0, (size_t)(t->key_wide - some) * 2);
	}
}

/* tile_values stores n values by dimension, 32 keys at a time; the rest is 0. */
static void tile_values(const both *t, both_side v, int64_t n)
{
	for (int64_t at = 0; at < n; at += BOTH_K)
		for (int64_t d = 0; d < t->wide; d += BOTH_ROWS) {
			uint16_t *to = (uint16_t *)t->v + at * t->wide + d * BOTH_K;
			float columns[BOTH_ROWS * BLOCK] __attribute__((aligned(64)));
			vf r[BLOCK];
			for (int64_t i = 0; i < BLOCK; i++) {
				uint8_t few[2][32] = {{0}};
				for (int64_t j = 0; j < 2; j++) {
					const int64_t key = at + 2 * i + j, left = t->dim - d;
					if (key < n && left > 0)
						memcpy(few[j], v.at + key * v.step + d * 2, (size_t)(left < BOTH_ROWS ? left : BOTH_ROWS) * 2);
				}
				r[i] = (vf)both_pairs(_mm256_loadu_si256((const __m256i *)few[0]), _mm256_loadu_si256((const __m256i *)few[1]));
			}
			transpose(r, columns);
			memcpy(to, columns, sizeof columns);
		}
}

/* both_scores computes the scores of BOTH_PAIR queries q with n keys. */
static void both_scores(const both *t, const uint16_t *q, int64_t n)
{
	const int64_t row = t->key_wide * 2;
	tiles_see_memory();
	for (int64_t j = 0; j < n; j += BOTH_PAIR) {
		const uint8_t *k = (const uint8_t *)t->k + j * row, *with = (const uint8_t *)q;
		float *s = t->score + j * BOTH_PAIR;
		tile_zero(0);
		tile_zero(1);
		tile_zero(2);
		tile_zero(3);
		for (int64_t d = 0; d < t->key_wide; d += BOTH_K, k += 64, with += 2048) {
			tile_load(4, k, row);
			tile_load(6, with, 128);
			tile_products(0, 4, 6);
			tile_load(7, with + 64, 128);
			tile_products(1, 4, 7);
			tile_load(5, k + BOTH_ROWS * row, row);
			tile_products(2, 5, 6);
			tile_products(3, 5, 7);
		}
		tile_store(0, s, 128);
		tile_store(1, s + BOTH_ROWS, 128);
		tile_store(2, s + BOTH_ROWS * BOTH_PAIR, 128);
		tile_store(3, s + BOTH_ROWS * BOTH_PAIR + BOTH_ROWS, 128);
	}
	tiles_see_memory();
}

/* both_weights computes the weights of BOTH_PAIR queries, from the scores of n keys. It sets by to
 * the factors of the results so far. */
static void both_weights(const both *t, int64_t query, int64_t n, vf by[2])
{
	const vf scale = vf_set(t->a->scale * 1.44269504f), none = vf_set(0);
	__m512i *to = (__m512i *)(t->score + STRETCH * BOTH_PAIR);
	for (int c = 0; c < 2; c++) {
		const float *s = t->score + c * BOTH_ROWS;
		float *top = t->top + query + c * BOTH_ROWS, *sum = t->sum + query + c * BOTH_ROWS;
		vf m = vf_load(top);
		for (int64_t j = 0; j < n; j++)
			m = vf_max(vf_load(s + j * BOTH_PAIR), m); /* this order ignores NaNs */
		const vf less = none - m * scale;
		by[c] = exp2_of(vf_fma(vf_load(top), scale, less));
		vf all = vf_load(sum) * by[c];
		for (int64_t j = 0; j < (n + BOTH_PAIR - 1) / BOTH_PAIR * BOTH_PAIR; j += 2) {
			vf a = j < n ? exp2_of(vf_fma(vf_load(s + j * BOTH_PAIR), scale, less)) : none;
			vf b = j + 1 < n ? exp2_of(vf_fma(vf_load(s + (j + 1) * BOTH_PAIR), scale, less)) : none;
			all = all + a;
			all = all + b;
			_mm512_storeu_si512(to + j + c, both_pairs(both_round(a), both_round(b)));
		}
		vf_store(top, m);
		vf_store(sum, all);
	}
}

/* both_results scales the results out and adds the weighted values of n keys. */
static void both_results(const both *t, float *out, int64_t n, const vf by[2])
{
	const uint8_t *w = (const uint8_t *)(t->score + STRETCH * BOTH_PAIR);
	for (float *o = out, *end = out + t->wide * BOTH_PAIR; o < end; o += BOTH_PAIR)
		for (int c = 0; c < 2; c++)
			vf_store(o + c * BOTH_ROWS, vf_load(o + c * BOTH_ROWS) * by[c]);
	tiles_see_memory();
	for (int64_t d = 0; d < t->wide; d += BOTH_PAIR, out += BOTH_PAIR * BOTH_PAIR) {
		const int two = d + BOTH_ROWS < t->dim;
		tile_load(0, out, 128);
		tile_load(1, out + BOTH_ROWS, 128);
		if (two) {
			tile_load(2, out + BOTH_ROWS * BOTH_PAIR, 128);
			tile_load(3, out + BOTH_ROWS * BOTH_PAIR + BOTH_ROWS, 128);
		}
		for (int64_t j = 0; j < n; j += BOTH_K) {
			const uint8_t *v = (const uint8_t *)t->v + (j * t->wide + d * BOTH_K) * 2;
			tile_load(4, v, 64);
			tile_load(6, w + j * BOTH_PAIR * 2, 128);
			tile_products(0, 4, 6);
			tile_load(7, w + j * BOTH_PAIR * 2 + 64, 128);
			tile_products(1, 4, 7);
			if (two) {
				tile_load(5, v + 1024, 64);
				tile_products(2, 5, 6);
				tile_products(3, 5, 7);
			}
		}
		tile_store(0, out, 128);
		tile_store(1, out + BOTH_ROWS, 128);
		if (two) {
			tile_store(2, out + BOTH_ROWS * BOTH_PAIR, 128);
			tile_store(3, out + BOTH_ROWS * BOTH_PAIR + BOTH_ROWS, 128);
		}
	}
	tiles_see_memory();
}

/* tile_run computes a tile. */
static void tile_run(const both *t)
{
	const int64_t rows = (t->rows + BOTH_PAIR - 1) / BOTH_PAIR * BOTH_PAIR;
	tiles_begin();
	tile_queries(t, rows);
	for (int64_t r = 0; r < rows; r++)
		t->top[r] = -INFINITY, t->sum[r] = 0;
	memset(t->out, 0, (size_t)(rows * t->wide) * sizeof(float));
	for (int64_t at = 0; at < t->n; at += STRETCH) {
		const int64_t n = t->n - at < STRETCH ? t->n - at : STRETCH;
		tile_keys(t, both_keys(t, at), n);
		tile_values(t, both_values(t, at), n);
		for (int64_t r = 0; r < rows; r += BOTH_PAIR) {
			vf by[2];
			both_scores(t, (const uint16_t *)t->q + r * t->key_wide, n);
			both_weights(t, r, n, by);
			both_results(t, t->out + r * t->wide, n, by);
		}
	}
	for (int64_t r = 0; r < t->rows; r++) {
		const float *out = t->out + r / BOTH_PAIR * BOTH_PAIR * t->wide + r % BOTH_PAIR;
		float *y = t->a->y + both_row(t, r);
		for (int64_t d = 0; d < t->dim; d++)
			y[d] = out[d * BOTH_PAIR] / t->sum[r];
	}
	tiles_end();
}

#endif

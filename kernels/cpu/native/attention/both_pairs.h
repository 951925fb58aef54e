/* both_pairs.h: attention without a mask with products of bf16 pairs (VDPBF16PS), for keys and
 * values of bf16. Queries and weights are rounded to bf16, sums are float.
 *
 * As in both.h, lanes are queries. A score is one chain of the instruction over pairs of
 * dimensions, in order, a result one over pairs of keys, in spans of STRETCH keys from the
 * sequence's start, which are joined as in both.h. So bits do not depend on the rows beside a
 * row, on threads or on the size of tiles.
 *
 * attention_pack stores keys and values as pairs in a->shared, once for all tiles, by K/V head:
 * keys [n/BOTH_KEYS][key_wide/2][BOTH_KEYS][2], then values, by span
 * [wide/BOTH_KEYS][keys/2][BOTH_KEYS][2]. A sequence begins at a multiple of BOTH_KEYS rows.
 * So each product reads them as one stream. */
#ifndef VAPP_CPU_ATTENTION_BOTH_PAIRS_H
#define VAPP_CPU_ATTENTION_BOTH_PAIRS_H
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../shared/inline.h"
#include "../shared/kernels.h"
#include "../shared/vec.h"
#include "bf16_common.h"
#include "both_tile.h"
#include "pairs.h"

#define BOTH_KEYS VAPP_ATTENTION_KEYS /* keys, or dimensions of a value, of a step */
#define BOTH_VECTORS 3                /* of queries: with BOTH_KEYS their sums fill the registers */
#define BOTH_QUERIES (BOTH_VECTORS * VW)
#define STRETCH 128

INLINE int64_t both_whole(int64_t n) { return (n + BOTH_KEYS - 1) / BOTH_KEYS * BOTH_KEYS; }

/* both_first returns the packed row that sequence s begins at; of the sequence behind the last
 * one it is how many there are, AttentionPacked of Go at most. */
INLINE int64_t both_first(const vapp_attention *a, int32_t s) { return both_whole(a->first[s]) + (int64_t)s * BOTH_KEYS; }

/* both_sizes sets the columns of packed keys and of packed values. */
INLINE void both_sizes(both *t)
{
	t->key_wide = (t->dim + 1) / 2 * 2, t->wide = both_whole(t->dim);
}

/* packed_keys and packed_values return what a K/V head has from a packed row on: a multiple of
 * BOTH_KEYS, and for values the start of a span. */
INLINE uint16_t *packed_keys(const both *t, int32_t seqs, int64_t kv, int64_t row)
{
	return (uint16_t *)t->a->shared + both_first(t->a, seqs) * (t->key_wide + t->wide) * kv + row * t->key_wide;
}

INLINE uint16_t *packed_values(const both *t, int32_t seqs, int64_t kv, int64_t row)
{
	return packed_keys(t, seqs, kv, both_first(t->a, seqs)) + row * t->wide;
}

/* pack_step packs BOTH_KEYS rows of a K/V head, from `at` on in t's sequence; those behind its
 * last one are 0. keys is of these rows, values of their span, which has `span` rows. */
static void pack_step(const both *t, int64_t at, int64_t span, uint16_t *keys, uint16_t *values)
{
	const both_side k = both_keys(t, at), v = both_values(t, at);
	const int64_t n = t->n - at < BOTH_KEYS ? t->n - at : BOTH_KEYS;
	uint16_t rows[BOTH_KEYS][VAPP_ATTENTION_DIM] __attribute__((aligned(64)));
	for (int64_t j = 0; j < BOTH_KEYS; j++) {
		memset(rows[j], 0, (size_t)t->wide * 2);
		if (j < n)
			memcpy(rows[j], k.at + j * k.step, (size_t)t->dim * 2);
	}
	for (int64_t d = 0; d < t->key_wide; d += 2, keys += 2 * BOTH_KEYS)
		for (int64_t j = 0; j < BOTH_KEYS; j++)
			memcpy(keys + 2 * j, rows[j] + d, 4);
	for (int64_t j = 0; j < n; j++)
		memcpy(rows[j], v.at + j * v.step, (size_t)t->dim * 2);
	values += at % STRETCH * BOTH_KEYS;
	for (int64_t d = 0; d < t->wide; d += BOTH_KEYS, values += span * BOTH_KEYS)
		for (int64_t j = 0; j < BOTH_KEYS; j += 2)
			for (int64_t i = 0; i < BOTH_KEYS; i++)
				values[j * BOTH_KEYS + 2 * i] = rows[j][d + i], values[j * BOTH_KEYS + 2 * i + 1] = rows[j + 1][d + i];
}

/* both_span returns the packed rows of the span at `at`. */
INLINE int64_t both_span(const both *t, int64_t at)
{
	return t->n - at < STRETCH ? both_whole(t->n - at) : STRETCH;
}

/* both_pack packs a part's share of the steps of BOTH_KEYS rows, of all K/V heads. */
static void both_pack(const vapp_attention *a, const vapp_call *c)
{
	both t = {.a = a, .dim = a->pages.head_dim};
	const int32_t seqs = c->rows[VAPP_SEQS], group = a->heads / a->pages.kv_heads;
	int64_t from, to;
	both_sizes(&t);
	vapp_share(both_first(a, seqs) / BOTH_KEYS, c, &from, &to);
	for (int32_t s = 0; s < seqs; s++) {
		const int64_t first = both_first(a, s);
		t.begin = a->first[s], t.n = a->first[s + 1] - a->first[s];
		for (int64_t at = 0; at < t.n; at += BOTH_KEYS) {
			const int64_t step = (first + at) / BOTH_KEYS, span = at / STRETCH * STRETCH;
			if (step < from || step >= to)
				continue;
			for (int32_t kv = 0; kv < a->pages.kv_heads; kv++) {
				t.head = kv * group;
				pack_step(&t, at, both_span(&t, span), packed_keys(&t, seqs, kv, first + at), packed_values(&t, seqs, kv, first + span));
			}
		}
	}
}

/* pairs_buffers sets the buffers of a part: q [tile/48][key_wide/2][48][2] of bf16, out
 * [tile/48][wide][48], score [STRETCH][48] and behind it the weights, [STRETCH/2][48][2] of bf16. */
static void pairs_buffers(both *t, int part)
{
	float *f = (float *)(t->a->work + t->a->work_bytes * part);
	both_sizes(t);
	t->q = f, f += BOTH_TILE * t->key_wide / 2;
	t->out = f, f += BOTH_TILE * t->wide;
	t->score = f, f += STRETCH * BOTH_QUERIES * 3 / 2;
	t->top = f, f += BOTH_TILE;
	t->sum = f;
}

/* pairs_queries rounds and pairs the tile's queries, BOTH_QUERIES at a time; the rest is 0. */
static void pairs_queries(const both *t, int64_t rows)
{
	memset(t->q, 0, (size_t)(rows * t->key_wide) * 2);
	for (int64_t r = 0; r < t->rows; r++) {
		uint16_t *to = (uint16_t *)t->q + r / BOTH_QUERIES * BOTH_QUERIES * t->key_wide + r % BOTH_QUERIES * 2, some[VW];
		const float *q = t->a->q + both_row(t, r);
		for (int64_t d = 0; d < t->dim; d += VW) {
			const int64_t n = t->dim - d < VW ? t->dim - d : VW;
			_mm256_storeu_si256((__m256i *)some, (__m256i)_mm512_cvtneps_pbh(vf_head(q + d, n)));
			for (int64_t i = 0; i < n; i++)
				to[(d + i) / 2 * 2 * BOTH_QUERIES + (d + i) % 2] = some[i];
		}
	}
}

/* pairs_scores computes the scores of BOTH_QUERIES queries q with n packed keys k, and sets m to the
 * largest ones of each query. Scores behind the n-th have no meaning. */
static void pairs_scores(const both *t, const uint8_t *q, const uint8_t *k, int64_t n, vf m[BOTH_VECTORS])
{
	const uint8_t *end = q + t->key_wide * BOTH_QUERIES * 2;
	float *s = t->score;
	for (int64_t j = 0; j < n; j += BOTH_KEYS, s += BOTH_KEYS * BOTH_QUERIES) {
		vf acc[BOTH_KEYS][BOTH_VECTORS];
		for (int i = 0; i < BOTH_KEYS; i++)
			for (int v = 0; v < BOTH_VECTORS; v++)
				acc[i][v] = vf_set(0);
		for (const uint8_t *at = q; at < end; at += BOTH_QUERIES * 4, k += BOTH_KEYS * 4) {
			__m512bh x[BOTH_VECTORS];
			for (int v = 0; v < BOTH_VECTORS; v++)
				x[v] = (__m512bh)_mm512_loadu_si512(at + v * 64);
			for (int i = 0; i < BOTH_KEYS; i++) {
				const __m512bh one = broadcast_pair(k + 4 * i);
				for (int v = 0; v < BOTH_VECTORS; v++)
					acc[i][v] = _mm512_dpbf16_ps(acc[i][v], x[v], one);
			}
		}
		for (int i = 0; i < BOTH_KEYS; i++)
			for (int v = 0; v < BOTH_VECTORS; v++)
				vf_store(s + i * BOTH_QUERIES + v * VW, acc[i][v]);
		if (n - j < BOTH_KEYS) {
			for (int64_t i = 0; i < n - j; i++)
				for (int v = 0; v < BOTH_VECTORS; v++)
					m[v] = vf_max(vf_load(s + i * BOTH_QUERIES + v * VW), m[v]);
			return;
		}
		for (int i = 0; i < BOTH_KEYS; i++)
			for (int v = 0; v < BOTH_VECTORS; v++)
				m[v] = vf_max(acc[i][v], m[v]); /* this order ignores NaNs */
	}
}

/* pairs_weights turns the scores of BOTH_QUERIES queries with n keys, of which m is the largest so
 * far, into weights. It sets by to the factors of the results so far. */
static void pairs_weights(const both *t, int64_t query, int64_t n, const vf m[BOTH_VECTORS], vf by[BOTH_VECTORS])
{
	const vf scale = vf_set(t->a->scale * 1.44269504f), none = vf_set(0);
	const __m512i order = pair_order();
	const float *s = t->score;
	uint8_t *to = (uint8_t *)(t->score + STRETCH * BOTH_QUERIES);
	float *top = t->top + query, *sum = t->sum + query;
	vf less[BOTH_VECTORS], all[BOTH_VECTORS];
	for (int v = 0; v < BOTH_VECTORS; v++) {
		less[v] = none - m[v] * scale;
		by[v] = vf_exp2(vf_fma(vf_load(top + v * VW), scale, less[v]));
		all[v] = vf_load(sum + v * VW) * by[v];
		vf_store(top + v * VW, m[v]);
	}
	for (int64_t j = 0; j < n; j += 2, s += 2 * BOTH_QUERIES, to += 4 * BOTH_QUERIES)
		for (int v = 0; v < BOTH_VECTORS; v++) {
			const vf a = vf_exp2(vf_fma(vf_load(s + v * VW), scale, less[v]));
			const vf b = j + 1 < n ? vf_exp2(vf_fma(vf_load(s + BOTH_QUERIES + v * VW), scale, less[v])) : none;
			all[v] = all[v] + a;
			all[v] = all[v] + b;
			_mm512_storeu_si512(to + v * 64, _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(b, a)));
		}
	for (int v = 0; v < BOTH_VECTORS; v++)
		vf_store(sum + v * VW, all[v]);
}

/* pairs_results scales the results out [wide][48] and adds the weighted values v of a span, which has
 * `span` packed rows and n keys. */
static void pairs_results(const both *t, float *out, const uint8_t *v, int64_t span, int64_t n, const vf by[BOTH_VECTORS])
{
	const uint8_t *weights = (const uint8_t *)(t->score + STRETCH * BOTH_QUERIES), *end = weights + (n + 1) / 2 * BOTH_QUERIES * 4;
	for (int64_t d = 0; d < t->wide; d += BOTH_KEYS, out += BOTH_KEYS * BOTH_QUERIES, v += span * BOTH_KEYS * 2) {
		const uint8_t *at = v;
		vf acc[BOTH_KEYS][BOTH_VECTORS];
		for (int i = 0; i < BOTH_KEYS; i++)
			for (int c = 0; c < BOTH_VECTORS; c++)
				acc[i][c] = vf_load(out + i * BOTH_QUERIES + c * VW) * by[c];
		for (const uint8_t *p = weights; p < end; p += BOTH_QUERIES * 4, at += BOTH_KEYS * 4) {
			__m512bh x[BOTH_VECTORS];
			for (int c = 0; c < BOTH_VECTORS; c++)
				x[c] = (__m512bh)_mm512_loadu_si512(p + c * 64);
			for (int i = 0; i < BOTH_KEYS; i++) {
				const __m512bh one = broadcast_pair(at + 4 * i);
				for (int c = 0; c < BOTH_VECTORS; c++)
					acc[i][c] = _mm512_dpbf16_ps(acc[i][c], x[c], one);
			}
		}
		for (int i = 0; i < BOTH_KEYS; i++)
			for (int c = 0; c < BOTH_VECTORS; c++)
				vf_store(out + i * BOTH_QUERIES + c * VW, acc[i][c]);
	}
}

/* pairs_run computes a tile. */
static void pairs_run(const both *t)
{
	const int64_t rows = (t->rows + BOTH_QUERIES - 1) / BOTH_QUERIES * BOTH_QUERIES, kv = t->head / (t->a->heads / t->a->pages.kv_heads);
	const int64_t first = both_first(t->a, t->seq);
	pairs_queries(t, rows);
	for (int64_t r = 0; r < rows; r++)
		t->top[r] = -INFINITY, t->sum[r] = 0;
	memset(t->out, 0, (size_t)(rows * t->wide) * sizeof(float));
	for (int64_t at = 0; at < t->n; at += STRETCH) {
		const int64_t n = t->n - at < STRETCH ? t->n - at : STRETCH, span = both_span(t, at);
		const uint8_t *k = (const uint8_t *)packed_keys(t, t->seqs, kv, first + at), *v = (const uint8_t *)packed_values(t, t->seqs, kv, first + at);
		for (int64_t r = 0; r < rows; r += BOTH_QUERIES) {
			vf m[BOTH_VECTORS], by[BOTH_VECTORS];
			for (int c = 0; c < BOTH_VECTORS; c++)
				m[c] = vf_load(t->top + r + c * VW);
			pairs_scores(t, (const uint8_t *)t->q + r * t->key_wide * 2, k, n, m);
			pairs_weights(t, r, n, m, by);
			pairs_results(t, t->out + r * t->wide, v, span, n, by);
		}
	}
	for (int64_t r = 0; r < rows; r += VW) {
		float *out = t->out + r / BOTH_QUERIES * BOTH_QUERIES * t->wide + r % BOTH_QUERIES;
		const vf sum = vf_load(t->sum + r);
		for (int64_t d = 0; d < t->dim; d++)
			vf_store(out + d * BOTH_QUERIES, vf_load(out + d * BOTH_QUERIES) / sum);
	}
	for (int64_t r = 0; r < t->rows; r++) {
		const float *out = t->out + r / BOTH_QUERIES * BOTH_QUERIES * t->wide + r % BOTH_QUERIES;
		float *y = t->a->y + both_row(t, r);
		for (int64_t d = 0; d < t->dim; d++)
			y[d] = out[d * BOTH_QUERIES];
	}
}

#endif

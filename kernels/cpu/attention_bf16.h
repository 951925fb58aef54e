/* attention_bf16.h: a span of attention in products of pairs of bf16 (VDPBF16PS), where
 * pages hold bf16. Keys and values are packed STRIPE keys at a time, into k and, behind
 * it, v, for all rows to use. A score is one chain of the instruction over pairs of
 * dimensions in their order, a result one over pairs of keys, an even position and the
 * one after it; keys that a row does not see weigh 0, which adds nothing. So the bits of a row
 * depend on its own keys alone here too. */
#include "attention_narrow.h"

#define STRIPE 64
#define PAIR_ROWS 6 /* with 4 vectors each they fill the registers */

/* narrow says that this file does a tile's work. */
static int narrow(const tile *t) { return t->a->pages.format == VAPP_BF16 && t->dim % 32 == 0; }

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

INLINE __m512bh both(const uint8_t *p)
{
	int32_t x;
	memcpy(&x, p, 4);
	return (__m512bh)_mm512_set1_epi32(x);
}

/* pair_scores are those of n rows of q with c blocks of packed keys, before they are
 * scaled. A line of each block's values is asked for with each pair of dimensions. */
INLINE void pair_scores(int n, int c, const tile *t, const uint8_t *q, const uint8_t *k, const uint8_t *const *v, float *s)
{
	const int64_t row = t->wide * 4, block = (int64_t)t->dim * 32;
	vf acc[PAIR_ROWS][4];
	for (int r = 0; r < n; r++)
		for (int j = 0; j < c; j++)
			acc[r][j] = vf_set(0);
	for (int64_t d = 0; d < t->dim / 2; d++, q += 4, k += 64) {
		__m512bh key[4];
		for (int j = 0; j < c; j++) {
			if (v && v[j])
				__builtin_prefetch(v[j] + d * 64, 0, 2);
			key[j] = (__m512bh)_mm512_loadu_si512(k + j * block);
		}
		for (int r = 0; r < n; r++) {
			__m512bh x = both(q + r * row);
			for (int j = 0; j < c; j++)
				acc[r][j] = _mm512_dpbf16_ps(acc[r][j], x, key[j]);
		}
	}
	for (int r = 0; r < n; r++)
		for (int j = 0; j < c; j++)
			vf_store(s + r * ROW + j * 16, acc[r][j]);
}

INLINE void pair_columns(int n, const tile *t, int32_t blocks, const uint8_t *q, const uint8_t *k, const uint8_t *const *v, float *s)
{
	const int64_t block = (int64_t)t->dim * 32;
	if (blocks == STRIPE / BLOCK) {
		pair_scores(n, 4, t, q, k, v, s);
		return;
	}
	for (int32_t j = 0; j < blocks; j++)
		pair_scores(n, 1, t, q, k + j * block, v ? v + j : NULL, s + j * 16);
}

/* pair_weigh adds to n rows, 16·c columns from out on, weighed pairs of keys. Lines of a
 * block that comes next are asked for on the way, if any. */
INLINE void pair_weigh(int n, int c, const uint8_t *p, const uint8_t *v, int64_t step, int32_t keys, const asked *next, int64_t wide, float *out)
{
	vf acc[PAIR_ROWS][4];
	for (int r = 0; r < n; r++)
		for (int j = 0; j < c; j++)
			acc[r][j] = vf_load(out + r * wide + j * 16);
	for (int32_t i = 0; i < keys; i += BLOCK) {
		asked a = next ? next[i / BLOCK] : (asked){0};
		for (int32_t h = 0; h < BLOCK / 2; h++, v += step, p += 4) {
			__m512bh value[4];
			if (a.at)
				a.at = ask(a, ask(a, a.at));
			for (int j = 0; j < c; j++)
				value[j] = (__m512bh)_mm512_loadu_si512(v + j * 64);
			for (int r = 0; r < n; r++) {
				__m512bh x = both(p + r * ROW * 4);
				for (int j = 0; j < c; j++)
					acc[r][j] = _mm512_dpbf16_ps(acc[r][j], x, value[j]);
			}
		}
	}
	for (int r = 0; r < n; r++)
		for (int j = 0; j < c; j++)
			vf_store(out + r * wide + j * 16, acc[r][j]);
}

/* weigh_pairs does it of all columns, with the packed values in k, of keys from i on in
 * the span. */
INLINE void weigh_pairs(int n, const tile *t, int32_t row, int32_t i, int32_t keys, const asked *next)
{
	const uint8_t *p = (const uint8_t *)(t->score + row * ROW) + i * 2, *v = (const uint8_t *)t->k;
	const int64_t step = t->dim * 4;
	float *out = t->part + row * t->wide;
	int64_t d = 0;
	for (; d + 64 <= t->dim; d += 64, next = NULL)
		pair_weigh(n, 4, p, v + d * 4, step, keys, next, t->wide, out + d);
	for (; d < t->dim; d += 32, next = NULL)
		pair_weigh(n, 2, p, v + d * 4, step, keys, next, t->wide, out + d);
}

/* pack_values packs n values; it says whether one was infinite or a NaN. */
static int pack_values(const tile *t, const uint8_t *const *at, int32_t n)
{
	uint8_t *to = (uint8_t *)t->k;
	__mmask32 bad = 0;
	for (int32_t i = 0; i < n; i += 2)
		for (int64_t d = 0; d < t->dim; d += 16, to += 64) {
			__m512i x = pairs(at[i] + d * 2, at[i + 1] + d * 2);
			bad |= odd(x);
			_mm512_storeu_si512(to, x);
		}
	return bad != 0;
}

/* weigh_stripe adds the values of the n keys from i on in the span at begin. */
static void weigh_stripe(const tile *t, const values *v, int32_t begin, int32_t end, int32_t i, int32_t n)
{
	asked next[STRIPE / BLOCK], *lines = next;
	for (int32_t b = 0; b < n / BLOCK; b++)
		next[b] = ask_keys(t, i / BLOCK + b < t->ahead.blocks ? t->ahead.k[i / BLOCK + b] : NULL);
	int bad = pack_values(t, v->at + i, n);
	if (!bad || t->few) {
		for (int32_t r = 0; r < t->rows; r += PAIR_ROWS, lines = NULL)
			BY_PAIR_ROWS(weigh_pairs, t->rows - r, t, r, i, n, lines)
		return;
	}
	for (int32_t r = 0; r < t->rows; r++) { /* what a row does not see counts nothing */
		values own;
		find_values(t, begin, t->low[r] > begin ? t->low[r] : begin, t->high[r] < end ? t->high[r] : end, i + n, &own);
		pack_values(t, own.at + i, n);
		weigh_pairs(1, t, r, i, n, NULL);
	}
}

/* score_stripe are the scores of the keys of positions [at, end), at most STRIPE. */
static void score_stripe(const tile *t, int32_t at, int32_t end, float *s)
{
	const uint8_t *v[STRIPE / BLOCK];
	const int32_t first = (at - t->now.at) / BLOCK, blocks = (end - at + BLOCK - 1) / BLOCK;
	for (int32_t j = 0; j < blocks; j++) {
		int32_t b = at + j * BLOCK;
		v[j] = first + j < t->now.blocks ? t->now.v[first + j] : NULL;
		block_pairs(t, b, b + BLOCK < end ? b + BLOCK : end, (uint16_t *)t->k + (int64_t)j * BLOCK * t->dim);
	}
	for (int32_t r = 0; r < t->rows; r += PAIR_ROWS)
		BY_PAIR_ROWS(pair_columns, t->rows - r, t, blocks, (const uint8_t *)(t->q + r * t->wide), (const uint8_t *)t->k, r ? NULL : v, s + r * ROW)
}

/* narrow_span is span in pairs, of the positions [begin, end). */
static void narrow_span(const tile *t, int32_t begin, int32_t end, float *top, float *sum)
{
	int32_t n = (end - begin + BLOCK - 1) / BLOCK * BLOCK;
	values v;
	for (int32_t i = 0; i < n; i += STRIPE)
		score_stripe(t, begin + i, begin + i + STRIPE < end ? begin + i + STRIPE : end, t->score + i);
	soften_rows(t, begin, n, top, sum);
	find_values(t, begin, begin, end, n, &v);
	memset(t->part, 0, (size_t)t->rows * t->wide * sizeof(float));
	for (int32_t i = 0; i < n; i += STRIPE)
		weigh_stripe(t, &v, begin, end, i, n - i < STRIPE ? n - i : STRIPE);
}

/* attention_bf16.h: a span of attention in products of pairs of bf16 (VDPBF16PS), where
 * pages hold bf16 or 8-bit floats, which bf16 holds. A score is one chain of the
 * instruction over pairs of dimensions in their order, a result one over pairs of keys, an
 * even position and the one after it; keys that a row does not see weigh 0, which adds
 * nothing. So the bits of a row depend on its own keys alone here too.
 *
 * Keys and values are packed STRIPE keys at a time, into k and, behind it, v, for all rows
 * to use; a few rows multiply bf16 as it lies in pages. */
#include "attention_narrow.h"

#define STRIPE 64
#define GROUPS (STRIPE / BLOCK)
#define PAIR_ROWS 6 /* with 4 vectors each they fill the registers */
#define FEW_ROWS 8  /* as many do not pay for packing */

/* narrow says that this file does a tile's work. */
static int narrow(const tile *t)
{
	switch (t->a->pages.format) {
	case VAPP_BF16:
		return t->dim % 32 == 0;
	case VAPP_F8_E4M3:
	case VAPP_F8_E5M2:
		return t->dim % 64 == 0;
	}
	return 0;
}

/* as_stored says that keys and values are not packed. */
static int as_stored(const tile *t) { return t->few && t->rows <= FEW_ROWS && t->a->pages.format == VAPP_BF16; }

/* Where a block of keys or values comes from. */
enum { PACKED, PAGE16, PAGE };

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

/* rows_at_once shares rows among as few calls as there have to be. */
static int32_t rows_at_once(const tile *t)
{
	int32_t calls = (t->rows + PAIR_ROWS - 1) / PAIR_ROWS;
	return (t->rows + calls - 1) / calls;
}

INLINE __m512bh both(const uint8_t *p)
{
	int32_t x;
	memcpy(&x, p, 4);
	return (__m512bh)_mm512_set1_epi32(x);
}

/* keys_pair is pair d of a block of keys; step is a dimension's bytes in a page. */
INLINE __m512bh keys_pair(int source, const uint8_t *k, int64_t d, int64_t step)
{
	if (source == PACKED)
		return (__m512bh)_mm512_loadu_si512(k + d * 64);
	if (source == PAGE16)
		return (__m512bh)_mm512_permutexvar_epi16(pair_order(), _mm512_loadu_si512(k + d * 64));
	return (__m512bh)pairs(k + d * 2 * step, k + (d * 2 + 1) * step);
}

/* stripe are blocks of keys, and of the values to ask for meanwhile, a line of each with
 * each pair of dimensions. */
typedef struct {
	const uint8_t *k[GROUPS], *v[GROUPS];
	int64_t step;
} stripe;

/* pair_scores are those of n rows of q with c blocks of keys, before they are scaled. */
INLINE void pair_scores(int n, int c, int source, const tile *t, const stripe *w, int32_t first, int asks, const uint8_t *q, float *s)
{
	const int64_t row = t->wide * 4;
	vf acc[PAIR_ROWS][GROUPS];
	for (int r = 0; r < n; r++)
		for (int j = 0; j < c; j++)
			acc[r][j] = vf_set(0);
	for (int64_t d = 0; d < t->dim / 2; d++, q += 4) {
		__m512bh key[GROUPS];
		for (int j = 0; j < c; j++) {
			if (asks && w->v[first + j])
				__builtin_prefetch(w->v[first + j] + d * 64, 0, 2);
			key[j] = keys_pair(source, w->k[first + j], d, w->step);
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

/* pair_columns are scores with the blocks [first, last) of a stripe. */
INLINE void pair_columns(int n, int source, const tile *t, const stripe *w, int32_t first, int32_t last, int asks, int32_t row, float *s)
{
	const uint8_t *q = (const uint8_t *)(t->q + row * t->wide);
	s += row * ROW;
	if (last - first == GROUPS) {
		if (asks)
			pair_scores(n, GROUPS, source, t, w, 0, 1, q, s);
		else
			pair_scores(n, GROUPS, source, t, w, 0, 0, q, s);
		return;
	}
	for (; first < last; first++)
		pair_scores(n, 1, source, t, w, first, asks, q, s + first * BLOCK);
}

/* values_pair is pair of 16 values from column j·16 on. Of pages both values' rows are given, and
 * two vectors come at once. */
INLINE void values_pair(int c, int source, const uint8_t *a, const uint8_t *b, __m512bh *to)
{
	if (source == PACKED) {
		for (int j = 0; j < c; j++)
			to[j] = (__m512bh)_mm512_loadu_si512(a + j * 64);
		return;
	}
	for (int j = 0; j < c; j += 2) {
		__m512i x = _mm512_loadu_si512(a + j * 32), y = _mm512_loadu_si512(b + j * 32), order = pair_order();
		const __m512i upper = _mm512_set1_epi16(16);
		order = _mm512_add_epi16(order, _mm512_and_si512(order, upper)); /* the second row's begin at 32 */
		to[j] = (__m512bh)_mm512_permutex2var_epi16(x, order, y);
		to[j + 1] = (__m512bh)_mm512_permutex2var_epi16(x, _mm512_add_epi16(order, upper), y);
	}
}

/* weighing is what n rows' results add: keys pairs of values, packed at v or as they lie
 * at `at`, and of what blocks lines are asked for on the way, if any. */
typedef struct {
	const uint8_t *v, *const *at;
	int32_t keys;
	const asked *next;
} weighing;

/* pair_weigh adds to n rows, 16·c columns from d on. */
INLINE void pair_weigh(int n, int c, int source, const tile *t, const weighing *w, int asks, const uint8_t *p, int64_t d, float *out)
{
	const int64_t step = t->dim * 4;
	const uint8_t *v = w->v + d * 4;
	vf acc[PAIR_ROWS][4];
	for (int r = 0; r < n; r++)
		for (int j = 0; j < c; j++)
			acc[r][j] = vf_load(out + r * t->wide + d + j * 16);
	for (int32_t i = 0; i < w->keys; i += BLOCK) {
		asked a = asks ? w->next[i / BLOCK] : (asked){0};
		for (int32_t h = 0; h < BLOCK; h += 2, v += step, p += 4) {
			__m512bh value[4];
			if (asks && a.at)
				a.at = ask(a, ask(a, a.at));
			if (source == PACKED)
				values_pair(c, source, v, v, value);
			else
				values_pair(c, source, w->at[i + h] + d * 2, w->at[i + h + 1] + d * 2, value);
			for (int r = 0; r < n; r++) {
				__m512bh x = both(p + r * ROW * 4);
				for (int j = 0; j < c; j++)
					acc[r][j] = _mm512_dpbf16_ps(acc[r][j], x, value[j]);
			}
		}
	}
	for (int r = 0; r < n; r++)
		for (int j = 0; j < c; j++)
			vf_store(out + r * t->wide + d + j * 16, acc[r][j]);
}

/* weigh_pairs does it of all columns, of keys from i on in the span. */
INLINE void weigh_pairs(int n, int source, const tile *t, const weighing *w, int32_t row, int32_t i)
{
	const uint8_t *p = (const uint8_t *)(t->score + row * ROW) + i * 2;
	float *out = t->part + row * t->wide;
	int64_t d = 0;
	int asks = w->next && row == 0;
	for (; d + 64 <= t->dim; d += 64, asks = 0)
		if (asks)
			pair_weigh(n, 4, source, t, w, 1, p, d, out);
		else
			pair_weigh(n, 4, source, t, w, 0, p, d, out);
	for (; d < t->dim; d += 32, asks = 0)
		pair_weigh(n, 2, source, t, w, asks, p, d, out);
}

/* pack_values packs n values; it says whether one was infinite or a NaN. */
static int pack_values(const tile *t, const uint8_t *const *at, int32_t n)
{
	uint8_t *to = (uint8_t *)t->k;
	int bad = 0;
	if (t->a->pages.format != VAPP_BF16)
		return eight_values(t, (const codes *)t->codes, at, n, to);
	for (int32_t i = 0; i < n; i += 2)
		for (int64_t d = 0; d < t->dim; d += 32, to += 128) {
			__m512bh two[2];
			values_pair(2, PAGE, at[i] + d * 2, at[i + 1] + d * 2, two);
			bad |= odd((__m512i)two[0]) | odd((__m512i)two[1]);
			_mm512_storeu_si512(to, (__m512i)two[0]);
			_mm512_storeu_si512(to + 64, (__m512i)two[1]);
		}
	return bad;
}

/* blocks_of are the blocks, counted from at, that some of n rows see: [*first, *last). */
static void blocks_of(const tile *t, int32_t row, int32_t n, int32_t at, int32_t blocks, int32_t *first, int32_t *last)
{
	*first = within((t->low[row] - at) / BLOCK, 0, blocks);
	*last = within((t->high[row + n - 1] - at + BLOCK - 1) / BLOCK, *first, blocks);
}

/* ask_own asks for rows of the step's own keys or values, of n positions. */
static void ask_own(const tile *t, const void *side, int32_t pos, int32_t n, int32_t end)
{
	const int64_t bytes = t->dim * vapp_element(t->a->pages.format);
	for (; n > 0 && pos < end; n--, pos++)
		for (int64_t i = 0; pos >= t->history && i < bytes; i += 64)
			__builtin_prefetch(own(t, side, pos) + i, 0, 2);
}

/* weigh_stripe adds the values of the n keys from i on in the span at begin. */
static void weigh_stripe(const tile *t, const values *v, int32_t begin, int32_t end, int32_t i, int32_t n)
{
	const int32_t many = rows_at_once(t);
	asked next[GROUPS];
	weighing w = {(const uint8_t *)t->k, v->at + i, n, i / BLOCK < t->ahead.blocks ? next : NULL};
	for (int32_t b = 0; b < GROUPS; b++)
		next[b] = ask_keys(t, i / BLOCK + b < t->ahead.blocks ? t->ahead.k[i / BLOCK + b] : NULL);
	if (as_stored(t)) {
		for (int32_t r = 0; r < t->rows; r += many)
			BY_PAIR_ROWS(weigh_pairs, t->rows - r < many ? t->rows - r : many, PAGE, t, &w, r, i)
		return;
	}
	if (!pack_values(t, v->at + i, n) || t->few) {
		for (int32_t r = 0; r < t->rows; r += many) {
			int32_t first, last, m = t->rows - r < many ? t->rows - r : many;
			blocks_of(t, r, m, begin + i, n / BLOCK, &first, &last);
			weighing some = {w.v + first * BLOCK / 2 * t->dim * 4, NULL, (last - first) * BLOCK, w.next};
			BY_PAIR_ROWS(weigh_pairs, m, PACKED, t, &some, r, i + first * BLOCK)
			if (i == 0)
				ask_own(t, t->a->k, end + r / many * 4, 4, t->to);
		}
		return;
	}
	for (int32_t r = 0; r < t->rows; r++) { /* what a row does not see counts nothing */
		values own;
		find_values(t, begin, t->low[r] > begin ? t->low[r] : begin, t->high[r] < end ? t->high[r] : end, i + n, &own);
		pack_values(t, own.at + i, n);
		weigh_pairs(1, PACKED, t, &w, r, i);
	}
}

/* find_stripe finds the blocks of positions [at, end), packed where they have to be. */
static int find_stripe(const tile *t, int32_t at, int32_t end, stripe *w)
{
	const int32_t first = (at - t->now.at) / BLOCK, blocks = (end - at + BLOCK - 1) / BLOCK;
	const int source = !as_stored(t) || end > t->history ? PACKED : t->a->pages.block == BLOCK ? PAGE16 : PAGE;
	w->step = t->a->pages.block * 2;
	for (int32_t j = 0; j < blocks; j++) {
		int32_t b = at + j * BLOCK;
		w->v[j] = first + j < t->now.blocks ? t->now.v[first + j] : NULL;
		if (source != PACKED) {
			w->k[j] = t->now.k[first + j];
			continue;
		}
		uint8_t *to = (uint8_t *)t->k + (int64_t)j * BLOCK * t->dim * 2;
		block_pairs(t, b, b + BLOCK < end ? b + BLOCK : end, (uint16_t *)to);
		w->k[j] = to;
	}
	return source;
}

/* score_stripe are the scores of the keys of positions [at, end), at most STRIPE. */
static void score_stripe(const tile *t, int32_t at, int32_t end, float *s)
{
	stripe w;
	const int source = find_stripe(t, at, end, &w);
	const int32_t many = rows_at_once(t), blocks = (end - at + BLOCK - 1) / BLOCK;
	for (int32_t r = 0; r < t->rows; r += many) {
		int32_t first, last, n = t->rows - r < many ? t->rows - r : many;
		blocks_of(t, r, n, at, blocks, &first, &last);
		if (source == PAGE16)
			BY_PAIR_ROWS(pair_columns, n, PAGE16, t, &w, first, last, r == 0, r, s)
		else if (source == PAGE)
			BY_PAIR_ROWS(pair_columns, n, PAGE, t, &w, first, last, r == 0, r, s)
		else
			BY_PAIR_ROWS(pair_columns, n, PACKED, t, &w, first, last, r == 0, r, s)
		ask_own(t, t->a->v, at + r / many * 4, 4, end);
		ask_own(t, t->a->k, end + r / many * 4, 4, t->to);
	}
}

/* narrow_span is span in pairs, of the positions [begin, end). */
static void narrow_span(tile *t, int32_t begin, int32_t end, float *top, float *sum)
{
	int32_t n = (end - begin + BLOCK - 1) / BLOCK * BLOCK;
	values v;
	if (t->a->pages.format != VAPP_BF16 && !t->coded++)
		fill_codes(t->a->pages.format, (codes *)t->codes);
	for (int32_t i = 0; i < n; i += STRIPE)
		score_stripe(t, begin + i, begin + i + STRIPE < end ? begin + i + STRIPE : end, t->score + i);
	soften_rows(t, begin, n, top, sum);
	find_values(t, begin, begin, end, n, &v);
	memset(t->part, 0, (size_t)t->rows * t->wide * sizeof(float));
	for (int32_t i = 0; i < n; i += STRIPE)
		weigh_stripe(t, &v, begin, end, i, n - i < STRIPE ? n - i : STRIPE);
}

/* attention_amx.h: a span of attention on tiles: products of bf16 in tiles of 16 rows,
 * sums in float, where pages hold bf16. q is taken as two bf16, what is nearest to it and
 * the rest, so that scores lose nothing; weights are rounded, to nearest even. A
 * score's dimensions are taken 32 at a time in their order, those of the rests last, a
 * result's keys 32 at a time from a multiple of 32 on; keys that a row does not see
 * weigh 0. So the bits of a row depend on its own keys alone here too.
 *
 * The rows of q and, once they are weights, the scores hold bf16 from their beginning
 * on. k holds a block of keys as pairs. */
#include "linear_tiles.h"

#define TILE_ROWS 16
#define TILE_K 32

/* pairs are 16 columns of two rows, [16][2]. */
static inline __m512i pairs(const uint8_t *a, const uint8_t *b)
{
	__m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)a));
	__m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)b));
	return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/* on_tiles says that this file does a tile's work. */
static int on_tiles(const tile *t)
{
	int32_t f = t->a->pages.format;
	return f == VAPP_BF16 && !t->a->rebuild && t->dim % TILE_K == 0;
}

static int64_t key_tiles(const tile *t) { return t->dim / TILE_K; }

/* narrow_queries makes the rows of q bf16 where they lie, the rests behind them. */
static void narrow_queries(const tile *t)
{
	for (int32_t r = 0; r < t->rows; r++) {
		uint16_t row[2 * VAPP_ATTENTION_DIM];
		for (int64_t d = 0; d < t->dim; d += 16) {
			vf x = vf_load(t->q + r * t->wide + d);
			_mm256_storeu_si256((__m256i *)(row + d), (__m256i)_mm512_cvtneps_pbh(x));
			x = x - vf_bfloat(row + d);
			_mm256_storeu_si256((__m256i *)(row + t->dim + d), (__m256i)_mm512_cvtneps_pbh(x));
		}
		memcpy(t->q + r * t->wide, row, (size_t)t->dim * 4);
	}
}

/* stored_pairs are the keys of a block of a page, own_pairs those of n of the step's own
 * rows from key j on: all of a block, or single ones. */
static void stored_pairs(const tile *t, const uint8_t *k, uint16_t *to)
{
	int64_t step = t->a->pages.block * 2;
	for (int64_t d = 0; d < t->dim; d += 2, k += 2 * step, to += 32)
		_mm512_storeu_si512(to, pairs(k, k + step));
}

static void own_pairs(const tile *t, int32_t pos, int32_t n, uint16_t *to)
{
	int64_t step = t->a->pages.kv_heads * t->dim * 2;
	const uint8_t *k = own(t, t->a->k, pos);
	for (int64_t d = 0; d < t->dim; d += TILE_K, to += TILE_K * BLOCK) {
		vf r[BLOCK];
		for (int32_t i = 0; i < BLOCK; i++) {
			r[i] = i < n ? vf_load((const float *)(k + i * step + d * 2)) : vf_set(0);
		}
		turn(r, (float *)to);
	}
}

static void own_key(const tile *t, int32_t pos, int32_t j, uint16_t *to)
{
	const uint16_t *k = (const uint16_t *)own(t, t->a->k, pos);
	for (int64_t d = 0; d < t->dim; d++)
		to[d / 2 * 32 + 2 * j + d % 2] = k[d];
}

/* key_pairs fills k with the block of positions [at, end). */
static void key_pairs(const tile *t, int32_t at, int32_t end)
{
	uint16_t *to = (uint16_t *)t->k;
	if (at >= t->history) {
		own_pairs(t, at, end - at, to);
		return;
	}
	stored_pairs(t, t->now.k[(at - t->now.at) / BLOCK], to);
	for (int32_t pos = t->history; pos < end; pos++)
		own_key(t, pos, pos - at, to);
}

/* tile_scores are all rows' with the keys in k, to s, before they are scaled. */
static void tile_scores(const tile *t, float *s)
{
	const uint8_t *q = (const uint8_t *)t->q, *k = (const uint8_t *)t->k;
	const int64_t row = t->wide * 4, far = TILE_ROWS * row;
	const int32_t n = (t->rows + TILE_ROWS - 1) / TILE_ROWS;
	tiles_see_memory();
	tile_zero(0);
	tile_zero(1);
	tile_zero(2);
	for (int64_t i = 0; i < 2 * key_tiles(t); i++, q += 64) {
		tile_load(6, k + i % key_tiles(t) * 1024, 64);
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

/* vf_exp2 is 2^x for x ≤ 0: Taylor's polynomial of degree 5 around whole numbers; the
 * error is below 3·10⁻⁶ of it, and a NaN stays one. */
static inline vf vf_exp2(vf x)
{
	vf y = vf_max(vf_set(-200), x), n = vf_round(y), r = y - n;
	vf p = vf_set(1.3333558e-3f);
	p = vf_fma(p, r, vf_set(9.6181291e-3f));
	p = vf_fma(p, r, vf_set(5.5504109e-2f));
	p = vf_fma(p, r, vf_set(2.4022651e-1f));
	p = vf_fma(p, r, vf_set(6.9314718e-1f));
	p = vf_fma(p, r, vf_set(1));
	return vf_scale2(p, n);
}

/* edge is which of 16 keys from i on lie in [from, to). */
static inline __mmask16 edge(int32_t i, int32_t from, int32_t to)
{
	int32_t a = within(from - i, 0, 16), b = within(to - i, 0, 16);
	return (__mmask16)((1u << b) - (1u << a));
}

/* tile_weights turns a row's scores into n weights of bf16 where they lie, zeros outside of
 * [from, to). It returns the largest score and sets sum, that of the weights as floats. */
static float tile_weights(const tile *t, float *s, int32_t from, int32_t to, int32_t n, float *sum)
{
	float scale = t->a->scale, cap = t->a->softcap;
	if (cap > 0) {
		for (int32_t i = from / 16 * 16; i < to; i += 16)
			vf_store(s + i, vf_set(cap) * vf_tanh(vf_load(s + i) * vf_set(scale) / vf_set(cap)));
		scale = 1;
	}
	vf top = vf_set(-INFINITY), acc = vf_set(0);
	for (int32_t i = from / 16 * 16; i < to; i += 16)
		top = vf_max(_mm512_mask_mov_ps(vf_set(-INFINITY), edge(i, from, to), vf_load(s + i)), top);
	float m = vf_top(top);
	vf by = vf_set(scale * 1.44269504f), less = vf_set(m) * by;
	uint16_t *out = (uint16_t *)s;
	for (int32_t i = 0; i < n; i += 16) {
		__mmask16 k = edge(i, from, to);
		vf p = vf_set(0);
		if (k) {
			vf x = vf_load(s + i) * by;
			vf_apart(x);
			p = _mm512_maskz_mov_ps(k, vf_exp2(x - less));
		}
		acc = acc + p;
		_mm256_storeu_si256((__m256i *)(out + i), (__m256i)_mm512_cvtneps_pbh(p));
	}
	*sum = vf_sum(acc);
	return m * scale;
}

/* values are where the keys of a span have theirs, of nobody zeros. */
typedef struct {
	const uint8_t *at[SPAN];
} values;

static void find_values(const tile *t, int32_t base, int32_t from, int32_t to, int32_t n, values *v)
{
	static const uint8_t none[2 * VAPP_ATTENTION_DIM];
	int64_t row = t->dim * 2;
	for (int32_t i = 0; i < n; i++) {
		int32_t pos = base + i, j = pos - t->now.at;
		v->at[i] = pos < from || pos >= to ? none : pos < t->history ? t->now.v[j / BLOCK] + j % BLOCK * row : own(t, t->a->v, pos);
	}
}

/* tile_values adds up 16 columns from d on of n weighed values, into tiles 0 to 2. It
 * says whether a value was infinite or a NaN: 0 times it is not 0. */
static int tile_values(const tile *t, const values *v, int64_t d, int32_t n)
{
	const int32_t rows = (t->rows + TILE_ROWS - 1) / TILE_ROWS;
	const __m512i top = _mm512_set1_epi16(0x7f80);
	const float *p = t->score;
	uint16_t pack[2][TILE_K * TILE_ROWS] __attribute__((aligned(64)));
	int bad = 0;
	tile_zero(0);
	tile_zero(1);
	tile_zero(2);
	for (int32_t k = 0; k < n; k += TILE_K, p += TILE_K / 2) {
		uint16_t *to = pack[k / TILE_K % 2];
		for (int32_t j = 0; j < TILE_K; j += 2) {
			__m512i x = pairs(v->at[k + j] + 2 * d, v->at[k + j + 1] + 2 * d);
			bad |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(x, top), top) != 0;
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

/* take copies columns from d on of the rows [r, end) out of tiles 0 to 2. */
static void take(const tile *t, int64_t d, int32_t r, int32_t end)
{
	float sums[TILE][TILE_ROWS] __attribute__((aligned(64)));
	tile_store(0, sums[0], 64);
	tile_store(1, sums[TILE_ROWS], 64);
	tile_store(2, sums[2 * TILE_ROWS], 64);
	tiles_see_memory();
	for (; r < end; r++)
		vf_store(t->part + r * t->wide + d, vf_load(sums[r]));
}

static void tile_weigh(const tile *t, int32_t base, int32_t begin, int32_t end, int32_t n)
{
	values v;
	find_values(t, base, begin, end, n, &v);
	for (int64_t d = 0; d < t->dim; d += TILE_ROWS) {
		int bad = tile_values(t, &v, d, n);
		take(t, d, 0, t->rows);
		for (int32_t r = 0; bad && r < t->rows; r++) { /* what a row does not see counts nothing */
			values own;
			find_values(t, base, t->low[r] > begin ? t->low[r] : begin, t->high[r] < end ? t->high[r] : end, n, &own);
			tile_values(t, &own, d, n);
			take(t, d, r, r + 1);
		}
	}
}

/* tile_span is span on tiles, of the positions [begin, end). */
static void tile_span(const tile *t, int32_t begin, int32_t end, float *top, float *sum)
{
	int32_t base = begin / TILE_K * TILE_K, n = (end - base + TILE_K - 1) / TILE_K * TILE_K;
	for (int32_t b = begin, i = 0; b < end; b += BLOCK, i++) {
		asked next = ask_keys(t, i < t->ahead.blocks ? t->ahead.k[i] : NULL);
		const uint8_t *v = i < t->now.blocks ? t->now.v[i] : NULL;
		for (int32_t j = 0; next.at && j < BLOCK; j++)
			next.at = ask(next, next.at);
		for (int64_t j = 0; v && j < BLOCK * t->dim * 2; j += 64)
			__builtin_prefetch(v + j, 0, 2);
		key_pairs(t, b, b + BLOCK < end ? b + BLOCK : end);
		tile_scores(t, t->score + (b - base));
	}
	tiles_see_memory();
	for (int32_t r = 0; r < t->rows; r++) {
		int32_t from, to;
		sum[r] = 0, top[r] = -INFINITY;
		if (seen(t, r, base, n, &from, &to))
			top[r] = tile_weights(t, t->score + r * ROW, from, to, n, &sum[r]);
		else
			memset(t->score + r * ROW, 0, (size_t)n * 2);
	}
	tile_weigh(t, base, begin, end, n);
}

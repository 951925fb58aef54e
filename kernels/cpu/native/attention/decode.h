/* decode.h: one span of a decode step: the rows of one token, at most DECODE_ROWS. They read
 * keys and values from the pages without packing; 8-bit floats become bf16 in registers. With
 * each cache line of keys that is used, a line of the span's values is prefetched, and with
 * each line of values one of the next span's keys. Keys of a block that holds this step's own
 * one are packed, and values of a block that the rows see only in part are copied.
 *
 * There are two forms (`fma`) with the same bits: VDPBF16PS, and multiply-adds of floats where
 * MXCSR makes denormals zero, which Intel's processors do in half the time. VDPBF16PS adds the
 * second product of a pair to a sum, then the first. For amx multiply-adds give the bits of
 * TDPBF16PS: it adds the first products of 16 pairs and the second ones, each in one chain from
 * 0, and the sum of both chains to the tile. */
#ifndef VAPP_CPU_ATTENTION_DECODE_H
#define VAPP_CPU_ATTENTION_DECODE_H
#include <immintrin.h>
#include <stdint.h>

#include "../shared/inline.h"
#include "../shared/kernels.h"
#include "../shared/vec.h"
#include "bf16_common.h"
#include "fp8.h"
#include "pairs.h"
#include "tile.h"

#if defined(VAPP_TILES)
#define CHAINS 2
#else
#define CHAINS 1
#endif

/* The forms of keys and values: packed, or in pages of bf16 or 8-bit floats whose blocks have
 * 16 positions or more. */
enum { PACKED, BF16_16, BF16_MORE, FP8_16, FP8_MORE };

#define BY_DECODE_ROWS(f, n, ...) \
	switch (n) { \
	case 1: f(1, __VA_ARGS__); break; \
	case 2: f(2, __VA_ARGS__); break; \
	case 3: f(3, __VA_ARGS__); break; \
	case 4: f(4, __VA_ARGS__); break; \
	case 5: f(5, __VA_ARGS__); break; \
	case 6: f(6, __VA_ARGS__); break; \
	case 7: f(7, __VA_ARGS__); break; \
	default: f(8, __VA_ARGS__); \
	}

/* BY_FORM calls f with a constant form of pages. */
#define BY_FORM(f, form, ...) \
	switch (form) { \
	case BF16_16: f(BF16_16, __VA_ARGS__); break; \
	case BF16_MORE: f(BF16_MORE, __VA_ARGS__); break; \
	case FP8_16: f(FP8_16, __VA_ARGS__); break; \
	default: f(FP8_MORE, __VA_ARGS__); \
	}

static int page_form(const tile *t)
{
	int more = t->a->pages.block != BLOCK;
	return t->a->pages.format == VAPP_BF16 ? BF16_16 + more : FP8_16 + more;
}

/* byte_tables holds the look-up table of 8-bit floats and the byte order that it expects. */
typedef struct {
	lookup l;
	__m512i order;
} byte_tables;

INLINE byte_tables tables_of(int form, const tile *t, int values)
{
	const codes *c = (const codes *)t->codes;
	byte_tables w;
	if (form >= FP8_16)
		w.l = look_up(c), w.order = _mm512_loadu_si512(values ? c->value : c->key);
	return w;
}

/* fp8_lookup returns the bf16 of 64 codes, which it permutes into the tables' order. */
INLINE void fp8_lookup(const byte_tables *w, __m512i x, __m512bh *to)
{
	x = _mm512_permutexvar_epi8(w->order, x);
	__m512i low = _mm512_permutex2var_epi8(w->l.low[0], x, w->l.low[1]), high = _mm512_permutex2var_epi8(w->l.high[0], x, w->l.high[1]);
	high = _mm512_ternarylogic_epi32(high, x, _mm512_set1_epi8((char)0x80), 0xf8); /* high | x & 0x80 */
	to[0] = (__m512bh)_mm512_unpacklo_epi8(low, high), to[1] = (__m512bh)_mm512_unpackhi_epi8(low, high);
}

/* four_dims loads two pairs of dimensions of a block of keys; step is the bytes of a dimension. */
INLINE void four_dims(int form, const byte_tables *w, const uint8_t *k, int64_t step, __m512bh *to)
{
	switch (form) {
	case PACKED:
		to[0] = (__m512bh)_mm512_loadu_si512(k), to[1] = (__m512bh)_mm512_loadu_si512(k + 64);
		break;
	case BF16_16:
		to[0] = (__m512bh)_mm512_permutexvar_epi16(pair_order(), _mm512_loadu_si512(k));
		to[1] = (__m512bh)_mm512_permutexvar_epi16(pair_order(), _mm512_loadu_si512(k + 64));
		break;
	case BF16_MORE:
		to[0] = (__m512bh)pairs(k, k + step), to[1] = (__m512bh)pairs(k + 2 * step, k + 3 * step);
		break;
	case FP8_16:
		fp8_lookup(w, _mm512_loadu_si512(k), to);
		break;
	default: {
		__m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)k));
		x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(k + step)), 1);
		x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(k + 2 * step)), 2);
		fp8_lookup(w, _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(k + 3 * step)), 3), to);
	}
	}
}

/* operand is a vector of pairs: as VDPBF16PS takes it, or its first and second numbers as
 * floats. */
typedef struct {
	vf first, second;
} operand;

INLINE operand operand_of(int fma, __m512bh pairs)
{
	return fma ? (operand){low_bf16((__m512i)pairs), high_bf16((__m512i)pairs)} : (operand){.first = (vf)pairs};
}

/* open_chain begins the sum of 16 pairs of products, add_pair adds the product with the pair at
 * x, which takes pair_bytes(fma), and close_chain adds the chain to a sum. All pairs are one
 * chain for VDPBF16PS. */
INLINE void open_chain(vf *chain)
{
	for (int i = 0; i < CHAINS; i++)
		chain[i] = vf_set(0);
}

INLINE int64_t pair_bytes(int fma) { return fma ? 8 : 4; }

INLINE void add_pair(int fma, vf *chain, const uint8_t *x, operand y)
{
	const float *f = (const float *)x;
	if (!fma) {
		chain[0] = _mm512_dpbf16_ps(chain[0], broadcast_pair(x), (__m512bh)y.first);
		return;
	}
	chain[CHAINS - 1] = vf_fma(vf_set(f[1]), y.second, chain[CHAINS - 1]);
	chain[0] = vf_fma(vf_set(f[0]), y.first, chain[0]);
}

INLINE void close_chain(vf *chain, vf *sum)
{
	if (CHAINS == 1)
		return;
	*sum = *sum + (chain[0] + chain[1]);
	open_chain(chain);
}

/* decode_scores writes to s the scores, before they are scaled, of n rows with one or two
 * blocks of keys at k; it prefetches the values at v. */
INLINE void decode_scores(int n, int blocks, int fma, int form, const tile *t, const uint8_t *const *k, const uint8_t *const *v, float *s)
{
	const byte_tables w = tables_of(form, t, 0);
	const int64_t row = t->key_wide * 4, step = t->a->pages.block * vapp_element(t->a->pages.format);
	const int64_t far = form == PACKED ? 128 : 4 * step, lines = form >= FP8_16 ? 64 : 128;
	const uint8_t *q = (const uint8_t *)t->q, *at[2] = {k[0], k[blocks - 1]}, *next[2] = {v[0], v[blocks - 1]};
	vf sum[DECODE_ROWS][2], chain[DECODE_ROWS][2][CHAINS];
	for (int r = 0; r < n; r++)
		for (int j = 0; j < blocks; j++)
			sum[r][j] = vf_set(0), open_chain(chain[r][j]);
	for (int64_t d = 0; d < t->dim; d += 32) {
#pragma GCC unroll 1
		for (int i = 0; i < 8; i++) {
			__m512bh key[2][2];
			for (int j = 0; j < blocks; j++) {
				four_dims(form, &w, at[j], step, key[j]);
				for (int64_t l = 0; form != PACKED && l < lines; l += 64)
					__builtin_prefetch(next[j] + l, 0, 2);
				at[j] += far, next[j] += lines;
			}
			for (int h = 0; h < 2; h++, q += pair_bytes(fma))
				for (int j = 0; j < blocks; j++) {
					operand y = operand_of(fma, key[j][h]);
					for (int r = 0; r < n; r++)
						add_pair(fma, chain[r][j], q + r * row, y);
				}
		}
		for (int r = 0; r < n; r++)
			for (int j = 0; j < blocks; j++)
				close_chain(chain[r][j], &sum[r][j]);
	}
	for (int r = 0; r < n; r++)
		for (int j = 0; j < blocks; j++)
			vf_store(s + r * ROW + j * BLOCK, CHAINS == 1 ? chain[r][j][0] : sum[r][j]);
}

/* decode_block_scores calls decode_scores with as many blocks as registers hold. */
INLINE void decode_block_scores(int n, int fma, int form, const tile *t, const uint8_t *const *k, const uint8_t *const *v, float *s)
{
	if (CHAINS * n <= DECODE_ROWS) {
		decode_scores(n, 2, fma, form, t, k, v, s);
		return;
	}
	for (int j = 0; j < 2 && (j == 0 || k[1] != k[0]); j++)
		decode_scores(n, 1, fma, form, t, k + j, v + j, s + j * BLOCK);
}

INLINE void decode_score_rows(int form, int fma, const tile *t, const uint8_t *const *k, const uint8_t *const *v, float *s)
{
	BY_DECODE_ROWS(decode_block_scores, t->rows, fma, form, t, k, v, s)
}

/* decode_score_span computes the scores of the keys [begin, end). */
INLINE void decode_score_span(int fma, const tile *t, int32_t begin, int32_t end)
{
	const int32_t stored = (within(t->history, begin, end) - begin) / BLOCK; /* whole blocks */
	const int form = page_form(t);
	for (int32_t i = 0; i < stored; i += 2) {
		int32_t j = i + 1 < stored ? i + 1 : i;
		const uint8_t *k[2] = {t->now.k[i], t->now.k[j]}, *v[2] = {t->now.v[i], t->now.v[j]};
		BY_FORM(decode_score_rows, form, fma, t, k, v, t->score + i * BLOCK)
	}
	if (begin + stored * BLOCK < end) {
		block_pairs(t, begin + stored * BLOCK, end, (uint16_t *)t->k);
		const uint8_t *k[2] = {(const uint8_t *)t->k, (const uint8_t *)t->k};
		decode_score_rows(PACKED, fma, t, k, k, t->score + stored * BLOCK);
	}
}

/* value_operands loads 16·c columns of two values; c is even. */
INLINE void value_operands(int c, int fma, int narrow, const byte_tables *w, const uint8_t *x, const uint8_t *y, operand *to)
{
	for (int j = 0; j < c; j += 2) {
		__m512bh two[2];
		if (narrow) {
			__m512i codes = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(x + j * 16)));
			fp8_lookup(w, _mm512_mask_broadcast_i64x4(codes, 0xf0, _mm256_loadu_si256((const __m256i *)(y + j * 16))), two);
		} else if (!fma) {
			values_pair(2, x + j * 32, y + j * 32, two);
		} else {
			for (int i = j; i < j + 2; i++)
				to[i] = (operand){vf_bfloat(x + i * 32), vf_bfloat(y + i * 32)};
			continue;
		}
		for (int i = 0; i < 2; i++)
			to[j + i] = operand_of(fma, two[i]);
	}
}

/* value_blocks are the blocks of a span's values, at `at`; number counts the first one from
 * position 0. next points to the first nexts key blocks of the next span, to prefetch. */
typedef struct {
	const uint8_t *at[SPAN / BLOCK], *const *next;
	int32_t blocks, nexts, number;
} value_blocks;

/* decode_columns computes 16·c columns, from d on, of the results of n rows from row r on; pages
 * have more than one block of 16 positions if `more`. */
INLINE void decode_columns(int n, int c, int fma, int narrow, int more, const tile *t, const value_blocks *b, int64_t d, int32_t r)
{
	const byte_tables w = tables_of(narrow ? FP8_16 : BF16_16, t, 1);
	const int64_t e = narrow ? 1 : 2, row = t->dim * e, key = t->a->pages.block * e;
	const int64_t line = more ? key : 64;
	const int lines = more ? 2 * c : c * (int)e / 2;
	const uint8_t *p = (const uint8_t *)(t->score + r * ROW);
	vf sum[DECODE_ROWS][4], chain[DECODE_ROWS][4][CHAINS];
	for (int i = 0; i < n; i++)
		for (int j = 0; j < c; j++)
			sum[i][j] = vf_set(0), open_chain(chain[i][j]);
	for (int32_t x = 0; x < b->blocks; x++) {
		const uint8_t *v = b->at[x] + d * e, *next = x < b->nexts ? b->next[x] + d * key : v;
#pragma GCC unroll 4
		for (int h = 0; h < BLOCK; h += 2, p += pair_bytes(fma), v += 2 * row) {
			operand value[4];
			value_operands(c, fma, narrow, &w, v, v + row, value);
			for (int j = 0; j < lines; j++, next += line)
				__builtin_prefetch(next, 0, 2);
			for (int i = 0; i < n; i++)
				for (int j = 0; j < c; j++)
					add_pair(fma, chain[i][j], p + i * ROW * 4, value[j]);
		}
		if (CHAINS == 2 && ((b->number + x) % 2 || x + 1 == b->blocks))
			for (int i = 0; i < n; i++)
				for (int j = 0; j < c; j++)
					close_chain(chain[i][j], &sum[i][j]);
	}
	for (int i = 0; i < n; i++)
		for (int j = 0; j < c; j++)
			vf_store(t->part + (r + i) * t->wide + d + j * 16, CHAINS == 1 ? chain[i][j][0] : sum[i][j]);
}

/* decode_results computes the results of n rows, in as many columns at a time as registers
 * hold. */
INLINE void decode_results(int n, int fma, int narrow, int more, const tile *t, const value_blocks *b, int32_t r)
{
	const int c = CHAINS == 2 || n > (narrow || fma ? 4 : 6) ? 2 : 4;
	int64_t d = 0;
	for (; d + 16 * c <= t->dim; d += 16 * c)
		decode_columns(n, c, fma, narrow, more, t, b, d, r);
	if (c == 4 && d < t->dim)
		decode_columns(n, 2, fma, narrow, more, t, b, d, r);
}

#define BY_FOUR_ROWS(f, n, ...) \
	switch (n) { \
	case 1: f(1, __VA_ARGS__); break; \
	case 2: f(2, __VA_ARGS__); break; \
	case 3: f(3, __VA_ARGS__); break; \
	default: f(4, __VA_ARGS__); \
	}

/* decode_result_rows computes the results of all rows; those of multiply-adds of two chains in
 * two calls if there are more than four. */
INLINE void decode_result_rows(int fma, int narrow, int more, const tile *t, const value_blocks *b)
{
	if (CHAINS == 2) {
		const int32_t many = t->rows > 4 ? (t->rows + 1) / 2 : t->rows;
		for (int32_t r = 0; r < t->rows; r += many)
			BY_FOUR_ROWS(decode_results, t->rows - r < many ? t->rows - r : many, fma, narrow, more, t, b, r)
		return;
	}
	BY_DECODE_ROWS(decode_results, t->rows, fma, narrow, more, t, b, 0)
}

/* seen_values copies the values of the block at `at`, with zeros for those that the rows do not
 * see. */
static const uint8_t *seen_values(const tile *t, int32_t at, uint8_t *to)
{
	const int64_t row = t->dim * vapp_element(t->a->pages.format);
	values v;
	find_values(t, at, t->low[0], t->high[0], BLOCK, &v);
	for (int32_t i = 0; i < BLOCK; i++)
		memcpy(to + i * row, v.at[i], (size_t)row);
	return to;
}

/* decode_accumulate_span computes the weighted values of the keys [begin, end). */
INLINE void decode_accumulate_span(int fma, const tile *t, int32_t begin, int32_t end)
{
	const int32_t n = (end - begin + BLOCK - 1) / BLOCK;
	const int32_t last = (within(t->history < t->high[0] ? t->history : t->high[0], begin, end) - begin) / BLOCK;
	const int32_t first = within((t->low[0] - begin + BLOCK - 1) / BLOCK, 0, last); /* the rows see the blocks [first, last) whole */
	value_blocks b = {.next = t->ahead.k, .blocks = n, .nexts = t->ahead.blocks, .number = begin / BLOCK};
	uint8_t *copy = (uint8_t *)t->v;
	for (int32_t i = 0; i < n; i++, copy += BLOCK * t->dim * 2)
		b.at[i] = i >= first && i < last ? t->now.v[i] : seen_values(t, begin + i * BLOCK, copy);
	switch (page_form(t)) {
	case BF16_16: decode_result_rows(fma, 0, 0, t, &b); break;
	case BF16_MORE: decode_result_rows(fma, 0, 1, t, &b); break;
	case FP8_16: decode_result_rows(fma, 1, 0, t, &b); break;
	default: decode_result_rows(fma, 1, 1, t, &b);
	}
}

/* The phases of a span in both forms: not inlined, so that MXCSR is set around them. */
static __attribute__((noinline)) void score_by_fma(const tile *t, int32_t begin, int32_t end) { decode_score_span(1, t, begin, end); }
static __attribute__((noinline)) void accumulate_by_fma(const tile *t, int32_t begin, int32_t end) { decode_accumulate_span(1, t, begin, end); }

/* decode_span computes a span for few rows: the positions [begin, end). */
static void decode_span(const tile *t, int32_t begin, int32_t end, float *top, float *sum)
{
	const int32_t n = (end - begin + BLOCK - 1) / BLOCK * BLOCK;
#if !defined(VAPP_TILES)
	if (!t->a->fma) {
		decode_score_span(0, t, begin, end);
		softmax_rows(0, t, 0, t->rows, begin, n, top, sum);
		decode_accumulate_span(0, t, begin, end);
		return;
	}
#endif
	const unsigned control = _mm_getcsr();
	_mm_setcsr(control | 0x8040); /* denormals are zero, as operands and as results */
	score_by_fma(t, begin, end);
	_mm_setcsr(control);
	softmax_rows(1, t, 0, t->rows, begin, n, top, sum);
	_mm_setcsr(control | 0x8040);
	accumulate_by_fma(t, begin, end);
	_mm_setcsr(control);
}

#endif

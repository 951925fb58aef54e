/* body.h: attention over pages and this step's own K and V. It is causal, with a window or
 * without, or bidirectional: then all tokens of a sequence see each other. Without a window, sinks
 * and the like the latter is in both.h, with pairs of bf16 in both_pairs.h, on tiles in both_amx.h.
 *
 * Keys are taken in blocks of 16 at absolute positions and in spans of SPAN keys. Each span has
 * its own softmax (largest score, sum of the exponentials, weighted values), and spans are
 * joined in the order of positions. A score is four sums, each over every fourth dimension,
 * joined as (0+1)+(2+3). So the bits of a row depend only on the keys that the row sees. Keys
 * before the window of all queries are not read; a key that a row does not see contributes
 * nothing, even if it is a NaN. Queries are taken in tiles of up to TILE rows (a row is a token
 * and a head), which share the loads of K and V.
 *
 * Latent keys are their values, then a few dimensions of their own; a block of them is always
 * converted or packed, from both. More than PASS query heads of a KV head are computed in groups.
 *
 * If there are too few tiles for the threads, the spans of a tile are split among the parts.
 * Their results are stored, and attention_join joins them in the order in which one thread
 * would. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../shared/kernels.h"
#include "../shared/vec.h"
#include "both_tile.h"
#include "tile.h"
#if defined(VAPP_TILES)
#include "amx.h"
#include "both_amx.h"
#define VAPP_NARROW 1
#else
#define tiles_begin() (void)0
#define tiles_end() (void)0
#define splits_columns(t) 0
#if defined(VAPP_PAIRS)
#include "bf16.h"
#include "both_pairs.h"
#define VAPP_NARROW 1
#else
#include "dot.h"
#include "both.h"
#define VAPP_NARROW 0
#define uses_bf16(t) 0
#define round_queries(t) (void)0
#endif
#endif

/* runs_both reports whether attention is that of both.h, both_pairs.h or both_amx.h here. AVX-512 BF16
 * runs what attention_pack packed; it leaves the rest to AVX-512, or has the numbers of pages. */
static int runs_both(const vapp_attention *a)
{
#if defined(VAPP_TILES)
	return sees_all(a) && a->pages.format == VAPP_BF16;
#elif defined(VAPP_PAIRS)
	return sees_all(a) && a->pages.format == VAPP_BF16 && a->packed;
#else
	return sees_all(a);
#endif
}

#if defined(VAPP_SOFT_TILES)
void vapp_both_amx_soft(const void *args, const vapp_call *c);
#define RUN_BOTH(a, c) vapp_both_amx_soft(a, c)
#elif defined(VAPP_TILES)
#define RUN_BOTH(a, c) both_attention(tile_buffers, tile_run, a, c)
#elif defined(VAPP_PAIRS)
#define RUN_BOTH(a, c) both_attention(pairs_buffers, pairs_run, a, c)
#else
#define RUN_BOTH(a, c) both_attention(both_buffers, both_run, a, c)
#endif

static float exp_of(float x)
{
	float e[VW];
	vf_store(e, vf_exp(vf_set(x)));
	return e[0];
}

/* join adds the result of the span at `at` to a row's result; the row's first span replaces it. */
static void join(const tile *t, int32_t r, int32_t at, float top, float sum)
{
	float *out = t->out + r * t->wide, *part = t->part + r * t->wide;
	int32_t from, to;
	if (!seen(t, r, at, SPAN, &from, &to))
		return;
	if (t->low[r] >= at) {
		memcpy(out, part, (size_t)t->wide * sizeof(float));
		t->top[r] = top, t->sum[r] = sum;
		return;
	}
	float m = top > t->top[r] || top != top ? top : t->top[r];
	float old = exp_of(t->top[r] - m), new = exp_of(top - m);
	vf a = vf_set(old), b = vf_set(new);
	for (int32_t i = 0; i < t->wide; i += VW)
		vf_store(out + i, vf_fma(vf_load(part + i), b, vf_load(out + i) * a));
	float x = t->sum[r] * old, y = sum * new;
	t->sum[r] = x + y;
	t->top[r] = m;
}

/* set_ranges sets the range of positions that each row sees. */
static void set_ranges(tile *t)
{
	for (int32_t r = 0; r < t->rows; r++)
		t->low[r] = low(t, r), t->high[r] = high(t, r);
}

static void start(tile *t)
{
	const vapp_attention *a = t->a;
	set_ranges(t);
	memset(t->q, 0, (size_t)t->rows * t->key_wide * sizeof(float));
	memset(t->k, 0, (size_t)t->key_wide * 2 * BLOCK * sizeof(float));
	memset(t->v, 0, (size_t)BLOCK * t->wide * sizeof(float));
	for (int32_t r = 0; r < t->rows; r++) {
		int64_t row = (int64_t)(t->token + r / t->group) * a->heads + t->head * t->group + r % t->group;
		memcpy(t->q + r * t->key_wide, a->q + row * t->key, (size_t)t->key * sizeof(float));
	}
	if (uses_bf16(t))
		round_queries(t);
}

static void finish(const tile *t)
{
	const vapp_attention *a = t->a;
	for (int32_t r = 0; r < t->rows; r++) {
		int64_t row = (int64_t)(t->token + r / t->group) * a->heads + t->head * t->group + r % t->group;
		float *y = a->y + row * t->dim, sum = t->sum[r], scale = 1;
		const float *out = t->out + r * t->wide;
		if (a->sinks) {
			float sink = a->sinks[row % a->heads], m = sink > t->top[r] ? sink : t->top[r];
			scale = exp_of(t->top[r] - m);
			sum = sum * scale + exp_of(sink - m);
		}
		for (int32_t i = 0; i < t->dim && splits_columns(t); i += 32)
			for (int32_t j = 0; j < 16; j++)
				y[i + 2 * j] = out[i + j] * scale / sum, y[i + 2 * j + 1] = out[i + 16 + j] * scale / sum;
		for (int32_t i = 0; i < t->dim && !splits_columns(t); i++)
			y[i] = out[i] * scale / sum;
	}
}

/* span computes part, top and sum of every row for the span at `at`. */
static void span(tile *t, int32_t at, float *top, float *sum)
{
	int32_t begin = within(t->from, at, at + SPAN), end = within(t->to, at, at + SPAN);
	enter_span(t, begin, end);
#if VAPP_NARROW
	bf16_span(t, begin, end, top, sum);
#else
	float_span(t, begin, end, top, sum);
#endif
}

static void run(tile *t)
{
	start(t);
	for (int32_t at = t->from / SPAN * SPAN; at < t->to; at += SPAN) {
		float top[TILE], sum[TILE];
		span(t, at, top, sum);
		for (int32_t r = 0; r < t->rows; r++)
			join(t, r, at, top[r], sum[r]);
	}
	finish(t);
}

/* part_buffers returns the tile of a part before its first rows, with its buffers. */
static tile part_buffers(const vapp_attention *a, int part)
{
	tile t;
	t.most = PASS;
	t.a = a, t.seq = -1, t.head = 0, t.token = t.tokens = t.end = t.history = t.first_block = 0, t.now.seq = t.ahead.seq = -1;
	t.codes_ready = 0, t.dim = a->pages.head_dim, t.key = t.dim + a->latent;
	t.group = a->heads / a->pages.kv_heads, t.groups = (t.group + PASS - 1) / PASS;
	while (t.group % t.groups)
		t.groups++;
	t.group /= t.groups, t.heads = a->pages.kv_heads * t.groups;
	float *f = (float *)(a->work + a->work_bytes * part);
	t.wide = (t.dim + 15) / 16 * 16, t.key_wide = (t.key + 15) / 16 * 16;
	t.q = f, f += TILE * t.key_wide;
	t.k = f, f += t.key_wide * SPAN / 2;
	t.v = f, f += t.wide * SPAN / 2;
	t.score = f, f += PASS * ROW;
	t.part = f, f += TILE * t.wide;
	t.out = f, f += TILE * t.wide;
	t.top = f, f += TILE;
	t.sum = f;
	return t;
}

/* reachable_positions returns how many positions of a sequence are in pages before the draft
 * row. The pages up to the step's last position always exist. */
static int32_t reachable_positions(const vapp_attention *a, int32_t seq)
{
	const vapp_pages *p = &a->pages;
	int32_t pos = vapp_at(a->positions, a->accepted_row, a->by, seq), b = a->positions[a->first[seq + 1] - 1] / p->block + 1;
	for (; b * p->block < pos; b++)
		if (b >= p->width || p->table[(int64_t)seq * p->width + b] < 0)
			return b * p->block;
	return pos;
}

/* enter_sequence moves t to the rows of a sequence. */
static void enter_sequence(tile *t, int32_t seq)
{
	const vapp_attention *a = t->a;
	t->seq = seq;
	t->begin = a->accepted_row ? seq : a->first[seq];
	t->end = !a->accepted_row ? a->first[seq + 1] : a->accepted_row[seq] < 0 ? seq : seq + 1;
	if (t->begin == t->end || a->bidirectional)
		return;
	t->history = a->accepted_row ? reachable_positions(a, seq) : a->positions[t->begin];
	t->first_block = vapp_first_block(&a->pages, t->history);
}

/* next moves t to the next tile, or to the first one if t->seq is -1. It returns 0 at the end. */
static int next(tile *t, int32_t seqs)
{
	const vapp_attention *a = t->a;
	int32_t step = t->most / t->group, token = t->token + t->tokens;
	while (t->seq < 0 || token >= t->end) {
		if (t->seq + 1 >= seqs)
			return 0;
		enter_sequence(t, t->seq + 1);
		token = t->begin;
	}
	int32_t left = t->end - token;
	t->token = token;
	t->tokens = left < step ? left : step;
	t->rows = t->tokens * t->group;
	t->from = low(t, 0) / BLOCK * BLOCK, t->to = high(t, t->rows - 1);
	t->decode = t->tokens == 1 && t->to == t->history + 1 && t->rows <= 16 && t->dim % BLOCK == 0 && !a->rebuild && !a->latent && !a->bidirectional;
	return 1;
}

/* tile_of_part is part_buffers with the size of the call's tiles: large ones where they share
 * packed keys and all threads have several of them. */
static tile tile_of_part(const vapp_attention *a, const vapp_call *c)
{
	tile t = part_buffers(a, c->part);
	int64_t pieces = 0;
	if (!uses_bf16(&t))
		return t;
	t.most = TILE;
	while (pieces < 8 * a->threads && next(&t, c->rows[VAPP_SEQS]))
		pieces += t.heads;
	t.most = pieces < 8 * a->threads ? PASS : TILE;
	t.seq = -1, t.tokens = 0;
	return t;
}

/* cost estimates the work of a tile, for sharing among parts. Its unit has no other meaning. */
static int64_t cost(const tile *t) { return (int64_t)(t->tokens + 1) * (t->to - t->from + 64); }

static int32_t spans_of(const tile *t) { return (t->to + SPAN - 1) / SPAN - t->from / SPAN; }

/* slot_floats returns the size of one span's result: part, top and sum of every row. */
static int64_t slot_floats(const tile *t) { return ((int64_t)t->rows * (t->wide + 2) + 15) / 16 * 16; }

/* splits_spans reports whether the tiles are too few for the threads and the results of all
 * spans fit in a->shared. */
static int splits_spans(const vapp_attention *a, const vapp_call *c)
{
	int32_t spans = 0;
	int64_t tiles = 0, floats = 0;
	tile t = tile_of_part(a, c);
	if (a->threads < 2)
		return 0;
	while (next(&t, c->rows[VAPP_SEQS])) {
		tiles += t.heads;
		floats += t.heads * spans_of(&t) * slot_floats(&t);
		spans = spans_of(&t) > spans ? spans_of(&t) : spans;
		if (tiles >= 4 * a->threads || floats * 4 > a->shared_bytes)
			return 0;
	}
	return spans > 1;
}

/* A part does the pieces of work whose middle falls into its share of the total cost. A piece
 * is a (sequence, tile of tokens, group of heads) and, if spans are split, a span. */
void VAPP_NAME(attention)(const void *args, const vapp_call *c)
{
	const vapp_attention *a = args;
	if (runs_both(a)) {
		RUN_BOTH(a, c);
		return;
	}
	tile t = tile_of_part(a, c);
	if (VAPP_NARROW && !uses_bf16(&t)) { /* these files have no kernels of floats */
		vapp_attention_avx512(args, c);
		return;
	}
	int32_t heads = t.heads, seqs = c->rows[VAPP_SEQS];
	int64_t total = 0, done = 0;
	int split = splits_spans(a, c);
	float *slot = (float *)a->shared;
	tiles_begin();
	while (next(&t, seqs))
		total += cost(&t) * heads;
	for (t.seq = -1, t.tokens = 0; next(&t, seqs);) {
		int32_t begin = t.from / SPAN * SPAN;
		int64_t w = cost(&t), size = slot_floats(&t), n = spans_of(&t);
		for (t.head = 0; t.head < heads; t.head++) {
			for (int32_t i = 0, started = 0; split && i < n; i++, slot += size) {
				int64_t from = w * i / n, to = w * (i + 1) / n;
				if ((done + (from + to) / 2) * c->parts / total != c->part)
					continue;
				if (!started++)
					start(&t);
				t.part = slot;
				span(&t, begin + i * SPAN, slot + t.rows * t.wide, slot + t.rows * (t.wide + 1));
			}
			if (!split && (done + w / 2) * c->parts / total == c->part)
				run(&t);
			done += w;
		}
	}
	tiles_end();
}

/* attention_join joins the results of split spans; if no span was split it does nothing. */
void VAPP_NAME(attention_join)(const void *args, const vapp_call *c)
{
	const vapp_attention *a = args;
	tile t = tile_of_part(a, c);
	if (runs_both(a))
		return;
	if (VAPP_NARROW && !uses_bf16(&t)) {
		vapp_attention_join_avx512(args, c);
		return;
	}
	if (!splits_spans(a, c))
		return;
	float *slot = (float *)a->shared;
	while (next(&t, c->rows[VAPP_SEQS])) {
		int64_t size = slot_floats(&t), n = spans_of(&t), out = (int64_t)t.rows * t.wide;
		int32_t begin = t.from / SPAN * SPAN;
		set_ranges(&t);
		for (t.head = 0; t.head < t.heads; t.head++, slot += size * n) {
			t.out = slot, t.top = slot + out, t.sum = slot + out + t.rows;
			for (int64_t i = 1; i < n; i++) {
				t.part = slot + i * size;
				for (int32_t r = 0; r < t.rows; r++)
					join(&t, r, begin + (int32_t)i * SPAN, t.part[out + r], t.part[out + t.rows + r]);
			}
			finish(&t);
		}
	}
}

/* tile.h: the pieces that attention is cut into, and the addresses of their keys and values. */
#ifndef VAPP_CPU_ATTENTION_TILE_H
#define VAPP_CPU_ATTENTION_TILE_H
#include <stddef.h>
#include <stdint.h>

#include "../shared/inline.h"
#include "../shared/kernels.h"
#include "../shared/vec.h"

#define BLOCK 16
#define SPAN VAPP_ATTENTION_SPAN
#define ROW (SPAN + BLOCK) /* of scores: the extra block keeps rows from competing for one cache set */
#define TILE VAPP_ATTENTION_TILE
#define PASS VAPP_ATTENTION_PASS
#define NV (BLOCK / VW) /* vectors in a block of keys */

/* view holds the addresses of a span's blocks in pages, for one head. */
typedef struct {
	int32_t seq, head, at, blocks;
	const uint8_t *k[SPAN / BLOCK], *v[SPAN / BLOCK];
} view;

/* tile is the queries of one piece of work and its buffers. */
typedef struct {
	const vapp_attention *a;
	int32_t seq, head;     /* head counts the groups of all KV heads */
	int32_t begin, end;    /* the sequence's rows */
	int32_t token, tokens; /* the tile's first token and number of tokens */
	int32_t history;       /* positions below it are in pages */
	int32_t first_block;   /* the block that the page table begins with */
	int32_t rows, group;   /* rows = tokens · group: query heads that are computed together */
	int32_t groups, heads; /* groups of a KV head, and of all */
	int32_t most;          /* rows of a tile, at most TILE */
	int32_t from, to;      /* positions that some row sees; from is the start of a block */
	int32_t dim, wide;     /* dimension of a value; rounded up to 16 */
	int32_t key, key_wide; /* of a key, with the latent dimensions */
	int32_t decode;        /* the rows are of a sequence's only token, and read the pages directly */
	float *q;              /* [TILE][key_wide] */
	float *k;              /* a block of floats [key_wide][BLOCK], or a span of bf16 as pairs of dimensions */
	float *v;              /* a block of floats [BLOCK][wide], or a span of bf16 as pairs of keys */
	float *score;          /* [PASS][ROW]: those rows that are computed at a time */
	float *part, *out;     /* [TILE][wide]: result of the span, of all spans */
	float *top, *sum;      /* [TILE] of all spans */
	view now, ahead;       /* of the current span and of the next piece */
	int32_t low[TILE], high[TILE]; /* a row sees the positions [low, high) */
	int32_t codes_ready;                 /* codes is filled: the tables from 8-bit floats to bf16 */
	uint8_t codes[384];
} tile;

/* until returns the position behind a row's own, or behind all if it sees later ones. */
static int32_t until(const tile *t, int32_t row)
{
	return t->history + (t->a->bidirectional ? t->end : t->token + row / t->group + 1) - t->begin;
}

/* high is until, or the end of the row's item. It does not fall from row to row, since items follow
 * one another. */
static int32_t high(const tile *t, int32_t row)
{
	int32_t n = until(t, row), item = t->a->items ? t->a->items[t->token + row / t->group] : 0;
	return item > n ? item : n;
}

static int32_t low(const tile *t, int32_t row)
{
	int32_t n = until(t, row) - t->a->window;
	if (t->a->pages.chunked)
		return (until(t, row) - 1) / t->a->window * t->a->window;
	return t->a->window && n > 0 ? n : 0;
}

static int32_t within(int32_t x, int32_t from, int32_t to) { return x < from ? from : x > to ? to : x; }

/* seen sets [from, to) to the keys of [at, at+n) that a row sees, counted from at, and reports
 * whether there are any. */
INLINE int seen(const tile *t, int32_t row, int32_t at, int32_t n, int32_t *from, int32_t *to)
{
	*from = within(t->low[row] - at, 0, n), *to = within(t->high[row] - at, 0, n);
	return *from < *to;
}

/* locate_blocks fills w for the positions [at, end) of a group; at is the start of a block. */
static void locate_blocks(const tile *t, int32_t head, int32_t at, int32_t end, view *w)
{
	const vapp_pages *p = &t->a->pages;
	int64_t e = vapp_element(p->format), kv = head / t->groups;
	w->seq = t->seq, w->head = head, w->at = at, w->blocks = 0;
	for (; at < end && at < t->history; at += BLOCK, w->blocks++) {
		int64_t slot = at % p->block;
		const uint8_t *page = vapp_page(p, p->table[(int64_t)t->seq * p->width + at / p->block - t->first_block]);
		w->k[w->blocks] = page + p->k + (kv * p->key_dim * p->block + slot) * e;
		w->v[w->blocks] = page + p->v + (kv * p->block + slot) * t->dim * e;
	}
}

/* own_dim returns how many numbers of a key K has. */
static int32_t own_dim(const tile *t) { return t->a->latent ? t->a->latent : t->dim; }

/* own returns the address of this step's own row of K or V (side), which has dim numbers, for a
 * position. */
static const uint8_t *own(const tile *t, const void *side, int32_t dim, int32_t pos)
{
	const vapp_pages *p = &t->a->pages;
	int64_t row = (int64_t)t->begin + pos - t->history;
	return (const uint8_t *)side + (row * p->kv_heads + t->head / t->groups) * dim * vapp_element(p->format);
}

static const uint8_t *own_key_of(const tile *t, int32_t pos) { return own(t, t->a->k, own_dim(t), pos); }
static const uint8_t *own_value_of(const tile *t, int32_t pos) { return own(t, t->a->v, t->dim, pos); }

/* While one block is computed, the lines of the next block of keys are prefetched into the
 * second cache, a few with each key. More outstanding requests than a core supports would stall
 * it. */
typedef struct {
	const uint8_t *at; /* NULL: prefetch nothing */
	int64_t step;
	int32_t each; /* lines for each key */
} prefetch_plan;

static prefetch_plan plan_key_prefetch(const tile *t, const uint8_t *k)
{
	const vapp_pages *p = &t->a->pages;
	int64_t row = p->block * vapp_element(p->format), lines = row < 64 ? (p->key_dim * row + 63) / 64 : p->key_dim;
	return (prefetch_plan){k, row < 64 ? 64 : row, (int32_t)((lines + BLOCK - 1) / BLOCK)};
}

INLINE const uint8_t *prefetch_lines(prefetch_plan a, const uint8_t *at)
{
	for (int32_t i = 0; i < a.each; i++, at += a.step)
		__builtin_prefetch(at, 0, 2);
	return at;
}

/* enter_span sets the view of a span, and that of the next piece: the same group's next span or
 * the next group's first. */
static void enter_span(tile *t, int32_t at, int32_t end)
{
	int prefetched = t->ahead.seq == t->seq && t->ahead.head == t->head && t->ahead.at == at;
	if (prefetched)
		t->now = t->ahead;
	else
		locate_blocks(t, t->head, at, end, &t->now);
	for (int32_t i = 0; !prefetched && i < t->now.blocks; i++) {
		prefetch_plan a = plan_key_prefetch(t, t->now.k[i]);
		for (int j = 0; j < BLOCK; j++)
			a.at = prefetch_lines(a, a.at);
	}
	int32_t to = end + SPAN < t->to ? end + SPAN : t->to, first = (t->from / SPAN + 1) * SPAN;
	t->ahead.seq = -1, t->ahead.blocks = 0;
	if (end < t->to)
		locate_blocks(t, t->head, end, to, &t->ahead);
	else if (t->head + 1 < t->heads)
		locate_blocks(t, t->head + 1, t->from, first < t->to ? first : t->to, &t->ahead);
}

#endif

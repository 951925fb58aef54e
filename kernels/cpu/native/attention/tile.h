/* attention_tile.h: the pieces that attention is cut into, and where their keys and
 * values lie. */
#ifndef VAPP_CPU_ATTENTION_TILE_H
#define VAPP_CPU_ATTENTION_TILE_H
#include <stddef.h>
#include <stdint.h>

#include "../shared/inline.h"
#include "../shared/kernels.h"
#include "../shared/vec.h"

#define BLOCK 16
#define SPAN VAPP_ATTENTION_SPAN
#define ROW (SPAN + BLOCK) /* of scores: rows do not fall on the same lines of a cache */
#define TILE VAPP_ATTENTION_TILE
#define NV (BLOCK / VW) /* vectors in a block of keys */

/* view is where the blocks of a span lie that pages hold, of one head. */
typedef struct {
	int32_t seq, head, at, blocks;
	const uint8_t *k[SPAN / BLOCK], *v[SPAN / BLOCK];
} view;

/* tile is the queries of one piece of work and the room it needs. */
typedef struct {
	const vapp_attention *a;
	int32_t seq, head;     /* of K and V */
	int32_t begin, end;    /* the sequence's rows */
	int32_t token, tokens; /* the tile's first row and how many */
	int32_t history;       /* positions below it are in pages */
	int32_t first_block;   /* the block that the page table begins with */
	int32_t rows, group;   /* rows = tokens · group */
	int32_t from, to;      /* positions that some row sees, from a whole block on */
	int32_t dim, wide;     /* head dimension; rounded up to 16 */
	int32_t decode;        /* the rows are a sequence's only token's, and read pages as they are */
	float *q;              /* [TILE][wide] */
	float *k;              /* [wide][BLOCK] */
	float *v;              /* [BLOCK][wide] */
	float *score;          /* [TILE][ROW] */
	float *part, *out;     /* [TILE][wide]: of the span, of all spans */
	float *top, *sum;      /* [TILE] of all spans */
	view now, ahead;       /* of the span at work, and of what comes next */
	int32_t low[TILE], high[TILE]; /* a row sees [low, high) */
	int32_t codes_ready;                 /* codes are there: what numbers of 8 bits are as bf16 */
	uint8_t codes[384];
} tile;

static int32_t high(const tile *t, int32_t row)
{
	return t->history + (t->a->bidirectional ? t->end : t->token + row / t->group + 1) - t->begin;
}

static int32_t low(const tile *t, int32_t row)
{
	int32_t n = high(t, row) - t->a->window;
	return t->a->window && n > 0 ? n : 0;
}

static int32_t within(int32_t x, int32_t from, int32_t to) { return x < from ? from : x > to ? to : x; }

/* seen says which keys of [at, at+n) a row sees: [from, to), counted from at. */
INLINE int seen(const tile *t, int32_t row, int32_t at, int32_t n, int32_t *from, int32_t *to)
{
	*from = within(t->low[row] - at, 0, n), *to = within(t->high[row] - at, 0, n);
	return *from < *to;
}

/* place fills w for the positions [at, end) of a head, at a whole block. */
static void locate_blocks(const tile *t, int32_t head, int32_t at, int32_t end, view *w)
{
	const vapp_pages *p = &t->a->pages;
	int64_t e = vapp_element(p->format);
	w->seq = t->seq, w->head = head, w->at = at, w->blocks = 0;
	for (; at < end && at < t->history; at += BLOCK, w->blocks++) {
		int64_t slot = at % p->block;
		const uint8_t *page = vapp_page(p, p->table[(int64_t)t->seq * p->width + at / p->block - t->first_block]);
		w->k[w->blocks] = page + p->k + (head * (int64_t)p->key_dim * p->block + slot) * e;
		w->v[w->blocks] = page + p->v + (head * (int64_t)p->block + slot) * t->dim * e;
	}
}

/* own is where the step's own row of a position lies in K or V. */
static const uint8_t *own(const tile *t, const void *side, int32_t pos)
{
	const vapp_pages *p = &t->a->pages;
	int64_t row = (int64_t)t->begin + pos - t->history;
	return (const uint8_t *)side + (row * p->kv_heads + t->head) * t->dim * vapp_element(p->format);
}

/* Lines of a block of keys in a page are asked for, into the second cache, while another
 * block is at work, a few with each of its keys: more at once than a core has
 * on their way hold it up. */
typedef struct {
	const uint8_t *at; /* or NULL: nothing is asked for */
	int64_t step;
	int32_t each; /* lines with a key */
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

/* enter moves to a span: where its blocks lie, and those of what comes after it, the
 * same head's next span or the next head's first. */
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
	else if (t->head + 1 < t->a->pages.kv_heads)
		locate_blocks(t, t->head + 1, t->from, first < t->to ? first : t->to, &t->ahead);
}

#endif

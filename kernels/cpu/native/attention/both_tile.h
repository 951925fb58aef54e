/* both_tile.h: the pieces of attention without a mask (both.h, both_pairs.h, both_amx.h): tiles of queries of
 * one head, which the parts take from one counter. */
#ifndef VAPP_CPU_ATTENTION_BOTH_TILE_H
#define VAPP_CPU_ATTENTION_BOTH_TILE_H
#include <stdint.h>

#include "../shared/inline.h"
#include "../shared/kernels.h"

#define BOTH_TILE VAPP_ATTENTION_TILE
#define BOTH_LEAST 48 /* queries of a tile where the threads would have few; BOTH_TILE is a multiple */

/* sees_all reports whether each row of a sequence sees all of its keys, and nothing else changes
 * a score. */
INLINE int sees_all(const vapp_attention *a)
{
	return a->bidirectional && !a->window && !a->sinks && !a->items && !a->accepted_row && !(a->softcap > 0);
}

/* both is a tile and its buffers. */
typedef struct {
	const vapp_attention *a;
	int32_t seq, seqs;  /* the sequence, and how many there are */
	int64_t begin, n;   /* its first row, and its rows */
	int64_t token, rows; /* the tile's */
	int32_t head, dim;
	int64_t wide, key_wide; /* dim in buffers, of results and values and of keys */
	float *q, *k, *v, *score, *out, *top, *sum;
} both;

/* both_side is where K or V of the tile's head has its first row, where the array ends, and the
 * bytes from one row to the next. */
typedef struct {
	const uint8_t *at, *end;
	int64_t step;
} both_side;

INLINE both_side both_rows(const both *t, const void *side, int64_t at)
{
	const vapp_pages *p = &t->a->pages;
	const int64_t each = t->dim * vapp_element(p->format), step = p->kv_heads * each;
	const uint8_t *first = (const uint8_t *)side + t->begin * step;
	return (both_side){first + at * step + t->head / (t->a->heads / p->kv_heads) * each, first + t->n * step, step};
}

INLINE both_side both_keys(const both *t, int64_t at) { return both_rows(t, t->a->k, at); }
INLINE both_side both_values(const both *t, int64_t at) { return both_rows(t, t->a->v, at); }

/* both_row returns where the numbers of a row of the tile begin, in q and y. */
INLINE int64_t both_row(const both *t, int64_t r)
{
	return ((t->begin + t->token + r) * t->a->heads + t->head) * t->dim;
}

/* both_find sets t to a tile of up to `rows` queries, and reports whether there is one of this
 * number. Tiles of a head follow one another. With number −1 it sets *tiles to how many there are. */
static int both_find(both *t, const vapp_call *c, int64_t rows, int64_t number, int64_t *tiles)
{
	const vapp_attention *a = t->a;
	int64_t before = 0;
	for (int32_t s = 0; s < c->rows[VAPP_SEQS]; s++) {
		const int64_t n = a->first[s + 1] - a->first[s], each = (n + rows - 1) / rows, own = each * a->heads;
		if (number >= before && number < before + own) {
			t->seq = s, t->begin = a->first[s], t->n = n;
			t->head = (int32_t)((number - before) / each), t->token = (number - before) % each * rows;
			t->rows = n - t->token < rows ? n - t->token : rows;
			return 1;
		}
		before += own;
	}
	*tiles = before;
	return 0;
}

/* both_tile_rows returns the queries of a tile: fewer where the threads would have few tiles. */
static int64_t both_tile_rows(both *t, const vapp_call *c)
{
	int64_t rows = BOTH_TILE, tiles = 0;
	for (; rows > BOTH_LEAST; rows /= 2) {
		both_find(t, c, rows, -1, &tiles);
		if (tiles >= 8 * t->a->threads)
			break;
	}
	return rows;
}

/* both_attention runs the tiles that a part takes: from c->taken, else a fixed share. */
INLINE void both_attention(void (*buffers)(both *, int), void (*run)(const both *), const vapp_attention *a, const vapp_call *c)
{
	both t = {.a = a, .dim = a->pages.head_dim, .seqs = c->rows[VAPP_SEQS]};
	const int64_t rows = both_tile_rows(&t, c);
	int64_t tiles = 0, at, to;
	both_find(&t, c, rows, -1, &tiles);
	vapp_share(tiles, c, &at, &to);
	buffers(&t, c->part);
	for (;;) {
		const int64_t number = c->taken ? __atomic_fetch_add(c->taken, 1, __ATOMIC_RELAXED) : at < to ? at++ : tiles;
		if (number >= tiles || !both_find(&t, c, rows, number, &tiles))
			return;
		run(&t);
	}
}

#endif

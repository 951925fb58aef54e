/* tiles_count.c: the counts and the cache model of shared/tiles_count.h. */
#include <stdlib.h>
#include <string.h>

#include "shared/tiles_count.h"

enum { LINE = 64, NEAR_LINES = 48 * 1024 / LINE, FAR_LINES = 2048 * 1024 / LINE };

/* A cache: lines 1 to `used` in the order of use, and chains by a hash of their address. Line 0
 * closes the ring: its next is the line used last, its previous the one used longest ago. */
typedef struct {
	int32_t most, used, mask;
	struct line {
		uint64_t at;
		int32_t next, previous, chain;
	} *lines;
	int32_t *heads;
} cache;

typedef struct {
	vapp_tile_counts counts; /* first: vapp_tiles_counted points here */
	cache near, far;
} model;

__thread vapp_tile_counts *vapp_tiles_counted;

static int create(cache *c, int32_t most) {
	c->most = most, c->mask = 1;
	while (c->mask < 2 * most) c->mask *= 2;
	c->lines = calloc((size_t)most + 1, sizeof *c->lines);
	c->heads = calloc((size_t)c->mask, sizeof *c->heads);
	c->mask--;
	return c->lines && c->heads;
}

static int32_t *head(cache *c, uint64_t at) { return &c->heads[(at * 0x9e3779b97f4a7c15u >> 40) & (uint64_t)c->mask]; }

static int32_t find(cache *c, uint64_t at) {
	int32_t i = *head(c, at);
	while (i && c->lines[i].at != at) i = c->lines[i].chain;
	return i;
}

static void leave(cache *c, int32_t i) {
	c->lines[c->lines[i].previous].next = c->lines[i].next;
	c->lines[c->lines[i].next].previous = c->lines[i].previous;
}

static void enter(cache *c, int32_t i) {
	c->lines[i].next = c->lines[0].next, c->lines[i].previous = 0;
	c->lines[c->lines[0].next].previous = i;
	c->lines[0].next = i;
}

static void forget(cache *c, int32_t i) {
	int32_t *p = head(c, c->lines[i].at);
	while (*p != i) p = &c->lines[*p].chain;
	*p = c->lines[i].chain;
}

/* use makes a line the one used last and returns whether the cache had it. */
static int use(cache *c, uint64_t at) {
	int32_t i = find(c, at), had = i != 0;
	if (had) {
		leave(c, i);
	} else {
		if (c->used < c->most) {
			i = ++c->used;
		} else {
			leave(c, i = c->lines[0].previous);
			forget(c, i);
		}
		c->lines[i].at = at, c->lines[i].chain = *head(c, at);
		*head(c, at) = i;
	}
	enter(c, i);
	return had;
}

/* drop makes a line the first that the cache gives up, under an address that no line has. */
static void drop(cache *c, uint64_t at) {
	int32_t i = find(c, at);
	if (!i) return;
	leave(c, i);
	forget(c, i);
	c->lines[i].at = ~at, c->lines[i].chain = *head(c, ~at);
	*head(c, ~at) = i;
	c->lines[i].previous = c->lines[0].previous, c->lines[i].next = 0;
	c->lines[c->lines[0].previous].next = i;
	c->lines[0].previous = i;
}

int vapp_count_tiles(void) {
	vapp_tile_counts none;
	vapp_counted_tiles(&none);
	model *m = calloc(1, sizeof *m);
	if (!m) return 0;
	int ok = create(&m->near, NEAR_LINES) & create(&m->far, FAR_LINES);
	vapp_tiles_counted = &m->counts;
	return ok || (vapp_counted_tiles(&none), 0);
}

int vapp_counted_tiles(vapp_tile_counts *counts) {
	model *m = (model *)vapp_tiles_counted;
	if (!m) return 0;
	*counts = m->counts;
	free(m->near.lines), free(m->near.heads), free(m->far.lines), free(m->far.heads), free(m);
	vapp_tiles_counted = NULL;
	return 1;
}

void vapp_tiles_touch(int by, const void *p, int64_t n) {
	model *m = (model *)vapp_tiles_counted;
	uint64_t at = (uintptr_t)p / LINE, end = ((uintptr_t)p + (uint64_t)n - 1) / LINE;
	for (; n > 0 && at <= end; at++) {
		int level;
		if (by == VAPP_BY_FETCH) /* to the second cache only */
			level = find(&m->near, at) ? 0 : use(&m->far, at) ? 1 : 2;
		else
			level = use(&m->near, at) ? 0 : use(&m->far, at) ? 1 : 2;
		m->counts.bytes[by][level] += LINE;
	}
}

void vapp_tiles_past(const void *p, int64_t n) {
	model *m = (model *)vapp_tiles_counted;
	uint64_t at = (uintptr_t)p / LINE, end = ((uintptr_t)p + (uint64_t)n - 1) / LINE;
	for (; n > 0 && at <= end; at++) drop(&m->near, at), drop(&m->far, at);
	m->counts.streamed += n;
}

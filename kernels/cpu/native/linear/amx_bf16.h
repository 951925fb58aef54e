/* amx_bf16.h: Linear with AMX tiles for weights in BF16.
 *
 * x is rounded to bf16, to nearest even. A tile of sums takes 32 k at a time, in the order of k
 * and alike for every row, so a row's bits do not depend on other rows, chunks or parts. The
 * bias is added last.
 *
 * Rows come in pairs of row tiles. One pair (32 rows) reads weights once with its sums in tiles
 * over all k. More are cut into chunks of at most BF16_PAIRS pairs, and k into steps, so that
 * the x of a chunk and step stays in the second cache while all panels pass by. Within a step a
 * block of BF16_BLOCK k tiles of a panel stays in the first cache while the pairs multiply, and
 * the next block is fetched to the second. Sums wait in work between blocks; with several steps
 * those of up to BF16_GROUP panels do. Results of many rows are stored past the caches.
 *
 * shared holds x as [chunk][block][pair][k tile][1 or 2 row tiles][16][32]; with one row tile as
 * [k tile][rows][32]. Elements past the last k are zero. Rows past the last one are
 * uninitialized; they affect no other row. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "../shared/tiles.h"

#include "vec512.h"

#include "panel.h"

enum {
	BF16_AHEAD = 4096, /* bytes that few rows prefetch ahead */
	BF16_BLOCK_BYTES = BF16_BLOCK * TILE_K * PANEL * 2,
	BF16_PAIR_FLOATS = 4 * TILE_ROWS * TILE_ROWS,
};

/* work of a part: the last k tile of a panel, padded with zeros, and sums as [panel][pair][row
 * tile][half of the panel][16][16]. */
typedef struct {
	uint16_t tail[TILE_K * PANEL];
	float sums[][BF16_PAIR_FLOATS];
} bf16_workspace;

/* The cut of a product. */
typedef struct {
	const vapp_linear *a;
	int64_t ks, tiles, pairs, chunks; /* k tiles, also a part of one; row tiles, pairs and chunks of pairs */
	int64_t slices, granules, grain;  /* cuts of each chunk for the parts; groups of `grain` panels in a slice */
} bf16_cut;

static bf16_cut bf16_cut_of(const vapp_linear *a) {
	bf16_cut c = {.a = a, .ks = ((int64_t)a->in + TILE_K - 1) / TILE_K, .tiles = ((int64_t)a->rows + TILE_ROWS - 1) / TILE_ROWS};
	c.pairs = (c.tiles + 1) / 2;
	c.chunks = (c.pairs + BF16_PAIRS - 1) / BF16_PAIRS;
	return c;
}

/* bf16_steps returns into how many steps of k the x of so many pairs is cut. */
static int64_t bf16_steps(int64_t ks, int64_t pairs) {
	int64_t most = BF16_STEP_TILES / pairs;
	return pairs == 1 ? 1 : (ks + most - 1) / most;
}

/* bf16_x returns x of k tile k, a multiple of BF16_BLOCK, for a pair; n is the number of k
 * tiles of its block. The pair's other k tiles of the block follow. */
static uint8_t *bf16_x(const bf16_cut *c, int64_t pair, int64_t k, int64_t n) {
	int64_t chunk = 0;
	while (c->pairs * (chunk + 1) / c->chunks <= pair) chunk++;
	int64_t first = c->pairs * chunk / c->chunks, end = 2 * (c->pairs * (chunk + 1) / c->chunks);
	if (end > c->tiles) end = c->tiles;
	return (uint8_t *)c->a->shared + 1024 * (2 * first * c->ks + k * (end - 2 * first) + 2 * (pair - first) * n);
}

/* bf16_panel returns k tile k of a panel. */
static const uint8_t *bf16_panel(const bf16_cut *c, int64_t panel, int64_t k) {
	return panel_at(c->a, panel) + k * TILE_K * PANEL * 2;
}

/* bf16_whole returns how many of n k tiles from k on are in the panel; the rest, one at most, is
 * in work after bf16_tail. */
static int64_t bf16_whole(const bf16_cut *c, int64_t k, int64_t n) { return (k + n) * TILE_K > c->a->in ? n - 1 : n; }

FN static void bf16_tail(const bf16_cut *c, int64_t panel) {
	bf16_workspace *w = c->a->work;
	int64_t left = c->a->in % TILE_K, bytes = panel_k(VAPP_BF16, left);
	if (!left) return;
	memcpy(w->tail, bf16_panel(c, panel, c->ks - 1), bytes);
	memset((uint8_t *)w->tail + bytes, 0, sizeof w->tail - bytes);
}

/* What the products of a block fetch meanwhile: `lines` lines from `next` on with each k tile, to
 * the second cache, and the sums of the next pair, to the first. */
typedef struct {
	const uint8_t *next;
	const float *sums;
	int64_t lines;
} bf16_ahead;

FN static inline void bf16_fetch(bf16_ahead *f) {
	for (int64_t i = 0; i < f->lines; i++, f->next += 64) tile_fetch(f->next);
	if (!f->sums) return;
	for (int i = 0; i < 8; i++, f->sums += 16) tile_fetch_near(f->sums);
}

/* bf16_tile and bf16_pair multiply n k tiles of a panel with a row tile or a pair of them; x of
 * the next k tile is `step` bytes further. */
FN static inline void bf16_tile(const uint8_t *x, int64_t step, const uint8_t *b, int64_t n, bf16_ahead *f) {
	for (int64_t k = 0; k < n; k++, x += step, b += 2048) {
		bf16_fetch(f);
		tile_load(4, x, 64);
		tile_load(6, b, 128);
		tile_load(7, b + 64, 128);
		tile_products(0, 4, 6);
		tile_products(1, 4, 7);
	}
}

FN static inline void bf16_pair(const uint8_t *x, const uint8_t *b, int64_t n, bf16_ahead *f) {
	for (int64_t k = 0; k < n; k++, x += 2048, b += 2048) {
		bf16_fetch(f);
		tile_load(6, b, 128);
		tile_load(4, x, 64);
		tile_products(0, 4, 6);
		tile_load(7, b + 64, 128);
		tile_products(1, 4, 7);
		tile_load(5, x + 1024, 64);
		tile_products(2, 5, 6);
		tile_products(3, 5, 7);
	}
}

FN static inline void bf16_begin(const float *sums, int64_t tiles) {
	tiles_see_memory();
	if (!sums) {
		tile_zero(0);
		tile_zero(1);
		tile_zero(2);
		tile_zero(3);
		return;
	}
	tile_load(0, sums, 64);
	tile_load(1, sums + 256, 64);
	if (tiles < 2) return;
	tile_load(2, sums + 512, 64);
	tile_load(3, sums + 768, 64);
}

FN static inline void bf16_end(float *sums, int64_t tiles) {
	tile_store(0, sums, 64);
	tile_store(1, sums + 256, 64);
	if (tiles > 1) {
		tile_store(2, sums + 512, 64);
		tile_store(3, sums + 768, 64);
	}
	tiles_see_memory();
}

/* bf16_finish adds the bias to a panel's sums of the pairs [from, to) and writes the rows and
 * outputs that exist. */
FN static void bf16_finish(const bf16_cut *c, int64_t panel, int64_t from, int64_t to, const float *sums) {
	const vapp_linear *a = c->a;
	int64_t output = panel * PANEL, lanes = a->out - output, end = 2 * to * TILE_ROWS;
	vec lo = v_set(0), hi = lo;
	if (a->bias) lo = v_load_some(a->bias + output, lanes), hi = v_load_some(a->bias + output + LANES, lanes - LANES);
	for (int64_t r = 2 * from * TILE_ROWS; r < end && r < a->rows; r++) {
		const float *s = sums + (r / TILE_ROWS - 2 * from) * 512 + r % TILE_ROWS * 16;
		float *y = a->y + r * a->ldy + output;
		vec u = v_load(s), v = v_load(s + 256);
		count_read(s, 64);
		count_read(s + 256, 64);
		if (a->bias) u = v_add(u, lo), v = v_add(v, hi);
		if (a->rows > BF16_STREAM_ROWS && lanes >= PANEL && (uintptr_t)y % 64 == 0) {
			tile_stream(y, u);
			tile_stream(y + LANES, v);
		} else {
			count_stored(y, lanes < PANEL ? lanes * 4 : PANEL * 4);
			v_store_some(y, lanes, u);
			v_store_some(y + LANES, lanes - LANES, v);
		}
	}
}

/* bf16_few multiplies a panel with one pair, or one row tile, over all k. */
FN static __attribute__((noinline)) void bf16_few(const bf16_cut *c, int64_t panel, int64_t pair) {
	bf16_workspace *w = c->a->work;
	int64_t tiles = c->tiles - 2 * pair < 2 ? 1 : 2, step = c->tiles == 1 ? c->a->rows * 64 : 1024;
	bf16_tail(c, panel);
	bf16_begin(NULL, tiles);
	for (int64_t k = 0, n; k < c->ks; k += n) {
		n = c->tiles <= 2 ? c->ks : c->ks - k < BF16_BLOCK ? c->ks - k : BF16_BLOCK;
		const uint8_t *x = c->tiles == 1 ? c->a->shared : bf16_x(c, pair, k, n), *b = bf16_panel(c, panel, k);
		int64_t whole = bf16_whole(c, k, n);
		for (int64_t i = 0; i < n; i++) {
			const uint8_t *at = i < whole ? b + i * 2048 : (const uint8_t *)w->tail;
			bf16_ahead none = {0};
			for (int j = 0; j < 2048; j += 64) tile_fetch_near(b + i * 2048 + BF16_AHEAD + j);
			if (tiles == 1) bf16_tile(x + i * step, 0, at, 1, &none);
			else bf16_pair(x + i * 2048, at, 1, &none);
		}
	}
	bf16_end(w->sums[0], tiles);
	bf16_finish(c, panel, pair, pair + 1, w->sums[0]);
}

/* bf16_block multiplies k tiles [k, k + n) of a panel with the pairs [from, to) and fetches the
 * next block meanwhile (NULL: none). */
FN static __attribute__((noinline)) void bf16_block(const bf16_cut *c, int64_t panel, int64_t k, int64_t n, int64_t from, int64_t to, float (*sums)[BF16_PAIR_FLOATS], const uint8_t *next) {
	bf16_workspace *w = c->a->work;
	const uint8_t *b = bf16_panel(c, panel, k);
	int64_t whole = bf16_whole(c, k, n), slots = n * (to - from);
	bf16_ahead f = {.next = next, .lines = next ? (BF16_BLOCK_BYTES / 64 + slots - 1) / slots : 0};
	if (whole < n) bf16_tail(c, panel);
	const uint8_t *x = bf16_x(c, from, k, n);
	for (int64_t p = from; p < to; p++, x += n * 2048) {
		float *s = sums[p - from];
		int64_t tiles = c->tiles - 2 * p < 2 ? 1 : 2;
		f.sums = k > 0 && p + 1 < to ? s + BF16_PAIR_FLOATS : NULL;
		bf16_begin(k ? s : NULL, tiles);
		if (tiles == 1) {
			bf16_tile(x, 1024, b, whole, &f);
			if (whole < n) bf16_tile(x + whole * 1024, 0, (const uint8_t *)w->tail, 1, &f);
		} else {
			bf16_pair(x, b, whole, &f);
			if (whole < n) bf16_pair(x + whole * 2048, (const uint8_t *)w->tail, 1, &f);
		}
		bf16_end(s, tiles);
	}
}

/* bf16_many multiplies panels [p0, p1) with the pairs [from, to) of a chunk. */
FN static void bf16_many(const bf16_cut *c, int64_t p0, int64_t p1, int64_t from, int64_t to) {
	bf16_workspace *w = c->a->work;
	int64_t pairs = to - from, blocks = (c->ks + BF16_BLOCK - 1) / BF16_BLOCK, steps = bf16_steps(c->ks, pairs), group = 1;
	if (steps > 1) {
		group = (c->a->work_bytes - (int64_t)sizeof *w) / (pairs * (int64_t)sizeof *w->sums);
		group = group < 1 ? 1 : group < BF16_GROUP ? group : BF16_GROUP;
	}
	for (int64_t g0 = p0, g1; g0 < p1; g0 = g1) {
		g1 = p1 - g0 < group ? p1 : g0 + group;
		for (int64_t s = 0; s < steps; s++) {
			int64_t first = blocks * s / steps, last = blocks * (s + 1) / steps;
			for (int64_t p = g0; p < g1; p++) {
				float(*sums)[BF16_PAIR_FLOATS] = w->sums + (p - g0) * pairs;
				for (int64_t i = first; i < last; i++) {
					int64_t k = i * BF16_BLOCK, n = c->ks - k < BF16_BLOCK ? c->ks - k : BF16_BLOCK;
					const uint8_t *next = NULL;
					if (i + 1 < last) next = bf16_panel(c, p, k + n);
					else if (p + 1 < g1) next = bf16_panel(c, p + 1, first * BF16_BLOCK);
					else if (s + 1 < steps) next = bf16_panel(c, g0, last * BF16_BLOCK);
					else if (g1 < p1) next = bf16_panel(c, g1, 0);
					bf16_block(c, p, k, n, from, to, sums, next);
				}
				if (last == blocks) bf16_finish(c, p, from, to, sums[0]);
			}
		}
	}
}

/* bf16_slice computes granules [g0, g1) of a slice. */
FN static void bf16_slice(const bf16_cut *c, int64_t slice, int64_t g0, int64_t g1) {
	int64_t panels = panels_of(c->a), p0 = g0 * c->grain, p1 = g1 * c->grain < panels ? g1 * c->grain : panels;
	int64_t chunk = slice / c->slices, i = slice % c->slices, first = c->pairs * chunk / c->chunks;
	int64_t pairs = c->pairs * (chunk + 1) / c->chunks - first, from = first + pairs * i / c->slices, to = first + pairs * (i + 1) / c->slices;
	if (to - from > 1) bf16_many(c, p0, p1, from, to);
	else
		for (; p0 < p1; p0++) bf16_few(c, p0, from);
}

/* bf16_run takes ranges of granules, slice by slice, so that a part keeps the x of a chunk. */
FN static void bf16_run(const vapp_linear *a, int part, int parts) {
	bf16_cut c = bf16_cut_of(a);
	int64_t panels = panels_of(a), least = c.pairs / c.chunks;
	if (panels == 0) return;
	/* Few panels for many parts: rows are cut further. */
	c.slices = (4 * (int64_t)parts + panels * c.chunks - 1) / (panels * c.chunks);
	c.slices = c.slices < least ? c.slices : least;
	/* Steps of k read x again for each range, so the shortest range grows with the panels there are. */
	c.grain = bf16_steps(c.ks, least) > 1 ? panels * c.chunks * c.slices / (8 * parts) : 1;
	c.grain = c.grain < 1 ? 1 : c.grain < BF16_GRAIN ? c.grain : BF16_GRAIN;
	c.granules = (panels + c.grain - 1) / c.grain;
	/* Parts of several nodes take granules with all their slices, near the panels; else slices come
	 * one after the other. */
	int64_t all = c.chunks * c.slices, near = a->nodes.nodes > 1 ? all : 1;
	linear_grid g = {.chunks = near, .units = all * c.granules, .parts = parts};
	if (!a->taken) g.next = g.units * part / parts, g.last = g.units * (part + 1) / parts;
	tiles_begin_rows(a->rows < TILE_ROWS ? a->rows : TILE_ROWS);
	while (g.next < g.last || linear_take(a, &g)) {
		if (near > 1) {
			for (int64_t s = 0; s < all; s++) {
				int64_t g0 = (g.next - s + all - 1) / all, g1 = (g.last - s + all - 1) / all;
				if (g0 < g1) bf16_slice(&c, s, g0, g1);
			}
			g.next = g.last;
			continue;
		}
		int64_t slice = g.next / c.granules, end = (slice + 1) * c.granules;
		if (end > g.last) end = g.last;
		bf16_slice(&c, slice, g.next - slice * c.granules, end - slice * c.granules);
		g.next = end;
	}
	tiles_end();
	if (a->rows > BF16_STREAM_ROWS) _mm_sfence(); /* other parts read y */
}

/* bf16_prepare rounds x. A unit is a row tile and a k tile. */
FN static void bf16_prepare(const vapp_linear *a, int part, int parts) {
	bf16_cut c = bf16_cut_of(a);
	int64_t units = c.tiles * c.ks;
	for (int64_t u = units * part / parts; u < units * (part + 1) / parts; u++) {
		int64_t t = u / c.ks, k = u % c.ks, block = k / BF16_BLOCK * BF16_BLOCK, row0 = t * TILE_ROWS;
		int64_t n = c.ks - block < BF16_BLOCK ? c.ks - block : BF16_BLOCK, both = c.tiles - t / 2 * 2 < 2 ? 1 : 2;
		uint8_t *to = c.tiles == 1 ? (uint8_t *)a->shared + k * a->rows * 64
		                           : bf16_x(&c, t / 2, block, n) + ((k - block) * both + t % 2) * 1024;
		for (int64_t r = row0; r < a->rows && r < row0 + TILE_ROWS; r++, to += 64) {
			const float *x = a->x + r * a->ldx + k * TILE_K;
			vec lo = v_load_some(x, a->in - k * TILE_K), hi = v_load_some(x + 16, a->in - k * TILE_K - 16);
			count_read(x, 128);
			count_stored(to, 64);
			_mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(hi, lo));
		}
	}
}

static const vapp_linear_kernel bf16_kernel = {bf16_prepare, 1, bf16_run, vapp_linear_row};

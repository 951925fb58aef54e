/* amx_quant_tiles.h: the tiles of amx_quant.h, for more rows than vectors take.
 *
 * Up to two row tiles: weights go through a ring of KTILES k tiles, multiplied two behind the
 * unpacking, and sums stay in tiles over all k. More row tiles: KTILES k tiles are unpacked, and
 * all row tiles of a chunk multiply them, two at a time. Chunks are outermost, so that x of a
 * chunk stays in the second cache while all panels pass; of long rows QUANT_SPAN k tiles at a
 * time, for QUANT_PANELS panels whose sums wait in work. The order of sums is the same. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "../shared/tiles.h"

#define TILE 1 /* for unpack.h, which multiplies nothing here */
#define PAIR 1
#include "vec512.h"

#include "amx_quant.h"
#include "unpack.h"

/* Tiles 0 to 3 are sums. Some compilers accept only literal numbers. */
#define A0 4
#define A1 5
#define B0 6
#define B1 7

enum { LAG = 2 /* k tiles that products are behind the unpacking */ };

/* Row tiles [t0, t1) of some panels. */
typedef struct {
	const quant_kernel *q;
	const vapp_linear *a;
	quant_work *w;
	const uint8_t *x; /* of t0 */
	int64_t far;      /* bytes of a row tile of x */
	int64_t t0, t1, ks;
} quant_job;

#define SUMS (2 * TILE_ROWS * TILE_ROWS) /* floats of a row tile's sums of a panel */

FN_INLINE void load_sums(const float *sums, int two) {
	tile_load(0, sums, 64);
	tile_load(1, sums + 256, 64);
	if (!two) return;
	tile_load(2, sums + 512, 64);
	tile_load(3, sums + 768, 64);
}

FN_INLINE void store_sums(float *sums, int two) {
	tile_store(0, sums, 64);
	tile_store(1, sums + 256, 64);
	if (!two) return;
	tile_store(2, sums + 512, 64);
	tile_store(3, sums + 768, 64);
}

FN_INLINE void zero_sums(int two) {
	tile_zero(0);
	tile_zero(1);
	if (!two) return;
	tile_zero(2);
	tile_zero(3);
}

/* multiply adds the products of a k tile of one or two row tiles. */
FN_INLINE void multiply(const uint8_t *x, int64_t far, const uint16_t pairs[2][TILE_ROWS * TILE_K], int two) {
	tile_load(B0, pairs[0], 64);
	tile_load(A0, x, 64);
	tile_products(0, A0, B0);
	tile_load(B1, pairs[1], 64);
	tile_products(1, A0, B1);
	if (!two) return;
	tile_load(A1, x + far, 64);
	tile_products(2, A1, B0);
	tile_products(3, A1, B1);
}

/* finish adds the bias to the sums of row tile t and writes the rows and outputs that exist. Many
 * rows are written past the caches, which x and the weights need. */
FN static void finish(const vapp_linear *a, int outside, int64_t panel, int64_t t, const float *sums) {
	int64_t rows = a->rows - t * TILE_ROWS < TILE_ROWS ? a->rows - t * TILE_ROWS : TILE_ROWS;
	for (int v = 0; v < 2; v++) {
		int64_t output = panel * PANEL + 16 * v, lanes = a->out - output;
		vec bias = a->bias ? v_load_some(a->bias + output, lanes) : v_set(0);
		vec d = outside || !scaled_last(a->format) ? v_set(1) : v_sum_scale(a, panel, 16 * v);
		for (int64_t r = 0; r < rows; r++) {
			vec sum = v_mul(v_load(sums + 256 * v + 16 * r), d);
			float *y = a->y + (t * TILE_ROWS + r) * a->ldy + output;
			if (a->bias) sum = v_add(sum, bias);
			count_read(sums + 256 * v + 16 * r, 64);
			if (a->rows > BF16_STREAM_ROWS && lanes >= LANES && !((uintptr_t)y & 63)) {
				tile_stream(y, sum);
			} else {
				count_stored(y, lanes < LANES ? lanes * 4 : 64);
				v_store_some(y, lanes, sum);
			}
		}
	}
}

/* unpack_ring writes n k tiles of a panel, from t on, to the ring. */
FN static void unpack_ring(const quant_job *j, int64_t panel, int64_t t, int64_t n, int near) {
	quant_ring *ring = &j->w->ring;
	count_read(panel_at(j->a, panel) + panel_bytes(j->a->format, j->a->in) * t / j->ks, panel_bytes(j->a->format, j->a->in) * n / j->ks);
	count_stored(ring->pairs[t % KTILES], n * (int64_t)sizeof ring->pairs[0]);
	j->q->unpack(j->a, panel, t, n, near, ring);
}

/* through_ring computes a panel for one or two row tiles. */
FN_INLINE void through_ring(const quant_job *j, int64_t panel, int two) {
	quant_ring *ring = &j->w->ring;
	zero_sums(two);
	for (int64_t k = 0; k < j->ks + LAG; k += LAG) {
		if (k < j->ks) unpack_ring(j, panel, k, j->ks - k < LAG ? j->ks - k : LAG, 1);
		tiles_see_memory();
		for (int64_t i = k - LAG; i >= 0 && i < k && i < j->ks; i++) multiply(j->x + i * 1024, j->far, (const void *)ring->pairs[i % KTILES], two);
	}
	store_sums(j->w->totals, two);
	tiles_see_memory();
}

FN static void ring_one(const quant_job *j, int64_t panel) { through_ring(j, panel, 0); }
FN static void ring_two(const quant_job *j, int64_t panel) { through_ring(j, panel, 1); }

/* block multiplies n unpacked k tiles, from k on, with all row tiles; meanwhile it fetches the
 * next weights, `lines` lines for each k tile of a pair. */
FN static void block(const quant_job *j, int64_t k, int64_t n, float *totals, const uint8_t *next, int lines) {
	const quant_ring *ring = &j->w->ring;
	for (int64_t t = 0; t < j->t1 - j->t0; t += 2, totals += 2 * SUMS) {
		const int two = t + 1 < j->t1 - j->t0;
		const uint8_t *x = j->x + t * j->far + k * 1024;
		tiles_see_memory();
		if (k) load_sums(totals, two);
		else zero_sums(two);
		for (int64_t i = 0; i < n; i++, x += 1024) {
			if (two) multiply(x, j->far, (const void *)ring->pairs[i], 1);
			else multiply(x, 0, (const void *)ring->pairs[i], 0);
			for (int l = 0; l < lines; l++, next += 64) tile_fetch(next);
		}
		store_sums(totals, two);
		tiles_see_memory();
	}
}

/* add_scaled adds n scaled sums of 32 k's, from k on, to a row tile's totals of half a panel. */
FN static void add_scaled(const quant_job *j, int64_t k, int64_t n, int v, int rows, const uint8_t *x, float *total) {
	const quant_work *w = j->w;
	const int least = quant_minimum(j->a->format);
	const float *sums = (const float *)(x + j->ks * 1024) + k * TILE_ROWS;
	count_read(w->sums, n * (int64_t)sizeof w->sums[0]);
	count_read(total, rows * 64);
	for (int r = 0; r < rows; r += 4) {
		vec t[4];
#pragma GCC unroll 4
		for (int i = 0; i < 4; i++) t[i] = k ? v_load(total + (r + i) * LANES) : v_set(0);
		for (int64_t g = 0; g < n; g++) {
			vec d = v_load(w->ring.d[g] + v * LANES), m = v_load(w->ring.m[g] + v * LANES);
#pragma GCC unroll 4
			for (int i = 0; i < 4; i++) {
				t[i] = v_fma(v_load(w->sums[g] + (r + i) * LANES), d, t[i]);
				if (least) t[i] = v_fma(v_set(sums[g * TILE_ROWS + r + i]), m, t[i]);
			}
		}
#pragma GCC unroll 4
		for (int i = 0; i < 4; i++) v_store(total + (r + i) * LANES, t[i]);
	}
}

/* block_outside is block for outside: sums of 32 k's, stored a product later, are scaled. */
FN static void block_outside(const quant_job *j, int64_t k, int64_t n, float *totals, const uint8_t *next, int lines) {
	quant_work *w = j->w;
	for (int64_t t = j->t0; t < j->t1; t++, totals += SUMS) {
		const uint8_t *x = j->x + (t - j->t0) * j->far;
		int rows = (int)(j->a->rows - t * TILE_ROWS < TILE_ROWS ? j->a->rows - t * TILE_ROWS : TILE_ROWS);
		for (int v = 0; v < 2; v++) {
			tiles_see_memory();
			for (int64_t i = 0; i < n; i += 2) {
				tile_load(A0, x + (k + i) * 1024, 64);
				tile_load(B0, w->ring.pairs[i][v], 64);
				tile_zero(0);
				tile_products(0, A0, B0);
				if (i) tile_store(1, w->sums[i - 1], 64);
				if (i + 1 < n) {
					tile_load(A1, x + (k + i + 1) * 1024, 64);
					tile_load(B1, w->ring.pairs[i + 1][v], 64);
					tile_zero(1);
					tile_products(1, A1, B1);
				}
				tile_store(0, w->sums[i], 64);
				for (int l = 0; l < lines; l++, next += 64) tile_fetch(next);
			}
			if (n % 2 == 0) tile_store(1, w->sums[n - 1], 64);
			tiles_see_memory();
			add_scaled(j, k, n, v, rows, x, totals + v * 256);
		}
	}
}

/* spans computes `panels` panels by blocks of k tiles, a span of x at a time. */
FN static void spans(const quant_job *j, int outside, int64_t panel, int64_t panels) {
	const int64_t tiles = j->t1 - j->t0, each = (tiles + 1) / 2 * 2 * SUMS;
	const int64_t bytes = KTILES * panel_bytes(j->a->format, j->a->in) / j->ks, steps = outside ? tiles * KTILES : (tiles + 1) / 2 * KTILES;
	const int lines = (int)((bytes / 64 + steps - 1) / steps);
	const int64_t whole = panels > 1 ? QUANT_SPAN : j->ks;
	for (int64_t s = 0; s < j->ks; s += whole)
		for (int64_t p = 0; p < panels; p++) {
			const uint8_t *next = panel_at(j->a, panel + p) + bytes;
			for (int64_t k = s; k < s + whole && k < j->ks; k += KTILES) {
				int64_t n = j->ks - k < KTILES ? j->ks - k : KTILES;
				unpack_ring(j, panel + p, k, n, tiles <= 2);
				if (outside) block_outside(j, k, n, j->w->totals + p * each, next + k / KTILES * bytes, lines);
				else block(j, k, n, j->w->totals + p * each, next + k / KTILES * bytes, lines);
			}
		}
}

/* panels_at computes row tiles [t0, t1) of some panels. */
FN static void panels_at(const quant_kernel *q, const vapp_linear *a, int outside, int64_t panel, int64_t panels, int64_t t0, int64_t t1) {
	quant_job j = {q, a, a->work, NULL, quant_x_bytes(a, outside), t0, t1, quant_tiles(a)};
	j.x = (const uint8_t *)a->shared + t0 * j.far;
	if (outside || t1 - t0 > 2) spans(&j, outside, panel, panels);
	else if (t1 - t0 == 2) ring_two(&j, panel);
	else ring_one(&j, panel);
	for (int64_t p = 0; p < panels; p++)
		for (int64_t t = t0; t < t1; t++) finish(a, outside, panel + p, t, j.w->totals + (p * ((t1 - t0 + 1) / 2 * 2) + t - t0) * SUMS);
}

FN static void run_tiles(const quant_kernel *q, const vapp_linear *a, int outside, int part, int parts) {
	linear_grid g = grid_of(a, TILE_ROWS, part, parts);
	int64_t panels = panels_of(a), chunks = (g.tiles + QUANT_CHUNK - 1) / QUANT_CHUNK, group = 1;
	if (chunks < g.chunks) chunks = g.chunks;
	/* Panels share a span of x where enough units are left for the parts. */
	if (quant_tiles(a) > QUANT_SPAN && (g.tiles + chunks - 1) / chunks > 2)
		while (2 * group <= QUANT_PANELS && chunks * panels >= 8 * group * parts) group *= 2;
	int64_t groups = (panels + group - 1) / group;
	/* Parts of several nodes take a group with all its chunks, near the panels; else chunks come one
	 * after the other. */
	int near = a->nodes.nodes > 1;
	g.units = groups * chunks;
	g.chunks = near ? chunks : 1;
	if (!a->taken) g.next = g.units * part / parts, g.last = g.units * (part + 1) / parts;
	unsigned csr = _mm_getcsr();
	_mm_setcsr(csr | 0x8040); /* denormals are zero, as in tiles */
	tiles_begin();
	for (int64_t u; (u = linear_unit(a, &g)) >= 0;) {
		int64_t c = near ? u % chunks : u / groups, first = (near ? u / chunks : u % groups) * group;
		panels_at(q, a, outside, first, panels - first < group ? panels - first : group, g.tiles * c / chunks, g.tiles * (c + 1) / chunks);
	}
	tiles_end();
	_mm_sfence();
	_mm_setcsr(csr);
}

FN static void run(const vapp_linear *a, int outside, int part, int parts) {
	const quant_kernel *q = vapp_quant_kernel(a->format, outside);
	if (a->rows <= q->most) vapp_quant_few(q, a, part, parts);
	else run_tiles(q, a, outside, part, parts);
}

FN static void run_inside(const vapp_linear *a, int part, int parts) { run(a, 0, part, parts); }
FN static void run_outside(const vapp_linear *a, int part, int parts) { run(a, 1, part, parts); }
static void prepare_inside(const vapp_linear *a, int part, int parts) { vapp_quant_prepare(a, 0, part, parts); }
static void prepare_outside(const vapp_linear *a, int part, int parts) { vapp_quant_prepare(a, 1, part, parts); }

static const vapp_linear_kernel *kernel_of(int format, int outside) {
	static const vapp_linear_kernel kernels[2][2] = {
	    {{prepare_inside, 3, run_inside, vapp_linear_row}, {prepare_inside, QUANT_FEW + 1, run_inside, vapp_linear_row}},
	    {{prepare_outside, 3, run_outside, vapp_linear_row}, {prepare_outside, QUANT_FEW + 1, run_outside, vapp_linear_row}}};
	const quant_kernel *q = vapp_quant_kernel(format, outside);
	return q ? &kernels[outside][q->most > 2] : NULL;
}

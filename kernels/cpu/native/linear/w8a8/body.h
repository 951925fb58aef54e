/* body.h: what all instruction sets share of w8a8.h. The including file defines W8_TILE, the
 * rows that it multiplies at once, w8_quantize and w8_tile. */
#include <stdint.h>

#include "../../shared/linear.h"
#include "../panel.h"
#include "w8a8.h"

/* A tile is some rows of x times a panel. */
typedef struct {
	const uint8_t *w;    /* [k/4][32][4], n k's */
	const float *scales; /* [32] */
	const int8_t *x;
	int64_t n, stride; /* bytes from one row of x to the next */
	const w8_tail *tails;
	float *y;
	int64_t ldy, lanes;
	const float *bias; /* of these outputs, or NULL */
} w8_part;

/* w8_quantize rounds a row of `in` numbers. */
static void w8_quantize(const float *x, int64_t in, int8_t *to);

/* w8_tile multiplies rows of x, at most W8_TILE, with a panel. */
static void w8_tile(const w8_part *p, int rows);

static void prepare(const vapp_linear *a, int part, int parts) {
	for (int64_t r = (int64_t)a->rows * part / parts; r < (int64_t)a->rows * (part + 1) / parts; r++)
		w8_quantize(a->x + r * a->ldx, a->in, (int8_t *)a->shared + r * w8_row_bytes(a->in));
}

/* Every part rounds a single row for itself: this is faster than sharing it. */
static void run(const vapp_linear *a, int part, int parts) {
	linear_grid g = grid_of(a, W8_TILE, part, parts);
	const int8_t *x = a->shared;
	int64_t stride = w8_row_bytes(a->in);
	w8_tail tails[W8_TILE];
	int64_t u = linear_unit(a, &g);
	if (u < 0) return;
	if (a->rows == 1) {
		w8_quantize(a->x, a->in, a->work);
		x = a->work;
	}
	for (; u >= 0; u = linear_unit(a, &g)) {
		int64_t panel = u / g.chunks, c = u % g.chunks, output = panel * PANEL;
		const uint8_t *w = (const uint8_t *)a->w + panel * w8_panel_bytes(a->in);
		for (int64_t t = g.tiles * c / g.chunks; t < g.tiles * (c + 1) / g.chunks; t++) {
			int64_t r0 = t * W8_TILE, rows = a->rows - r0 < W8_TILE ? a->rows - r0 : W8_TILE;
			for (int64_t r = 0; r < rows; r++) tails[r] = w8_tail_of(x + (r0 + r) * stride, a->in);
			w8_part p = {w, (const float *)(w + w8_k(a->in) * PANEL), x + r0 * stride, w8_k(a->in), stride, tails,
			             a->y + r0 * a->ldy + output, a->ldy, a->out - output, a->bias ? a->bias + output : NULL};
			w8_tile(&p, (int)rows);
		}
	}
}

static const vapp_linear_kernel kernel = {prepare, 2, run, vapp_linear_row_w8a8};

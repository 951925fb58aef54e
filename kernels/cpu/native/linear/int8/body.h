/* body.h: what all instruction sets share of Linear on int8 activations. The including file
 * defines FN (default: portable C), quantize_group, in_place, unpack_codes and int8_steps. */
#include <stdint.h>

#include "../../shared/linear.h"
#include "../panel.h"
#include "int8.h"

#if !defined(FN)
#define FN /* portable C */
#endif

/* One step: groups [g0, g1) of a panel and a tile of rows. */
typedef struct {
	const uint8_t *panel;
	const uint8_t *codes; /* of group g0 on, in the layout of Q8_0, if they were unpacked; else NULL */
	int64_t g0, g1;
	const int32_t *x; /* of group g0 on, [X_DWORDS][rows of a tile] for each group */
	float *y;         /* at this row and the panel's first output */
	int64_t ldy, lanes;
	const float *bias; /* of these outputs, in the last step; else NULL */
	const uint8_t *next; /* read after these groups: prefetched a little with each; NULL: nothing to prefetch */
	int tile, tiles;     /* this tile, and the number of tiles */
	int zeros;           /* heads have zero points */
} int8_step;

/* int8_steps computes a step for `rows` rows; tiles of x have `tile` rows: INT8_TILE, or 1 if
 * there is only one row. */
static void int8_steps(int32_t format, const int8_step *s, int rows, int tile);

/* in_place reports whether that many tiles of rows read the packed codes directly. */
static int in_place(int32_t format, int64_t tiles);

/* unpack_codes unpacks the codes of the step's groups for several tiles, or returns NULL. */
static const uint8_t *unpack_codes(int32_t format, const int8_step *s, uint8_t *to);

/* quantize_group does int8_quantize, in PLANES. */
FN static void quantize_group(const int8_codes c, const float *x, int rows, int32_t *to);

/* x_tile quantizes groups [g0, g1) of rows [r0, r1) to a tile of `tile` rows. */
FN static void x_tile(const vapp_linear *a, int64_t r0, int64_t r1, int64_t g0, int64_t g1, int tile, int32_t *to) {
	const int8_codes c = int8_codes_of(a->format);
	for (int64_t g = g0; g < g1; g++, to += X_DWORDS * tile)
		for (int64_t r = r0; r < r1; r++) quantize_group(c, a->x + r * a->ldx + g * GROUP, tile, to + (r - r0));
}

/* A unit of prepare is a tile's groups within INT8_BLOCK. */
FN static void prepare(const vapp_linear *a, int part, int parts) {
	int64_t groups = a->in / GROUP, some = INT8_BLOCK / GROUP, blocks = (groups + some - 1) / some;
	int64_t units = ((int64_t)a->rows + INT8_TILE - 1) / INT8_TILE * blocks;
	for (int64_t u = units * part / parts; u < units * (part + 1) / parts; u++) {
		int64_t t = u / blocks, g0 = u % blocks * some, g1 = g0 + some < groups ? g0 + some : groups;
		int64_t r0 = t * INT8_TILE, r1 = r0 + INT8_TILE < a->rows ? r0 + INT8_TILE : a->rows;
		x_tile(a, r0, r1, g0, g1, INT8_TILE, (int32_t *)a->shared + (t * groups + g0) * X_DWORDS * INT8_TILE);
	}
}

/* one_fetches reports whether a single tile of rows prefetches. For few rows the codes of Q8_0
 * take longer to read than to multiply, and reading is faster without prefetches. */
static int one_fetches(const vapp_linear *a) { return a->rows > 1 && (a->format != VAPP_Q8_0 || a->rows * PLANES >= 6); }

/* panel_tiles multiplies a panel with tiles [t0, t1) of rows. Several tiles take a block of k
 * at a time; an unpacked block stays in the first cache. Blocks that are not unpacked are
 * longer, because each block loads and stores the sums again. */
static void panel_tiles(const vapp_linear *a, int64_t panel, int64_t t0, int64_t t1, const int32_t *x, int tile) {
	const int plain = in_place(a->format, t1 - t0);
	int64_t groups = a->in / GROUP, some = t1 - t0 == 1 ? groups : (plain ? INT8_LONG : INT8_BLOCK) / GROUP, output = panel * PANEL;
	int8_step s = {.panel = panel_at(a, panel), .ldy = a->ldy, .lanes = a->out - output, .zeros = with_zeros(a->format)};
	for (s.g0 = 0; s.g0 < groups; s.g0 = s.g1) {
		s.g1 = s.g0 + some < groups ? s.g0 + some : groups;
		if (!plain) s.codes = unpack_codes(a->format, &s, a->work);
		s.bias = a->bias && s.g1 == groups ? a->bias + output : NULL;
		if (t1 - t0 > 1) s.next = s.panel + s.g1 * (panel_k(a->format, 128) / 4);
		else if (one_fetches(a)) s.next = s.panel + INT8_AHEAD;
		s.tiles = (int)(t1 - t0);
		for (int64_t t = t0; t < t1; t++) {
			int64_t left = a->rows - t * tile;
			s.tile = (int)(t - t0);
			s.x = x + (t * groups + s.g0) * X_DWORDS * tile;
			s.y = a->y + t * tile * a->ldy + output;
			int8_steps(a->format, &s, left < tile ? (int)left : tile, tile);
		}
	}
}

/* Every part quantizes a single row for itself: this is faster than sharing it. */
FN static void run(const vapp_linear *a, int part, int parts) {
	int tile = a->rows == 1 ? 1 : INT8_TILE;
	linear_grid g = grid_of(a, tile, part, parts);
	int32_t *x = a->shared;
	int64_t u = linear_unit(a, &g);
	if (a->rows == 1 && u >= 0) x_tile(a, 0, 1, 0, a->in / GROUP, 1, x = a->work);
	for (; u >= 0; u = linear_unit(a, &g)) {
		int64_t c = u % g.chunks;
		panel_tiles(a, u / g.chunks, g.tiles * c / g.chunks, g.tiles * (c + 1) / g.chunks, x, tile);
	}
}

static const vapp_linear_kernel kernel = {prepare, 2, run, vapp_linear_row_int8};

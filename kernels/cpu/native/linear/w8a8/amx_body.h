/* amx_body.h: the kernel of w8a8.h with AMX tiles. Sums are integers, so the bits are those of
 * the vector kernel, which fewer than W8_AMX_ROWS rows use. A block of k's of a panel stays in
 * the first cache while all row tiles use it, two at a time; the sums stay in work between
 * blocks. Rows of x past the last one are uninitialized; they affect no other row. */
#include <immintrin.h>
#include <stdint.h>

#include "../../shared/linear.h"
#include "../../shared/tiles.h"
#include "../panel.h"
#include "amx.h"
#include "w8a8.h"

#define LANES 16

typedef int32_t row_sums[2][TILE_ROWS][LANES]; /* of a row tile and a panel */

/* products multiplies n times 64 k's of one or two row tiles; the second tile's x is TILE_ROWS
 * rows after the first's. */
FN static void products(const int8_t *x, int64_t stride, const uint8_t *w, int64_t n, row_sums *sums, int two, int first) {
	int64_t far = TILE_ROWS * stride;
	tiles_see_memory();
	if (first) {
		tile_zero(0);
		tile_zero(1);
		tile_zero(2);
		tile_zero(3);
	} else {
		tile_load(0, sums[0][0], 64);
		tile_load(1, sums[0][1], 64);
		if (two) {
			tile_load(2, sums[1][0], 64);
			tile_load(3, sums[1][1], 64);
		}
	}
	for (int64_t k = 0; two && k < n; k++, x += W8_K, w += W8_K * PANEL) {
		tile_load(6, w, 128);
		tile_load(4, x, stride);
		tile_codes(0, 4, 6);
		tile_load(7, w + 64, 128);
		tile_codes(1, 4, 7);
		tile_load(5, x + far, stride);
		tile_codes(2, 5, 6);
		tile_codes(3, 5, 7);
	}
	for (int64_t k = 0; !two && k < n; k++, x += W8_K, w += W8_K * PANEL) {
		tile_load(6, w, 128);
		tile_load(7, w + 64, 128);
		tile_load(4, x, stride);
		tile_codes(0, 4, 6);
		tile_codes(1, 4, 7);
	}
	tile_store(0, sums[0][0], 64);
	tile_store(1, sums[0][1], 64);
	if (two) {
		tile_store(2, sums[1][0], 64);
		tile_store(3, sums[1][1], 64);
	}
	tiles_see_memory();
}

/* finish scales the sums of row tile t and writes the rows and outputs that exist. */
FN static void finish(const vapp_linear *a, int64_t panel, int64_t t, const row_sums *sums) {
	const int8_t *x = (const int8_t *)a->shared + t * TILE_ROWS * w8_row_bytes(a->in);
	const float *scales = (const float *)((const uint8_t *)a->w + (panel + 1) * w8_panel_bytes(a->in)) - PANEL;
	int64_t rows = a->rows - t * TILE_ROWS < TILE_ROWS ? a->rows - t * TILE_ROWS : TILE_ROWS;
	for (int v = 0; v < 2; v++) {
		int64_t output = panel * PANEL + v * LANES, lanes = a->out - output;
		__mmask16 m = lanes >= LANES ? 0xffff : lanes <= 0 ? 0 : (1 << lanes) - 1;
		__m512 d = _mm512_loadu_ps(scales + v * LANES);
		__m512 bias = a->bias ? _mm512_maskz_loadu_ps(m, a->bias + output) : _mm512_setzero_ps();
		for (int64_t r = 0; r < rows; r++) {
			w8_tail tail = w8_tail_of(x + r * w8_row_bytes(a->in), a->in);
			__m512 sum = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_loadu_si512((*sums)[v][r]), _mm512_set1_epi32(tail.more)));
			__m512 scale = _mm512_mul_ps(_mm512_set1_ps(tail.scale), d);
			_mm512_mask_storeu_ps(a->y + (t * TILE_ROWS + r) * a->ldy + output, m, _mm512_fmadd_ps(sum, scale, bias));
		}
	}
}

static void panel_tiles(const vapp_linear *a, int64_t panel, int64_t t0, int64_t t1) {
	row_sums *sums = a->work;
	int64_t stride = w8_row_bytes(a->in), all = w8_k(a->in);
	const uint8_t *w = (const uint8_t *)a->w + panel * w8_panel_bytes(a->in);
	for (int64_t k = 0, n; k < all; k += n) {
		n = all - k < W8_AMX_K ? all - k : W8_AMX_K;
		for (int64_t t = t0; t < t1; t += 2)
			products((const int8_t *)a->shared + t * TILE_ROWS * stride + k, stride, w + k * PANEL, n / W8_K, sums + (t - t0), t + 1 < t1, k == 0);
	}
	for (int64_t t = t0; t < t1; t++) finish(a, panel, t, sums + (t - t0));
}

FN static void run(const vapp_linear *a, int part, int parts) {
	if (a->rows < W8_AMX_ROWS) {
		vapp_linear_w8a8_avx512()->run(a, part, parts);
		return;
	}
	linear_grid g = grid_of(a, TILE_ROWS, part, parts);
	tiles_begin();
	for (int64_t u; (u = linear_unit(a, &g)) >= 0;) {
		int64_t c = u % g.chunks;
		panel_tiles(a, u / g.chunks, g.tiles * c / g.chunks, g.tiles * (c + 1) / g.chunks);
	}
	tiles_end();
}

static void prepare(const vapp_linear *a, int part, int parts) { vapp_linear_w8a8_avx512()->prepare(a, part, parts); }

static const vapp_linear_kernel kernel = {prepare, 2, run, vapp_linear_row_w8a8};

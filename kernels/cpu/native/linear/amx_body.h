/* amx_body.h: Linear with AMX tiles for weights that are unpacked: bf16 operands, float sums.
 *
 * x and weights are rounded to bf16, to nearest even. 8-bit floats with one scale for
 * each output are multiplied without their scales, and the sums are scaled. A tile of sums
 * takes 32 k at a time, in the order of k and alike for every row, so a row's bits do not
 * depend on other rows. The bias is added last.
 *
 * shared holds x as [row tile][k tile][16][32]. Elements past the last k are zero. Rows past
 * the last one are uninitialized; they affect no other row. work holds a block of floats, the
 * same block as pairs of bf16 (like a BF16 panel), and the sums as [row tile][2][16][16]
 * between blocks. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "../shared/tiles.h"

#define TILE 1 /* for unpack.h, which multiplies nothing here */
#define PAIR 1
#include "vec512.h"

#include "panel.h"
#include "unpack.h"

/* Tiles 0 to 3 are sums: row tile × half of the panel. Some compilers accept only literal
 * numbers. */
#define A0 4
#define A1 5
#define B0 6
#define B1 7

typedef struct {
	float floats[KBLOCK * PANEL];
	uint16_t pairs[KTILES * TILE_K * PANEL];
	float sums[][2 * TILE_ROWS * TILE_ROWS];
} workspace;

static int64_t k_tiles(const vapp_linear *a) { return ((int64_t)a->in + TILE_K - 1) / TILE_K; }

/* round_pairs rounds [n][32] floats to [n/2][32][2] bf16, n even. */
FN static void round_pairs(const float *src, int64_t n, uint16_t *dst) {
	static const uint16_t order[32] = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23,
	                                   8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
	__m512i interleave = _mm512_loadu_si512(order);
	for (int64_t k = 0; k < n; k += 2, src += 2 * PANEL, dst += 2 * PANEL)
		for (int h = 0; h < 2; h++) {
			__m512bh both = _mm512_cvtne2ps_pbh(v_load(src + PANEL + 16 * h), v_load(src + 16 * h));
			_mm512_storeu_si512(dst + 32 * h, _mm512_permutexvar_epi16(interleave, (__m512i)both));
		}
}

/* scaled_last reports whether the sums of an output are scaled instead of its weights. */
INLINE int scaled_last(int32_t format) {
	int scales = format / VAPP_SCALES;
	return group_k(format) == SCALE_K && (scales == VAPP_NO_SCALES || scales == VAPP_CHANNEL_SCALES);
}

/* scale multiplies [n][32] floats with the scales of their groups. */
FN static void scale(int32_t format, const uint8_t *scales, int64_t n, float *w) {
	int64_t group = group_k(format);
	for (int64_t k = 0; k < n; scales += group_step(format)) {
		vec lo = v_group_scale(format, scales, 0), hi = v_group_scale(format, scales, LANES);
		for (int64_t end = n - k < group ? n : k + group; k < end; k++, w += PANEL) {
			v_store(w, v_mul(v_load(w), lo));
			v_store(w + LANES, v_mul(v_load(w + LANES), hi));
		}
	}
}

/* unpack writes n k's of a quantized panel, from k0 on, to w->pairs as pairs of bf16; k's past
 * the end become zeros. */
FN static void unpack(const vapp_linear *a, int64_t panel, int64_t k0, int64_t n, workspace *w) {
	for (int64_t end = k0 + n, k = k0; k < end; k += KBLOCK) {
		int64_t all = end - k < KBLOCK ? end - k : KBLOCK, real = a->in - k < all ? a->in - k : all;
		sink out = {.block = w->floats};
		each(a->format, panel_at(a, panel) + panel_k(a->format, k), 0, real, &out, 0, WIDE, 1);
		memset(w->floats + real * PANEL, 0, (all - real) * PANEL * sizeof *w->floats);
		if (group_k(a->format) && !scaled_last(a->format)) scale(a->format, scales_at(a, panel, k), real, w->floats);
		round_pairs(w->floats, all, w->pairs + (k - k0) * PANEL);
	}
}

/* pairs_of returns k tiles from k0 on as [16·n][32][2] bf16 and sets n to their number. */
FN static const uint16_t *pairs_of(const vapp_linear *a, int64_t panel, int64_t k0, int64_t *n, workspace *w) {
	int64_t left = a->in - k0;
	*n = left < TILE_K ? 1 : left / TILE_K < KTILES ? left / TILE_K : KTILES;
	unpack(a, panel, k0, *n * TILE_K, w);
	return w->pairs;
}

/* one_tile and two_tiles multiply n k tiles of a panel with one or two row tiles; the second
 * row tile's x is `far` bytes after the first's. */
FN static void one_tile(const uint8_t *x, const uint8_t *b, int64_t n, float *sums, int first) {
	tiles_see_memory();
	if (first) {
		tile_zero(0);
		tile_zero(1);
	} else {
		tile_load(0, sums, 64);
		tile_load(1, sums + 256, 64);
	}
	for (int64_t k = 0; k < n; k++, x += 1024, b += 2048) {
		for (int i = 0; i < 2048; i += 64) __builtin_prefetch(b + AHEAD + i);
		tile_load(A0, x, 64);
		tile_load(B0, b, 128);
		tile_load(B1, b + 64, 128);
		tile_products(0, A0, B0);
		tile_products(1, A0, B1);
	}
	tile_store(0, sums, 64);
	tile_store(1, sums + 256, 64);
}

FN static void two_tiles(const uint8_t *x, int64_t far, const uint8_t *b, int64_t n, float *sums, int first) {
	tiles_see_memory();
	if (first) {
		tile_zero(0);
		tile_zero(1);
		tile_zero(2);
		tile_zero(3);
	} else {
		tile_load(0, sums, 64);
		tile_load(1, sums + 256, 64);
		tile_load(2, sums + 512, 64);
		tile_load(3, sums + 768, 64);
	}
	for (int64_t k = 0; k < n; k++, x += 1024, b += 2048) {
		tile_load(B0, b, 128);
		tile_load(A0, x, 64);
		tile_products(0, A0, B0);
		tile_load(B1, b + 64, 128);
		tile_products(1, A0, B1);
		tile_load(A1, x + far, 64);
		tile_products(2, A1, B0);
		tile_products(3, A1, B1);
	}
	tile_store(0, sums, 64);
	tile_store(1, sums + 256, 64);
	tile_store(2, sums + 512, 64);
	tile_store(3, sums + 768, 64);
}

/* finish adds the bias to the sums of row tile t and writes the rows and outputs that exist. */
FN static void finish(const vapp_linear *a, int64_t panel, int64_t t, const float *sums) {
	int64_t rows = a->rows - t * TILE_ROWS < TILE_ROWS ? a->rows - t * TILE_ROWS : TILE_ROWS;
	for (int h = 0; h < 2; h++) {
		int64_t output = panel * PANEL + 16 * h, lanes = a->out - output;
		vec bias = a->bias ? v_load_some(a->bias + output, lanes) : v_set(0);
		vec d = scaled_last(a->format) ? v_group_scale(a->format, scales_at(a, panel, 0), 16 * h) : v_set(1);
		for (int64_t r = 0; r < rows; r++) {
			vec sum = v_mul(v_load(sums + 256 * h + 16 * r), d);
			if (a->bias) sum = v_add(sum, bias);
			v_store_some(a->y + (t * TILE_ROWS + r) * a->ldy + output, lanes, sum);
		}
	}
}

FN static void panel_tiles(const vapp_linear *a, int64_t panel, int64_t t0, int64_t t1) {
	workspace *w = a->work;
	int64_t far = k_tiles(a) * 1024, n;
	for (int64_t k0 = 0; k0 < a->in; k0 += n * TILE_K) {
		const uint8_t *b = (const uint8_t *)pairs_of(a, panel, k0, &n, w);
		const uint8_t *x = (const uint8_t *)a->shared + k0 / TILE_K * 1024;
		int64_t t = t0;
		for (; t + 1 < t1; t += 2) two_tiles(x + t * far, far, b, n, w->sums[t - t0], k0 == 0);
		if (t < t1) one_tile(x + t * far, b, n, w->sums[t - t0], k0 == 0);
	}
	for (int64_t t = t0; t < t1; t++) finish(a, panel, t, w->sums[t - t0]);
}

FN static void run(const vapp_linear *a, int part, int parts) {
	linear_grid g = grid_of(a, TILE_ROWS, part, parts);
	tiles_begin();
	for (int64_t u; (u = linear_unit(a, &g)) >= 0;) {
		int64_t c = u % g.chunks;
		panel_tiles(a, u / g.chunks, g.tiles * c / g.chunks, g.tiles * (c + 1) / g.chunks);
	}
	tiles_end();
}

/* prepare rounds x to tiles of bf16. */
FN static void prepare(const vapp_linear *a, int part, int parts) {
	int64_t ks = k_tiles(a), units = ((int64_t)a->rows + TILE_ROWS - 1) / TILE_ROWS * ks;
	for (int64_t u = units * part / parts; u < units * (part + 1) / parts; u++) {
		int64_t row0 = u / ks * TILE_ROWS, k0 = u % ks * TILE_K;
		uint16_t *dst = (uint16_t *)a->shared + u * TILE_ROWS * TILE_K;
		for (int64_t r = row0; r < a->rows && r < row0 + TILE_ROWS; r++, dst += TILE_K) {
			const float *x = a->x + r * a->ldx + k0;
			vec lo = v_load_some(x, a->in - k0), hi = v_load_some(x + 16, a->in - k0 - 16);
			_mm512_storeu_si512(dst, (__m512i)_mm512_cvtne2ps_pbh(hi, lo));
		}
	}
}

static const vapp_linear_kernel kernel = {prepare, 1, run, vapp_linear_row};

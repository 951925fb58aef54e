/* amx_body.h: Linear on int8 activations with AMX tiles, with the arithmetic of int8.h. A tile
 * has the integers of one scale: 32 or 16 k's. Its sums are exact, and vectors add them in the
 * order of groups, so the bits are those of the other instruction sets. Fewer than
 * INT8_AMX_ROWS rows use the vector kernel, which is faster for them.
 *
 * shared holds x as [row tile][group]{codes [16][32], scale [16], less [2][16], sum [16]}. Rows
 * past the last one are uninitialized; they affect no other row. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "../../shared/linear.h"
#include "../../shared/tiles.h"
#include "../panel.h"
#include "amx.h"
#include "int8.h"

#define LANES 16
#define V static inline __attribute__((always_inline)) FN

/* For a block of groups: codes in the layout of Q8_0, the sums of four tiles, and the results
 * of two row tiles. */
typedef struct {
	uint8_t codes[INT8_BLOCK * PANEL];
	int32_t sums[2][2][TILE_ROWS][LANES]; /* row tile, half of the panel */
	float y[2 * TILE_ROWS][PANEL];
} workspace;

/* A group of a row tile of x. */
typedef struct {
	int8_t codes[TILE_ROWS][GROUP];
	float scale[TILE_ROWS];
	int32_t less[2][TILE_ROWS];
	float sum[TILE_ROWS];
} x_group;

V __mmask16 some(int64_t n) { return n >= LANES ? 0xffff : n <= 0 ? 0 : (1 << n) - 1; }
V __m512 halves(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }
V __m512 small(const uint8_t *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p))); }

/* put_group does int8_quantize for row r of a tile. */
FN static void put_group(const int8_codes c, const float *x, x_group *to, int64_t r) {
	__m512 lo = _mm512_loadu_ps(x), hi = _mm512_loadu_ps(x + 16);
	__m512i all = _mm512_set1_epi32(0x7fffffff);
	__m512i sizes = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(lo), all), _mm512_and_si512(_mm512_castps_si512(hi), all));
	int32_t most = _mm512_reduce_max_epi32(sizes), nan = INT8_NAN;
	float largest, by = 0, scale = 0, sum;
	memcpy(&largest, &most, 4);
	if (most >= INT8_INFINITY) {
		memset(to->codes[r], 0, GROUP);
		memcpy(&to->scale[r], &nan, 4);
		memcpy(&to->sum[r], &nan, 4);
		to->less[0][r] = to->less[1][r] = 0;
		return;
	}
	if (most >= INT8_LEAST) scale = largest / 127, by = 127 / largest;
	__m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(lo, _mm512_set1_ps(by)));
	__m512i b = _mm512_cvtps_epi32(_mm512_mul_ps(hi, _mm512_set1_ps(by)));
	int32_t first = _mm512_reduce_add_epi32(a), second = _mm512_reduce_add_epi32(b);
	__m256i codes = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(a)), _mm512_cvtepi32_epi8(b), 1);
	__m128i order = _mm_loadl_epi64((const void *)c.order);
	order = _mm_unpacklo_epi64(order, _mm_add_epi8(order, _mm_set1_epi8(8)));
	_mm256_storeu_si256((void *)to->codes[r], _mm256_shuffle_epi8(codes, _mm256_broadcastsi128_si256(order)));
	sum = scale * (float)(first + second);
	to->scale[r] = scale;
	to->sum[r] = sum;
	to->less[0][r] = -c.zero * (c.subs == 1 ? first + second : first);
	to->less[1][r] = c.subs == 1 ? 0 : -c.zero * second;
}

/* A unit of prepare is a row tile's groups within INT8_BLOCK. */
FN static void prepare(const vapp_linear *a, int part, int parts) {
	if (a->rows < INT8_AMX_ROWS) {
		vapp_linear_int8_avx512(a->format)->prepare(a, part, parts);
		return;
	}
	const int8_codes c = int8_codes_of(a->format);
	int64_t groups = a->in / GROUP, some = INT8_BLOCK / GROUP, blocks = (groups + some - 1) / some;
	int64_t units = ((int64_t)a->rows + TILE_ROWS - 1) / TILE_ROWS * blocks;
	for (int64_t u = units * part / parts; u < units * (part + 1) / parts; u++) {
		int64_t t = u / blocks, g0 = u % blocks * some, g1 = g0 + some < groups ? g0 + some : groups;
		x_group *to = (x_group *)a->shared + t * groups;
		for (int64_t r = t * TILE_ROWS; r < a->rows && r < (t + 1) * TILE_ROWS; r++)
			for (int64_t g = g0; g < g1; g++) put_group(c, a->x + r * a->ldx + g * GROUP, to + g, r % TILE_ROWS);
	}
}

/* half_products multiplies half h of a group (the whole group, if it has one scale) with one or
 * two row tiles. */
V void half_products(const uint8_t *codes, const int8_codes c, const x_group *x, int64_t far, const int h, const int two, workspace *w) {
	codes += h * (8 / c.subs) * 128;
	const int8_t *q = &x->codes[0][0] + h * (GROUP / c.subs);
	tiles_see_memory();
	tile_zero(0);
	tile_zero(1);
	tile_load(6, codes, 128);
	tile_load(7, codes + 64, 128);
	tile_load(4, q, GROUP);
	tile_codes(0, 4, 6);
	tile_codes(1, 4, 7);
	if (two) {
		tile_zero(2);
		tile_zero(3);
		tile_load(5, q + far, GROUP);
		tile_codes(2, 5, 6);
		tile_codes(3, 5, 7);
		tile_store(2, w->sums[1][0], 64);
		tile_store(3, w->sums[1][1], 64);
	}
	tile_store(0, w->sums[0][0], 64);
	tile_store(1, w->sums[0][1], 64);
	tiles_see_memory();
}

/* add_group adds the scaled sums of half h and, with the last half, the minimum to row tile t. */
V void add_group(const int8_codes c, int8_place at, const x_group *x, const int h, const int t, workspace *w) {
	const int last = h == c.subs - 1;
#pragma GCC unroll 2
	for (int v = 0; v < 2; v++) {
		__m512 d = halves(at.d + v * 32), m = _mm512_setzero_ps();
		if (at.subs) d = _mm512_mul_ps(d, small(at.subs + h * PANEL + v * LANES));
		if (c.least && last) {
			m = halves(at.m + v * 32);
			if (at.subs) m = _mm512_mul_ps(_mm512_mul_ps(m, _mm512_set1_ps(-1)), small(at.subs + c.subs * PANEL + v * LANES));
		}
#pragma GCC unroll 4
		for (int r = 0; r < TILE_ROWS; r++) {
			float *y = w->y[t * TILE_ROWS + r] + v * LANES;
			__m512i sum = _mm512_add_epi32(_mm512_loadu_si512(w->sums[t][v][r]), _mm512_set1_epi32(x->less[h][r]));
			__m512 all = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(d, _mm512_set1_ps(x->scale[r])), _mm512_loadu_ps(y));
			if (c.least && last) all = _mm512_fmadd_ps(m, _mm512_set1_ps(x->sum[r]), all);
			_mm512_storeu_ps(y, all);
		}
	}
}

/* load_rows loads the results of rows from y, store_rows writes them there and adds the bias. */
FN static void load_rows(const vapp_linear *a, int64_t panel, int64_t r0, int64_t rows, int first, workspace *w) {
	for (int64_t r = 0; r < 2 * TILE_ROWS; r++)
		for (int v = 0; v < 2; v++) {
			int64_t output = panel * PANEL + v * LANES;
			__mmask16 m = first || r >= rows ? 0 : some(a->out - output);
			_mm512_storeu_ps(w->y[r] + v * LANES, _mm512_maskz_loadu_ps(m, a->y + (r < rows ? r0 + r : r0) * a->ldy + output));
		}
}

FN static void store_rows(const vapp_linear *a, int64_t panel, int64_t r0, int64_t rows, int last, const workspace *w) {
	for (int v = 0; v < 2; v++) {
		int64_t output = panel * PANEL + v * LANES;
		__mmask16 m = some(a->out - output);
		__m512 bias = a->bias && last ? _mm512_maskz_loadu_ps(m, a->bias + output) : _mm512_setzero_ps();
		for (int64_t r = 0; r < rows; r++) {
			__m512 y = _mm512_loadu_ps(w->y[r] + v * LANES);
			_mm512_mask_storeu_ps(a->y + (r0 + r) * a->ldy + output, m, a->bias && last ? _mm512_add_ps(y, bias) : y);
		}
	}
}

/* rows_of_panel multiplies groups [g0, g1) of a panel with one or two row tiles from t on.
 * codes are unpacked; they are NULL for Q8_0. format is a compile-time constant. */
V void rows_of_panel(const int format, const vapp_linear *a, int64_t panel, const uint8_t *codes, int64_t g0, int64_t g1, int64_t t, const int two) {
	const int8_codes c = int8_codes_of(format);
	workspace *w = a->work;
	int64_t groups = a->in / GROUP, far = groups * (int64_t)sizeof(x_group), r0 = t * TILE_ROWS;
	int64_t rows = a->rows - r0 < (1 + two) * TILE_ROWS ? a->rows - r0 : (1 + two) * TILE_ROWS;
	const x_group *x = (const x_group *)a->shared + t * groups;
	load_rows(a, panel, r0, rows, g0 == 0, w);
	for (int64_t g = g0; g < g1; g++) {
		int8_place at = int8_place_at(format, panel_at(a, panel), g);
		const uint8_t *from = codes ? codes + (g - g0) * GROUP * PANEL : at.codes;
		for (int h = 0; h < c.subs; h++) {
			half_products(from, c, x + g, far, h, two, w);
			add_group(c, at, x + g, h, 0, w);
			if (two) add_group(c, at, x + groups + g, h, 1, w);
		}
	}
	store_rows(a, panel, r0, rows, g1 == groups, w);
}

#define AMX_STEPS(format) \
	FN static void steps_##format(const vapp_linear *a, int64_t panel, const uint8_t *codes, int64_t g0, int64_t g1, int64_t t, int two) { \
		if (two) rows_of_panel(format, a, panel, codes, g0, g1, t, 1); \
		else rows_of_panel(format, a, panel, codes, g0, g1, t, 0); \
	}
INT8_FORMATS(AMX_STEPS)

static void panel_tiles(const vapp_linear *a, int64_t panel, int64_t t0, int64_t t1) {
	static void (*const steps[])(const vapp_linear *, int64_t, const uint8_t *, int64_t, int64_t, int64_t, int) = {INT8_FORMATS(INT8_ENTRY)};
	workspace *w = a->work;
	int64_t groups = a->in / GROUP, block = INT8_BLOCK / GROUP;
	for (int64_t g0 = 0, g1; g0 < groups; g0 = g1) {
		g1 = g0 + block < groups ? g0 + block : groups;
		const uint8_t *codes = vapp_int8_unpack(a->format, panel_at(a, panel), g0, g1, w->codes);
		for (int64_t t = t0; t < t1; t += 2) steps[a->format](a, panel, codes, g0, g1, t, t + 1 < t1);
	}
}

FN static void run(const vapp_linear *a, int part, int parts) {
	if (a->rows < INT8_AMX_ROWS) {
		vapp_linear_int8_avx512(a->format)->run(a, part, parts);
		return;
	}
	linear_grid g = grid_of(a, TILE_ROWS, part, parts);
	int subs = int8_codes_of(a->format).subs;
	tiles_begin_of(GROUP / subs, 8 / subs);
	for (int64_t u; (u = linear_unit(a, &g)) >= 0;) {
		int64_t c = u % g.chunks;
		panel_tiles(a, u / g.chunks, g.tiles * c / g.chunks, g.tiles * (c + 1) / g.chunks);
	}
	tiles_end();
}

static const vapp_linear_kernel kernel = {prepare, 2, run, vapp_linear_row_int8};

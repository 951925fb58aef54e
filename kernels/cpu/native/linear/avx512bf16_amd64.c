/* avx512bf16_amd64.c: Linear with products of bf16 pairs (VDPBF16PS), summed in float.
 *
 * x is rounded to bf16, to nearest even; weights are codes that bf16 represents exactly, see
 * pairs.h. The instruction adds the product of the second elements of a pair, then that of the
 * first, each with one rounding, and treats denormals as zero. An output is one chain of it in
 * the order of k. If groups of k's have scales, an output is one chain for each group, and each
 * chain's sum is scaled and added. The number of rows does not matter. The bias is added last.
 *
 * Up to DECODE_ROWS rows are multiplied while the packed weights are read. For more rows a run
 * of k's of a panel is unpacked into work, and all tiles of rows read it. Weights that are read in
 * place pass by rows of x that stay in the second cache: see run_blocks.
 *
 * x is stored as [tile]{pairs [k/2][TILE], sums of groups [groups][TILE]}, k padded to a
 * multiple of 32. Up to DECODE_ROWS rows are stored with that stride, one row with stride 1. */
#include "target_avx512bf16.h"

#include "pairs.h"

typedef struct {
	pair_tables t;
	uint16_t block[PAIR_RUN * PANEL];
	float scales[PAIR_RUN / XGROUP * PANEL], least[PAIR_RUN / XGROUP * PANEL];
	uint32_t decode_x[]; /* x of a decode step */
} workspace;
_Static_assert(sizeof(workspace) == PAIR_WORK_BYTES, "LinearWorkspace");

INLINE int64_t whole_k(const vapp_linear *a) { return ((int64_t)a->in + 31) & ~(int64_t)31; }

/* x_groups returns how many sums of x each row has. */
INLINE int64_t x_groups(const vapp_linear *a) { return has_least(a->format) ? whole_k(a) / pairs_group(a->format) : 0; }

/* tile_words returns the dwords of `rows` rows of x. */
INLINE int64_t tile_words(const vapp_linear *a, int rows) { return rows * (whole_k(a) / 2 + x_groups(a)); }

FN_INLINE vec even_and_odd(__m512i pairs) { return v_add(v_even(pairs), v_odd(pairs)); }

/* put_sums writes the sums of 32 k's of a row. */
FN_INLINE void put_sums(const vapp_linear *a, __m512i pairs, int64_t k, int stride, float *sums) {
	vec both = even_and_odd(pairs);
	__m256 low = _mm512_castps512_ps256(both), high = _mm512_extractf32x8_ps(both, 1);
	if (pairs_group(a->format) == 16) {
		sums[k / 16 * stride] = _mm512_reduce_add_ps(_mm512_zextps256_ps512(low));
		sums[(k / 16 + 1) * stride] = _mm512_reduce_add_ps(_mm512_zextps256_ps512(high));
		return;
	}
	sums[k / 32 * stride] = _mm512_reduce_add_ps(both);
}

/* round_rows writes 32 k's, from k on, of up to four rows as columns of dst [k/2][stride]. */
FN_INLINE void round_rows(const vapp_linear *a, const float *x, int64_t k, int rows, int stride, uint32_t *dst, float *sums) {
	__m512i q[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
	for (int r = 0; r < rows; r++) {
		const float *p = x + r * a->ldx + k;
		q[r] = (__m512i)_mm512_cvtne2ps_pbh(v_load_some(p + LANES, a->in - k - LANES), v_load_some(p, a->in - k));
		if (has_least(a->format)) put_sums(a, q[r], k, stride, sums + r);
	}
	dst += k / 2 * stride;
	if (stride == 1) {
		_mm512_storeu_si512(dst, q[0]);
		return;
	}
	__m512i a0 = _mm512_unpacklo_epi32(q[0], q[1]), a1 = _mm512_unpackhi_epi32(q[0], q[1]);
	__m512i b0 = _mm512_unpacklo_epi32(q[2], q[3]), b1 = _mm512_unpackhi_epi32(q[2], q[3]);
	__m512i c[4] = {_mm512_unpacklo_epi64(a0, b0), _mm512_unpackhi_epi64(a0, b0), _mm512_unpacklo_epi64(a1, b1), _mm512_unpackhi_epi64(a1, b1)};
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		_mm_storeu_si128((void *)(dst + i * stride), _mm512_castsi512_si128(c[i]));
		_mm_storeu_si128((void *)(dst + (4 + i) * stride), _mm512_extracti32x4_epi32(c[i], 1));
		_mm_storeu_si128((void *)(dst + (8 + i) * stride), _mm512_extracti32x4_epi32(c[i], 2));
		_mm_storeu_si128((void *)(dst + (12 + i) * stride), _mm512_extracti32x4_epi32(c[i], 3));
	}
}

/* prepare rounds x: 32 k's of four rows at a time. */
FN static void prepare(const vapp_linear *a, int part, int parts) {
	int64_t ks = whole_k(a) / 32, fours = ((int64_t)a->rows + 3) / 4, units = fours * ks;
	for (int64_t u = units * part / parts; u < units * (part + 1) / parts; u++) {
		int64_t row = u / ks * 4, rows = a->rows - row < 4 ? a->rows - row : 4;
		uint32_t *tile = (uint32_t *)a->shared + row / TILE * tile_words(a, TILE) + row % TILE;
		round_rows(a, a->x + row * a->ldx, u % ks * 32, (int)rows, TILE, tile, (float *)tile + whole_k(a) / 2 * TILE);
	}
}

/* decode_step computes a whole panel, or PAIR of them, for up to DECODE_ROWS rows. */
FN_INLINE void decode_step(const vapp_linear *a, int64_t panel, const int rows, const int nv) {
	workspace *w = a->work;
	const int stride = decode_stride(rows);
	int64_t bytes = panel_bytes(a->format, a->in);
	pair_sink s = {.x = w->decode_x, .sums = (const float *)w->decode_x + whole_k(a) / 2 * stride, .far = bytes, .t = &w->t};
#pragma GCC unroll 4
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) s.total[r][v] = v_set(0);
	panel_pairs(a->format, panel_at(a, panel), scales_at(a, panel, 0), nv / WIDE * bytes, a->in, &s, rows, nv, 0);
#pragma GCC unroll 4
	for (int v = 0; v < nv; v++) {
		int64_t output = panel * PANEL + v * LANES, lanes = a->out - output;
		vec bias = a->bias ? v_load_some(a->bias + output, lanes) : v_set(0);
		vec d = in_nvfp4(a->format) ? v_output_scale(a->format, outputs_at(a, panel) + v / WIDE * bytes, v % WIDE * LANES) : v_set(1);
#pragma GCC unroll 4
		for (int r = 0; r < rows; r++) {
			vec sum = in_nvfp4(a->format) ? v_mul(s.total[r][v], d) : s.total[r][v];
			v_store_some(a->y + r * a->ldy + output, lanes, a->bias ? v_add(sum, bias) : sum);
		}
	}
}

FN static __attribute__((noinline)) void one_row_pair(const vapp_linear *a, int64_t panel) { decode_step(a, panel, 1, MOST); }
FN static __attribute__((noinline)) void one_row(const vapp_linear *a, int64_t panel) { decode_step(a, panel, 1, WIDE); }
FN static __attribute__((noinline)) void two_rows(const vapp_linear *a, int64_t panel) { decode_step(a, panel, 2, WIDE); }
FN static __attribute__((noinline)) void three_rows(const vapp_linear *a, int64_t panel) { decode_step(a, panel, 3, WIDE); }
FN static __attribute__((noinline)) void four_rows(const vapp_linear *a, int64_t panel) { decode_step(a, panel, 4, WIDE); }

FN static void run_decode(const vapp_linear *a, int part, int parts) {
	static void (*const steps[])(const vapp_linear *, int64_t) = {NULL, one_row, two_rows, three_rows, four_rows};
	workspace *w = a->work;
	int stride = decode_stride(a->rows);
	linear_grid g = grid_of(a, DECODE_ROWS, part, parts);
	int64_t u = linear_unit(a, &g);
	if (u < 0) return;
	tables_of(a->format, &w->t);
	for (int64_t k = 0; k < whole_k(a); k += 32) round_rows(a, a->x, k, a->rows, stride, w->decode_x, (float *)w->decode_x + whole_k(a) / 2 * stride);
	/* Two panels at once hide the latency of the sums. For bf16 weights, which need no table,
	 * one panel at a time reads faster. */
	for (; u >= 0; u = linear_unit(a, &g)) {
		if (a->rows == 1 && a->format != VAPP_BF16 && g.next < g.last) g.next++, one_row_pair(a, u);
		else steps[a->rows](a, u);
	}
}

enum { FETCHED = 6 /* from so many rows on, multiplying takes longer than reading: prefetch the next weights */ };

/* Weights in place: k's of a panel that all tiles of a block read, and sizes of blocks. */
enum { IN_PLACE_RUN = 1024, BLOCK_BYTES = 1 << 19, BLOCK_LEAST = 4, PANELS_BYTES = 1 << 22 };

/* A tile_run is n unpacked k's of a panel times a tile of rows. */
typedef struct {
	const uint16_t *w;
	const float *scales, *least; /* least: or NULL */
	const uint32_t *x;
	const float *sums;
	int64_t n, group; /* group 0: no scales */
	float *y;
	int64_t ldy;
	const float *bias; /* of these lanes, in the last run; else NULL */
	const uint8_t *outputs; /* NVFP4: scales of outputs, in the last run; else NULL */
	int32_t format;
	int64_t lanes;
	int first;
	const uint8_t *next; /* this tile's share of the next run, if weights are read in place */
	int64_t each;        /* bytes of it that two k's fetch, at most 128; 0: none */
} tile_run;

/* fetch_two prefetches `each` bytes from p on into the second cache. */
FN_INLINE void fetch_two(const uint8_t *p, int64_t each) {
	_mm_prefetch(p, _MM_HINT_T1);
	_mm_prefetch(p + each / 2, _MM_HINT_T1);
}

FN_INLINE void tile_products(vec sum[TILE][WIDE], const uint32_t *x, const uint16_t *w, int64_t n, const uint8_t *next, int64_t each, const int rows) {
	for (; n > 0; n -= 2, x += TILE, w += 2 * PANEL, next += each) {
		if (each) fetch_two(next, each);
		__m512i w0 = _mm512_loadu_si512(w), w1 = _mm512_loadu_si512(w + PANEL);
#pragma GCC unroll 12
		for (int r = 0; r < rows; r++) {
			__m512i xr = _mm512_set1_epi32((int)x[r]);
			sum[r][0] = dot(sum[r][0], w0, xr);
			sum[r][1] = dot(sum[r][1], w1, xr);
		}
	}
}

FN_INLINE void tile_groups(const tile_run *t, vec total[TILE][WIDE], const int rows) {
	const uint32_t *x = t->x;
	const uint16_t *w = t->w;
	const float *scales = t->scales, *least = t->least, *sums = t->sums;
	for (int64_t k = 0; k < t->n; k += t->group, x += t->group / 2 * TILE, w += t->group * PANEL, scales += PANEL) {
		vec sum[TILE][WIDE];
#pragma GCC unroll 12
		for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = v_set(0);
		tile_products(sum, x, w, t->n - k < t->group ? t->n - k : t->group, NULL, 0, rows);
		vec d0 = v_load(scales), d1 = v_load(scales + LANES);
#pragma GCC unroll 12
		for (int r = 0; r < rows; r++) {
			total[r][0] = v_fma(sum[r][0], d0, total[r][0]);
			total[r][1] = v_fma(sum[r][1], d1, total[r][1]);
		}
		if (!least) continue;
		vec m0 = v_load(least), m1 = v_load(least + LANES);
#pragma GCC unroll 12
		for (int r = 0; r < rows; r++) {
			total[r][0] = v_fma(v_set(sums[r]), m0, total[r][0]);
			total[r][1] = v_fma(v_set(sums[r]), m1, total[r][1]);
		}
		least += PANEL, sums += TILE;
	}
}

FN_INLINE void tile_step(const tile_run *t, const int rows, const int groups) {
	vec total[TILE][WIDE];
#pragma GCC unroll 12
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
		for (int v = 0; v < WIDE; v++)
			total[r][v] = t->first ? v_set(0) : v_load_some(t->y + r * t->ldy + v * LANES, t->lanes - v * LANES);
	if (groups) tile_groups(t, total, rows);
	else tile_products(total, t->x, t->w, t->n, t->next, t->each, rows);
#pragma GCC unroll 2
	for (int v = 0; v < WIDE; v++) {
		vec bias = t->bias ? v_load_some(t->bias + v * LANES, t->lanes - v * LANES) : v_set(0);
		vec d = t->outputs ? v_output_scale(t->format, t->outputs, v * LANES) : v_set(1);
#pragma GCC unroll 12
		for (int r = 0; r < rows; r++) {
			vec sum = t->outputs ? v_mul(total[r][v], d) : total[r][v];
			v_store_some(t->y + r * t->ldy + v * LANES, t->lanes - v * LANES, t->bias ? v_add(sum, bias) : sum);
		}
	}
}

typedef void (*tile_fn)(const tile_run *t);
#define ROWS(n) \
	FN static void plain_##n(const tile_run *t) { tile_step(t, n, 0); } \
	FN static void groups_##n(const tile_run *t) { tile_step(t, n, 1); }
#define ENTRY(n) {plain_##n, groups_##n},
#define EACH_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
EACH_ROWS(ROWS)
static const tile_fn tile_steps[TILE + 1][2] = {{NULL, NULL}, EACH_ROWS(ENTRY)};

/* unpack_run writes n k's of a panel from k0 on, with their scales and minima, to work. */
FN static __attribute__((noinline)) void unpack_run(const vapp_linear *a, int64_t panel, int64_t k0, int64_t n) {
	workspace *w = a->work;
	int64_t bytes = panel_bytes(a->format, a->in);
	pair_sink s = {.block = w->block, .scales = w->scales, .least = w->least, .far = bytes, .t = &w->t};
	panel_pairs(a->format, panel_at(a, panel) + panel_k(a->format, k0), scales_at(a, panel, k0), bytes, n, &s, 0, WIDE, 1);
}

FN static void panel_tiles(const vapp_linear *a, int64_t panel, int64_t t0, int64_t t1) {
	workspace *w = a->work;
	tile_run s = {.w = w->block, .scales = w->scales, .least = has_least(a->format) ? w->least : NULL, .group = pairs_group(a->format), .format = a->format};
	int64_t first = t0 * TILE, last = t1 * TILE < a->rows ? t1 * TILE : a->rows;
	s.ldy = a->ldy;
	s.lanes = a->out - panel * PANEL;
	for (int64_t k0 = 0; k0 < a->in; k0 += s.n) {
		s.n = s.group ? PAIR_RUN : IN_PLACE_RUN;
		if (a->in - k0 < s.n) s.n = a->in - k0;
		s.first = k0 == 0;
		s.bias = a->bias && k0 + s.n == a->in ? a->bias + panel * PANEL : NULL;
		s.outputs = in_nvfp4(a->format) && k0 + s.n == a->in ? outputs_at(a, panel) : NULL;
		if (s.group) unpack_run(a, panel, k0, s.n);
		else s.w = (const uint16_t *)(panel_at(a, panel) + panel_k(a->format, k0));
		for (int64_t t = t0; t < t1; t++) {
			int64_t rows = a->rows - t * TILE < TILE ? a->rows - t * TILE : TILE;
			const uint32_t *tile = (const uint32_t *)a->shared + t * tile_words(a, TILE);
			s.x = tile + k0 / 2 * TILE;
			if (s.least) s.sums = (const float *)tile + (whole_k(a) / 2 + k0 / s.group) * TILE;
			s.y = a->y + t * TILE * a->ldy + panel * PANEL;
			s.next = (const uint8_t *)s.w;
			if (last - first >= FETCHED) {
				s.each = 128 * rows / (last - first);
				s.next += 64 * s.n + 64 * s.n * (t * TILE - first) / (last - first);
			}
			tile_steps[rows][s.group != 0](&s);
		}
	}
}

/* block_tiles returns the tiles of rows that are multiplied with one panel after the other: their x fits
 * in half of a second cache of 1 MiB. */
INLINE int64_t block_tiles(const vapp_linear *a) {
	int64_t n = BLOCK_BYTES / (4 * tile_words(a, TILE));
	return n < BLOCK_LEAST ? BLOCK_LEAST : n;
}

/* run_blocks multiplies all rows with the panels [first, last): as many panels at a time as stay in a
 * third cache while blocks of rows pass by, each of which stays in the second while panels do. So x
 * comes from memory once for these panels, and weights come once. */
FN static void run_blocks(const vapp_linear *a, int64_t first, int64_t last, int64_t tiles, int64_t blocks) {
	int64_t some = PANELS_BYTES / panel_bytes(a->format, a->in);
	if (some < 1) some = 1;
	for (int64_t p = first; p < last; p += some)
		for (int64_t b = 0; b < blocks; b++)
			for (int64_t panel = p; panel < p + some && panel < last; panel++)
				panel_tiles(a, panel, tiles * b / blocks, tiles * (b + 1) / blocks);
}

FN static void run(const vapp_linear *a, int part, int parts) {
	if (a->rows <= DECODE_ROWS) {
		run_decode(a, part, parts);
		return;
	}
	linear_grid g = grid_of(a, TILE, part, parts);
	workspace *w = a->work;
	tables_of(a->format, &w->t);
	int64_t blocks = (g.tiles + block_tiles(a) - 1) / block_tiles(a);
	for (int64_t u; (u = linear_unit(a, &g)) >= 0;) {
		if (blocks > 1 && g.chunks == 1 && pairs_group(a->format) == 0) {
			run_blocks(a, u, g.last, g.tiles, blocks);
			g.next = g.last;
			continue;
		}
		int64_t c = u % g.chunks;
		panel_tiles(a, u / g.chunks, g.tiles * c / g.chunks, g.tiles * (c + 1) / g.chunks);
	}
}

static const vapp_linear_kernel kernel = {prepare, DECODE_ROWS + 1, run, vapp_linear_row};

const vapp_linear_kernel *vapp_linear_bf16(int format) {
	return format == VAPP_F32 || format == VAPP_F16 ? vapp_linear_avx512(format) : &kernel;
}

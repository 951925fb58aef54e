/* body.h: Linear on vectors of LANES floats, for the instruction set of a target header.
 *
 * A lane is an output. Each output is one chain of fused multiply-adds in the order of k,
 * starting at 0, with the bias added last; the number of rows does not matter. A slice is a
 * whole panel (WIDE vectors) for up to WIDE_ROWS rows, else SLIM vectors, so that registers are
 * left for the sums of TILE rows. */
#include <stdint.h>

#include "panel.h"
#include "unpack.h"

/* A step is n k's of one slice times one tile of rows. */
typedef struct {
	int32_t format;
	const uint8_t *p; /* packed weights of the panel, from this k on */
	int lane;         /* of the panel, where the slice begins */
	float *block;     /* the slice as [n][lanes], if stored */
	const float *x;   /* [n][stride] */
	int64_t stride, n;
	const uint8_t *scales; /* of the groups from this k on, if any */
	const uint8_t *outputs; /* the panel's scales of outputs */
	float *y; /* at this row and lane */
	int64_t ldy;
	const float *bias; /* of these lanes, in the last step; else NULL */
	int64_t far;       /* bytes to the next panel, in a step of two */
	int64_t lanes;     /* that exist, from this one on */
	int first, last;
} step;

FN_INLINE void begin_step(const step *s, sink *out, const int rows, const int nv) {
#pragma GCC unroll 12
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++)
			out->sum[r][v] = s->first ? v_set(0) : v_load_some(s->y + r * s->ldy + v * LANES, s->lanes - v * LANES);
	out->x = s->x;
	out->stride = s->stride;
	out->block = s->block;
	out->far = s->far;
	out->table = expanded_table(s->format);
}

FN_INLINE void end_step(const step *s, sink *out, const int rows, const int nv) {
#pragma GCC unroll 4
	for (int v = 0; v < nv; v++) {
		vec bias = s->bias ? v_load_some(s->bias + v * LANES, s->lanes - v * LANES) : v_set(0);
#pragma GCC unroll 12
		for (int r = 0; r < rows; r++) {
			vec sum = s->bias ? v_add(out->sum[r][v], bias) : out->sum[r][v];
			v_store_some(s->y + r * s->ldy + v * LANES, s->lanes - v * LANES, sum);
		}
	}
}

/* For a weight with group_k, raw products are summed from 0 in each group, and each sum times
 * the group's scale is added to the total. fold does that. */
FN_INLINE void fold(const step *s, sink *out, sink *total, const uint8_t *scales, int32_t format, const int rows, const int nv) {
#pragma GCC unroll 4
	for (int v = 0; v < nv; v++) {
		vec d = v_group_scale(format, scales + v / WIDE * s->far, s->lane + v % WIDE * LANES);
#pragma GCC unroll 12
		for (int r = 0; r < rows; r++) {
			total->sum[r][v] = v_fma(out->sum[r][v], d, total->sum[r][v]);
			out->sum[r][v] = v_set(0);
		}
	}
}

FN_INLINE void begin_groups(const step *s, sink *out, sink *total, const int rows, const int nv) {
	begin_step(s, total, rows, nv);
	*out = (sink){.block = s->block, .x = s->x, .stride = s->stride, .far = s->far};
#pragma GCC unroll 12
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) out->sum[r][v] = v_set(0);
}

/* scale_outputs multiplies whole sums of NVFP4 with the scales of their outputs. */
FN_INLINE void scale_outputs(const step *s, sink *total, const int rows, const int nv) {
#pragma GCC unroll 4
	for (int v = 0; v < nv; v++) {
		vec d = v_output_scale(s->format, s->outputs + v / WIDE * s->far, s->lane + v % WIDE * LANES);
#pragma GCC unroll 12
		for (int r = 0; r < rows; r++) total->sum[r][v] = v_mul(total->sum[r][v], d);
	}
}

/* nvfp4_steps is group_steps for NVFP4. */
FN_INLINE void nvfp4_steps(const step *s, const int rows, const int nv, const int keep) {
	sink out, total;
	begin_groups(s, &out, &total, rows, nv);
	for (int64_t k = 0; k < s->n; k += NV_K) {
		each_4(nvfp4_codes(s->p, k), s->lane, NV_K, &out, rows, nv, keep, 1);
		fold(s, &out, &total, nvfp4_scales(s->p, k), VAPP_NVFP4, rows, nv);
	}
	if (s->last) scale_outputs(s, &total, rows, nv);
	end_step(s, &total, rows, nv);
}

/* format is a compile-time constant, except for its scales. */
FN_INLINE void group_steps(const step *s, const int format, const int rows, const int nv, const int keep) {
	const int64_t group = format == VAPP_I8 ? group_k(s->format) : group_k(format), next = group_step(s->format);
	const uint8_t *p = s->p, *scales = s->scales;
	sink out, total;
	begin_groups(s, &out, &total, rows, nv);
	for (int64_t k = 0; k < s->n; k += group, p += panel_k(format, group), scales += next) {
		each(format, p, s->lane, s->n - k < group ? s->n - k : group, &out, rows, nv, keep);
		fold(s, &out, &total, scales, s->format, rows, nv);
	}
	end_step(s, &total, rows, nv);
}

FN_INLINE void take_block(sink *out, const float *p, int64_t n, const int rows, const int nv) {
	vec w[WIDE];
	for (; n > 0; n--, p += nv * LANES) {
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) w[v] = v_load(p + v * LANES);
		take(out, rows, nv, 0, w);
	}
}

/* unpack_wide and unpack_slim write n k's of a slice as [n][lanes]. */
FN static __attribute__((noinline)) void unpack_wide(const step *s, int64_t k, int64_t n) {
	sink out = {.block = s->block, .table = expanded_table(s->format)};
	each_more(s->format, s->p + panel_k(s->format, k), s->lane, n, &out, 0, WIDE, 1);
}

FN static __attribute__((noinline)) void unpack_slim(const step *s, int64_t k, int64_t n) {
	sink out = {.block = s->block, .table = expanded_table(s->format)};
	each_more(s->format, s->p + panel_k(s->format, k), s->lane, n, &out, 0, SLIM, 1);
}

/* blocks_step unpacks a block of k, which block_step can use again, and multiplies it. */
FN_INLINE void blocks_step(const step *s, const int rows, const int nv) {
	sink out;
	begin_step(s, &out, rows, nv);
	for (int64_t k = 0; k < s->n; k += KBLOCK) {
		int64_t n = s->n - k < KBLOCK ? s->n - k : KBLOCK;
		if (nv == WIDE) unpack_wide(s, k, n);
		else unpack_slim(s, k, n);
		take_block(&out, s->block, n, rows, nv);
	}
	end_step(s, &out, rows, nv);
}

/* packed_step reads the packed weights; with keep it stores the block for block_step. */
FN_INLINE void packed_step(const step *s, const int rows, const int nv, const int keep) {
	switch (s->format % VAPP_SCALES) {
	case VAPP_F8_E4M3: group_steps(s, VAPP_F8_E4M3, rows, nv, keep); return;
	case VAPP_F8_E5M2: group_steps(s, VAPP_F8_E5M2, rows, nv, keep); return;
	case VAPP_MXFP4: group_steps(s, VAPP_MXFP4, rows, nv, keep); return;
	case VAPP_NVFP4: nvfp4_steps(s, rows, nv, keep); return;
	case VAPP_I8: group_steps(s, VAPP_I8, rows, nv, keep); return;
	case VAPP_Q8_0: group_steps(s, VAPP_Q8_0, rows, nv, keep); return;
	case VAPP_Q4_0: group_steps(s, VAPP_Q4_0, rows, nv, keep); return;
	}
	if (nv <= WIDE && in_blocks(s->format) && !(rows == 1 && nv == WIDE)) {
		blocks_step(s, rows, nv);
		return;
	}
	sink out;
	begin_step(s, &out, rows, nv);
	each(s->format, s->p, s->lane, s->n, &out, rows, nv, keep);
	end_step(s, &out, rows, nv);
}

FN_INLINE void block_groups(const step *s, int64_t group, const int rows) {
	const uint8_t *scales = s->scales;
	sink out, total;
	begin_groups(s, &out, &total, rows, SLIM);
	for (int64_t k = 0; k < s->n; k += group, scales += group_step(s->format)) {
		take_block(&out, s->block + k * SLIM * LANES, s->n - k < group ? s->n - k : group, rows, SLIM);
		fold(s, &out, &total, in_nvfp4(s->format) ? nvfp4_scales(s->scales, k) : scales, s->format, rows, SLIM);
	}
	if (in_nvfp4(s->format) && s->last) scale_outputs(s, &total, rows, SLIM);
	end_step(s, &total, rows, SLIM);
}

FN_INLINE void block_step(const step *s, const int rows) {
	int64_t group = group_k(s->format);
	if (group) {
		block_groups(s, group, rows);
		return;
	}
	sink out;
	begin_step(s, &out, rows, SLIM);
	take_block(&out, s->block, s->n, rows, SLIM);
	end_step(s, &out, rows, SLIM);
}

typedef void (*step_fn)(const step *s);
#define ROWS(n) \
	FN static void packed_step_##n(const step *s) { packed_step(s, n, SLIM, 0); } \
	FN static void block_step_##n(const step *s) { block_step(s, n); }
#define ENTRY(n) {packed_step_##n, block_step_##n},
#if TILE == 6
#define EACH_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)
#else
#define EACH_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#endif
EACH_ROWS(ROWS)
static const struct {
	step_fn packed, block;
} steps[TILE + 1] = {{NULL, NULL}, EACH_ROWS(ENTRY)};

FN static void keeping_step(const step *s) { packed_step(s, TILE, SLIM, 1); }
#if SLIM * LANES == 32 /* a whole panel */
#define wide_step_1 packed_step_1
#define wide_step_2 packed_step_2
#else
FN static void wide_step_1(const step *s) { packed_step(s, 1, WIDE, 0); }
FN static void wide_step_2(const step *s) { packed_step(s, 2, WIDE, 0); }
#endif
#if PAIR == 1
#define pair_step wide_step_1
#else
/* One row of one panel has too few sums to hide the latency of an addition. */
FN static void pair_step(const step *s) { packed_step(s, 1, PAIR * WIDE, 0); }
#endif

/* step_for returns the step of a tile: a single tile reads packed weights; of several, the
 * first unpacks a block that the others read. */
static step_fn step_for(const vapp_linear *a, int64_t rows, int panels, int alone, int first) {
	if (panels > 1) return pair_step;
	if (a->rows <= WIDE_ROWS) return rows == 1 ? wide_step_1 : wide_step_2;
	if (alone) return steps[rows].packed;
	return first ? keeping_step : steps[rows].block;
}

/* slice_tiles multiplies a slice, or two whole panels, with the tiles [t0, t1) of rows. Several
 * tiles take a block of k at a time, which stays in the first cache. */
static void slice_tiles(const vapp_linear *a, int64_t panel, int panels, int lane, int64_t t0, int64_t t1) {
	int64_t output = panel * PANEL + lane, block = t1 - t0 == 1 ? a->in : KBLOCK;
	step s = {.format = a->format, .lane = lane, .block = a->work, .ldy = a->ldy, .lanes = a->out - output};
	s.stride = a->rows == 1 ? 1 : TILE;
	s.far = panel_bytes(a->format, a->in);
	s.outputs = outputs_at(a, panel);
	for (int64_t k0 = 0; k0 < a->in; k0 += s.n) {
		s.n = a->in - k0 < block ? a->in - k0 : block;
		s.p = panel_at(a, panel) + panel_k(a->format, k0);
		s.scales = scales_at(a, panel, k0);
		s.first = k0 == 0;
		s.last = k0 + s.n == a->in;
		s.bias = a->bias && s.last ? a->bias + output : NULL;
		for (int64_t t = t0; t < t1; t++) {
			int64_t rows = a->rows - t * TILE < TILE ? a->rows - t * TILE : TILE;
			s.x = a->rows == 1 ? a->x : (const float *)a->shared + (t * a->in + k0) * TILE;
			s.y = a->y + t * TILE * a->ldy + output;
			step_for(a, rows, panels, t1 - t0 == 1, t == t0)(&s);
		}
	}
}

static void run(const vapp_linear *a, int part, int parts) {
	linear_grid g = grid_of(a, TILE, part, parts);
	int width = a->rows <= WIDE_ROWS ? PANEL : SLIM * LANES;
	for (int64_t u; (u = linear_unit(a, &g)) >= 0;) {
		if (PAIR == 2 && a->rows == 1 && !in_blocks(a->format) && g.next < g.last) {
			g.next++;
			slice_tiles(a, u, 2, 0, 0, 1);
			continue;
		}
		int64_t panel = u / g.chunks, c = u % g.chunks;
		for (int lane = 0; lane < PANEL && panel * PANEL + lane < a->out; lane += width)
			slice_tiles(a, panel, 1, lane, g.tiles * c / g.chunks, g.tiles * (c + 1) / g.chunks);
	}
}

/* transpose4 writes four rows of four floats as columns of dst [4][TILE]. */
static inline void transpose4(const float *x, int64_t ldx, float *dst) {
#if defined(__aarch64__)
	const float32x4_t r0 = vld1q_f32(x), r1 = vld1q_f32(x + ldx), r2 = vld1q_f32(x + 2 * ldx), r3 = vld1q_f32(x + 3 * ldx);
	const float32x4_t a = vzip1q_f32(r0, r2), b = vzip1q_f32(r1, r3), c = vzip2q_f32(r0, r2), d = vzip2q_f32(r1, r3);
	vst1q_f32(dst, vzip1q_f32(a, b));
	vst1q_f32(dst + TILE, vzip2q_f32(a, b));
	vst1q_f32(dst + 2 * TILE, vzip1q_f32(c, d));
	vst1q_f32(dst + 3 * TILE, vzip2q_f32(c, d));
#else
	__m128 c0 = _mm_loadu_ps(x), c1 = _mm_loadu_ps(x + ldx), c2 = _mm_loadu_ps(x + 2 * ldx), c3 = _mm_loadu_ps(x + 3 * ldx);
	_MM_TRANSPOSE4_PS(c0, c1, c2, c3);
	_mm_storeu_ps(dst, c0);
	_mm_storeu_ps(dst + TILE, c1);
	_mm_storeu_ps(dst + 2 * TILE, c2);
	_mm_storeu_ps(dst + 3 * TILE, c3);
#endif
}

/* transpose writes rows (4 or 1) of n floats as columns of dst [n][TILE]. */
static inline void transpose(const float *x, int64_t ldx, int rows, int64_t n, float *dst) {
	int64_t k = 0;
	for (; rows == 4 && k + 4 <= n; k += 4) transpose4(x + k, ldx, dst + k * TILE);
	for (; k < n; k++)
		for (int r = 0; r < rows; r++) dst[k * TILE + r] = x[r * ldx + k];
}

/* prepare writes x as [tile][k][TILE], so that a tile is read as one stream. It takes a block
 * of k of a tile at a time, and four rows by four k while there are that many. */
static void prepare(const vapp_linear *a, int part, int parts) {
	int64_t tiles = ((int64_t)a->rows + TILE - 1) / TILE, blocks = ((int64_t)a->in + KBLOCK - 1) / KBLOCK;
	int64_t units = tiles * blocks;
	for (int64_t u = units * part / parts; u < units * (part + 1) / parts; u++) {
		int64_t t = u / blocks, k0 = u % blocks * KBLOCK;
		int64_t n = a->in - k0 < KBLOCK ? a->in - k0 : KBLOCK;
		int64_t rows = a->rows - t * TILE < TILE ? a->rows - t * TILE : TILE, r = 0;
		const float *x = a->x + t * TILE * a->ldx + k0;
		float *dst = (float *)a->shared + (t * a->in + k0) * TILE;
		for (; r + 4 <= rows; r += 4) transpose(x + r * a->ldx, a->ldx, 4, n, dst + r);
		for (; r < rows; r++) transpose(x + r * a->ldx, a->ldx, 1, n, dst + r);
	}
}

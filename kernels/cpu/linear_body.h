/* linear_body.h: Linear on vectors of LANES floats, for the instruction set that
 * the including file brings: FN and the types and functions v_… named there.
 *
 * Lane = output; each output is one chain of fused multiply-adds in the order of
 * k, whatever the number of rows, started at 0 and ended with the bias. Weights are
 * unpacked to the exact floats that the format means.
 *
 * A panel is worked on in slices of up to 32 lanes: WIDE vectors for rows ≤
 * WIDE_ROWS and SLIM for more, as many as leave room for the sums of TILE rows. */
#include "linear_panel.h"

#define FN_INLINE static inline __attribute__((always_inline)) FN

enum {
	AHEAD = 4096, /* bytes that a stream is prefetched ahead */
	WIDE = PANEL / LANES
};

/* A sink takes the weights of one k after the other, multiplies them with rows of
 * x and stores them if keep says so. rows, nv (vectors) and keep are known when
 * compiling. */
typedef struct {
	float *block;   /* [k][nv·LANES], if kept */
	const float *x; /* [k][stride] */
	int64_t stride; /* TILE unless rows is 1 */
	vec sum[TILE][WIDE];
} sink;

FN_INLINE void take(sink *s, const int rows, const int nv, const int keep, const vec *w) {
	if (keep) {
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) v_store(s->block + v * LANES, w[v]);
		s->block += nv * LANES;
	}
#pragma GCC unroll 12
	for (int r = 0; r < rows; r++) {
		vec x = v_set(s->x[r]);
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) s->sum[r][v] = v_fma(w[v], x, s->sum[r][v]);
	}
	s->x += rows == 1 ? s->stride : TILE;
}

FN_INLINE void ahead(const uint8_t *p, const int lines) {
#pragma GCC unroll 2
	for (int i = 0; i < lines; i++) __builtin_prefetch(p + AHEAD + 64 * i);
}

/* Each format: k's p … p+n of a slice that begins at lane. */

FN_INLINE void each_f32(const uint8_t *p, int lane, int64_t n, sink *s, const int rows, const int nv, const int keep) {
	vec w[WIDE];
	for (int64_t k = 0; k < n; k++, p += 128) {
		ahead(p, 2);
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) w[v] = v_load((const float *)p + lane + v * LANES);
		take(s, rows, nv, keep, w);
	}
}

FN_INLINE void each_f16(const uint8_t *p, int lane, int64_t n, sink *s, const int rows, const int nv, const int keep) {
	vec w[WIDE];
	for (int64_t k = 0; k < n; k++, p += 64) {
		ahead(p, 1);
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) w[v] = v_halves(p + (lane + v * LANES) * 2);
		take(s, rows, nv, keep, w);
	}
}

FN_INLINE void each_bf16(const uint8_t *p, int lane, int64_t n, sink *s, const int rows, const int nv, const int keep) {
	vec w[WIDE];
	dwords q[WIDE];
	for (int64_t k = 0; k < n; k += 2, p += 128) {
		ahead(p, 2);
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) q[v] = v_dwords(p + (lane + v * LANES) * 4), w[v] = v_even(q[v]);
		take(s, rows, nv, keep, w);
		if (k + 1 == n) break;
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) w[v] = v_odd(q[v]);
		take(s, rows, nv, keep, w);
	}
}

FN_INLINE void each_q8_0(const uint8_t *p, int lane, int64_t n, sink *s, const int rows, const int nv, const int keep) {
	vec w[WIDE], d[WIDE];
	for (int64_t b = 0; b < n; b += 32, p += 1088) {
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) d[v] = v_halves(p + (lane + v * LANES) * 2);
		for (int j = 0; j < 32; j += 2) {
			const uint8_t *q = p + 64 + j * 32;
			ahead(q, 1);
#pragma GCC unroll 2
			for (int i = 0; i < 2; i++) {
#pragma GCC unroll 4
				for (int v = 0; v < nv; v++) w[v] = v_mul(v_bytes(q + i * 32 + lane + v * LANES), d[v]);
				take(s, rows, nv, keep, w);
			}
		}
	}
}

/* with_min says Q4_1, else Q4_0. */
FN_INLINE void each_q4(const uint8_t *p, int lane, int64_t n, sink *s, const int rows, const int nv, const int keep,
                       const int with_min) {
	nibble_table t = nibbles(with_min ? 0 : 8);
	vec w[WIDE], d[WIDE], m[WIDE];
	dwords q[WIDE];
	for (int64_t b = 0; b < n; b += 32) {
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) {
			d[v] = v_halves(p + (lane + v * LANES) * 2);
			if (with_min) m[v] = v_halves(p + 64 + (lane + v * LANES) * 2);
		}
		p += with_min ? 128 : 64;
		for (int g = 0; g < 4; g++, p += 128) {
			ahead(p, 2);
#pragma GCC unroll 4
			for (int v = 0; v < nv; v++) q[v] = v_dwords(p + (lane + v * LANES) * 4);
#pragma GCC unroll 8
			for (int j = 0; j < 8; j++) {
#pragma GCC unroll 4
				for (int v = 0; v < nv; v++) {
					w[v] = v_nibble(q[v], j, t);
					w[v] = with_min ? v_fma(w[v], d[v], m[v]) : v_mul(w[v], d[v]);
				}
				take(s, rows, nv, keep, w);
			}
		}
	}
}

FN_INLINE void each(int32_t format, const uint8_t *p, int lane, int64_t n, sink *s, const int rows, const int nv, const int keep) {
	switch (format) {
	case VAPP_F32: each_f32(p, lane, n, s, rows, nv, keep); break;
	case VAPP_F16: each_f16(p, lane, n, s, rows, nv, keep); break;
	case VAPP_BF16: each_bf16(p, lane, n, s, rows, nv, keep); break;
	case VAPP_Q8_0: each_q8_0(p, lane, n, s, rows, nv, keep); break;
	case VAPP_Q4_0: each_q4(p, lane, n, s, rows, nv, keep, 0); break;
	case VAPP_Q4_1: each_q4(p, lane, n, s, rows, nv, keep, 1); break;
	}
}

/* A step is n k's of one slice times one tile of rows. */
typedef struct {
	int32_t format;
	const uint8_t *p; /* packed weights of the panel, from this k on */
	int lane;         /* of the panel, where the slice begins */
	float *block;     /* the slice as [n][lanes], if kept */
	const float *x;   /* [n][stride] */
	int64_t stride, n;
	float *y; /* at this row and lane */
	int64_t ldy;
	const float *bias; /* of these lanes, in the last step; else NULL */
	int64_t lanes;     /* that exist, from this one on */
	int first;
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

/* packed_step reads the packed weights and may keep the block for block_step. */
FN_INLINE void packed_step(const step *s, const int rows, const int nv, const int keep) {
	sink out;
	begin_step(s, &out, rows, nv);
	each(s->format, s->p, s->lane, s->n, &out, rows, nv, keep);
	end_step(s, &out, rows, nv);
}

FN_INLINE void block_step(const step *s, const int rows) {
	sink out;
	vec w[WIDE];
	begin_step(s, &out, rows, SLIM);
	const float *p = s->block;
	for (int64_t k = s->n; k > 0; k--, p += SLIM * LANES) {
#pragma GCC unroll 4
		for (int v = 0; v < SLIM; v++) w[v] = v_load(p + v * LANES);
		take(&out, rows, SLIM, 0, w);
	}
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
FN static void wide_step_1(const step *s) { packed_step(s, 1, WIDE, 0); }
FN static void wide_step_2(const step *s) { packed_step(s, 2, WIDE, 0); }

/* step_for returns the step of a tile: one that is alone reads packed weights, else
 * the first unpacks a block that the others read. */
static step_fn step_for(const vapp_linear *a, int64_t rows, int alone, int first) {
	if (a->rows <= WIDE_ROWS) return rows == 1 ? wide_step_1 : wide_step_2;
	if (alone) return steps[rows].packed;
	return first ? keeping_step : steps[rows].block;
}

/* slice_tiles multiplies a slice with tiles t0 … t1 of rows. Many tiles take a
 * block of k at a time, which stays in the first cache between them. */
static void slice_tiles(const vapp_linear *a, int64_t panel, int lane, int64_t t0, int64_t t1) {
	int64_t output = panel * PANEL + lane, block = t1 - t0 == 1 ? a->in : KBLOCK;
	step s = {.format = a->format, .lane = lane, .block = a->work, .ldy = a->ldy, .lanes = a->out - output};
	s.stride = a->rows == 1 ? 1 : TILE;
	for (int64_t k0 = 0; k0 < a->in; k0 += s.n) {
		s.n = a->in - k0 < block ? a->in - k0 : block;
		s.p = panel_at(a, panel) + panel_k(a->format, k0);
		s.first = k0 == 0;
		s.bias = a->bias && k0 + s.n == a->in ? a->bias + output : NULL;
		for (int64_t t = t0; t < t1; t++) {
			int64_t rows = a->rows - t * TILE < TILE ? a->rows - t * TILE : TILE;
			s.x = a->rows == 1 ? a->x : (const float *)a->shared + (t * a->in + k0) * TILE;
			s.y = a->y + t * TILE * a->ldy + output;
			step_for(a, rows, t1 - t0 == 1, t == t0)(&s);
		}
	}
}

static void run(const vapp_linear *a, int part, int parts) {
	linear_grid g = grid_of(a, TILE, part, parts);
	int width = a->rows <= WIDE_ROWS ? PANEL : SLIM * LANES;
	for (int64_t u = g.first; u < g.last; u++) {
		int64_t panel = u / g.chunks, c = u % g.chunks;
		for (int lane = 0; lane < PANEL && panel * PANEL + lane < a->out; lane += width)
			slice_tiles(a, panel, lane, g.tiles * c / g.chunks, g.tiles * (c + 1) / g.chunks);
	}
}

/* prepare writes x as [tile][k][TILE], so that a tile is one stream. */
static void prepare(const vapp_linear *a, int part, int parts) {
	int64_t tiles = ((int64_t)a->rows + TILE - 1) / TILE, blocks = ((int64_t)a->in + KBLOCK - 1) / KBLOCK;
	int64_t units = tiles * blocks;
	for (int64_t u = units * part / parts; u < units * (part + 1) / parts; u++) {
		int64_t t = u / blocks, k0 = u % blocks * KBLOCK;
		int64_t k1 = k0 + KBLOCK < a->in ? k0 + KBLOCK : a->in;
		int64_t rows = a->rows - t * TILE < TILE ? a->rows - t * TILE : TILE;
		float *dst = (float *)a->shared + t * a->in * TILE;
		for (int64_t r = 0; r < rows; r++) {
			const float *x = a->x + (t * TILE + r) * a->ldx;
			for (int64_t k = k0; k < k1; k++) dst[k * TILE + r] = x[k];
		}
	}
}

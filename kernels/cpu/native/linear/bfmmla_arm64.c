/* bfmmla_arm64.c: Linear of weights in BF16 with BFMMLA, for VAPP_I8MM. x is rounded to bf16. One
 * BFMMLA adds four products to each output of two rows and two columns. Every row takes it, the
 * last of an odd number with a row of zeros, and an output is one chain of them in the order of
 * k. BFMMLA has its own rounding, and numbers below 2⁻¹²⁶ become zero. */
#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#include "panel.h"
#include "some_neon.h"

#define FN __attribute__((target("arch=armv8.2-a+bf16")))
#define V static inline __attribute__((always_inline)) FN

enum {
	LANES = 4,
	TILE = BFMMLA_TILE,
	FEW = 2,             /* with so many rows each part rounds x for itself, and a panel is one stream */
	SOME_V = 2,          /* vectors of outputs at once, of several pairs of rows */
	MOST_V = PANEL / LANES,
	BLOCK = 256          /* k's of a panel that all tiles take before the next ones: 16 KB */
};

/* rounded returns bf16, rounded to nearest even; a NaN stays a NaN. */
V uint16x4_t rounded(float32x4_t v) {
	uint32x4_t u = vreinterpretq_u32_f32(v), odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
	uint32x4_t r = vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
	return vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), r, vorrq_u32(u, vdupq_n_u32(0x400000))), 16);
}

/* pair_x rounds rows r and r + 1 of x to [k/4][2][4]; a row that does not exist is zeros, and so
 * are the k's behind the last. */
V void pair_x(const vapp_linear *a, int64_t r, uint16_t *to) {
	for (int64_t k = 0; k < a->in; k += 4)
		for (int64_t i = 0; i < 2; i++, to += 4) {
			float f[4] = {0};
			int64_t n = a->in - k < 4 ? a->in - k : 4;
			if (r + i < a->rows) memcpy(f, a->x + (r + i) * a->ldx + k, (size_t)n * 4);
			vst1_u16(to, rounded(vld1q_f32(f)));
		}
}

FN static void prepare(const vapp_linear *a, int part, int parts) {
	int64_t pairs = ((int64_t)a->rows + 1) / 2;
	for (int64_t p = pairs * part / parts; p < pairs * (part + 1) / parts; p++)
		pair_x(a, 2 * p, (uint16_t *)((uint8_t *)a->shared + p * bfmmla_pair_bytes(a->in)));
}

V float32x4_t first_of(float32x4_t a, float32x4_t b) {
	return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}

V float32x4_t second_of(float32x4_t a, float32x4_t b) {
	return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}

/* One step: k's [k0, k1) of some outputs of a panel times some rows. */
typedef struct {
	const uint8_t *w;  /* of k0 on, at the first of these outputs */
	const uint8_t *x;  /* of k0 on, of the first pair of rows */
	int64_t pair, n;   /* bytes from a pair to the next; k's */
	int64_t rows, ldy; /* rows that exist */
	float *y;
	int64_t lanes;
	const float *bias; /* of these outputs in the last step, else NULL */
	int first;
} bf_step;

/* add adds four k's; two is set if the panel has only the first two of them. */
V void add(const bf_step *s, const int pairs, const int nv, int64_t k, const int two, float32x4_t sum[][MOST_V][2]) {
	bfloat16x8_t x[TILE / 2];
#pragma GCC unroll 4
	for (int p = 0; p < pairs; p++) x[p] = vreinterpretq_bf16_u16(vld1q_u16((const void *)(s->x + p * s->pair + k * 4)));
#pragma GCC unroll 8
	for (int v = 0; v < nv; v++) {
		uint32x4_t a = vld1q_u32((const void *)(s->w + k * 64 + v * 16));
		uint32x4_t b = two ? vdupq_n_u32(0) : vld1q_u32((const void *)(s->w + k * 64 + 128 + v * 16));
		bfloat16x8_t low = vreinterpretq_bf16_u32(vzip1q_u32(a, b)), high = vreinterpretq_bf16_u32(vzip2q_u32(a, b));
#pragma GCC unroll 4
		for (int p = 0; p < pairs; p++) {
			sum[p][v][0] = vbfmmlaq_f32(sum[p][v][0], x[p], low);
			sum[p][v][1] = vbfmmlaq_f32(sum[p][v][1], x[p], high);
		}
	}
}

V void step_of(const bf_step *s, const int pairs, const int nv) {
	float32x4_t sum[TILE / 2][MOST_V][2];
#pragma GCC unroll 4
	for (int p = 0; p < pairs; p++)
#pragma GCC unroll 8
		for (int v = 0; v < nv; v++) {
			float32x4_t y[2] = {vdupq_n_f32(0), vdupq_n_f32(0)};
#pragma GCC unroll 2
			for (int i = 0; i < 2; i++)
				if (!s->first && 2 * p + i < s->rows) y[i] = load_some(s->y + (2 * p + i) * s->ldy + v * LANES, s->lanes - v * LANES);
			sum[p][v][0] = first_of(y[0], y[1]);
			sum[p][v][1] = second_of(y[0], y[1]);
		}
	int64_t k = 0;
	for (; k + 2 < s->n; k += 4) add(s, pairs, nv, k, 0, sum);
	if (k < s->n) add(s, pairs, nv, k, 1, sum);
#pragma GCC unroll 8
	for (int v = 0; v < nv; v++) {
		float32x4_t bias = s->bias ? load_some(s->bias + v * LANES, s->lanes - v * LANES) : vdupq_n_f32(0);
#pragma GCC unroll 4
		for (int p = 0; p < pairs; p++) {
			float32x4_t y[2] = {first_of(sum[p][v][0], sum[p][v][1]), second_of(sum[p][v][0], sum[p][v][1])};
#pragma GCC unroll 2
			for (int i = 0; i < 2; i++)
				if (2 * p + i < s->rows) store_some(s->y + (2 * p + i) * s->ldy + v * LANES, s->lanes - v * LANES, s->bias ? vaddq_f32(y[i], bias) : y[i]);
		}
	}
}

FN static void step_panel(const bf_step *s) { step_of(s, 1, MOST_V); }
FN static void step_1(const bf_step *s) { step_of(s, 1, SOME_V); }
FN static void step_2(const bf_step *s) { step_of(s, 2, SOME_V); }
FN static void step_3(const bf_step *s) { step_of(s, 3, SOME_V); }
FN static void step_4(const bf_step *s) { step_of(s, 4, SOME_V); }

/* panel_tiles multiplies a panel with tiles [t0, t1) of rows, whose x begins at x. */
static void panel_tiles(const vapp_linear *a, int64_t panel, int64_t t0, int64_t t1, const uint8_t *x) {
	static void (*const steps[])(const bf_step *) = {step_panel, step_1, step_2, step_3, step_4};
	const int few = a->rows <= FEW, wide = few ? PANEL : SOME_V * LANES;
	const int64_t block = few ? a->in : BLOCK, output = panel * PANEL;
	bf_step s = {.pair = bfmmla_pair_bytes(a->in), .ldy = a->ldy};
	for (int64_t k0 = 0; k0 < a->in; k0 += s.n) {
		s.n = a->in - k0 < block ? a->in - k0 : block;
		s.first = k0 == 0;
		for (int64_t t = t0; t < t1; t++) {
			s.rows = a->rows - t * TILE < TILE ? a->rows - t * TILE : TILE;
			s.x = x + t * (TILE / 2) * s.pair + k0 * 4;
			for (int64_t lane = 0; lane < PANEL && output + lane < a->out; lane += wide) {
				s.w = panel_at(a, panel) + k0 * 64 + lane * 4;
				s.y = a->y + t * TILE * a->ldy + output + lane;
				s.lanes = a->out - output - lane;
				s.bias = a->bias && k0 + s.n == a->in ? a->bias + output + lane : NULL;
				steps[few ? 0 : (s.rows + 1) / 2](&s);
			}
		}
	}
}

FN static void run(const vapp_linear *a, int part, int parts) {
	linear_grid g = grid_of(a, TILE, part, parts);
	const uint8_t *x = a->shared;
	int64_t u = linear_unit(a, &g);
	if (u < 0) return;
	if (a->rows <= FEW) {
		pair_x(a, 0, a->work);
		x = a->work;
	}
	for (; u >= 0; u = linear_unit(a, &g)) {
		int64_t c = u % g.chunks;
		panel_tiles(a, u / g.chunks, g.tiles * c / g.chunks, g.tiles * (c + 1) / g.chunks, x);
	}
}

static const vapp_linear_kernel kernel = {prepare, FEW + 1, run, vapp_linear_row};

const vapp_linear_kernel *vapp_linear_bfmmla(int format) { return format == VAPP_BF16 ? &kernel : NULL; }

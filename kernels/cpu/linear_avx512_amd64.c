/* linear_avx512_amd64.c: Linear with AVX-512. Lane = output; each output is one
 * chain of fused multiply-adds in the order of k, whatever the number of rows.
 * Weights are unpacked to the exact floats that the format means. */
#include "linear_panel.h"
#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")))
#define INLINE512 static inline __attribute__((always_inline)) AVX512

enum { AHEAD = 4096 }; /* bytes that a stream is prefetched ahead */

INLINE512 __m512 halves(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }

/* nibble_floats maps a nibble to its number: the low four bits of each dword pick
 * one of 16 floats, so no mask is needed. */
INLINE512 __m512 nibble_floats(int32_t format) {
	__m512i i = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	if (format == VAPP_Q4_0) i = _mm512_sub_epi32(i, _mm512_set1_epi32(8));
	return _mm512_cvtepi32_ps(i);
}

/* A sink takes the weights of one k after the other, 32 floats each, multiplies
 * them with rows of x and stores them if keep says so. rows and keep are known
 * when compiling. */
typedef struct {
	float *block; /* [k][32], if kept */
	const float *x; /* [k][stride] */
	int64_t stride; /* TILE unless rows is 1 */
	__m512 lo[TILE], hi[TILE];
} sink;

INLINE512 void take(sink *s, const int rows, const int keep, __m512 lo, __m512 hi) {
	if (keep) {
		_mm512_storeu_ps(s->block, lo);
		_mm512_storeu_ps(s->block + 16, hi);
		s->block += PANEL;
	}
#pragma GCC unroll 12
	for (int r = 0; r < rows; r++) {
		__m512 x = _mm512_set1_ps(s->x[r]);
		s->lo[r] = _mm512_fmadd_ps(lo, x, s->lo[r]);
		s->hi[r] = _mm512_fmadd_ps(hi, x, s->hi[r]);
	}
	s->x += rows == 1 ? s->stride : TILE;
}

INLINE512 void each_f32(const uint8_t *p, int64_t n, sink *s, const int rows, const int keep) {
	for (int64_t k = 0; k < n; k++, p += 128) {
		_mm_prefetch((const char *)p + AHEAD, _MM_HINT_T0);
		_mm_prefetch((const char *)p + AHEAD + 64, _MM_HINT_T0);
		take(s, rows, keep, _mm512_loadu_ps(p), _mm512_loadu_ps(p + 64));
	}
}

INLINE512 void each_f16(const uint8_t *p, int64_t n, sink *s, const int rows, const int keep) {
	for (int64_t k = 0; k < n; k++, p += 64) {
		_mm_prefetch((const char *)p + AHEAD, _MM_HINT_T0);
		take(s, rows, keep, halves(p), halves(p + 32));
	}
}

INLINE512 void each_bf16(const uint8_t *p, int64_t n, sink *s, const int rows, const int keep) {
	__m512i upper = _mm512_set1_epi32((int)0xffff0000);
	for (int64_t k = 0; k < n; k += 2, p += 128) {
		_mm_prefetch((const char *)p + AHEAD, _MM_HINT_T0);
		_mm_prefetch((const char *)p + AHEAD + 64, _MM_HINT_T0);
		__m512i lo = _mm512_loadu_si512(p), hi = _mm512_loadu_si512(p + 64);
		take(s, rows, keep, _mm512_castsi512_ps(_mm512_slli_epi32(lo, 16)), _mm512_castsi512_ps(_mm512_slli_epi32(hi, 16)));
		if (k + 1 == n) break;
		take(s, rows, keep, _mm512_castsi512_ps(_mm512_and_si512(lo, upper)), _mm512_castsi512_ps(_mm512_and_si512(hi, upper)));
	}
}

INLINE512 __m512 bytes(const uint8_t *p) {
	return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
}

INLINE512 void each_q8_0(const uint8_t *p, int64_t n, sink *s, const int rows, const int keep) {
	for (int64_t b = 0; b < n; b += 32, p += 1088) {
		__m512 d0 = halves(p), d1 = halves(p + 32);
		for (int j = 0; j < 32; j += 2) {
			const uint8_t *q = p + 64 + j * 32;
			_mm_prefetch((const char *)q + AHEAD, _MM_HINT_T0);
			take(s, rows, keep, _mm512_mul_ps(bytes(q), d0), _mm512_mul_ps(bytes(q + 16), d1));
			take(s, rows, keep, _mm512_mul_ps(bytes(q + 32), d0), _mm512_mul_ps(bytes(q + 48), d1));
		}
	}
}

INLINE512 __m512 pick(__m512i q, int j, __m512 floats) {
	return _mm512_permutexvar_ps(_mm512_srli_epi32(q, 4 * j), floats);
}

INLINE512 void each_q4_0(const uint8_t *p, int64_t n, sink *s, const int rows, const int keep) {
	__m512 floats = nibble_floats(VAPP_Q4_0);
	for (int64_t b = 0; b < n; b += 32, p += 576) {
		__m512 d0 = halves(p), d1 = halves(p + 32);
		for (int g = 0; g < 4; g++) {
			const uint8_t *q = p + 64 + g * 128;
			_mm_prefetch((const char *)q + AHEAD, _MM_HINT_T0);
			_mm_prefetch((const char *)q + AHEAD + 64, _MM_HINT_T0);
			__m512i q0 = _mm512_loadu_si512(q), q1 = _mm512_loadu_si512(q + 64);
#pragma GCC unroll 8
			for (int j = 0; j < 8; j++)
				take(s, rows, keep, _mm512_mul_ps(pick(q0, j, floats), d0), _mm512_mul_ps(pick(q1, j, floats), d1));
		}
	}
}

INLINE512 void each_q4_1(const uint8_t *p, int64_t n, sink *s, const int rows, const int keep) {
	__m512 floats = nibble_floats(VAPP_Q4_1);
	for (int64_t b = 0; b < n; b += 32, p += 640) {
		__m512 d0 = halves(p), d1 = halves(p + 32), m0 = halves(p + 64), m1 = halves(p + 96);
		for (int g = 0; g < 4; g++) {
			const uint8_t *q = p + 128 + g * 128;
			_mm_prefetch((const char *)q + AHEAD, _MM_HINT_T0);
			_mm_prefetch((const char *)q + AHEAD + 64, _MM_HINT_T0);
			__m512i q0 = _mm512_loadu_si512(q), q1 = _mm512_loadu_si512(q + 64);
#pragma GCC unroll 8
			for (int j = 0; j < 8; j++)
				take(s, rows, keep, _mm512_fmadd_ps(pick(q0, j, floats), d0, m0), _mm512_fmadd_ps(pick(q1, j, floats), d1, m1));
		}
	}
}

INLINE512 void each(int32_t format, const uint8_t *p, int64_t n, sink *s, const int rows, const int keep) {
	switch (format) {
	case VAPP_F32: each_f32(p, n, s, rows, keep); break;
	case VAPP_F16: each_f16(p, n, s, rows, keep); break;
	case VAPP_BF16: each_bf16(p, n, s, rows, keep); break;
	case VAPP_Q8_0: each_q8_0(p, n, s, rows, keep); break;
	case VAPP_Q4_0: each_q4_0(p, n, s, rows, keep); break;
	case VAPP_Q4_1: each_q4_1(p, n, s, rows, keep); break;
	}
}

/* Masks of a panel's lanes that exist. */
typedef struct {
	__mmask16 lo, hi;
} lanes;

INLINE lanes lanes_of(const vapp_linear *a, int64_t panel) {
	int64_t n = a->out - panel * PANEL;
	uint32_t m = n >= PANEL ? 0xffffffffu : (1u << n) - 1;
	return (lanes){(__mmask16)m, (__mmask16)(m >> 16)};
}

/* A step is a block of k of one panel times one tile of rows. */
typedef struct {
	int32_t format;
	const uint8_t *p; /* packed weights */
	float *block;     /* the same as [n][32], if kept */
	const float *x;   /* [n][stride] */
	int64_t stride, n;
	float *y;
	int64_t ldy;
	const float *bias; /* of these lanes, in the last step; else NULL */
	lanes m;
	int first;
} step;

INLINE512 void begin_step(const step *s, sink *sums, const int rows) {
	__m512 zero = _mm512_setzero_ps();
#pragma GCC unroll 12
	for (int r = 0; r < rows; r++) {
		sums->lo[r] = s->first ? zero : _mm512_maskz_loadu_ps(s->m.lo, s->y + r * s->ldy);
		sums->hi[r] = s->first ? zero : _mm512_maskz_loadu_ps(s->m.hi, s->y + r * s->ldy + 16);
	}
	sums->x = s->x;
	sums->stride = s->stride;
}

INLINE512 void end_step(const step *s, sink *sums, const int rows) {
	__m512 b0 = _mm512_setzero_ps(), b1 = b0;
	if (s->bias) b0 = _mm512_maskz_loadu_ps(s->m.lo, s->bias), b1 = _mm512_maskz_loadu_ps(s->m.hi, s->bias + 16);
#pragma GCC unroll 12
	for (int r = 0; r < rows; r++) {
		if (s->bias) sums->lo[r] = _mm512_add_ps(sums->lo[r], b0), sums->hi[r] = _mm512_add_ps(sums->hi[r], b1);
		_mm512_mask_storeu_ps(s->y + r * s->ldy, s->m.lo, sums->lo[r]);
		_mm512_mask_storeu_ps(s->y + r * s->ldy + 16, s->m.hi, sums->hi[r]);
	}
}

/* packed_step reads the packed weights and may keep the block for block_step. */
INLINE512 void packed_step(const step *s, const int rows, const int keep) {
	sink sums;
	begin_step(s, &sums, rows);
	sums.block = s->block;
	each(s->format, s->p, s->n, &sums, rows, keep);
	end_step(s, &sums, rows);
}

INLINE512 void block_step(const step *s, const int rows) {
	sink sums;
	begin_step(s, &sums, rows);
	const float *w = s->block;
	for (int64_t k = s->n; k > 0; k--, w += PANEL) take(&sums, rows, 0, _mm512_loadu_ps(w), _mm512_loadu_ps(w + 16));
	end_step(s, &sums, rows);
}

#define ROWS(n) \
	AVX512 static void packed_step_##n(const step *s) { packed_step(s, n, 0); } \
	AVX512 static void block_step_##n(const step *s) { block_step(s, n); }
ROWS(1) ROWS(2) ROWS(3) ROWS(4) ROWS(5) ROWS(6) ROWS(7) ROWS(8) ROWS(9) ROWS(10) ROWS(11) ROWS(12)
AVX512 static void keeping_step(const step *s) { packed_step(s, TILE, 1); }

typedef void (*step_fn)(const step *s);
static const step_fn packed_steps[TILE + 1] = {
	NULL,          packed_step_1, packed_step_2, packed_step_3, packed_step_4,  packed_step_5,  packed_step_6,
	packed_step_7, packed_step_8, packed_step_9, packed_step_10, packed_step_11, packed_step_12,
};
static const step_fn block_steps[TILE + 1] = {
	NULL,         block_step_1, block_step_2, block_step_3, block_step_4,  block_step_5,  block_step_6,
	block_step_7, block_step_8, block_step_9, block_step_10, block_step_11, block_step_12,
};

/* one_tile is a panel times at most TILE rows, in one step from memory to sums. */
static void one_tile(const vapp_linear *a, int64_t panel, int64_t t) {
	step s = {.format = a->format, .p = panel_at(a, panel), .n = a->in, .ldy = a->ldy, .m = lanes_of(a, panel), .first = 1};
	int64_t rows = a->rows - t * TILE;
	s.x = a->rows == 1 ? a->x : (const float *)a->shared + t * a->in * TILE;
	s.stride = a->rows == 1 ? 1 : TILE;
	s.y = a->y + t * TILE * a->ldy + panel * PANEL;
	s.bias = a->bias ? a->bias + panel * PANEL : NULL;
	packed_steps[rows < TILE ? rows : TILE](&s);
}

/* tiles multiplies a panel with tiles t0 … t1 of rows, a block of k at a time: the
 * first tile unpacks the block for the others. */
static void tiles(const vapp_linear *a, int64_t panel, int64_t t0, int64_t t1) {
	step s = {.format = a->format, .block = a->work, .stride = TILE, .ldy = a->ldy, .m = lanes_of(a, panel)};
	for (int64_t k0 = 0; k0 < a->in; k0 += s.n) {
		s.n = a->in - k0 < KBLOCK ? a->in - k0 : KBLOCK;
		s.p = panel_at(a, panel) + panel_k(a->format, k0);
		s.first = k0 == 0;
		s.bias = a->bias && k0 + s.n == a->in ? a->bias + panel * PANEL : NULL;
		for (int64_t t = t0; t < t1; t++) {
			int64_t rows = a->rows - t * TILE;
			s.x = (const float *)a->shared + (t * a->in + k0) * TILE;
			s.y = a->y + t * TILE * a->ldy + panel * PANEL;
			if (rows > TILE) rows = TILE;
			if (a->format == VAPP_F32)
				packed_steps[rows](&s);
			else if (t == t0)
				keeping_step(&s);
			else
				block_steps[rows](&s);
		}
	}
}

static void run(const vapp_linear *a, int part, int parts) {
	linear_grid g = grid_of(a, TILE, part, parts);
	for (int64_t u = g.first; u < g.last; u++) {
		int64_t panel = u / g.chunks, c = u % g.chunks;
		int64_t t0 = g.tiles * c / g.chunks, t1 = g.tiles * (c + 1) / g.chunks;
		if (t1 - t0 == 1)
			one_tile(a, panel, t0);
		else
			tiles(a, panel, t0, t1);
	}
}

/* prepare writes x as [tile][k][TILE], so that a tile is one stream. */
static void prepare(const vapp_linear *a, int part, int parts) {
	int64_t tiles = ((int64_t)a->rows + TILE - 1) / TILE, blocks = ((int64_t)a->in + KBLOCK - 1) / KBLOCK;
	for (int64_t u = tiles * blocks * part / parts; u < tiles * blocks * (part + 1) / parts; u++) {
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

static const vapp_linear_kernel kernel = {prepare, 2, run, vapp_linear_row};

const vapp_linear_kernel *vapp_linear_avx512(int format) {
	(void)format;
	return &kernel;
}

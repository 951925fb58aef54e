/* linear_unpack.h: packed weights to vectors of LANES floats, for the instruction set
 * that the including file brings: FN, LANES, TILE and the types and functions v_…
 *
 * Weights are unpacked to the exact floats that the format means. A panel is worked
 * on in slices of nv vectors that begin at some lane of it. */
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

/* e5m2 says F8_E5M2, else F8_E4M3: raw halves, that the group's scale makes weights. */
FN_INLINE void each_f8(const uint8_t *p, int lane, int64_t n, sink *s, const int rows, const int nv, const int keep,
                       const int e5m2) {
	vec w[WIDE];
	words q[WIDE];
	for (int64_t k = 0; k < n; k += 2, p += 64) {
		ahead(p, 1);
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) q[v] = v_words(p + (lane + v * LANES) * 2), w[v] = v_first8(q[v], e5m2);
		take(s, rows, nv, keep, w);
		if (k + 1 == n) break;
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) w[v] = v_second8(q[v], e5m2);
		take(s, rows, nv, keep, w);
	}
}

/* Numbers of four bits, without their exponents. */
FN_INLINE void each_mxfp4(const uint8_t *p, int lane, int64_t n, sink *s, const int rows, const int nv, const int keep) {
	fp4_table t = fp4();
	vec w[WIDE];
	dwords q[WIDE];
	for (int64_t b = 0; b < n; b += 8, p += 128) {
		ahead(p, 2);
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) q[v] = v_dwords(p + (lane + v * LANES) * 4);
#pragma GCC unroll 8
		for (int j = 0; j < 8; j++) {
#pragma GCC unroll 4
			for (int v = 0; v < nv; v++) w[v] = v_fp4(q[v], j, t);
			take(s, rows, nv, keep, w);
		}
	}
}

/* v_group_scale is group_scale of the lanes from lane on. */
FN_INLINE vec v_group_scale(int32_t format, const uint8_t *scales, int lane) {
	if (format == VAPP_MXFP4) return v_exponents(scales + lane);
	switch (format / VAPP_SCALES) {
	case VAPP_NO_SCALES:
	case VAPP_PANEL_SCALES: return v_set(group_scale(format, scales, 0));
	default: return v_mul(v_load((const float *)scales + lane), v_set(float8_unit(format)));
	}
}

FN_INLINE void each(int32_t format, const uint8_t *p, int lane, int64_t n, sink *s, const int rows, const int nv, const int keep) {
	switch (format % VAPP_SCALES) {
	case VAPP_F32: each_f32(p, lane, n, s, rows, nv, keep); break;
	case VAPP_F16: each_f16(p, lane, n, s, rows, nv, keep); break;
	case VAPP_BF16: each_bf16(p, lane, n, s, rows, nv, keep); break;
	case VAPP_Q8_0: each_q8_0(p, lane, n, s, rows, nv, keep); break;
	case VAPP_Q4_0: each_q4(p, lane, n, s, rows, nv, keep, 0); break;
	case VAPP_Q4_1: each_q4(p, lane, n, s, rows, nv, keep, 1); break;
	case VAPP_F8_E4M3: each_f8(p, lane, n, s, rows, nv, keep, 0); break;
	case VAPP_F8_E5M2: each_f8(p, lane, n, s, rows, nv, keep, 1); break;
	case VAPP_MXFP4: each_mxfp4(p, lane, n, s, rows, nv, keep); break;
	}
}

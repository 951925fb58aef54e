/* unpack.h: packed weights to vectors of LANES floats. A target header, which comes first,
 * defines FN, LANES, TILE, PAIR and the types and functions v_….
 *
 * Weights are unpacked to the exact floats that the format means. A panel is processed in
 * slices of nv vectors that begin at some lane. */
#ifndef VAPP_CPU_LINEAR_UNPACK_H
#define VAPP_CPU_LINEAR_UNPACK_H
#include <stdint.h>

#include "blocks.h"
#include "panel.h"

#define FN_INLINE static inline __attribute__((always_inline)) FN

enum {
	AHEAD = 4096, /* bytes that a stream is prefetched ahead */
	WIDE = PANEL / LANES, /* vectors of a panel */
	MOST = PAIR * WIDE    /* vectors at once */
};

/* A sink takes the weights of one k after the other, multiplies them with rows of x and, if
 * keep is set, stores them. rows, nv (vectors) and keep are compile-time constants. */
typedef struct {
	float *block;   /* [k][nv·LANES], if stored */
	const float *x; /* [k][stride] */
	int64_t stride; /* TILE unless rows is 1 */
	int64_t far;    /* bytes to the second panel, whose vectors follow the first WIDE */
	const float *table; /* of VAPP_EXPANDED */
	vec sum[TILE][MOST];
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

/* by_twos reports whether a single row takes its vectors two at a time: with 16 registers, scales
 * and minima of four leave none for the codes. */
FN_INLINE int by_twos(const int rows, const int nv, const int keep) { return LANES == 8 && rows == 1 && nv == 4 && !keep; }

/* take_two multiplies vectors v and v + 1 of the j-th of the next k's with a single row. */
FN_INLINE void take_two(sink *s, const int v, int j, vec a, vec b) {
	vec x = v_set(s->x[j * s->stride]);
	s->sum[0][v] = v_fma(a, x, s->sum[0][v]);
	s->sum[0][v + 1] = v_fma(b, x, s->sum[0][v + 1]);
}

/* ahead prefetches lines, for formats whose unpacking takes longer than reading memory: the
 * processor's own prefetcher is faster for plain loads. */
FN_INLINE void ahead(const sink *s, const uint8_t *p, const int lines, const int nv) {
#pragma GCC unroll 2
	for (int v = 0; v < nv; v += WIDE)
#pragma GCC unroll 2
		for (int i = 0; i < lines; i++) __builtin_prefetch(p + v / WIDE * s->far + AHEAD + 64 * i);
}

/* The address of the elements of vector v, `size` bytes each; p is that of the panel. */
#define at(p, size) ((p) + v / WIDE * s->far + (lane + v % WIDE * LANES) * (size))

/* For each format: n k's, from p on, of a slice that begins at lane. */

FN_INLINE void each_f32(const uint8_t *p, int lane, int64_t n, sink *s, const int rows, const int nv, const int keep) {
	vec w[MOST];
	for (int64_t k = 0; k < n; k++, p += 128) {
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) w[v] = v_load((const float *)at(p, 4));
		take(s, rows, nv, keep, w);
	}
}

FN_INLINE void each_f16(const uint8_t *p, int lane, int64_t n, sink *s, const int rows, const int nv, const int keep) {
	vec w[MOST];
	for (int64_t k = 0; k < n; k++, p += 64) {
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) w[v] = v_halves(at(p, 2));
		take(s, rows, nv, keep, w);
	}
}

FN_INLINE void each_bf16(const uint8_t *p, int lane, int64_t n, sink *s, const int rows, const int nv, const int keep) {
	vec w[MOST];
	dwords q[MOST];
	for (int64_t k = 0; k < n; k += 2, p += 128) {
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) q[v] = v_dwords(at(p, 4)), w[v] = v_even(q[v]);
		take(s, rows, nv, keep, w);
		if (k + 1 == n) break;
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) w[v] = v_odd(q[v]);
		take(s, rows, nv, keep, w);
	}
}

/* 8-bit and 4-bit integers, without the scales of their groups, which precede them. */
FN_INLINE void each_q8_0(const uint8_t *p, int lane, int64_t n, sink *s, const int rows, const int nv, const int keep) {
	vec w[MOST];
	for (int64_t k = 0; k < n; k += 2, p += 64) {
		if (k % 32 == 0) ahead(s, p, 1, nv), p += 64;
		ahead(s, p, 1, nv);
#pragma GCC unroll 2
		for (int i = 0; i < 2; i++) {
#pragma GCC unroll 4
			for (int v = 0; v < nv; v++) w[v] = v_bytes(at(p + i * 32, 1));
			take(s, rows, nv, keep, w);
		}
	}
}

/* Whole pairs of k's; the groups' scales follow the panel. */
FN_INLINE void each_i8(const uint8_t *p, int lane, int64_t n, sink *s, const int rows, const int nv, const int keep) {
	vec w[MOST];
	for (int64_t k = 0; k < n; k += 2, p += 64) {
		ahead(s, p, 1, nv);
#pragma GCC unroll 2
		for (int i = 0; i < 2; i++) {
#pragma GCC unroll 4
			for (int v = 0; v < nv; v++) w[v] = v_bytes(at(p + i * 32, 1));
			take(s, rows, nv, keep, w);
		}
	}
}

/* v_four returns the j-th of the eight k's of q, of MXFP4 and NVFP4, or of Q4_0. */
FN_INLINE vec v_four(dwords q, int j, const int fp, const fp4_table *f, const nibble_table *n) {
	return fp ? v_fp4(q, j, f) : v_nibble(q, j, n);
}

FN_INLINE void each_4(const uint8_t *p, int lane, int64_t n, sink *s, const int rows, const int nv, const int keep, const int fp) {
	fp4_table f = fp4();
	nibble_table i = nibbles(8);
	vec w[MOST];
	dwords q[MOST];
	for (int64_t b = 0; b < n; b += 8, p += 128) {
		if (!fp && b % 32 == 0) p += 64;
		ahead(s, p, 2, nv);
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) q[v] = v_dwords(at(p, 4));
#pragma GCC unroll 8
		for (int j = 0; j < 8; j++) {
#pragma GCC unroll 4
			for (int v = 0; v < nv; v++) w[v] = v_four(q[v], j, fp, &f, &i);
			take(s, rows, nv, keep, w);
		}
	}
}

/* v_q4_heads loads a vector's scales and minima from the head at d, and the minima at m; with
 * zeros set, d has both. */
FN_INLINE void v_q4_heads(const uint8_t *d, const uint8_t *m, const int zeros, vec *scale, vec *least) {
	if (zeros) {
		dwords q = v_dwords(d);
		*scale = v_upper(q);
		*least = v_mul(v_mul(*scale, v_set(-1)), v_number(v_field(q, 0, ZERO_BITS), 0));
		return;
	}
	*scale = v_halves(d);
	*least = v_halves(m);
}

FN_INLINE void each_q4_1(const uint8_t *p, int lane, int64_t n, sink *s, const int rows, const int nv, const int keep, int zeros) {
	nibble_table t = nibbles(0);
	vec w[MOST], d[MOST], m[MOST];
	dwords q[MOST];
	for (int64_t b = 0; b < n; b += 32) {
		if (zeros) {
#pragma GCC unroll 4
			for (int v = 0; v < nv; v++) v_q4_heads(at(p, 4), p, 1, &d[v], &m[v]);
		} else {
#pragma GCC unroll 4
			for (int v = 0; v < nv; v++) v_q4_heads(at(p, 2), at(p + 64, 2), 0, &d[v], &m[v]);
		}
		p += 128;
		for (int g = 0; g < 4; g++, p += 128) {
			ahead(s, p, 2, nv);
#pragma GCC unroll 4
			for (int v = 0; v < nv; v++) q[v] = v_dwords(at(p, 4));
			if (by_twos(rows, nv, keep)) {
#pragma GCC unroll 2
				for (int v = 0; v < nv; v += 2)
#pragma GCC unroll 8
					for (int j = 0; j < 8; j++)
						take_two(s, v, j, v_fma(v_nibble(q[v], j, &t), d[v], m[v]), v_fma(v_nibble(q[v + 1], j, &t), d[v + 1], m[v + 1]));
				s->x += 8 * s->stride;
				continue;
			}
#pragma GCC unroll 8
			for (int j = 0; j < 8; j++) {
#pragma GCC unroll 4
				for (int v = 0; v < nv; v++) w[v] = v_fma(v_nibble(q[v], j, &t), d[v], m[v]);
				take(s, rows, nv, keep, w);
			}
		}
	}
}

/* e5m2 selects F8_E5M2, else F8_E4M3. The weights are raw halves, which the group's scale
 * corrects. */
FN_INLINE void each_f8(const uint8_t *p, int lane, int64_t n, sink *s, const int rows, const int nv, const int keep,
                       const int e5m2) {
	vec w[MOST];
	words q[MOST];
	for (int64_t k = 0; k < n; k += 2, p += 64) {
		ahead(s, p, 1, nv);
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) q[v] = v_words(at(p, 2)), w[v] = v_first8(q[v], e5m2);
		take(s, rows, nv, keep, w);
		if (k + 1 == n) break;
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) w[v] = v_second8(q[v], e5m2);
		take(s, rows, nv, keep, w);
	}
}

/* heads_of loads the scale d and the minimum of a lane's block, for formats without sub-blocks,
 * or of the sub-block at `scales`. b is a compile-time constant. The minimum is added. */
FN_INLINE void heads_of(const blocks b, const uint8_t *heads, const uint8_t *scales, int lane, const int nv, vec *scale, vec *least) {
#pragma GCC unroll 4
	for (int v = 0; v < nv; v++) {
		int at = lane + v * LANES;
		scale[v] = v_halves(heads + at * 2);
		if (b.least) least[v] = v_halves(heads + 64 + at * 2);
		if (!b.subs) continue;
		scale[v] = v_mul(scale[v], v_bytes(scales + at));
		if (b.least) least[v] = v_mul(v_mul(least[v], v_set(-1)), v_bytes(scales + b.subs * PANEL + at));
	}
}

/* v_weight returns the weights of the j-th of eight k's, whose fields are in q and h. */
FN_INLINE vec v_weight(const blocks b, dwords q, dwords h, const int j, table16 t, vec scale, vec least) {
	dwords code = v_field(q, b.low * j, (1 << b.low) - 1);
	if (b.high) code = v_join(code, v_field(h, b.high * j, (1 << b.high) - 1), b.low);
	vec w = b.table == TABLE_EIGHTHS ? v_pick_eighths(code, t) : b.table ? v_pick(code, t) : v_number(code, b.zero);
	return b.least ? v_fma(w, scale, least) : v_mul(w, scale);
}

/* Fields of 32 k's, eight at a time. */
FN_INLINE void each_fields(const blocks b, const uint8_t *heads, const uint8_t *p, int lane, sink *s, const int rows, const int nv, const int keep) {
	static const float numbers[16] = IQ4_TABLE;
	const uint8_t *low = p + b.subs * PANEL * (1 + b.least), *high = low + 128 * b.low;
	table16 t = b.table == TABLE_EIGHTHS ? v_table_eighths(s->table) : v_table(numbers);
	vec w[WIDE], scale[WIDE], least[WIDE];
	dwords q[WIDE], h[WIDE];
#pragma GCC unroll 4
	for (int g = 0; g < 4; g++) {
		if (g == 0 || (b.subs == 2 && g == 2)) heads_of(b, heads, p + g / 2 * PANEL, lane, nv, scale, least);
		ahead(s, low + 128 * g, 2, nv);
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) {
			int at = (lane + v * LANES) * 4;
			if (g * b.low % 4 == 0) q[v] = v_dwords(low + g * b.low / 4 * 128 + at);
			else q[v] = v_down(q[v], 8 * b.low);
			if (!b.high) continue;
			if (g * b.high % 4 == 0) h[v] = v_dwords(high + g * b.high / 4 * 128 + at);
			else h[v] = v_down(h[v], 8 * b.high);
		}
		if (by_twos(rows, nv, keep)) {
#pragma GCC unroll 2
			for (int v = 0; v < nv; v += 2)
#pragma GCC unroll 8
				for (int j = 0; j < 8; j++)
					take_two(s, v, j, v_weight(b, q[v], h[v], j, t, scale[v], least[v]), v_weight(b, q[v + 1], h[v + 1], j, t, scale[v + 1], least[v + 1]));
			s->x += 8 * s->stride;
			continue;
		}
#pragma GCC unroll 8
		for (int j = 0; j < 8; j++) {
#pragma GCC unroll 4
			for (int v = 0; v < nv; v++) w[v] = v_weight(b, q[v], h[v], j, t, scale[v], least[v]);
			take(s, rows, nv, keep, w);
		}
	}
}

/* format is a compile-time constant. */
FN_INLINE void each_blocks(const int format, const uint8_t *p, int lane, int64_t n, sink *s, const int rows, const int nv, const int keep) {
	const blocks b = blocks_of(format);
	const int64_t heads = blocks_heads(b), each = blocks_each(b);
	for (int64_t k = 0; k < n; k += 32) {
		const uint8_t *from = p;
		if (b.subs) from += k / 128 * (heads + 4 * each), p = from;
		each_fields(b, from, from + heads + (b.subs ? k % 128 / 32 * each : 0), lane, s, rows, nv, keep);
		p = b.subs ? from - k / 128 * (heads + 4 * each) : from + heads + each;
	}
}

/* each_more does `each` for the formats of blocks.h. */
FN_INLINE void each_more(int32_t format, const uint8_t *p, int lane, int64_t n, sink *s, const int rows, const int nv, const int keep) {
	switch (format % VAPP_SCALES) {
	case VAPP_Q5_0: each_blocks(VAPP_Q5_0, p, lane, n, s, rows, nv, keep); break;
	case VAPP_Q5_1: each_blocks(VAPP_Q5_1, p, lane, n, s, rows, nv, keep); break;
	case VAPP_IQ4_NL: each_blocks(VAPP_IQ4_NL, p, lane, n, s, rows, nv, keep); break;
	case VAPP_IQ4_XS: each_blocks(VAPP_IQ4_XS, p, lane, n, s, rows, nv, keep); break;
	case VAPP_EXPANDED: each_blocks(VAPP_EXPANDED, p, lane, n, s, rows, nv, keep); break;
	case VAPP_Q2_K: each_blocks(VAPP_Q2_K, p, lane, n, s, rows, nv, keep); break;
	case VAPP_Q3_K: each_blocks(VAPP_Q3_K, p, lane, n, s, rows, nv, keep); break;
	case VAPP_Q4_K: each_blocks(VAPP_Q4_K, p, lane, n, s, rows, nv, keep); break;
	case VAPP_Q5_K: each_blocks(VAPP_Q5_K, p, lane, n, s, rows, nv, keep); break;
	case VAPP_Q6_K: each_blocks(VAPP_Q6_K, p, lane, n, s, rows, nv, keep); break;
	}
}

/* v_e4m3 returns LANES 8-bit floats as raw halves: see float8_half. */
FN_INLINE vec v_e4m3(const uint8_t *p) { return v_first8(v_byte_words(p), 0); }

/* v_output_scale returns output_scale for the lanes from `lane` on. */
FN_INLINE vec v_output_scale(int32_t format, const uint8_t *outputs, int lane) {
	if (format / VAPP_SCALES != VAPP_CHANNEL_SCALES) return v_set(0x1p8f);
	return v_mul(v_load((const float *)outputs + lane), v_set(0x1p8f));
}

/* v_group_scale returns group_scale for the lanes from `lane` on. */
FN_INLINE vec v_group_scale(int32_t format, const uint8_t *scales, int lane) {
	if (format == VAPP_MXFP4) return v_exponents(scales + lane);
	if (in_nvfp4(format)) return v_e4m3(scales + lane);
	if (scales_first(format)) return v_halves(scales + lane * 2);
	switch (format / VAPP_SCALES) {
	case VAPP_NO_SCALES:
	case VAPP_PANEL_SCALES: return v_set(group_scale(format, scales, 0));
	default: return v_mul(v_load((const float *)scales + lane), v_set(float8_unit(format)));
	}
}

/* v_sum_scale returns the factor for the whole sums of a panel whose groups have no scales, or of NVFP4. */
FN_INLINE vec v_sum_scale(const vapp_linear *a, int64_t panel, int lane) {
	if (in_nvfp4(a->format)) return v_output_scale(a->format, outputs_at(a, panel), lane);
	return v_group_scale(a->format, scales_at(a, panel, 0), lane);
}

FN_INLINE void each(int32_t format, const uint8_t *p, int lane, int64_t n, sink *s, const int rows, const int nv, const int keep) {
	switch (format % VAPP_SCALES) {
	case VAPP_F32: each_f32(p, lane, n, s, rows, nv, keep); break;
	case VAPP_F16: each_f16(p, lane, n, s, rows, nv, keep); break;
	case VAPP_BF16: each_bf16(p, lane, n, s, rows, nv, keep); break;
	case VAPP_I8: each_i8(p, lane, n, s, rows, nv, keep); break;
	case VAPP_Q8_0: each_q8_0(p, lane, n, s, rows, nv, keep); break;
	case VAPP_Q4_0: each_4(p, lane, n, s, rows, nv, keep, 0); break;
	case VAPP_Q4_1:
	case VAPP_I4: each_q4_1(p, lane, n, s, rows, nv, keep, with_zeros(format)); break;
	case VAPP_F8_E4M3: each_f8(p, lane, n, s, rows, nv, keep, 0); break;
	case VAPP_F8_E5M2: each_f8(p, lane, n, s, rows, nv, keep, 1); break;
	case VAPP_MXFP4: each_4(p, lane, n, s, rows, nv, keep, 1); break;
	default: /* for the other formats packed_step unpacks a block first, except for a single row */
		if (rows == 0 || (rows == 1 && nv == WIDE)) each_more(format, p, lane, n, s, rows, nv, keep);
	}
}

#endif

/* pairs.h: packed weights to pairs of bf16 (two neighbours in k, of 16 rows in a vector) and
 * their products with pairs of x.
 *
 * The codes of every format except F32 and F16 are exact in bf16; a table look-up converts
 * them. The sum of a group's products is scaled; a minimum is multiplied with the sum of the
 * group's x. For formats with minima, the middle of the code range is subtracted from codes and
 * moved to the minimum, which reduces cancellation. */
#ifndef VAPP_CPU_LINEAR_PAIRS_H
#define VAPP_CPU_LINEAR_PAIRS_H
#include <immintrin.h>
#include <stdint.h>

#include "blocks.h"
#include "panel.h"
#include "unpack.h"

/* The bf16 of the codes: words is indexed by the low bits of a word; low and high hold the two
 * bytes of the bf16 of a byte. */
typedef struct {
	uint16_t words[64];
	uint8_t low[128], high[128];
} __attribute__((aligned(64))) pair_tables;

/* A pair_sink takes the pairs of k's in order, as a sink takes floats. */
typedef struct {
	uint16_t *block;   /* [k/2][32][2], if stored */
	float *scales, *least; /* [groups][32], if stored */
	const uint32_t *x; /* [k/2][stride] pairs */
	const float *sums; /* [groups][stride] of x */
	int64_t far;
	const pair_tables *t;
	vec sum[DECODE_ROWS][MOST], total[DECODE_ROWS][MOST];
} pair_sink;

/* Up to DECODE_ROWS rows are stored with that stride, one row with stride 1. */
INLINE int decode_stride(const int rows) { return rows == 1 ? 1 : DECODE_ROWS; }

/* pairs_group returns the k's that are summed before they are scaled; 0: all. */
INLINE int64_t pairs_group(int32_t format) {
	if (format == VAPP_BF16) return 0;
	if (in_nvfp4(format)) return NV_K;
	if (format % VAPP_SCALES == VAPP_I8) return group_k(format);
	if (format % VAPP_SCALES == VAPP_F8_E4M3 || format % VAPP_SCALES == VAPP_F8_E5M2) return SCALE_K;
	return blocks_of(format).subs == 2 ? 16 : 32;
}

INLINE int has_least(int32_t format) { return blocks_of(format).least; }

/* middle returns what is subtracted from a code and added to the minimum. */
INLINE int middle(int32_t format) {
	blocks b = blocks_of(format);
	return has_least(format) ? 1 << (b.low + b.high - 1) : b.zero;
}

V __m512 dot(__m512 sum, __m512i w, __m512i x) { return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)x); }

/* store_bf16 writes 16 floats that are exact in bf16. */
V void store_bf16(uint16_t *p, vec v) {
	_mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(v), 16)));
}

FN static void tables_of(int32_t format, pair_tables *t) {
	static const float iq4[16] = IQ4_TABLE;
	const __m512i count = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	blocks b = blocks_of(format);
	int bits = b.low ? b.low + b.high : 4, kind = format % VAPP_SCALES;
	for (int i = 0; i < 64; i += 16) {
		__m512i code = _mm512_and_si512(_mm512_add_epi32(count, _mm512_set1_epi32(i)), _mm512_set1_epi32((1 << bits) - 1));
		vec v = v_number(code, middle(format));
		if (kind == VAPP_MXFP4 || kind == VAPP_NVFP4) v = fp4().floats;
		if (b.table) v = v_pick(code, v_table(b.table == TABLE_EIGHTHS ? expanded_table(format) : iq4));
		store_bf16(t->words + i, v);
	}
	const int whole = kind == VAPP_I8;
	if (!whole && kind != VAPP_F8_E4M3 && kind != VAPP_F8_E5M2) return;
	for (int i = 0; i < 128; i += 16) {
		__m512i code = _mm512_add_epi32(count, _mm512_set1_epi32(i));
		__m256i half = _mm512_cvtepi32_epi16(_mm512_slli_epi32(code, kind == VAPP_F8_E4M3 ? 7 : 8));
		if (whole && i == 0) code = _mm512_mask_set1_epi32(code, 1, 128);
		vec v = whole ? v_number(code, 0) : _mm512_cvtph_ps(half);
		__m512i word = _mm512_srli_epi32(_mm512_castps_si512(v), 16);
		_mm_storeu_si128((void *)(t->low + i), _mm512_cvtepi32_epi8(word));
		_mm_storeu_si128((void *)(t->high + i), _mm512_cvtepi32_epi8(_mm512_srli_epi32(word, 8)));
	}
}

FN_INLINE void take_pairs(pair_sink *s, const int rows, const int nv, const int keep, const __m512i *w) {
	if (keep) {
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) _mm512_storeu_si512(s->block + v * 32, w[v]);
		s->block += nv * 32;
	}
#pragma GCC unroll 4
	for (int r = 0; r < rows; r++) {
		__m512i x = _mm512_set1_epi32((int)s->x[r]);
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) s->sum[r][v] = dot(s->sum[r][v], w[v], x);
	}
	if (rows) s->x += decode_stride(rows);
}

FN_INLINE void start_group(pair_sink *s, const int rows, const int nv) {
#pragma GCC unroll 4
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) s->sum[r][v] = v_set(0);
}

/* add_group adds the scaled sums of a group to the totals. */
FN_INLINE void add_group(pair_sink *s, const int rows, const int nv, const int keep, const int lowest, const vec *d, const vec *m) {
#pragma GCC unroll 4
	for (int v = 0; v < nv; v++) {
		if (keep) {
			v_store(s->scales + v * LANES, d[v]);
			if (lowest) v_store(s->least + v * LANES, m[v]);
		}
#pragma GCC unroll 4
		for (int r = 0; r < rows; r++) {
			s->total[r][v] = v_fma(s->sum[r][v], d[v], s->total[r][v]);
			if (lowest) s->total[r][v] = v_fma(v_set(s->sums[r]), m[v], s->total[r][v]);
		}
	}
	if (keep) s->scales += PANEL, s->least += PANEL;
	if (rows && lowest) s->sums += decode_stride(rows);
}

/* halves_of joins the low and high bytes of a panel's bf16 to two vectors of pairs. */
FN_INLINE void halves_of(__m512i low, __m512i high, __m512i *w) {
	w[0] = _mm512_unpacklo_epi8(low, high);
	w[1] = _mm512_unpackhi_epi8(low, high);
}

/* lookup returns 64 bytes of t, indexed by the low seven bits of q. */
V __m512i lookup(const uint8_t *t, __m512i q) {
	return _mm512_permutex2var_epi8(_mm512_loadu_si512(t), q, _mm512_loadu_si512(t + 64));
}

V __m512i signed_as(__m512i size, __m512i q) { return _mm512_ternarylogic_epi32(size, q, _mm512_set1_epi8((char)0x80), 0xf8); }

/* rows_side_by_side interleaves the bytes of two k's of a panel. Each 16 bytes hold eight lanes
 * of the first vector and eight of the second, as halves_of expects. */
V __m512i rows_side_by_side(const uint8_t *p) {
	static const uint8_t order[64] = {
	    0,  32, 1,  33, 2,  34, 3,  35, 16, 48, 17, 49, 18, 50, 19, 51, 4,  36, 5,  37, 6,  38, 7,  39, 20, 52, 21, 53, 22, 54, 23, 55,
	    8,  40, 9,  41, 10, 42, 11, 43, 24, 56, 25, 57, 26, 58, 27, 59, 12, 44, 13, 45, 14, 46, 15, 47, 28, 60, 29, 61, 30, 62, 31, 63};
	return _mm512_permutexvar_epi8(_mm512_loadu_si512(order), _mm512_loadu_si512(p));
}

/* The table gives the bf16 of a code's magnitude; the sign is then inserted. Index 0 holds 128,
 * so the upper byte of a code 0 is masked. */
FN_INLINE void two_i8(const uint8_t *p, const pair_tables *t, __m512i *w) {
	__m512i q = rows_side_by_side(p), size = _mm512_abs_epi8(q);
	__m512i high = _mm512_maskz_permutex2var_epi8(_mm512_test_epi8_mask(q, q), _mm512_loadu_si512(t->high), size, _mm512_loadu_si512(t->high + 64));
	halves_of(lookup(t->low, size), signed_as(high, q), w);
}

FN_INLINE void two_f8(const uint8_t *p, const pair_tables *t, __m512i *w) {
	__m512i q = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), _mm512_loadu_si512(p));
	halves_of(lookup(t->low, q), signed_as(lookup(t->high, q), q), w);
}

/* bits_at extracts, for each lane, the eight bits from `first` on into the low byte of its
 * pair's first word, and the eight bits from `second` on into the second word. The upper bytes
 * are undefined. */
V __m512i bits_at(__m512i q, int first, int second) {
	uint64_t one = (uint64_t)(first & 63) | (uint64_t)(second & 63) << 16;
	uint64_t two = (uint64_t)((first + 32) & 63) | (uint64_t)((second + 32) & 63) << 16;
	return _mm512_multishift_epi64_epi8(_mm512_set1_epi64((int64_t)(one | two << 32)), q);
}

/* fields_pair returns pair j of 16 k's of one vector; their fields begin at low and high. */
FN_INLINE __m512i fields_pair(const blocks b, const uint8_t *low, const uint8_t *high, const int half, const int j, const pair_tables *t) {
	const int per = 32 / b.low, k = 16 * half + 2 * j;
	__m512i code = bits_at(v_dwords(low + k / per * 128), k % per * b.low, (k + 1) % per * b.low);
	__m512i words = _mm512_loadu_si512(t->words);
	if (b.high) {
		const int more = 32 / b.high;
		__m512i top = bits_at(v_dwords(high + k / more * 128), k % more * b.high - b.low, (k + 1) % more * b.high - b.low);
		code = _mm512_ternarylogic_epi32(_mm512_set1_epi16((1 << b.low) - 1), code, top, 0xca);
	}
	if (b.low + b.high > 5) return _mm512_permutex2var_epi16(words, code, _mm512_loadu_si512(t->words + 32));
	return _mm512_permutexvar_epi16(code, words);
}

/* pairs_16 takes half of the 32 k's whose elements begin at p. format is a compile-time
 * constant. */
FN_INLINE void pairs_16(const int format, const uint8_t *p, const int half, pair_sink *s, const int rows, const int nv, const int keep) {
	const blocks b = blocks_of(format);
	__m512i w[MOST];
#pragma GCC unroll 8
	for (int j = 0; j < 8; j++) {
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) {
			const uint8_t *from = p + v / WIDE * s->far;
			int lane = v % WIDE * LANES;
			if (b.low) {
				w[v] = fields_pair(b, from + lane * 4, from + 128 * b.low + lane * 4, half, j, s->t);
			} else {
				__m512i q = v_dwords(from + 256 * half + j / 4 * 128 + lane * 4);
				w[v] = _mm512_permutexvar_epi16(_mm512_srli_epi32(q, j % 4 * 4), _mm512_loadu_si512(s->t->words));
			}
		}
		take_pairs(s, rows, nv, keep, w);
	}
}

/* scales_of loads the scales and minima of sub-block `sub` of 32 k's: from the head, from
 * before the fields, or from the scales behind the panel. */
FN_INLINE void scales_of(const int format, const uint8_t *head, const uint8_t *subs, const uint8_t *scales, const int sub, int64_t far,
                         const int nv, vec *d, vec *m) {
	const blocks b = blocks_of(format);
#pragma GCC unroll 4
	for (int v = 0; v < nv; v++) {
		int64_t skip = v / WIDE * far;
		int lane = v % WIDE * LANES;
		if (format == VAPP_MXFP4) {
			d[v] = v_group_scale(format, scales + skip, lane);
			continue;
		}
		if (format == VAPP_NVFP4) {
			d[v] = v_e4m3(head + skip + sub * PANEL + lane);
			continue;
		}
		d[v] = v_halves(head + skip + lane * 2);
		if (has_least(format)) m[v] = v_halves(head + skip + 64 + lane * 2);
		if (b.subs) {
			d[v] = v_mul(d[v], v_bytes(subs + skip + sub * PANEL + lane));
			if (b.least) m[v] = v_mul(v_mul(m[v], v_set(-1)), v_bytes(subs + skip + (b.subs + sub) * PANEL + lane));
		}
		if (has_least(format)) m[v] = v_fma(d[v], v_set((float)middle(format)), m[v]);
	}
}

/* far_ahead prefetches the scales of the next panels. */
FN_INLINE void far_ahead(const uint8_t *scales, int64_t far, int64_t panel, const int nv) {
#pragma GCC unroll 2
	for (int v = 0; v < nv; v += WIDE) __builtin_prefetch(scales + v / WIDE * far + panel, 0, 2);
}

/* pairs_32 takes n k's from p on, in groups of 16 or 32; format is a compile-time constant. */
FN_INLINE void pairs_32(const int format, const uint8_t *p, const uint8_t *scales, int64_t panel, int64_t n, pair_sink *s, const int rows,
                        const int nv, const int keep) {
	const blocks b = blocks_of(format);
	const int64_t heads = b.low ? blocks_heads(b) : format == VAPP_NVFP4 ? 2 * PANEL : 0, before = b.subs * PANEL * (1 + b.least);
	const int64_t each = b.low ? blocks_each(b) : panel_k(format, 32) - heads;
	const int group = (int)pairs_group(format);
	vec d[MOST], m[MOST];
	const uint8_t *head = p;
	for (int64_t k = 0; k < n; k += 32, p += each) {
		if (!b.subs || k % 128 == 0) head = p, p += heads;
		if (format == VAPP_MXFP4) far_ahead(scales, s->far, panel, nv);
#pragma GCC unroll 2
		for (int half = 0; half < 2; half++) {
			if (half == 0 || group == 16) start_group(s, rows, nv);
			pairs_16(format, p + before, half, s, rows, nv, keep);
			if (half == 0 && group == 32) continue;
			scales_of(format, head, p, scales, half && group == 16, s->far, nv, d, m);
			add_group(s, rows, nv, keep, has_least(format), d, m);
		}
		if (format == VAPP_MXFP4) scales += group_step(format);
	}
}

/* pairs_8 takes n k's of 8-bit floats in groups of 128, or of I8 if whole is set. */
FN_INLINE void pairs_8(const int whole, int32_t format, const uint8_t *p, const uint8_t *scales, int64_t panel, int64_t n, pair_sink *s, const int rows,
                        const int nv, const int keep) {
	__m512i w[MOST];
	vec d[MOST];
	const int64_t group = whole ? group_k(format) : SCALE_K;
	for (int64_t k = 0; k < n; scales += group_step(format)) {
		start_group(s, rows, nv);
		if (group_step(format) == PANEL * 4) far_ahead(scales, s->far, panel, nv), far_ahead(scales + 64, s->far, panel, nv);
		for (int64_t end = n - k < group ? n : k + group; k < end; k += 2, p += 64) {
#pragma GCC unroll 2
			for (int v = 0; v < nv; v += WIDE) {
				if (whole) two_i8(p + v / WIDE * s->far, s->t, w + v);
				else two_f8(p + v / WIDE * s->far, s->t, w + v);
			}
			take_pairs(s, rows, nv, keep, w);
		}
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) d[v] = v_group_scale(format, scales + v / WIDE * s->far, v % WIDE * LANES);
		add_group(s, rows, nv, keep, 0, d, d);
	}
}

/* pairs_bf16 multiplies n k's of bf16 and sets the totals. */
FN_INLINE void pairs_bf16(const uint8_t *p, int64_t n, pair_sink *s, const int rows, const int nv) {
	__m512i w[MOST];
	start_group(s, rows, nv);
	for (; n > 0; n -= 2, p += 128) {
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) w[v] = v_dwords(p + v / WIDE * s->far + v % WIDE * 64);
		take_pairs(s, rows, nv, 0, w);
	}
#pragma GCC unroll 4
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) s->total[r][v] = s->sum[r][v];
}

/* panel_pairs takes n k's of panels that are `panel` bytes apart; p and scales point to their
 * elements and scales from this k on. */
FN_INLINE void panel_pairs(int32_t format, const uint8_t *p, const uint8_t *scales, int64_t panel, int64_t n, pair_sink *s, const int rows,
                           const int nv, const int keep) {
#define PAIRS_CASE(f) \
	case f: pairs_32(f, p, scales, panel, n, s, rows, nv, keep); return;
	switch (format % VAPP_SCALES) {
	case VAPP_BF16: pairs_bf16(p, n, s, rows, nv); return;
	case VAPP_I8: pairs_8(1, format, p, scales, panel, n, s, rows, nv, keep); return;
	case VAPP_F8_E4M3:
	case VAPP_F8_E5M2: pairs_8(0, format, p, scales, panel, n, s, rows, nv, keep); return;
	PAIRS_CASE(VAPP_MXFP4)
	PAIRS_CASE(VAPP_NVFP4)
	PAIRS_CASE(VAPP_IQ4_NL)
	PAIRS_CASE(VAPP_IQ4_XS)
	PAIRS_CASE(VAPP_EXPANDED)
	PAIRS_CASE(VAPP_Q2_K)
	PAIRS_CASE(VAPP_Q3_K)
	}
#undef PAIRS_CASE
}

#endif

/* amx_quant_unpack.h: packed weights to floats that bf16 holds, in registers (amx_quant.h).
 * A format and a definition are compile-time constants. VAPP_I8 stands for Q8_0 too, whose codes
 * are bytes with scales in another place, VAPP_Q4_1 for I4, whose heads differ, and VAPP_F8_E4M3
 * for both 8-bit floats. */
#ifndef VAPP_CPU_LINEAR_AMX_QUANT_UNPACK_H
#define VAPP_CPU_LINEAR_AMX_QUANT_UNPACK_H
#include "amx_quant.h"
#include "unpack.h"

/* in_e2m1 reports whether codes are 4-bit floats. */
INLINE int in_e2m1(const int format) { return format == VAPP_MXFP4 || format == VAPP_NVFP4; }

/* How weights are rounded. */
enum { ROUND_AWAY, ROUND_GRID, ROUND_NONE };

/* in_nibbles reports whether codes are in the order of nibble_at. */
INLINE int in_nibbles(const int format) { return format == VAPP_Q4_0 || format == VAPP_Q4_1 || in_e2m1(format); }

/* halves_of returns into how many groups with a scale the 32 k's of a k tile are cut. */
INLINE int halves_of(const int format) { return blocks_of(format).subs == 2 || format == VAPP_NVFP4 ? 2 : 1; }

/* code_bits returns the bits of a code; 8 for bytes and 8-bit floats. */
INLINE int code_bits(const int format) {
	const blocks b = blocks_of(format);
	if (b.low) return b.low + b.high;
	return in_nibbles(format) ? 4 : 8;
}

INLINE int rounding(const int format, const int outside) {
	if (outside || in_e2m1(format)) return ROUND_NONE;
	return code_bits(format) <= 4 && !quant_minimum(format) ? ROUND_GRID : ROUND_AWAY;
}

/* zero_code returns the code that means 0, before a minimum is added. */
INLINE int zero_code(const int format, const int outside) {
	if (outside && quant_minimum(format)) return 1 << (code_bits(format) - 1);
	return format == VAPP_Q4_0 ? 8 : blocks_of(format).zero;
}

/* Codes of six bits become 64 + code, by their place in a float. */
INLINE int by_place(const int format) { return code_bits(format) == 6; }

/* How the scales of VAPP_I8, of 8-bit floats and of MXFP4 are stored. */
enum { SCALE_HALVES, SCALE_FLOATS, SCALE_SHARED, SCALE_NONE };

/* A panel: its elements, and the scales behind them, `step` bytes apart, each for 2^shift k tiles. */
typedef struct {
	const uint8_t *codes, *scales;
	int64_t each, step; /* each: bytes of a k tile, or of four with sub-blocks */
	int64_t far;        /* bytes to the next panel */
	int shift, kind;
	int zeros; /* VAPP_Q4_1: heads have zero points */
	float unit;
	float most;         /* VAPP_EXPANDED: the largest number of its table */
	__m256i down, bits; /* of the halves of 8-bit floats: their shift and their mask */
} quant_panel;

FN static __attribute__((noinline)) void open_panel(const vapp_linear *a, int64_t panel, quant_panel *p) {
	const int64_t group = group_k(a->format);
	p->far = panel_bytes(a->format, a->in);
	p->codes = (const uint8_t *)a->w + panel * p->far;
	p->scales = scales_first(a->format) || !group ? p->codes : p->codes + panel_k(a->format, a->in);
	p->each = panel_k(a->format, blocks_of(a->format).subs ? 4 * TILE_K : TILE_K);
	p->step = scales_first(a->format) ? p->each : group ? group_step(a->format) : 0;
	p->shift = group == SCALE_K ? 2 : 0;
	p->zeros = with_zeros(a->format);
	p->unit = scaled_last(a->format) ? 1 : float8_unit(a->format);
	p->kind = scales_first(a->format) ? SCALE_HALVES : scaled_last(a->format) ? SCALE_NONE
	          : a->format / VAPP_SCALES == VAPP_PANEL_SCALES                  ? SCALE_SHARED
	                                                                          : SCALE_FLOATS;
	p->most = 0;
	for (int i = 0; i < 16; i++) p->most = __builtin_fmaxf(p->most, __builtin_fabsf(expanded_table(a->format)[i]));
	const int e5m2 = a->format % VAPP_SCALES == VAPP_F8_E5M2;
	p->down = _mm256_set1_epi16(e5m2 ? 0 : 1);
	p->bits = _mm256_set1_epi16((short)(e5m2 ? 0xff00 : 0xbf80));
}

/* Where the 32 k's of a k tile are. */
typedef struct {
	const uint8_t *head, *subs, *codes, *scales;
} quant_place;

FN_INLINE quant_place place_of(const quant_panel *p, const int format, int64_t t) {
	const blocks b = blocks_of(format);
	quant_place at = {.scales = p->scales + (t >> p->shift) * p->step};
	if (b.subs) {
		at.head = p->codes + (t >> 2) * panel_k(format, 4 * TILE_K);
		at.subs = at.head + blocks_heads(b) + (t & 3) * blocks_each(b);
		at.codes = at.subs + b.subs * PANEL * (1 + b.least);
		return at;
	}
	at.head = p->codes + t * p->each;
	at.codes = at.head;
	if (b.low) at.codes += blocks_heads(b);
	if (format == VAPP_Q4_1) at.codes += 128;
	if (format == VAPP_Q4_0 || format == VAPP_NVFP4 || (format == VAPP_I8 && p->kind == SCALE_HALVES)) at.codes += 64;
	return at;
}

/* The scale and the minimum of a vector's weights, and the B of a grid. */
typedef struct {
	vec d, m, b;
} quant_scale;

FN_INLINE vec group_scales(const quant_panel *p, const uint8_t *scales, int lane) {
	if (p->kind == SCALE_NONE) return v_set(1);
	if (p->kind == SCALE_HALVES) return v_halves(scales + 2 * lane);
	if (p->kind == SCALE_SHARED) return v_set(load_float(scales) * p->unit);
	return v_mul(v_load((const float *)scales + lane), v_set(p->unit));
}

/* numeric returns d with its NaNs in the one form that survives rounding to bf16. */
V vec numeric(vec d) {
	return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(d, d, _CMP_UNORD_Q), d, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
}

/* scale_of loads the scale of vector v, and of sub-block sub, `far` bytes on. */
FN_INLINE quant_scale scale_of(const quant_panel *p, const int format, const int outside, const quant_place *at, const int64_t far, const int sub, const int v) {
	const blocks b = blocks_of(format);
	const int lane = v * LANES;
	const uint8_t *head = at->head + far, *subs = at->subs + far;
	quant_scale s = {.m = v_set(0), .b = v_set(0)};
	if (format == VAPP_Q4_1 && p->zeros) v_q4_heads(head + 4 * lane, NULL, 1, &s.d, &s.m);
	else if (format == VAPP_MXFP4) s.d = v_exponents(at->scales + far + lane);
	else if (format == VAPP_NVFP4) s.d = v_e4m3(head + sub * PANEL + lane);
	else if (code_bits(format) == 8) s.d = group_scales(p, at->scales + far, lane);
	else s.d = v_halves(head + 2 * lane);
	if (quant_minimum(format) && !(format == VAPP_Q4_1 && p->zeros)) s.m = v_halves(head + 64 + 2 * lane);
	if (b.subs) {
		s.d = v_mul(s.d, v_bytes(subs + sub * PANEL + lane));
		if (b.least) s.m = v_mul(v_mul(s.m, v_set(-1)), v_bytes(subs + (b.subs + sub) * PANEL + lane));
	}
	if (outside) {
		if (quant_minimum(format)) s.m = v_fma(s.d, v_set((float)zero_code(format, 1)), s.m);
		return s;
	}
	if (rounding(format, 0) == ROUND_AWAY) {
		s.d = numeric(s.d);
		if (quant_minimum(format)) s.m = numeric(s.m);
		if (by_place(format)) s.m = v_mul(s.d, v_set((float)(-64 - zero_code(format, 0)))); /* exact */
	}
	if (rounding(format, 0) == ROUND_GRID) {
		const float most = b.table == TABLE_EIGHTHS ? p->most : b.table ? 127 : zero_code(format, 0);
		__m512i power = _mm512_and_si512(_mm512_castps_si512(v_mul(s.d, v_set(most))), _mm512_set1_epi32(0x7f800000));
		s.b = _mm512_castsi512_ps(_mm512_add_epi32(power, _mm512_set1_epi32((16 << 23) + 0x400000)));
	}
	return s;
}

/* The numbers of codes of five bits or less: of 0 to 15 (repeated, if there are fewer), and of 16
 * to 31. words has the first as bf16, twice. */
typedef struct {
	vec low, high;
	__m512i words;
} quant_table;

FN_INLINE quant_table table_of(const vapp_linear *a, const int format, const int outside) {
	static const float iq4[16] = IQ4_TABLE;
	const int bits = code_bits(format), zero = zero_code(format, outside);
	if (bits > 5) return (quant_table){0};
	dwords count = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	vec low = v_number(_mm512_and_si512(count, _mm512_set1_epi32((1 << bits) - 1)), zero);
	if (in_e2m1(format)) low = fp4().floats;
	if (blocks_of(format).table) low = v_table(blocks_of(format).table == TABLE_EIGHTHS ? expanded_table(a->format) : iq4);
	return (quant_table){low, v_number(count, zero - 16), sixteen(low).halves};
}

/* Eight k's of a vector, as they are packed: low fields and high fields, from bit 0 on. */
typedef struct {
	dwords low, high;
} quant_fields;

FN_INLINE dwords field_words(const uint8_t *p, const int bits, int g) {
	dwords q = v_dwords(p + g * bits / 4 * 128);
	return bits == 4 ? q : _mm512_srlv_epi32(q, _mm512_set1_epi32(g * bits % 4 * 8));
}

FN_INLINE quant_fields fields_at(const int format, const uint8_t *codes, int g, const int v) {
	const blocks b = blocks_of(format);
	quant_fields f = {0};
	if (code_bits(format) == 8) return f;
	f.low = field_words(codes + 64 * v, b.low ? b.low : 4, g);
	if (b.high) f.high = field_words(codes + 128 * b.low + 64 * v, b.high, g);
	return f;
}

/* moved shifts fields up by a compile-time number of bits, or down if it is below 0. */
FN_INLINE dwords moved(dwords q, const int up) { return up > 0 ? _mm512_slli_epi32(q, up) : up < 0 ? _mm512_srli_epi32(q, -up) : q; }

/* number_at returns code j of eight as a float. */
FN_INLINE vec number_at(const quant_panel *p, const int format, const quant_table *t, const quant_fields *f, const uint8_t *codes, int g, const int j, const int v) {
	const blocks b = blocks_of(format);
	if (format == VAPP_I8) return v_bytes(codes + (8 * g + j) * PANEL + v * LANES);
	if (format == VAPP_F8_E4M3) {
		words q = v_words(codes + (4 * g + j / 2) * 64 + 32 * v);
		if (j % 2 == 0) q = _mm256_slli_epi16(q, 8);
		return _mm512_cvtph_ps(_mm256_and_si256(_mm256_srav_epi16(q, p->down), p->bits)); /* see float8_half */
	}
	if (in_nibbles(format)) {
		dwords q = moved(f->low, -(j / 2 * 4));
		return j % 2 ? _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, q, t->words)) : _mm512_permutexvar_ps(q, t->low);
	}
	if (!b.high) return _mm512_permutexvar_ps(moved(f->low, -b.low * j), t->low);
	const int to = by_place(format) ? 17 : 0; /* the bit of a float's unit, of 64 and more */
	dwords low = moved(f->low, to - b.low * j), high = moved(f->high, to + b.low - b.high * j);
	dwords code = _mm512_ternarylogic_epi32(_mm512_set1_epi32(((1 << b.low) - 1) << to), low, high, 0xca);
	if (by_place(format)) return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(code, _mm512_set1_epi32(63 << to), _mm512_set1_epi32(0x42800000), 0xea));
	if (code_bits(format) < 5) return _mm512_permutexvar_ps(code, t->low);
	return _mm512_permutex2var_ps(t->low, code, t->high);
}

/* weight_of returns the weight of a number, a float whose upper half is its bf16; with whole set
 * the lower half is 0. */
FN_INLINE vec weight_of(const int format, const int outside, vec number, const quant_scale *s, const int whole) {
	const int kind = rounding(format, outside);
	if (outside) return number;
	if (kind == ROUND_GRID) return _mm512_sub_ps(v_fma(number, s->d, s->b), s->b);
	vec w = quant_minimum(format) || by_place(format) ? v_fma(number, s->d, s->m) : v_mul(number, s->d);
	if (kind == ROUND_NONE) return w;
	__m512i bits = _mm512_add_epi32(_mm512_castps_si512(w), _mm512_set1_epi32(0x8000));
	return _mm512_castsi512_ps(whole ? _mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000)) : bits);
}

/* pair_of joins the upper halves of an even and an odd k. */
V dwords pair_of(vec even, vec odd) {
	return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(_mm512_castps_si512(even), 16), _mm512_castps_si512(odd));
}

#endif

/* vec128.h: the vectors of unpack.h in NEON: eight lanes in two registers. A target header,
 * which comes first, defines FN. */
#ifndef VAPP_CPU_LINEAR_VEC128_H
#define VAPP_CPU_LINEAR_VEC128_H
#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#include "panel.h"

#define V static inline __attribute__((always_inline)) FN
#define LANES 8

typedef struct {
	float32x4_t a, b;
} vec;
typedef struct {
	uint32x4_t a, b;
} dwords;
typedef uint16x8_t words;
typedef int32x4_t nibble_table;
typedef uint8x16x2_t fp4_table;

V vec v_set(float x) { return (vec){vdupq_n_f32(x), vdupq_n_f32(x)}; }
V vec v_load(const float *p) { return (vec){vld1q_f32(p), vld1q_f32(p + 4)}; }
V void v_store(float *p, vec v) {
	vst1q_f32(p, v.a);
	vst1q_f32(p + 4, v.b);
}
V vec v_add(vec a, vec b) { return (vec){vaddq_f32(a.a, b.a), vaddq_f32(a.b, b.b)}; }
V vec v_mul(vec a, vec b) { return (vec){vmulq_f32(a.a, b.a), vmulq_f32(a.b, b.b)}; }
V vec v_fma(vec a, vec b, vec c) { return (vec){vfmaq_f32(c.a, a.a, b.a), vfmaq_f32(c.b, a.b, b.b)}; }
V vec v_load_some(const float *p, int64_t n) {
	if (n >= LANES) return v_load(p);
	float f[LANES] = {0};
	for (int64_t i = 0; i < n; i++) f[i] = p[i];
	return v_load(f);
}
V void v_store_some(float *p, int64_t n, vec v) {
	if (n >= LANES) {
		v_store(p, v);
		return;
	}
	float f[LANES];
	v_store(f, v);
	for (int64_t i = 0; i < n; i++) p[i] = f[i];
}
V vec v_of_halves(uint16x8_t h) {
	float16x8_t f = vreinterpretq_f16_u16(h);
	return (vec){vcvt_f32_f16(vget_low_f16(f)), vcvt_high_f32_f16(f)};
}
V vec v_of_dwords(dwords q) { return (vec){vreinterpretq_f32_u32(q.a), vreinterpretq_f32_u32(q.b)}; }
V vec v_of_ints(int32x4_t a, int32x4_t b) { return (vec){vcvtq_f32_s32(a), vcvtq_f32_s32(b)}; }
/* v_upper returns the floats in the upper 24 bits. */
V vec v_upper(dwords q) {
	const uint32x4_t low = vdupq_n_u32(0xff);
	return (vec){vreinterpretq_f32_u32(vbicq_u32(q.a, low)), vreinterpretq_f32_u32(vbicq_u32(q.b, low))};
}
V vec v_halves(const uint8_t *p) { return v_of_halves(vld1q_u16((const void *)p)); }
V vec v_bytes(const uint8_t *p) {
	int16x8_t w = vmovl_s8(vld1_s8((const void *)p));
	return v_of_ints(vmovl_s16(vget_low_s16(w)), vmovl_high_s16(w));
}
V dwords v_dwords(const uint8_t *p) { return (dwords){vld1q_u32((const void *)p), vld1q_u32((const void *)(p + 16))}; }
V vec v_even(dwords q) { return v_of_dwords((dwords){q.a << 16, q.b << 16}); }
V vec v_odd(dwords q) {
	const uint32x4_t high = vdupq_n_u32(0xffff0000);
	return v_of_dwords((dwords){q.a & high, q.b & high});
}

/* Fields of a dword, and the numbers that they mean. */
V dwords v_down(dwords q, int shift) { return (dwords){q.a >> shift, q.b >> shift}; }
V dwords v_field(dwords q, int shift, int mask) {
	const uint32x4_t m = vdupq_n_u32((uint32_t)mask);
	return (dwords){q.a >> shift & m, q.b >> shift & m};
}
V dwords v_join(dwords low, dwords high, int by) { return (dwords){low.a | high.a << by, low.b | high.b << by}; }
V vec v_number(dwords q, int zero) {
	const int32x4_t z = vdupq_n_s32(zero);
	return v_of_ints(vreinterpretq_s32_u32(q.a) - z, vreinterpretq_s32_u32(q.b) - z);
}

V nibble_table nibbles(int zero) { return vdupq_n_s32(zero); }
V vec v_nibble(dwords q, int j, const nibble_table *zero) {
	dwords n = v_field(q, nibble_at(j), 15);
	return v_of_ints(vreinterpretq_s32_u32(n.a) - *zero, vreinterpretq_s32_u32(n.b) - *zero);
}

/* The two upper bytes of the sixteen numbers, which have no others: the highest bytes first. */
V fp4_table fp4(void) {
	static const uint8_t bytes[32] = {
		0, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40, 0x80, 0xbf, 0xbf, 0xbf, 0xc0, 0xc0, 0xc0, 0xc0,
		0, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0, 0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0};
	return (fp4_table){{vld1q_u8(bytes), vld1q_u8(bytes + 16)}};
}
V uint32x4_t fp4_numbers(uint32x4_t n, const fp4_table *t) {
	uint32x4_t at = (n << 24 | n << 16) | vdupq_n_u32(0x0010ffff); /* an index beyond the table gives 0 */
	return vreinterpretq_u32_u8(vqtbl2q_u8(*t, vreinterpretq_u8_u32(at)));
}
V vec v_fp4(dwords q, int j, const fp4_table *t) {
	dwords n = v_field(q, nibble_at(j), 15);
	return v_of_dwords((dwords){fp4_numbers(n.a, t), fp4_numbers(n.b, t)});
}
V vec v_exponents(const uint8_t *p) {
	uint16x8_t w = vmovl_u8(vld1_u8(p));
	const uint32x4_t least = vdupq_n_u32(0x400000);
	return v_of_dwords((dwords){vmaxq_u32(vmovl_u16(vget_low_u16(w)) << 23, least), vmaxq_u32(vmovl_high_u16(w) << 23, least)});
}

/* Pairs of 8-bit floats: see float8_half. The shift copies the sign twice; the mask removes
 * one. */
V words v_words(const uint8_t *p) { return vld1q_u16((const void *)p); }
V words v_byte_words(const uint8_t *p) { return vmovl_u8(vld1_u8(p)); }
V vec v_second8(words q, const int e5m2) {
	uint16x8_t half = vreinterpretq_u16_s16(vreinterpretq_s16_u16(q) >> 1);
	return v_of_halves(e5m2 ? q & vdupq_n_u16(0xff00) : half & vdupq_n_u16(0xbf80));
}
V vec v_first8(words q, const int e5m2) {
	q = q << 8;
	return e5m2 ? v_of_halves(q) : v_second8(q, 0);
}

/* A table of sixteen whole numbers that fit a byte. */
typedef int8x16_t table16;
V table16 v_table(const float *t) {
	int8_t bytes[16];
	for (int i = 0; i < 16; i++) bytes[i] = (int8_t)t[i];
	return vld1q_s8(bytes);
}
V int32x4_t picked(uint32x4_t q, table16 t) {
	uint8x16_t at = vreinterpretq_u8_u32(q << 24 | vdupq_n_u32(0x00ffffff));
	return vreinterpretq_s32_s8(vqtbl1q_s8(t, at)) >> 24;
}
V vec v_pick(dwords q, table16 t) { return v_of_ints(picked(q.a, t), picked(q.b, t)); }

/* The same for sixteen eighths whose eightfold fits a byte. */
V table16 v_table_eighths(const float *t) {
	float whole[16];
	for (int i = 0; i < 16; i++) whole[i] = t[i] * 8;
	return v_table(whole);
}
V vec v_pick_eighths(dwords q, table16 t) { return (vec){vcvtq_n_f32_s32(picked(q.a, t), 3), vcvtq_n_f32_s32(picked(q.b, t), 3)}; }

#endif

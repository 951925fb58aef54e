/* vec_neon.h: the vectors of vec.h in NEON, which every processor of 64-bit ARM has. */
#ifndef VAPP_CPU_VEC_NEON_H
#define VAPP_CPU_VEC_NEON_H
#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define VAPP_NAME(f) VAPP_JOIN(vapp_, VAPP_JOIN(f, _neon))
#define VW 4
typedef float32x4_t vf;
#define vf_load(p) vld1q_f32(p)
#define vf_store(p, v) vst1q_f32(p, v)
#define vf_set(x) vdupq_n_f32(x)
#define vf_fma(a, b, c) vfmaq_f32(c, a, b)
/* b where a or b is a NaN, as on x86-64 */
static inline vf vf_max(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
static inline vf vf_min(vf a, vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
#define vf_any_gt(a, b) (vmaxvq_u32(vcgtq_f32(a, b)) != 0)
#define vf_count_ge(a, b) ((int)vaddvq_u32(vshrq_n_u32(vcgeq_f32(a, b), 31)))
static inline vf vf_bits(uint32x4_t u) { return vreinterpretq_f32_u32(u); }
static inline uint32x4_t vf_word(vf v) { return vreinterpretq_u32_f32(v); }
#define vf_keep_ge(x, a, b) vf_bits(vandq_u32(vf_word(x), vcgeq_f32(a, b)))
#define vf_drop_lt(x, a, b) vf_bits(vbicq_u32(vf_word(x), vcltq_f32(a, b)))
#define vf_round(x) vrndnq_f32(x)
static inline vf vf_scale2(vf x, vf n)
{
	return x * vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23));
}
static inline vf vf_halves(uint16x4_t h) { return vcvt_f32_f16(vreinterpret_f16_u16(h)); }
#define vf_half(p) vf_halves(vld1_u16(p))
#define vf_bfloat(p) vf_bits(vshll_n_u16(vld1_u16(p), 16))
static inline uint8x8_t vf_four(const uint8_t *p)
{
	uint32_t u;
	memcpy(&u, p, 4);
	return vreinterpret_u8_u32(vdup_n_u32(u));
}
static inline vf vf_e4m3(const uint8_t *p)
{
	int16x4_t wide = vget_low_s16(vmovl_s8(vreinterpret_s8_u8(vf_four(p))));
	uint16x4_t h = vand_u16(vreinterpret_u16_s16(vshl_n_s16(wide, 7)), vdup_n_u16(0xbfff)), top = vdup_n_u16(0x3f80);
	h = vorr_u16(h, vceq_u16(vand_u16(h, top), top)); /* NaN */
	return vf_halves(h) * vf_set(256);
}
static inline vf vf_e5m2(const uint8_t *p) { return vf_halves(vshl_n_u16(vget_low_u16(vmovl_u8(vf_four(p))), 8)); }
static inline float vf_sum(vf v)
{
	float32x2_t x = vadd_f32(vget_low_f32(v), vget_high_f32(v));
	return vget_lane_f32(x, 0) + vget_lane_f32(x, 1);
}
static inline float vf_top(vf v)
{
	v = vf_max(v, vextq_f32(v, v, 2));
	return vgetq_lane_f32(vf_max(v, vextq_f32(v, v, 1)), 0);
}
static inline void vf_add_doubles(double *acc, vf v)
{
	vst1q_f64(acc, vaddq_f64(vld1q_f64(acc), vcvt_f64_f32(vget_low_f32(v))));
	vst1q_f64(acc + 2, vaddq_f64(vld1q_f64(acc + 2), vcvt_high_f64_f32(v)));
}
static inline void vf_store_half(uint16_t *p, vf v) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v))); }
static inline vf vf_round_bfloat(vf v)
{
	uint32x4_t u = vf_word(v), odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
	uint32x4_t r = vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
	r = vbslq_u32(vceqq_f32(v, v), r, vorrq_u32(u, vdupq_n_u32(0x400000)));
	return vf_bits(vandq_u32(r, vdupq_n_u32(0xffff0000)));
}
static inline void vf_store_bfloat(uint16_t *p, vf v) { vst1_u16(p, vshrn_n_u32(vf_word(vf_round_bfloat(v)), 16)); }
static inline void vf_pairs(const float *p, vf *even, vf *odd)
{
	float32x4x2_t v = vld2q_f32(p);
	*even = v.val[0];
	*odd = v.val[1];
}

#endif

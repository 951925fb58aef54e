/* vec.h: vectors of VW floats, so that a kernel is written once for all instruction sets.
 * VAPP_VECTOR is the vector size in bits: 512 and 256 are AVX, 128 is NEON, 0 is portable C.
 *
 * Every sum over a vector is a fixed tree. vf_fma rounds once if the instruction set has a
 * fused multiply-add and twice otherwise. So within a variant equal operands give equal bits. */
#ifndef VAPP_CPU_VEC_H
#define VAPP_CPU_VEC_H
#include <math.h>
#include <stdint.h>
#include <string.h>
#if VAPP_VECTOR > 128
#include <immintrin.h>
#endif

#include "kernels.h"

#define VAPP_JOIN2(a, b) a##b
#define VAPP_JOIN(a, b) VAPP_JOIN2(a, b)

#if VAPP_VECTOR == 512
#define VAPP_NAME(f) VAPP_JOIN(vapp_, VAPP_JOIN(f, _avx512))
#define VW 16
typedef __m512 vf;
#define vf_load(p) _mm512_loadu_ps(p)
#define vf_store(p, v) _mm512_storeu_ps(p, v)
#define vf_set(x) _mm512_set1_ps(x)
#define vf_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define vf_max(a, b) _mm512_max_ps(a, b)
#define vf_min(a, b) _mm512_min_ps(a, b)
#define vf_any_gt(a, b) (_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0)
#define vf_count_ge(a, b) __builtin_popcount(_mm512_cmp_ps_mask(a, b, _CMP_GE_OQ))
/* x where a >= b, else 0 (also if a or b is a NaN) */
#define vf_keep_ge(x, a, b) _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_GE_OQ), x)
/* x unless a < b, then 0: a NaN gives x */
#define vf_drop_lt(x, a, b) _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ), x)
#define vf_round(x) _mm512_roundscale_ps(x, 8)
#define vf_scale2(x, n) _mm512_scalef_ps(x, n)
#define vf_half(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p)))
#define vf_bfloat(p) _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(p))), 16))
static inline vf vf_e4m3(const uint8_t *p)
{
	__m256i h = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)), 7);
	h = _mm256_and_si256(h, _mm256_set1_epi16((short)0xbfff));
	__m256i top = _mm256_and_si256(h, _mm256_set1_epi16(0x3f80));
	h = _mm256_or_si256(h, _mm256_cmpeq_epi16(top, _mm256_set1_epi16(0x3f80))); /* NaN */
	return _mm512_mul_ps(_mm512_cvtph_ps(h), _mm512_set1_ps(256));
}
#define vf_e5m2(p) _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(p))), 8))
static inline float vf_sum(vf v) { return _mm512_reduce_add_ps(v); }
static inline float vf_top(vf v) { return _mm512_reduce_max_ps(v); }
static inline void vf_add_doubles(double *acc, vf v)
{
	__m512d lo = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
	__m512d hi = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
	_mm512_storeu_pd(acc, _mm512_add_pd(_mm512_loadu_pd(acc), lo));
	_mm512_storeu_pd(acc + 8, _mm512_add_pd(_mm512_loadu_pd(acc + 8), hi));
}
static inline void vf_store_half(uint16_t *p, vf v)
{
	_mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline vf vf_round_bfloat(vf v)
{
	__m512i u = _mm512_castps_si512(v), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
	__m512i r = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
	r = _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), u, _mm512_set1_epi32(0x400000));
	return _mm512_castsi512_ps(_mm512_and_si512(r, _mm512_set1_epi32((int)0xffff0000)));
}
static inline void vf_store_bfloat(uint16_t *p, vf v)
{
	__m512i u = _mm512_srli_epi32(_mm512_castps_si512(vf_round_bfloat(v)), 16);
	_mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(u));
}
static inline void vf_pairs(const float *p, vf *even, vf *odd)
{
	const __m512i i = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
	vf a = vf_load(p), b = vf_load(p + 16);
	*even = _mm512_permutex2var_ps(a, i, b);
	*odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(i, _mm512_set1_epi32(1)), b);
}
#elif VAPP_VECTOR == 256
#define VAPP_NAME(f) VAPP_JOIN(vapp_, VAPP_JOIN(f, _avx2))
#define VW 8
typedef __m256 vf;
#define vf_load(p) _mm256_loadu_ps(p)
#define vf_store(p, v) _mm256_storeu_ps(p, v)
#define vf_set(x) _mm256_set1_ps(x)
#define vf_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define vf_max(a, b) _mm256_max_ps(a, b)
#define vf_min(a, b) _mm256_min_ps(a, b)
#define vf_any_gt(a, b) (_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)) != 0)
#define vf_count_ge(a, b) __builtin_popcount(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ)))
#define vf_keep_ge(x, a, b) _mm256_and_ps(x, _mm256_cmp_ps(a, b, _CMP_GE_OQ))
#define vf_drop_lt(x, a, b) _mm256_and_ps(x, _mm256_cmp_ps(a, b, _CMP_NLT_UQ))
#define vf_round(x) _mm256_round_ps(x, 8)
static inline vf vf_scale2(vf x, vf n)
{
	return x * _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
#define vf_half(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p)))
#define vf_bfloat(p) _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p))), 16))
/* The bits of an E4M3 are those of a half with 2⁻⁸ of its value; NaNs differ. */
static inline vf vf_e4m3(const uint8_t *p)
{
	__m128i h = _mm_slli_epi16(_mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)p)), 7);
	h = _mm_and_si128(h, _mm_set1_epi16((short)0xbfff));
	__m128i top = _mm_and_si128(h, _mm_set1_epi16(0x3f80));
	h = _mm_or_si128(h, _mm_cmpeq_epi16(top, _mm_set1_epi16(0x3f80))); /* NaN */
	return _mm256_mul_ps(_mm256_cvtph_ps(h), _mm256_set1_ps(256));
}
#define vf_e5m2(p) _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(p))), 8))
static inline float vf_sum(vf v)
{
	__m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
	x = _mm_add_ps(x, _mm_movehl_ps(x, x));
	return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}
static inline float vf_top(vf v)
{
	__m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
	x = _mm_max_ps(x, _mm_movehl_ps(x, x));
	return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
}
static inline void vf_add_doubles(double *acc, vf v)
{
	_mm256_storeu_pd(acc, _mm256_add_pd(_mm256_loadu_pd(acc), _mm256_cvtps_pd(_mm256_castps256_ps128(v))));
	_mm256_storeu_pd(acc + 4, _mm256_add_pd(_mm256_loadu_pd(acc + 4), _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1))));
}
static inline void vf_store_half(uint16_t *p, vf v)
{
	_mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline vf vf_round_bfloat(vf v)
{
	__m256i u = _mm256_castps_si256(v), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
	__m256i r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
	__m256i nan = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
	r = _mm256_blendv_epi8(r, nan, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
	return _mm256_castsi256_ps(_mm256_and_si256(r, _mm256_set1_epi32((int)0xffff0000)));
}
static inline void vf_store_bfloat(uint16_t *p, vf v)
{
	__m256i u = _mm256_srli_epi32(_mm256_castps_si256(vf_round_bfloat(v)), 16);
	_mm_storeu_si128((__m128i *)p, _mm_packus_epi32(_mm256_castsi256_si128(u), _mm256_extracti128_si256(u, 1)));
}
static inline void vf_pairs(const float *p, vf *even, vf *odd)
{
	vf a = vf_load(p), b = vf_load(p + 8);
	vf e = _mm256_shuffle_ps(a, b, 0x88), o = _mm256_shuffle_ps(a, b, 0xdd);
	*even = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(e), 0xd8));
	*odd = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(o), 0xd8));
}
#elif VAPP_VECTOR == 128
#include "vec_neon.h"
#else
#define VAPP_NAME(f) VAPP_JOIN(vapp_, VAPP_JOIN(f, _generic))
#define VW 4
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
static inline vf vf_load(const float *p)
{
	vf v;
	memcpy(&v, p, sizeof v);
	return v;
}
static inline void vf_store(float *p, vf v) { memcpy(p, &v, sizeof v); }
static inline vf vf_set(float x) { return (vf){x, x, x, x}; }
static inline vf vf_select(vi m, vf a, vf b) { return (vf)(((vi)a & m) | ((vi)b & ~m)); }
/* One rounding where the compiler has a fast fused multiply-add, two elsewhere. */
static inline vf vf_fma(vf a, vf b, vf c)
{
#ifdef __FP_FAST_FMAF
	return (vf){__builtin_fmaf(a[0], b[0], c[0]), __builtin_fmaf(a[1], b[1], c[1]),
		__builtin_fmaf(a[2], b[2], c[2]), __builtin_fmaf(a[3], b[3], c[3])};
#else
	return a * b + c;
#endif
}
static inline vf vf_max(vf a, vf b) { return vf_select(a > b, a, b); }
static inline vf vf_min(vf a, vf b) { return vf_select(a < b, a, b); }
static inline int vf_any_gt(vf a, vf b)
{
	vi m = a > b;
	return (m[0] | m[1] | m[2] | m[3]) != 0;
}
static inline int vf_count_ge(vf a, vf b)
{
	vi m = a >= b;
	return -(m[0] + m[1] + m[2] + m[3]);
}
static inline vf vf_keep_ge(vf x, vf a, vf b) { return (vf)((vi)x & (a >= b)); }
static inline vf vf_drop_lt(vf x, vf a, vf b) { return (vf)((vi)x & ~(a < b)); }
static inline vf vf_round(vf x)
{
	const vf magic = vf_set(12582912.0f); /* 1.5 · 2^23: for |x| < 2^22 */
	return (x + magic) - magic;
}
static inline vf vf_scale2(vf x, vf n) { return x * (vf)((__builtin_convertvector(n, vi) + 127) << 23); }
static inline vf vf_half(const uint16_t *p)
{
	return (vf){vapp_half_to_float(p[0]), vapp_half_to_float(p[1]), vapp_half_to_float(p[2]), vapp_half_to_float(p[3])};
}
static inline vf vf_bfloat(const uint16_t *p)
{
	return (vf){vapp_bfloat_to_float(p[0]), vapp_bfloat_to_float(p[1]), vapp_bfloat_to_float(p[2]), vapp_bfloat_to_float(p[3])};
}
static inline vf vf_e4m3(const uint8_t *p)
{
	return (vf){vapp_e4m3_to_float(p[0]), vapp_e4m3_to_float(p[1]), vapp_e4m3_to_float(p[2]), vapp_e4m3_to_float(p[3])};
}
static inline vf vf_e5m2(const uint8_t *p)
{
	return (vf){vapp_e5m2_to_float(p[0]), vapp_e5m2_to_float(p[1]), vapp_e5m2_to_float(p[2]), vapp_e5m2_to_float(p[3])};
}
static inline float vf_sum(vf v) { return (v[0] + v[2]) + (v[1] + v[3]); }
static inline float vf_top(vf v)
{
	float a = v[0] > v[1] ? v[0] : v[1], b = v[2] > v[3] ? v[2] : v[3];
	return a > b ? a : b;
}
static inline void vf_add_doubles(double *acc, vf v)
{
	for (int i = 0; i < VW; i++)
		acc[i] += (double)v[i];
}
static inline void vf_store_half(uint16_t *p, vf v)
{
	for (int i = 0; i < VW; i++)
		p[i] = vapp_float_to_half(v[i]);
}
static inline void vf_store_bfloat(uint16_t *p, vf v)
{
	for (int i = 0; i < VW; i++)
		p[i] = vapp_float_to_bfloat(v[i]);
}
static inline vf vf_round_bfloat(vf v)
{
	for (int i = 0; i < VW; i++)
		v[i] = vapp_bfloat_to_float(vapp_float_to_bfloat(v[i]));
	return v;
}
/* vf_pairs loads 2·VW floats and splits them: those at even and those at odd indices. */
static inline void vf_pairs(const float *p, vf *even, vf *odd)
{
	*even = (vf){p[0], p[2], p[4], p[6]};
	*odd = (vf){p[1], p[3], p[5], p[7]};
}
#endif

/* vf_apart keeps the compiler from fusing a product with the sum that follows. */
#if VAPP_VECTOR == 512
#define vf_apart(v) __asm__("" : "+v"(v))
#elif VAPP_VECTOR == 256
#define vf_apart(v) __asm__("" : "+x"(v))
#elif defined(__aarch64__)
#define vf_apart(v) __asm__("" : "+w"(v))
#else
#define vf_apart(v) (void)(v)
#endif

/* vf_exp returns e^x: Cody and Waite's reduction by ln 2 and a polynomial of degree 6; the
 * error is below 1.5 units in the last place. Below −87.3 the result is 0, above 88.3 it is
 * e^88.3; a NaN stays a NaN. */
static inline vf vf_exp(vf x)
{
	const vf low = vf_set(-87.3f);
	vf y = vf_max(low, vf_min(vf_set(88.3f), x));
	vf n = vf_round(y * vf_set(1.44269504088896341f));
	vf r = vf_fma(n, vf_set(-0.693359375f), y);
	r = vf_fma(n, vf_set(2.12194440e-4f), r);
	vf p = vf_set(1.9875691500e-4f);
	p = vf_fma(p, r, vf_set(1.3981999507e-3f));
	p = vf_fma(p, r, vf_set(8.3334519073e-3f));
	p = vf_fma(p, r, vf_set(4.1665795894e-2f));
	p = vf_fma(p, r, vf_set(1.6666665459e-1f));
	p = vf_fma(p, r, vf_set(5.0000001201e-1f));
	p = vf_fma(p, r * r, r) + vf_set(1.0f);
	return vf_drop_lt(vf_scale2(p, n), x, low);
}

/* vf_tanh is a polynomial below 0.625 (Cephes) and 1 − 2/(e^2x + 1) above. The error is below 3
 * units in the last place; a NaN stays a NaN. */
static inline vf vf_tanh(vf x)
{
	vf one = vf_set(1), s = x * x, size = vf_max(x, vf_set(0) - x);
	vf p = vf_set(-5.70498872745e-3f);
	p = vf_fma(p, s, vf_set(2.06390887954e-2f));
	p = vf_fma(p, s, vf_set(-5.37397155531e-2f));
	p = vf_fma(p, s, vf_set(1.33314422036e-1f));
	p = vf_fma(p, s, vf_set(-3.33332819422e-1f));
	vf low = vf_fma(p * s, x, x), high = one - vf_set(2) / (vf_exp(x + x) + one);
	return vf_keep_ge(low, vf_set(0.625f), size) + vf_drop_lt(high, size, vf_set(0.62500006f));
}

/* vf_widen loads VW elements stored as F32, F16, BF16 or an 8-bit float. */
static inline __attribute__((always_inline)) vf vf_widen(int32_t format, const uint8_t *p)
{
	switch (format) {
	case VAPP_F16:
		return vf_half((const uint16_t *)p);
	case VAPP_BF16:
		return vf_bfloat((const uint16_t *)p);
	case VAPP_F8_E4M3:
		return vf_e4m3(p);
	case VAPP_F8_E5M2:
		return vf_e5m2(p);
	}
	return vf_load((const float *)p);
}

/* vf_narrow stores n ≤ VW elements of v as F32, F16, BF16 or an 8-bit float. */
static inline void vf_narrow(int32_t format, uint8_t *p, vf v, int n)
{
	float f[VW];
	if (format == VAPP_F16 && n == VW) {
		vf_store_half((uint16_t *)p, v);
		return;
	}
	if (format == VAPP_BF16 && n == VW) {
		vf_store_bfloat((uint16_t *)p, v);
		return;
	}
	vf_store(f, v);
	if (format == VAPP_F8_E4M3 || format == VAPP_F8_E5M2) {
		uint8_t b[VW];
		for (int i = 0; i < VW; i++)
			b[i] = format == VAPP_F8_E4M3 ? vapp_float_to_e4m3(f[i]) : vapp_float_to_e5m2(f[i]);
		memcpy(p, b, (size_t)n);
	} else if (format == VAPP_F32)
		memcpy(p, f, (size_t)n * 4);
	else
		for (int i = 0; i < n; i++)
			((uint16_t *)p)[i] = format == VAPP_F16 ? vapp_float_to_half(f[i]) : vapp_float_to_bfloat(f[i]);
}

/* vf_head loads and vf_put stores n ≤ VW elements; vf_head sets the other elements of v to 0. */
static inline vf vf_head(const float *p, int64_t n)
{
	if (n >= VW)
		return vf_load(p);
	float f[VW] = {0};
	memcpy(f, p, (size_t)n * 4);
	return vf_load(f);
}
static inline void vf_put(float *p, vf v, int64_t n)
{
	if (n >= VW) {
		vf_store(p, v);
		return;
	}
	float f[VW];
	vf_store(f, v);
	memcpy(p, f, (size_t)n * 4);
}

#endif

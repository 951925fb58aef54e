#include "../shared/kernels.h"

static float bits(uint32_t u)
{
	union { uint32_t u; float f; } x = {u};
	return x.f;
}

static uint32_t word(float f)
{
	union { float f; uint32_t u; } x = {f};
	return x.u;
}

float vapp_half_to_float(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 0x1f, m = h & 0x3ff;
	if (e == 0x1f)
		return bits(sign | 0x7f800000 | m << 13);
	if (e)
		return bits(sign | (e + 112) << 23 | m << 13);
	return bits(sign | word((float)m * 0x1p-24f));
}

uint16_t vapp_float_to_half(float f)
{
	uint32_t b = word(f), m = b & 0x7fffff, shift = 13, v, rest, mid;
	uint16_t sign = (uint16_t)(b >> 16 & 0x8000);
	int32_t e = (int32_t)(b >> 23 & 0xff);
	if (e == 0xff)
		return (uint16_t)(sign | (m ? 0x7e00 | m >> 13 : 0x7c00));
	e -= 112;
	if (e >= 0x1f)
		return sign | 0x7c00;
	if (e < -10)
		return sign;
	if (e <= 0) {
		m |= 0x800000;
		shift = (uint32_t)(14 - e);
		e = 0;
	}
	v = (uint32_t)e << 10 | m >> shift;
	rest = m & ((UINT32_C(1) << shift) - 1);
	mid = UINT32_C(1) << (shift - 1);
	if (rest > mid || (rest == mid && (v & 1)))
		v++; /* a carry moves into the exponent and, from the largest number, to infinity */
	return (uint16_t)(sign | v);
}

uint16_t vapp_float_to_bfloat(float f)
{
	uint32_t b = word(f);
	if ((b & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(b >> 16 | 0x40);
	return (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

void vapp_round_bf16(const float *src, int64_t n, uint16_t *dst)
{
	for (int64_t i = 0; i < n; i++)
		dst[i] = vapp_float_to_bfloat(src[i]);
}

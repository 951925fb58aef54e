#include <math.h>
#include <string.h>

#include "../shared/kernels.h"
#include "../shared/quantize.h"

/* e4m3 rounds to the nearest, ties to even, and saturates at 448. */
static uint8_t e4m3(float x)
{
	uint32_t u;
	memcpy(&u, &x, 4);
	uint32_t sign = u >> 24 & 0x80, code;
	u &= 0x7fffffff;
	if (u < 0x3c800000) { /* below 2⁻⁶: a multiple of 2⁻⁹, which the addition rounds to */
		float small = fabsf(x) * 0x1p9f + 0x1p23f;
		memcpy(&u, &small, 4);
		code = u & 15;
	} else {
		u += 0x7ffff + (u >> 20 & 1);
		code = (u >> 20) - (120 << 3);
		code = code > 0x7e ? 0x7e : code;
	}
	return (uint8_t)(sign | code);
}

float vapp_quantize_e4m3(const float *x, int64_t n, uint8_t *dst)
{
	float largest = 0;
	for (int64_t i = 0; i < n; i++) {
		float a = fabsf(x[i]);
		largest = a <= largest ? largest : a; /* a NaN stays */
		if (a != a)
			return a;
	}
	float scale = largest / 448;
	if (isinf(largest))
		return largest;
	if (scale == 0)
		scale = 1;
	for (int64_t i = 0; i < n; i++)
		dst[i] = e4m3(x[i] / scale);
	return scale;
}

void vapp_round_f16(const float *src, int64_t n, uint16_t *dst)
{
	for (int64_t i = 0; i < n; i++)
		dst[i] = vapp_float_to_half(src[i]);
}

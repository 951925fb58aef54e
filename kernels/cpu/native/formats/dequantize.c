#include <math.h>
#include <string.h>

#include "../shared/grids.h"
#include "../shared/kernels.h"

/* The block layouts are those of GGUF, see kernels.Format and kernels/ref/quant.go. */

static float half_at(const uint8_t *p)
{
	uint16_t h;
	memcpy(&h, p, 2);
	return vapp_half_to_float(h);
}

static void q8_0(const uint8_t *s, float *y)
{
	float d = half_at(s);
	for (int i = 0; i < 32; i++)
		y[i] = (float)(int8_t)s[2 + i] * d;
}

static void q4_0(const uint8_t *s, float *y)
{
	float d = half_at(s);
	for (int i = 0; i < 16; i++) {
		y[i] = (float)((s[2 + i] & 15) - 8) * d;
		y[i + 16] = (float)((s[2 + i] >> 4) - 8) * d;
	}
}

static void q4_1(const uint8_t *s, float *y)
{
	float d = half_at(s), m = half_at(s + 2);
	for (int i = 0; i < 16; i++) {
		volatile float lo = (float)(s[4 + i] & 15) * d, hi = (float)(s[4 + i] >> 4) * d;
		y[i] = lo + m;
		y[i + 16] = hi + m;
	}
}

static void i4(const uint8_t *s, float *y)
{
	uint32_t head;
	float d, m;
	memcpy(&head, s, 4);
	m = (float)(head & 0xff);
	head &= ~0xffu;
	memcpy(&d, &head, 4);
	m *= d;
	for (int i = 0; i < 16; i++) {
		y[i] = (float)(s[4 + i] & 15) * d - m; /* exact */
		y[i + 16] = (float)(s[4 + i] >> 4) * d - m;
	}
}

static void q4_k(const uint8_t *s, float *y)
{
	float d = half_at(s), dmin = half_at(s + 2);
	const uint8_t *pk = s + 4, *q = s + 16;
	for (int j = 0; j < 8; j++) {
		int sc = j < 4 ? pk[j] & 63 : (pk[j + 4] & 15) | pk[j - 4] >> 6 << 4;
		int mn = j < 4 ? pk[j + 4] & 63 : pk[j + 4] >> 4 | pk[j] >> 6 << 4;
		float scale = d * (float)sc, min = dmin * (float)mn;
		for (int i = 0; i < 32; i++) {
			volatile float v = scale * (float)(q[j / 2 * 32 + i] >> (j % 2 * 4) & 15);
			y[j * 32 + i] = v - min;
		}
	}
}

static void q6_k(const uint8_t *s, float *y)
{
	float d = half_at(s + 208);
	for (int h = 0; h < 2; h++) {
		const uint8_t *ql = s + 64 * h, *qh = s + 128 + 32 * h, *sc = s + 192 + 8 * h;
		for (int k = 0; k < 4; k++)
			for (int i = 0; i < 32; i++) {
				int low = ql[k % 2 * 32 + i] >> (k / 2 * 4) & 15, high = qh[i] >> (2 * k) & 3;
				y[128 * h + 32 * k + i] = d * (float)(int8_t)sc[k * 2 + i / 16] * (float)((low | high << 4) - 32);
			}
	}
}

static void q5_0(const uint8_t *s, float *y)
{
	float d = half_at(s);
	uint32_t h;
	memcpy(&h, s + 2, 4);
	for (int i = 0; i < 16; i++) {
		y[i] = (float)((int)((s[6 + i] & 15) | (h >> i & 1) << 4) - 16) * d;
		y[i + 16] = (float)((int)(s[6 + i] >> 4 | (h >> (i + 16) & 1) << 4) - 16) * d;
	}
}

static void q5_1(const uint8_t *s, float *y)
{
	float d = half_at(s), m = half_at(s + 2);
	uint32_t h;
	memcpy(&h, s + 4, 4);
	for (int i = 0; i < 16; i++) {
		volatile float lo = (float)((s[8 + i] & 15) | (h >> i & 1) << 4) * d;
		volatile float hi = (float)(s[8 + i] >> 4 | (h >> (i + 16) & 1) << 4) * d;
		y[i] = lo + m;
		y[i + 16] = hi + m;
	}
}

static void q2_k(const uint8_t *s, float *y)
{
	float d = half_at(s + 80), dmin = half_at(s + 82);
	for (int j = 0; j < 16; j++) {
		float scale = d * (float)(s[j] & 15), min = dmin * (float)(s[j] >> 4);
		for (int i = 0; i < 16; i++) {
			volatile float v = scale * (float)(s[16 + j / 8 * 32 + j % 2 * 16 + i] >> (j % 8 / 2 * 2) & 3);
			y[16 * j + i] = v - min;
		}
	}
}

static void q3_k(const uint8_t *s, float *y)
{
	float d = half_at(s + 108);
	const uint8_t *sc = s + 96;
	for (int j = 0; j < 16; j++) {
		int low = sc[j % 8] >> (j / 8 * 4) & 15, high = sc[8 + j % 4] >> (j / 4 * 2) & 3;
		float scale = d * (float)((low | high << 4) - 32);
		for (int i = 0; i < 16; i++) {
			int at = j % 2 * 16 + i;
			int q = (s[32 + j / 8 * 32 + at] >> (j % 8 / 2 * 2) & 3) | (s[at] >> (j / 2) & 1) << 2;
			y[16 * j + i] = scale * (float)(q - 4);
		}
	}
}

static void q5_k(const uint8_t *s, float *y)
{
	float d = half_at(s), dmin = half_at(s + 2);
	const uint8_t *pk = s + 4, *h = s + 16, *q = s + 48;
	for (int j = 0; j < 8; j++) {
		int sc = j < 4 ? pk[j] & 63 : (pk[j + 4] & 15) | pk[j - 4] >> 6 << 4;
		int mn = j < 4 ? pk[j + 4] & 63 : pk[j + 4] >> 4 | pk[j] >> 6 << 4;
		float scale = d * (float)sc, min = dmin * (float)mn;
		for (int i = 0; i < 32; i++) {
			volatile float v = scale * (float)((q[j / 2 * 32 + i] >> (j % 2 * 4) & 15) | (h[i] >> j & 1) << 4);
			y[j * 32 + i] = v - min;
		}
	}
}

static const float iq4_table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void iq4_nl(const uint8_t *s, float *y)
{
	float d = half_at(s);
	for (int i = 0; i < 16; i++) {
		y[i] = d * iq4_table[s[2 + i] & 15];
		y[i + 16] = d * iq4_table[s[2 + i] >> 4];
	}
}

static void iq4_xs(const uint8_t *s, float *y)
{
	float d = half_at(s);
	for (int j = 0; j < 8; j++, y += 32) {
		int scale = (s[4 + j / 2] >> (j % 2 * 4) & 15) | (s[2 + j / 4] >> (j % 4 * 2) & 3) << 4;
		float dl = d * (float)(scale - 32);
		for (int i = 0; i < 16; i++) {
			y[i] = dl * iq4_table[s[8 + 16 * j + i] & 15];
			y[i + 16] = dl * iq4_table[s[8 + 16 * j + i] >> 4];
		}
	}
}

/* The formats with grids: an entry has indices of magnitudes, see grids.h. */

static uint16_t word_at(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static uint32_t dword_at(const uint8_t *p) { return word_at(p) | (uint32_t)word_at(p + 2) << 16; }

/* signs_of_7 returns eight signs of which seven are stored: an even number is negative. */
static int signs_of_7(uint32_t x) { return (int)((x & 127) | (uint32_t)__builtin_parity(x & 127) << 7); }

/* pairs writes eight numbers, the magnitudes 8, 25 and 43 times d. */
static void pairs(uint16_t entry, int signs, float d, float *y)
{
	static const float magnitudes[4] = {8, 25, 43};
	for (int i = 0; i < 8; i++)
		y[i] = (signs >> i & 1 ? -d : d) * magnitudes[entry >> (2 * i) & 3];
}

static float quarter(float d, int scale) { return d * (0.5f + (float)(scale & 15)) * 0.25f; }

static void iq2_xxs(const uint8_t *s, float *y)
{
	for (int j = 0; j < 8; j++) {
		uint32_t more = dword_at(s + 6 + 8 * j);
		for (int i = 0; i < 4; i++)
			pairs(vapp_grid_iq2_xxs[s[2 + 8 * j + i]], signs_of_7(more >> (7 * i)), quarter(half_at(s), (int)(more >> 28)), y + 32 * j + 8 * i);
	}
}

static void iq2_xs(const uint8_t *s, float *y)
{
	for (int i = 0; i < 32; i++) {
		uint32_t q = word_at(s + 2 + 2 * i);
		pairs(vapp_grid_iq2_xs[q & 511], signs_of_7(q >> 9), quarter(half_at(s), s[66 + i / 4] >> (i / 2 % 2 * 4)), y + 8 * i);
	}
}

static void iq2_s(const uint8_t *s, float *y)
{
	for (int i = 0; i < 32; i++) {
		int q = s[2 + i] | (s[66 + i / 4] >> (i % 4 * 2) & 3) << 8;
		pairs(vapp_grid_iq2_s[q], s[34 + i], quarter(half_at(s), s[74 + i / 4] >> (i / 2 % 2 * 4)), y + 8 * i);
	}
}

/* nibbles writes four numbers, magnitudes[index] times d. */
static void nibbles(uint16_t entry, int signs, float d, const float *magnitudes, float *y)
{
	for (int i = 0; i < 4; i++)
		y[i] = (signs >> i & 1 ? -d : d) * magnitudes[entry >> (4 * i) & 7];
}

static void iq3_xxs(const uint8_t *s, float *y)
{
	static const float magnitudes[8] = {4, 12, 20, 28, 36, 44, 52, 62};
	for (int i = 0; i < 64; i++) {
		uint32_t more = dword_at(s + 66 + i / 8 * 4);
		float d = half_at(s) * (0.5f + (float)(more >> 28)) * 0.5f;
		nibbles(vapp_grid_iq3_xxs[s[2 + i]], signs_of_7(more >> (i % 8 / 2 * 7)) >> (i % 2 * 4), d, magnitudes, y + 4 * i);
	}
}

static void iq3_s(const uint8_t *s, float *y)
{
	static const float magnitudes[8] = {1, 3, 5, 7, 9, 11, 13, 15};
	for (int i = 0; i < 64; i++) {
		float d = half_at(s) * (float)(1 + 2 * (s[106 + i / 16] >> (i / 8 % 2 * 4) & 15));
		nibbles(vapp_grid_iq3_s[s[2 + i] | (s[66 + i / 8] >> i % 8 & 1) << 8], s[74 + i / 2] >> (i % 2 * 4), d, magnitudes, y + 4 * i);
	}
}

/* shifted writes eight numbers of −1 to 1 plus or minus 1/8, times d. */
static void shifted(int entry, int minus, float d, float *y)
{
	for (int i = 0; i < 8; i++)
		y[i] = d * ((float)((vapp_grid_iq1_s[entry] >> (2 * i) & 3) - 1) + (minus ? -0.125f : 0.125f));
}

static void iq1_s(const uint8_t *s, float *y)
{
	for (int i = 0; i < 32; i++) {
		int high = word_at(s + 34 + i / 4 * 2);
		shifted(s[2 + i] | (high >> (i % 4 * 3) & 7) << 8, high >> 15, half_at(s) * (float)(2 * (high >> 12 & 7) + 1), y + 8 * i);
	}
}

static void iq1_m(const uint8_t *s, float *y)
{
	uint16_t half = (uint16_t)(s[49] >> 4 | (s[51] & 0xf0) | (s[53] & 0xf0) << 4 | (s[55] & 0xf0) << 8);
	float d = vapp_half_to_float(half);
	for (int i = 0; i < 32; i++) {
		int high = s[32 + i / 2] >> (i % 2 * 4), scale = word_at(s + 48 + i / 8 * 2) >> (i / 2 % 4 * 3) & 7;
		shifted(s[i] | (high & 7) << 8, high >> 3 & 1, d * (float)(2 * scale + 1), y + 8 * i);
	}
}

/* digits writes the first n ternary digits of some bytes side by side. */
static float *digits(const uint8_t *s, int bytes, int n, float d, float *y)
{
	for (int digit = 0, power = 1; digit < n; digit++, power *= 3, y += bytes)
		for (int i = 0; i < bytes; i++)
			y[i] = d * (float)(((s[i] * power & 255) * 3 >> 8) - 1);
	return y;
}

static void tq1_0(const uint8_t *s, float *y)
{
	float d = half_at(s + 52);
	y = digits(s, 32, 5, d, y);
	y = digits(s + 32, 16, 5, d, y);
	digits(s + 48, 4, 4, d, y);
}

static void tq2_0(const uint8_t *s, float *y)
{
	float d = half_at(s + 64);
	for (int i = 0; i < 256; i++)
		y[i] = d * (float)((s[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) - 1);
}

static float half_of(uint16_t h, float unit) { return vapp_half_to_float(h) * unit; }

/* The bits of an 8-bit float are those of a half; for E4M3 the half's value is 2⁻⁸ of it. */
static void f8_e4m3(const uint8_t *s, float *y)
{
	uint16_t sign = (uint16_t)((*s & 0x80) << 8), rest = *s & 0x7f;
	*y = rest == 0x7f ? half_of(sign | 0x7e00, 1) : half_of((uint16_t)(sign | rest << 7), 0x1p8f);
}

static void i8(const uint8_t *s, float *y) { *y = (float)(int8_t)*s; }

static void f8_e5m2(const uint8_t *s, float *y) { *y = half_of((uint16_t)(*s << 8), 1); }

/* e2m1 unpacks n bytes of two 4-bit floats, the first in the low half. */
static void e2m1(const uint8_t *s, int n, float scale, float *y)
{
	static const float q[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
	for (int i = 0; i < n; i++) {
		y[2 * i] = scale * q[s[i] & 15];
		y[2 * i + 1] = scale * q[s[i] >> 4];
	}
}

static void mxfp4(const uint8_t *s, float *y) { e2m1(s, 16, s[16] == 255 ? NAN : ldexpf(1, s[16] - 127), y); }

static void nvfp4(const uint8_t *s, float *y)
{
	float scale;
	f8_e4m3(s + 8, &scale);
	e2m1(s, 8, scale, y);
}

static void blocks(void (*f)(const uint8_t *, float *), const uint8_t *s, int64_t n, int bytes, int elems, float *y)
{
	for (int64_t i = 0; i < n / elems; i++)
		f(s + i * bytes, y + i * elems);
}

void vapp_dequantize(int32_t format, const void *src, int64_t n, float *dst)
{
	const uint16_t *h = src;
	switch (format) {
	case VAPP_F32:
		memcpy(dst, src, (size_t)n * 4);
		return;
	case VAPP_F16:
		for (int64_t i = 0; i < n; i++)
			dst[i] = vapp_half_to_float(h[i]);
		return;
	case VAPP_BF16:
		for (int64_t i = 0; i < n; i++)
			dst[i] = vapp_bfloat_to_float(h[i]);
		return;
	case VAPP_Q8_0:
		blocks(q8_0, src, n, 34, 32, dst);
		return;
	case VAPP_Q4_0:
		blocks(q4_0, src, n, 18, 32, dst);
		return;
	case VAPP_Q4_1:
		blocks(q4_1, src, n, 20, 32, dst);
		return;
	case VAPP_I4:
		blocks(i4, src, n, 20, 32, dst);
		return;
	case VAPP_Q4_K:
		blocks(q4_k, src, n, 144, 256, dst);
		return;
	case VAPP_Q6_K:
		blocks(q6_k, src, n, 210, 256, dst);
		return;
	case VAPP_Q5_0:
		blocks(q5_0, src, n, 22, 32, dst);
		return;
	case VAPP_Q5_1:
		blocks(q5_1, src, n, 24, 32, dst);
		return;
	case VAPP_Q2_K:
		blocks(q2_k, src, n, 84, 256, dst);
		return;
	case VAPP_Q3_K:
		blocks(q3_k, src, n, 110, 256, dst);
		return;
	case VAPP_Q5_K:
		blocks(q5_k, src, n, 176, 256, dst);
		return;
	case VAPP_IQ4_NL:
		blocks(iq4_nl, src, n, 18, 32, dst);
		return;
	case VAPP_IQ4_XS:
		blocks(iq4_xs, src, n, 136, 256, dst);
		return;
	case VAPP_IQ3_XXS:
		blocks(iq3_xxs, src, n, 98, 256, dst);
		return;
	case VAPP_IQ3_S:
		blocks(iq3_s, src, n, 110, 256, dst);
		return;
	case VAPP_IQ2_XXS:
		blocks(iq2_xxs, src, n, 66, 256, dst);
		return;
	case VAPP_IQ2_XS:
		blocks(iq2_xs, src, n, 74, 256, dst);
		return;
	case VAPP_IQ2_S:
		blocks(iq2_s, src, n, 82, 256, dst);
		return;
	case VAPP_IQ1_S:
		blocks(iq1_s, src, n, 50, 256, dst);
		return;
	case VAPP_IQ1_M:
		blocks(iq1_m, src, n, 56, 256, dst);
		return;
	case VAPP_TQ1_0:
		blocks(tq1_0, src, n, 54, 256, dst);
		return;
	case VAPP_TQ2_0:
		blocks(tq2_0, src, n, 66, 256, dst);
		return;
	case VAPP_I8:
		blocks(i8, src, n, 1, 1, dst);
		return;
	case VAPP_F8_E4M3:
		blocks(f8_e4m3, src, n, 1, 1, dst);
		return;
	case VAPP_F8_E5M2:
		blocks(f8_e5m2, src, n, 1, 1, dst);
		return;
	case VAPP_MXFP4:
		blocks(mxfp4, src, n, 17, 32, dst);
		return;
	case VAPP_NVFP4:
		blocks(nvfp4, src, n, 9, 16, dst);
		return;
	}
}

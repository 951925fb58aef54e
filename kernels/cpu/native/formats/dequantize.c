#include <math.h>
#include <string.h>

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

static void iq4_nl(const uint8_t *s, float *y)
{
	static const float table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
	float d = half_at(s);
	for (int i = 0; i < 16; i++) {
		y[i] = d * table[s[2 + i] & 15];
		y[i + 16] = d * table[s[2 + i] >> 4];
	}
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

static void mxfp4(const uint8_t *s, float *y)
{
	static const float q[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
	float scale = s[16] == 255 ? NAN : ldexpf(1, s[16] - 127);
	for (int i = 0; i < 16; i++) {
		y[2 * i] = scale * q[s[i] & 15];
		y[2 * i + 1] = scale * q[s[i] >> 4];
	}
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
	}
}

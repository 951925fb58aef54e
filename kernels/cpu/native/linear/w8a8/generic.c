/* generic.c: the kernel of w8a8.h in portable C, and the table of its kernels. */
#include "amx.h"
#include "w8a8.h"

#define W8_TILE 4
#include "body.h"

static void w8_quantize(const float *x, int64_t in, int8_t *to) {
	int32_t most = 0, sum = 0;
	for (int64_t k = 0; k < in; k++) {
		int32_t bits = int8_bits(x[k]) & 0x7fffffff;
		most = bits > most ? bits : most;
	}
	float by, scale = w8_scale(most, &by);
	for (int64_t k = 0; k < in; k++) {
		to[k] = most < INT8_INFINITY ? (int8_t)__builtin_rintf(x[k] * by) : 0;
		sum += to[k];
	}
	w8_end(to, in, scale, sum);
}

static void w8_tile(const w8_part *p, int rows) {
	for (int r = 0; r < rows; r++) {
		const int8_t *x = p->x + r * p->stride;
		uint32_t sums[PANEL] = {0}; /* may wrap; the difference below is exact */
		for (int64_t k = 0; k < p->n; k += 4)
			for (int lane = 0; lane < PANEL; lane++) {
				const uint8_t *w = p->w + k * PANEL + lane * 4;
				for (int j = 0; j < 4; j++) sums[lane] += (uint32_t)((int32_t)w[j] * x[k + j]);
			}
		for (int64_t lane = 0; lane < PANEL && lane < p->lanes; lane++) {
			float sum = (float)(int32_t)(sums[lane] - (uint32_t)p->tails[r].more);
			p->y[r * p->ldy + lane] = __builtin_fmaf(sum, p->tails[r].scale * p->scales[lane], p->bias ? p->bias[lane] : 0);
		}
	}
}

void vapp_linear_row_w8a8(const void *w, int32_t format, int32_t in, int32_t out, int32_t r, float *dst) {
	(void)format, (void)out;
	const uint8_t *p = (const uint8_t *)w + r / PANEL * w8_panel_bytes(in);
	float scale = load_float(p + w8_k(in) * PANEL + r % PANEL * 4);
	for (int64_t k = 0; k < in; k++) dst[k] = (float)(p[k / 4 * 128 + r % PANEL * 4 + k % 4] - 128) * scale;
}

const vapp_linear_kernel *vapp_linear_w8a8(int variant, int format) {
	if (format % VAPP_SCALES != VAPP_I8) return NULL;
	switch (variant) {
	case VAPP_GENERIC: return &kernel;
#if defined(__x86_64__)
	case VAPP_AVX2: return vapp_linear_w8a8_avx2();
	case VAPP_AVX512:
	case VAPP_AVX512_BF16: return vapp_linear_w8a8_avx512();
	case VAPP_AMX: return __builtin_cpu_supports("avx512vnni") ? vapp_linear_w8a8_amx() : vapp_linear_w8a8_avx512();
#if !defined(VAPP_NO_SOFT_TILES)
	case VAPP_AMX_SOFT: return vapp_linear_w8a8_amx_soft();
#endif
#elif defined(__aarch64__)
	case VAPP_NEON: return vapp_linear_w8a8_neon();
	case VAPP_DOTPROD: return vapp_linear_w8a8_dotprod();
	case VAPP_I8MM: return vapp_linear_w8a8_i8mm();
#endif
	}
	return NULL;
}

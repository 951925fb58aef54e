/* w8a8.h: Linear of int8 weights on int8 activations, each with its own scales.
 *
 * A row of x is rounded to the nearest multiple of max |x| / 127, ties to even. The products of
 * the integers are summed exactly in 32 bits, in any order; then
 *
 *   y = fma(sum, dx·d, bias)       d is the output's scale, dx the row's
 *
 * So all instruction sets give the same bits, alone and in a batch. A row that has a NaN or an
 * infinity gets the scale NaN.
 *
 * A panel is [k/4][32][4] codes + 128, k padded to a multiple of 64 with code 0, then [32]
 * float scales. Each row of x, in shared or in work, has w8_row_bytes: codes up to a multiple
 * of 64, then the scale and 128·Σ codes. */
#ifndef VAPP_CPU_LINEAR_W8A8_H
#define VAPP_CPU_LINEAR_W8A8_H
#include <stdint.h>
#include <string.h>

#include "../../shared/inline.h"
#include "../../shared/linear.h"
#include "../int8/int8.h"
#include "../panel.h"

enum {
	W8_K = 64,       /* k is padded to a multiple of it */
	W8_TAIL = 64,    /* bytes after the codes of a row of x; they also spread rows over the cache sets */
	W8_MOST = 1 << 17 /* with so many inputs sums fit 32 bits: 2¹⁷·128·127 < 2³¹ */
};

INLINE int64_t w8_k(int64_t in) { return (in + W8_K - 1) / W8_K * W8_K; }
INLINE int64_t w8_row_bytes(int64_t in) { return w8_k(in) + W8_TAIL; }
INLINE int64_t w8_panel_bytes(int64_t in) { return w8_k(in) * PANEL + PANEL * 4; }

/* What follows the codes of a row of x. */
typedef struct {
	float scale;
	int32_t more; /* excess of the sum with codes + 128: subtract it */
} w8_tail;

INLINE w8_tail w8_tail_of(const int8_t *x, int64_t in) {
	w8_tail t;
	memcpy(&t, x + w8_k(in), sizeof t);
	return t;
}

/* w8_scale returns a row's scale, from the bits of max |x|, and sets *by to the factor for x. */
INLINE float w8_scale(int32_t most, float *by) {
	float largest;
	memcpy(&largest, &most, 4);
	*by = 0;
	if (most >= INT8_INFINITY) return __builtin_nanf("");
	if (most < INT8_LEAST) return 0;
	*by = 127 / largest;
	return largest / 127;
}

/* w8_end writes the tail of a row of `in` codes whose sum is sum. */
INLINE void w8_end(int8_t *to, int64_t in, float scale, int32_t sum) {
	w8_tail t = {scale, 128 * sum};
	memset(to + in, 0, w8_k(in) - in);
	memcpy(to + w8_k(in), &t, sizeof t);
}

/* vapp_linear_w8a8 returns the kernel of a variant (VAPP_GENERIC …), or NULL. */
const vapp_linear_kernel *vapp_linear_w8a8(int variant, int format);

const vapp_linear_kernel *vapp_linear_w8a8_avx2(void);
const vapp_linear_kernel *vapp_linear_w8a8_avx512(void);
const vapp_linear_kernel *vapp_linear_w8a8_neon(void);
const vapp_linear_kernel *vapp_linear_w8a8_dotprod(void);
const vapp_linear_kernel *vapp_linear_w8a8_i8mm(void);

/* vapp_linear_row_w8a8 unpacks one row; all variants use it. */
void vapp_linear_row_w8a8(const void *w, int32_t format, int32_t in, int32_t out, int32_t r, float *dst);

#endif
